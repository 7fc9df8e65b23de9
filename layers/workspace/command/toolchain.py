"""Which parts of the host a program needs in order to be executed: those beside it, and no more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

__all__ = ["ALWAYS", "DEFAULT_PATH", "closure"]

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

ALWAYS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Where a system keeps its programs and libraries; those that it has are always shown."""

PARTS: Final = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg")
"""What belongs to an installation below its prefix. Other things in the same folder may be somebody's own."""


def closure(argv: Sequence[str], env: Mapping[str, str], hidden: Sequence[str] = ()) -> tuple[str, ...]:
    """The absolute places that the program of `argv` needs besides those of the system, sorted.

    A program in the workspace, or one that is not found, needs none. What is `hidden` does not belong to the system,
    wherever it lies, and is no installation, whatever folders it has.
    """
    found = _program(argv[0], env.get("PATH", DEFAULT_PATH))
    return tuple(sorted(set(_needed(found, hidden)))) if found is not None else ()


def _program(name: str, path: str) -> str | None:
    if "/" in name:
        return name if name.startswith("/") and os.path.exists(name) else None
    return shutil.which(name, path=path)


def _needed(program: str, hidden: Sequence[str]) -> Iterator[str]:
    """The installations of a program and of what it is a link to; a virtual environment stands on another one."""
    for file in (program, os.path.realpath(program)):
        if _is_of_system(file) and not _lies_in(file, hidden):
            continue
        prefix = os.path.dirname(os.path.dirname(file))
        parts = [f"{prefix}/{part}" for part in PARTS if os.path.exists(f"{prefix}/{part}")]
        in_bin = os.path.basename(os.path.dirname(file)) in {"bin", "sbin"}
        if in_bin and f"{prefix}/lib" in parts and prefix != "/" and not _are_any([prefix, *parts], hidden):
            yield from parts
            python = f"{prefix}/bin/python"
            if os.path.exists(f"{prefix}/pyvenv.cfg") and os.path.realpath(python) != os.path.realpath(program):
                yield from _needed(os.path.realpath(python), hidden)
        else:
            yield file


def _is_of_system(file: str) -> bool:
    return _lies_in(file, ALWAYS)


def _are_any(places: Sequence[str], hidden: Sequence[str]) -> bool:
    return not {os.path.realpath(place) for place in places}.isdisjoint(map(os.path.realpath, hidden))


def _lies_in(file: str, places: Sequence[str]) -> bool:
    return any(file.startswith(f"{place}/") for place in places)
