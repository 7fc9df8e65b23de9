"""The lock under which one copy-back at a time comes to a folder: of all threads, and of all processes."""

from __future__ import annotations

import os
import time
from threading import Lock, get_ident
from typing import Final, final
from weakref import WeakValueDictionary

from ...core.step_sandbox import WorkspaceError
from .pinned import Pinned

__all__ = ["LOCK_WAIT_S", "CommitLock"]

LOCK_WAIT_S: Final = 120.0
"""How long a copy-back waits for another, in seconds."""

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05


@final
class _Turn:
    """Whose turn it is in this process. Two open files of one process would lock each other out for ever."""

    __slots__ = ("__weakref__", "holder", "lock")

    def __init__(self) -> None:
        self.lock = Lock()
        self.holder: int | None = None


_TURNS: Final[WeakValueDictionary[tuple[int, int], _Turn]] = WeakValueDictionary()
_TURNS_LOCK: Final = Lock()


def _turn_of(folder: tuple[int, int]) -> _Turn:
    with _TURNS_LOCK:
        return _TURNS.setdefault(folder, _Turn())


@final
class CommitLock:
    """The lock of one folder, by device and inode; its file is in `directory`."""

    def __init__(self, directory: Pinned, folder: tuple[int, int], wait_s: float) -> None:
        self._calls = directory.calls
        self._directory = directory
        self._turn = _turn_of(folder)
        self._wait_s = wait_s
        self._descriptor: int | None = None

    def acquire(self) -> WorkspaceError | None:
        """Hold the lock, or say why not: it is held by this very thread, or for longer than one waits. Nothing is
        held after an OSError either."""
        turn = self._turn
        if turn.holder == get_ident():
            return WorkspaceError("commit_lock_held", "a copy-back was begun within another one to the same folder")
        if not turn.lock.acquire(timeout=self._wait_s):
            return self._late("another thread of this process")
        turn.holder = get_ident()
        try:
            if self._acquire_file():
                return None
        except BaseException:
            self.release()
            raise
        self.release()
        return self._late("another process")

    def release(self) -> None:
        """Give the lock up."""
        if self._descriptor is not None:
            self._calls.unlock(self._descriptor)
            self._calls.close(self._descriptor)
            self._descriptor = None
        self._turn.holder = None
        self._turn.lock.release()

    def _acquire_file(self) -> bool:
        waited, pause = 0.0, _FIRST_PAUSE_S
        while not self._try_file():
            if waited >= self._wait_s:
                return False
            time.sleep(pause)
            waited += pause
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return True

    def _try_file(self) -> bool:
        descriptor = self._calls.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, at=self._directory.descriptor)
        try:
            if self._calls.try_lock(descriptor) and self._is_in_place(descriptor):
                self._descriptor = descriptor
                return True
        finally:
            if self._descriptor is None:
                self._calls.close(descriptor)
        return False

    def _is_in_place(self, descriptor: int) -> bool:
        """Whether the file is still the one that others would lock."""
        mine = self._calls.stat(descriptor)
        try:
            there = self._calls.stat_name("lock", at=self._directory.descriptor)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def _late(self, who: str) -> WorkspaceError:
        message = f"{who} has been copying back to this folder for more than {self._wait_s:g} s; nothing was written"
        return WorkspaceError("commit_lock_timeout", message)
