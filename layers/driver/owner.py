"""Who this process is among those that share a ledger, and whether another one is provably dead.

An owner's name says where its process lives (machine, boot, process namespace), which process it is (number and start
time) and which engine in it. A name from the same place whose process is gone, or whose number now belongs to a process
that started at another time, is dead beyond doubt, and its runs need not wait for the end of their lease. Of all others
nothing can be proved: their leases decide.
"""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

__all__ = ["is_provably_dead", "name_owner"]

_PROC = Path("/proc")


def name_owner(nonce: str) -> str:
    """The name of an engine in this process; `nonce` tells it from others in the same process."""
    found = _stat(os.getpid())
    return "/".join((*_place(), str(os.getpid()), "-" if found is None else found[1], nonce))


def is_provably_dead(owner: str) -> bool:
    """Whether the process of an owner is known to have ended. False where nothing is known."""
    parts = owner.split("/")
    if len(parts) != len(_place()) + 3 or tuple(parts[:-3]) != _place() or not parts[-3].isdecimal():
        return False
    number, started = int(parts[-3]), parts[-2]
    found = _stat(number)
    if found is None:  # nothing to read: it is gone, it is hidden from us, or this system has no such files
        return not _is_there(number)
    state, ticks = found
    return state in "ZX" or (started != "-" and ticks != started)


@lru_cache(maxsize=1)
def _place() -> tuple[str, str, str]:
    return (socket.gethostname().replace("/", "_"), _read(_PROC / "sys/kernel/random/boot_id"), _namespace())


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "-"


def _namespace() -> str:
    try:
        return Path(os.readlink(_PROC / "self/ns/pid")).name
    except OSError:
        return "-"


def _stat(number: int) -> tuple[str, str] | None:
    """A process's state, and when it started, in ticks since boot; None if neither can be read."""
    try:
        fields = (_PROC / str(number) / "stat").read_bytes().rpartition(b") ")[2].decode().split()
    except OSError:
        return None
    return fields[0], fields[19]


def _is_there(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
