"""What this process last saw of each store, and how it learns what others have done since.

A cached tip may have been passed by another process; it is never one that is not committed. Whoever plans on it finds
out when the ledger judges, and whoever reads asks the ledger first.
"""

from __future__ import annotations

from typing import final

from ..core.damage import caught_up, read_held
from ..core.held import Held
from ..core.model import Revision, StoreKey, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..services.ledger import Ledger
from .past import Past

__all__ = ["TipCache"]


@final
class TipCache:
    """The tips of at most `max_tips` stores, of at most `max_bytes` in all; the longest unused go first."""

    def __init__(self, ledger: Ledger, *, max_tips: int, max_bytes: int) -> None:
        self._ledger = ledger
        self._past = Past(ledger)
        self._max_tips = max_tips
        self._max_bytes = max_bytes
        self._tips: dict[StoreKey, Held] = {}  # the longest unused first
        self._size_bytes = 0

    # --- what was seen ------------------------------------------------------

    def seen(self, key: StoreKey) -> Held | None:
        """The tip as it was last seen; None if it was not, or if there was no store."""
        return self._tips.get(key)

    def keep(self, key: StoreKey, held: Held) -> Held:
        """Remember a committed state as the one that was used last, and give the later one of it and what was seen."""
        seen = self._tips.pop(key, None)
        if seen is not None:
            self._size_bytes -= seen.size_bytes
            if _is_passed(held.revision, seen.revision):
                held = seen
        self._tips[key] = held
        self._size_bytes += held.size_bytes
        while len(self._tips) > self._max_tips or (self._size_bytes > self._max_bytes and len(self._tips) > 1):
            self.forget(next(iter(self._tips)))
        return held

    def forget(self, key: StoreKey) -> None:
        seen = self._tips.pop(key, None)
        if seen is not None:
            self._size_bytes -= seen.size_bytes

    # --- what is ------------------------------------------------------------

    async def current(self, key: StoreKey) -> Outcome[Held | None, Unavailable]:
        """A state that was the tip during this call, whichever process committed it; None where there was no store."""
        seen = self.seen(key)
        if seen is None:
            return await self._load(key)
        tip = await self._ledger.tip(key)
        if isinstance(tip, Failure):
            return tip
        revision = tip.unwrap()
        if revision is None:
            self.forget(key)
            return Success(None)
        seen = self.seen(key) or seen  # this process may have committed while the ledger answered
        if revision == seen.revision or _is_passed(revision, seen.revision):
            return Success(self.keep(key, seen))
        if revision.instance_id != seen.revision.instance_id:
            return await self._load(key)
        return await self._catch_up(key, seen)

    async def kept(self, key: StoreKey, revision: Revision) -> Outcome[Held | None, Unavailable]:
        """The state at a revision, also one of an instance that was deleted; None where it is kept no more.

        What was erased is not handed out from memory.
        """
        seen = self.seen(key)
        if seen is not None and seen.revision == revision:
            tip = await self._ledger.tip(key)
            if isinstance(tip, Failure):
                return tip
            if tip.unwrap() == revision:
                return Success(seen)
        return await self._past.at(key, revision)

    async def _load(self, key: StoreKey) -> Outcome[Held | None, Unavailable]:
        read = await self._ledger.document(key)
        if isinstance(read, Failure):
            return read
        document = read.unwrap()
        if document is None:
            self.forget(key)
            return Success(None)
        held = read_held(key, document)
        return held if isinstance(held, Failure) else Success(self.keep(key, held.unwrap()))

    async def _catch_up(self, key: StoreKey, seen: Held) -> Outcome[Held | None, Unavailable]:
        """The tip, by the patches that followed what was seen."""
        read = await self._ledger.tail(key, seen.revision)
        if isinstance(read, Failure):
            return read
        commits = read.unwrap()
        if commits is None:  # the instance was deleted in between, or its log no longer reaches back so far
            return await self._load(key)
        if not commits:
            return Success(seen)
        advanced = caught_up(key, seen, commits)
        if isinstance(advanced, Failure):
            return advanced
        held = advanced.unwrap()
        return await self._load(key) if held is None else Success(self.keep(key, held))


def _is_passed(revision: Revision, by: Revision) -> bool:
    return revision.instance_id == by.instance_id and revision.version < by.version
