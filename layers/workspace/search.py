"""What lies in a folder below a directory, found by descriptors and without following a link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

from .pinned import Pinned

__all__ = ["Entry", "walk"]


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """Something that was found. `is_empty` is said of directories that were entered; the others may hold something."""

    path: str
    is_directory: bool
    is_empty: bool = False


def walk(root: Pinned, base: str, enters: Callable[[str], bool]) -> Iterator[Entry]:
    """All that lies below `base`, in no order; a directory is entered if `enters` says so of its path.

    Nothing is found where `base` is no directory, or gone. An OSError with ELOOP: a link leads to it, or it is one.
    What appears or goes meanwhile may be found or not.
    """
    waiting = [base]
    while waiting:
        directory = waiting.pop()
        try:
            with root.directory(directory, listed=True) as descriptor:
                entries = root.calls.entries(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if directory != base:
            yield Entry(directory, is_directory=True, is_empty=not entries)
        for name, is_directory in entries:
            path = f"{directory}/{name}" if directory else name
            if is_directory and enters(path):
                waiting.append(path)
            else:
                yield Entry(path, is_directory)
