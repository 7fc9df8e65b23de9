"""The tasks of a command, counted from outside by the process file system that they see themselves."""

from __future__ import annotations

import os
import re
import resource
import signal
from contextlib import suppress
from typing import Final, final

__all__ = ["Tasks", "bound_tasks"]

ANONYMOUS: Final = re.compile(rb"RssAnon:\s*(\d+) kB")
SHARED: Final = re.compile(rb"RssShmem:\s*(\d+) kB")
SHARE: Final = re.compile(rb"Pss_Shmem:\s*(\d+) kB")

KIB: Final = 1024

HEADROOM: Final = 256
"""Tasks beyond twice the limit that the kernel lets pass: about as many as begin between two looks."""

FIRST: Final = "1"
"""Bubblewrap's own process, which waits for the others."""


def bound_tasks(task: int, limit: int) -> None:
    """Let the kernel hold a task and its descendants to a number that only who is faster than the keeper comes to.

    It holds every user to it but root, and it is above the limit, so that who meets that is found beyond it.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    wanted = 2 * limit + HEADROOM
    bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    with suppress(OSError):  # it was killed meanwhile
        resource.prlimit(task, resource.RLIMIT_NPROC, (bound, bound))


@final
class Tasks:
    """How many tasks there are, and what memory they have."""

    def __init__(self, of_task: int) -> None:
        self._proc = os.open(f"/proc/{of_task}/root/proc", os.O_RDONLY | os.O_DIRECTORY)
        self._space = _space_of(of_task)
        self._first = _parent_of(of_task)  # bubblewrap's own, whose end is that of all
        self.processes = 0
        """How many processes there were when they were last looked at."""

    def count(self) -> int:
        """How many tasks there are: processes and their threads."""
        return sum(self._threads(process) for process in self._numbers())

    def kill(self) -> None:
        """Kill each process by itself: one that is to be killed forks no more, though it may wait long for its end."""
        waiting = [self._first]
        while waiting:
            process = waiting.pop()
            waiting += _children_of(process)
            self._kill(process)

    def _kill(self, process: int) -> None:
        try:
            held = os.pidfd_open(process)
        except OSError:
            return
        try:
            if _space_of(process) == self._space:  # it is no other process by now
                signal.pidfd_send_signal(held, signal.SIGKILL)
        except OSError:
            return
        finally:
            os.close(held)

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


def _space_of(process: int) -> int:
    """The number of a process's namespace of processes; an OSError if there is no such process."""
    return os.stat(f"/proc/{process}/ns/pid").st_ino


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def _children_of(process: int) -> list[int]:
    try:
        with open(f"/proc/{process}/task/{process}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def _kib(pattern: re.Pattern[bytes], status: bytes) -> int:
    found = pattern.search(status)
    return int(found[1]) if found else 0
