"""How much one execution in a sandbox may read, produce and use.

Beyond any of them it is `LimitExceeded`, whose `what` is the name of the field, and the host is as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, final

from .model import check_whole

__all__ = ["LIMITS", "WorkspaceLimits"]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@final
@dataclass(frozen=True, slots=True)
class WorkspaceLimits:
    """The limits of a sandbox. A number that is no whole one raises TypeError, a negative one ValueError."""

    seeded_files: int = 100_000
    seeded_bytes: int = 4 * _GIB
    file_bytes: int = 2 * _GIB
    """The size of one file, seeded or produced, by what its metadata says: holes count."""
    nodes: int = 50_000
    """Files, links and directories that the body may leave behind."""
    produced_bytes: int = 4 * _GIB
    path_bytes: int = 1_024
    """The longest path, in bytes of UTF-8: below what system calls take, so that programs can use it."""
    path_depth: int = 64
    """The most parts of a path."""
    name_bytes: int = 255
    """The longest part of a path, in bytes of UTF-8: what file systems take."""
    memory_bytes: int = 64 * _MIB
    """What a workspace keeps in memory before it goes on in a file. Going beyond is no failure."""
    inline_bytes: int = _MIB
    """The largest output that is kept in a result; a larger one becomes an artifact, which is no failure either."""
    inline_total: int = 8 * _MIB
    """What all outputs that are kept in one result may have together, in bytes."""
    trace: int = 1_000_000
    """Looks that are kept one by one. Beyond, the evidence is partial; the execution goes on."""
    output_bytes: int = 16 * _MIB
    """What is kept of a command's stdout, and of its stderr; the rest is cut off, with a mark."""
    processes: int = 512
    wall: int = 60 * 60 * 1_000
    """The longest execution, in milliseconds."""
    memory: int = 4 * _GIB
    """The memory of all processes of a command together, in bytes."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_whole(f"the limit {field.name}", getattr(self, field.name), 0)


LIMITS: Final = WorkspaceLimits()
"""The limits unless others are given."""
