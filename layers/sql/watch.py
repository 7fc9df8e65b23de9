"""The watch: learning soon that another process has committed, at no cost while nobody does.

Where the system tells of writes to a file (inotify), the log of the database is watched. A write there is the begin of
a commit that can be seen a sync later, so the file is asked at once, and then after pauses that double, until a second
has passed without a further write. Elsewhere it is asked four times a second.

Writes of this process look alike from here; what they cost is bounded by a pause between two questions. Its writer, as
it begins a commit, meets what others have committed before, and says so (`met`).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final, final

__all__ = ["Watch"]

PAUSES_S: Final = tuple(0.001 * 2**n for n in range(10))
"""After how many seconds the file is asked again, each time longer."""

BUSY_PAUSE_S: Final = 0.005
"""The least pause between two questions while this process commits itself, or many commits come in a row."""

POLL_S: Final = 0.25
"""How often the file is asked where nothing tells of writes."""


@final
class Watch:
    """Calls `tell` on the loop when `version` gives another number, soon after a write to the log of the file `path`.

    `version` asks the file, and may answer None if it cannot now. `stop` ends the watch.
    """

    def __init__(
        self,
        path: str,
        version: Callable[[], int | None],
        tell: Callable[[], None],
        *,
        notified: bool = True,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._version = version
        self._tell = tell
        self._last = version()
        self._asked_at = 0.0
        self._pause = len(PAUSES_S)
        self._told = False
        self._busy = False
        self._met = False
        self._timer: asyncio.TimerHandle | None = None
        self._log = f"{path}-wal"
        self._notices = _notices_of(self._log) if notified else None
        if self._notices is not None:
            try:
                self._loop.add_reader(self._notices, self._hear)
            except NotImplementedError:  # a loop that watches no files
                os.close(self._notices)
                self._notices = None
        if self._notices is None:
            self._timer = self._loop.call_later(POLL_S, self._poll)

    @property
    def polls(self) -> bool:
        """Whether the file is asked again and again, since nothing tells of writes."""
        return self._notices is None

    def commit(self) -> None:
        """This process has committed: what is seen next may be that, so the next question has time."""
        self._busy = True
        now = self._loop.time()
        if now >= self._asked_at + BUSY_PAUSE_S:  # never put off twice
            self._asked_at = now

    def met(self) -> None:
        """Others have committed, as this process knows by another way: tell of it now, or when it is time."""
        self._met = True
        at = self._asked_at + BUSY_PAUSE_S
        if self._notices is None or at <= self._loop.time():
            self._ask()
        elif self._timer is None or self._timer.when() > at:
            self._ask_at(at)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._notices is not None:
            self._loop.remove_reader(self._notices)
            os.close(self._notices)
            self._notices = None

    # --- asking -------------------------------------------------------------

    def _poll(self) -> None:
        self._timer = self._loop.call_later(POLL_S, self._poll)
        self._ask()

    def _hear(self) -> None:
        """Something was written: ask, but not again and again while more is being written."""
        if self._notices is None:
            return
        pause_s = BUSY_PAUSE_S if self._busy or self._told else PAUSES_S[0]
        at = self._asked_at + pause_s
        if at <= self._loop.time():
            self._ask_and_go_on()
            return
        self._loop.remove_reader(self._notices)  # what comes meanwhile is heard then
        if self._timer is None or self._timer.when() > at:
            self._ask_at(at)

    def _ask_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._ask_and_go_on)

    def _ask_and_go_on(self) -> None:
        """Ask, and again later: a write that was heard may belong to a commit that cannot be seen yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._notices is None:
            return
        if _heard(self._notices, self._log):
            self._pause = 0
        self._loop.add_reader(self._notices, self._hear)
        self._ask()
        if self._pause < len(PAUSES_S):
            pause_s = PAUSES_S[self._pause]
            self._pause += 1
            if self._busy or self._told:
                pause_s = max(pause_s, BUSY_PAUSE_S)
            self._ask_at(self._asked_at + pause_s)
        self._busy = False

    def _ask(self) -> None:
        self._asked_at = self._loop.time()
        version = self._version()
        is_new = version is not None and version != self._last
        self._told = is_new or self._met
        self._met = False
        if is_new:
            self._last = version
        if self._told:
            self._tell()


if sys.platform == "linux":
    IN_MODIFY: Final = 0x2
    IN_MOVED_TO: Final = 0x80
    IN_CREATE: Final = 0x100
    EVENT: Final = struct.Struct("iIII")  # which watch, what happened, a cookie, how long the name is that follows

    def _notices_of(log: str) -> int | None:
        """A file to read notices of writes to `log` from, and of its being made anew; None if none can be had."""
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            notices: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            return None
        if notices < 0:  # as many are in use already as one user may have
            return None
        if _add(notices, os.path.dirname(log), IN_CREATE | IN_MOVED_TO):
            _add(notices, log, IN_MODIFY)  # it may not be there yet
            return notices
        os.close(notices)
        return None

    def _add(notices: int, path: str, what: int) -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        watch: int = libc.inotify_add_watch(notices, os.fsencode(path), what)
        return watch >= 0

    def _heard(notices: int, log: str) -> bool:
        """Whether one of the notices that have come concerns the log."""
        concerned = False
        name = os.fsencode(os.path.basename(log))
        for made in _read(notices):
            if made == name:  # it is another file than before
                _add(notices, log, IN_MODIFY)
            concerned = concerned or made in (b"", name)
        return concerned

    def _read(notices: int) -> Iterator[bytes]:
        """The names of the files that were made, an empty one for a write to the log."""
        while True:
            try:
                read = os.read(notices, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(read):
                length = EVENT.unpack_from(read, at)[3]
                at += EVENT.size
                yield read[at : at + length].rstrip(b"\0")
                at += length

else:

    def _notices_of(log: str) -> int | None:
        return None

    def _heard(notices: int, log: str) -> bool:
        raise AssertionError("nothing tells of writes on this system")
