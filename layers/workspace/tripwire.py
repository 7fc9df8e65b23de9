"""What a Python body does outside its workspace, as far as the interpreter tells by the events that it audits.

This is evidence, no boundary: nothing is stopped. There is one audit hook in a process, which is installed when the
first watch begins, cannot be removed, and does nothing unless the context it is called in is being watched. A watch
goes with the context: into tasks that the body makes, into threads that are given a copy of it (`asyncio.to_thread`),
not into threads that the body starts itself. Those are told, and lower the level. Not seen, at any level, is

- what raises no event: see `audit_events`;
- what native code does, once it is loaded;
- work that is handed to a thread that was there before, as by `loop.run_in_executor`.

Seen although no body means it is what the garbage collector finalises while the body is at work, whoever made it.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from types import FrameType
from typing import Final, Literal, TypeVar, final

from ...core.evidence import Ambient, AmbientKind
from .audit_events import THREAD_STARTS, Act, acts
from .thread_starts import are_told, tell_thread_starts
from .toolchain import is_below, looks_for_code, toolchain

_K = TypeVar("_K")

__all__ = ["EVENTS", "READS", "Watch", "unwatched", "watch"]

EVENTS: Final = 256
"""How many different events of one body are kept."""

READS: Final = 4_096
"""How many different paths that one body read are kept."""

_PROOF: Final = "stepwell.tripwire"


@contextmanager
def watch(roots: Iterable[str] = ()) -> Generator[Watch]:
    """Watch the present context. `roots` are the absolute paths at which the workspace is on the host.

    Within a watch another may begin: the outer one then sees what both see. A watch of another context sees none of it.
    The interpreter, its library and packages, and its search for code are no events, except what is written there.
    """
    _install()
    watching = Watch(roots, _WATCH.get())
    token = _WATCH.set(watching)
    try:
        with suppress(Exception):  # of other hooks
            sys.audit(_PROOF)
        yield watching
    finally:
        watching.end()
        _WATCH.reset(token)


@contextmanager
def unwatched() -> Generator[None]:
    """Let what is done within belong to nobody: the own work of the sandbox, on behalf of a body. Decorates, too."""
    token = _WATCH.set(None)
    try:
        yield
    finally:
        _WATCH.reset(token)


@final
class Watch:
    """What was seen since the watch began, and no more once it has ended. Several threads may be watched at once."""

    __slots__ = ("_events", "_proved", "_reads", "_roots", "blind", "ended", "more", "outer")

    def __init__(self, roots: Iterable[str], outer: Watch | None) -> None:
        self._roots = frozenset(map(os.path.abspath, roots))
        self.outer = outer
        # No lock: a hook is called anywhere, also within itself. Single operations of a dict are atomic.
        self._events: dict[tuple[AmbientKind, str], None] = {}
        self._reads: dict[str, None] = {}
        self._proved = False
        self.ended = False
        self.blind = False
        """Whether something was lost."""
        self.more = False
        """Whether there was more than is kept."""

    @property
    def events(self) -> tuple[Ambient, ...]:
        """Each once, in the order in which they came first. A detail that is a relative path is relative to a directory
        that the event did not tell (`dir_fd`)."""
        return tuple(Ambient(kind, detail) for kind, detail in tuple(self._events))

    @property
    def reads(self) -> frozenset[str]:
        """The absolute paths of what the body tried to open for reading or to list, there or not, as they were spelled.

        A path that was given to `os.open` and is relative is not among them: it may be below any directory.
        """
        return frozenset(tuple(self._reads))

    @property
    def level(self) -> Literal["tripwire", "cooperative"]:
        """ "cooperative" if something that would be seen at best may not have been.

        That is so if the body started a thread, if the hook does not answer, or if it did not understand an event.
        """
        return "tripwire" if self._proved and not self.blind else "cooperative"

    def heard(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note an event. Called by the hook only, to which whatever this raises is an event that was not understood."""
        if event == _PROOF:
            self._proved = True
            return
        for act in acts(event, arguments):
            if act.kind not in _OF_FILES or not looks_for_code(_caller(), event, act):
                for watching in self.chain():
                    watching._take(act)

    def chain(self) -> Generator[Watch]:
        """This and all around it that have not ended."""
        watching: Watch | None = self
        while watching is not None:
            if not watching.ended:
                yield watching
            watching = watching.outer

    def end(self) -> None:
        """See nothing from now on: what a task or a thread still does that the body has left behind is its own."""
        self.blind = self.blind or not are_told()
        self.ended = True

    def _take(self, act: Act) -> None:
        if act.kind == "thread_started":
            self.blind = True
        if act.kind == "ambient_read" and act.path is not None:
            if is_below(act.path, _TOOLCHAIN, self._roots):
                return
            self._keep(self._reads, act.path, READS)
        self._keep(self._events, (act.kind, act.detail), EVENTS)

    def _keep(self, kept: dict[_K, None], key: _K, limit: int) -> None:
        if len(kept) < limit or key in kept:
            kept[key] = None
        else:
            self.more = True


_OF_FILES: Final = ("ambient_read", "ambient_write")
_TOOLCHAIN: Final = toolchain()
_WATCH: Final[ContextVar[Watch | None]] = ContextVar("stepwell.tripwire", default=None)
_INSTALLING: Final = Lock()
_installed = False


def _install() -> None:
    """Add the hook, once. Whether it hears is found out by each watch: an older hook may have refused it."""
    global _installed
    with _INSTALLING:
        if _installed:
            return
        _installed = True
        hook = _hook()
        sys.addaudithook(hook)
        tell_thread_starts(lambda function: hook(THREAD_STARTS, (function,)))


def _caller() -> FrameType | None:
    """Who made the call that an event is about: above this, `heard` and the hook."""
    frame = inspect.currentframe()
    for _ in range(3):
        frame = None if frame is None else frame.f_back
    return frame


def _hook() -> Callable[[str, tuple[object, ...]], None]:
    """The hook holds what it needs, as it is still called when the interpreter has taken down this module."""
    current = _WATCH.get

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        watching = current()
        if watching is None:
            return
        try:
            watching.heard(event, arguments)
        except Exception:
            # Without a call: it may be the recursion that has come to its limit.
            while watching is not None:
                if not watching.ended:
                    watching.blind = True
                watching = watching.outer

    return hook
