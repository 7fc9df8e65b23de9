"""The tasks of a command, counted from outside by the process file system that they see themselves."""

from __future__ import annotations

import os
import re
from typing import Final, final

__all__ = ["Tasks"]

ANONYMOUS: Final = re.compile(rb"RssAnon:\s*(\d+) kB")
SHARED: Final = re.compile(rb"RssShmem:\s*(\d+) kB")
SHARE: Final = re.compile(rb"Pss_Shmem:\s*(\d+) kB")

KIB: Final = 1024

FIRST: Final = "1"
"""Bubblewrap's own process, which waits for the others."""


@final
class Tasks:
    """How many tasks there are, and what memory they have."""

    def __init__(self, of_task: int) -> None:
        self._proc = os.open(f"/proc/{of_task}/root/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._at_most = 0
        self.processes = 0
        """How many processes there were when they were last looked at."""

    def has_room(self, limit: int) -> bool:
        """Whether one more task may begin. It is counted as if it had, and the others only when it matters."""
        self._at_most += 1
        if self._at_most > limit:
            self._at_most = self._count() + 1
        return self._at_most <= limit

    def memory_bytes(self, limit: int) -> int:
        """What all processes have for themselves, and what they have together.

        What several have together is counted for each of them as long as that is within the limit, since to count it
        once takes a walk through all of their memory.
        """
        own, shared = 0, dict[str, int]()
        for process in self._numbers():
            status = self._read(f"{process}/status")
            own += _kib(ANONYMOUS, status)
            shared[process] = _kib(SHARED, status)
        together = sum(shared.values())
        if (own + together) * KIB > limit:
            together = sum(self._share(process, at_most) for process, at_most in shared.items() if at_most)
        return (own + together) * KIB

    def _share(self, process: str, at_most: int) -> int:
        """The share of a process in what several have, in KiB."""
        found = SHARE.search(self._read(f"{process}/smaps_rollup"))
        return int(found[1]) if found else at_most

    def _count(self) -> int:
        return sum(self._threads(process) for process in self._numbers())

    def _numbers(self) -> list[str]:
        try:
            numbers = [name for name in os.listdir(self._proc) if name.isdigit() and name != FIRST]
        except OSError:
            numbers = []  # they are all dead
        self.processes = len(numbers)
        return numbers

    def _threads(self, process: str) -> int:
        try:
            return max(os.stat(f"{process}/task", dir_fd=self._proc).st_nlink - 2, 1)
        except OSError:
            return 0

    def _read(self, path: str) -> bytes:
        try:
            opened = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            return os.read(opened, 1 << 14)
        except OSError:
            return b""
        finally:
            os.close(opened)


def _kib(pattern: re.Pattern[bytes], status: bytes) -> int:
    found = pattern.search(status)
    return int(found[1]) if found else 0
