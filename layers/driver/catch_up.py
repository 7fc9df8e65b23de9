"""Catching up: a new call is held back while it may be a recorded one under another key.

Code changes, and so do keys. A new call of the same kind and target as a recorded one that nobody has asked for is
either that call under another key, which must not be made twice, or another branch has yet to ask for the recorded one.
That is known when the replay has caught up: all branches are blocked, no result waits for its turn, and no other new
call is under way, whose branch may come to recorded calls after it.

A branch that waits for something other than a durable call is never blocked. It is waited for `PATIENCE_MS` at most.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypeAlias, final

from ...core.history import History
from .turnstile import Turnstile

__all__ = ["PATIENCE_MS", "CatchUp"]

PATIENCE_MS: Final = 5_000

Call: TypeAlias = tuple[str, str]
"""The kind and the target of a call."""


@final
class CatchUp:
    """The new calls of one execution: those that are under way, and those that are held back."""

    __slots__ = ("_held", "_history", "_turn", "_under_way")

    def __init__(self, history: History, turn: Turnstile) -> None:
        self._history = history
        self._turn = turn
        self._held: dict[Call, list[asyncio.Future[None]]] = {}
        self._under_way: set[asyncio.Task[Any]] = set()
        turn.on_quiet = self._look

    def began(self, branch: asyncio.Task[Any] | None) -> None:
        """The branch makes a new call now."""
        if branch is not None:
            self._under_way.add(branch)

    def ended(self, branch: asyncio.Task[Any] | None) -> None:
        """Its call is over."""
        if branch is not None:
            self._under_way.discard(branch)

    @property
    def has_new(self) -> bool:
        """Whether a new call is under way."""
        return any(not branch.done() for branch in self._under_way)

    @property
    def is_done(self) -> bool:
        """Whether the replay has caught up: nobody will ask for what was recorded and not asked for."""
        return self._turn.is_quiet and not self.has_new

    def hold(self, kind: str, target: str) -> asyncio.Future[None]:
        """What to wait for: the replay may have caught up, or the recorded calls like this one were asked for."""
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.setdefault((kind, target), []).append(held)
        return held

    def asked(self, kind: str, target: str) -> None:
        """A branch has asked for a call like this."""
        if self._held and not self._history.has_like(kind, target):
            _let_go(self._held.pop((kind, target), []))

    def _look(self) -> None:
        if self._held and not self.has_new:
            held, self._held = self._held, {}
            for futures in held.values():
                _let_go(futures)


def _let_go(held: list[asyncio.Future[None]]) -> None:
    for future in held:
        if not future.done():
            future.set_result(None)
