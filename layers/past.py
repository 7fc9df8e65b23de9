"""Earlier revisions of stores: a large one is read whole once, and those that follow it by their patches.

A run that is replayed asks for the revisions that it has recorded, one after another. What is held of a store is where
the way to a later revision begins, if that is shorter than its document. A revision is handed out only if the ledger
keeps it now: what was erased is not handed out from memory.
"""

from __future__ import annotations

from typing import Final, final

from ..core.damage import followed, read_held
from ..core.held import Held
from ..core.model import Revision, StoreKey, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..services.ledger import Ledger

__all__ = ["Past"]

PAST_BYTES: Final = 32 * 1024 * 1024
"""How much is held, as the lengths of the documents in all; the state that was used last, however long it is."""

STEP_BYTES: Final = 1024
"""What following one patch costs, as bytes of a document that is read and validated as a whole."""

LEAST_BYTES: Final = 4 * STEP_BYTES
"""A shorter document is read anew: holding it would save nothing."""


@final
class Past:
    """What was read last of earlier revisions, by one event loop."""

    def __init__(self, ledger: Ledger, *, max_bytes: int = PAST_BYTES) -> None:
        self._ledger = ledger
        self._max_bytes = max_bytes
        self._held: dict[StoreKey, list[Held]] = {}  # the longest unused first, the stores as well as their states
        self._size_bytes = 0

    async def at(self, key: StoreKey, revision: Revision) -> Outcome[Held | None, Unavailable]:
        """The state at a revision, also of an instance that was deleted, to be read only; None if it is not kept."""
        nearest = self._nearest(key, revision)
        if nearest is not None:
            reached = await self._follow(key, nearest, revision)
            if isinstance(reached, Failure):
                return reached
            if (held := reached.unwrap()) is not None:
                return Success(self._keep(key, held, instead_of=nearest))
        read = await self._ledger.document(key, revision)
        if isinstance(read, Failure):
            return read
        document = read.unwrap()
        if document is None:
            return Success(None)
        whole = read_held(key, document)
        return whole if isinstance(whole, Failure) else Success(self._keep(key, whole.unwrap()))

    def _nearest(self, key: StoreKey, revision: Revision) -> Held | None:
        """The state from which the way to the revision is shortest, if it is worth going."""
        return max(
            (held for held in self._held.get(key, ()) if _is_worth_it(held, revision)),
            key=lambda held: held.revision.version,
            default=None,
        )

    async def _follow(self, key: StoreKey, held: Held, revision: Revision) -> Outcome[Held | None, Unavailable]:
        """The state at the revision, from what is held and the patches since; None if its document has to be read."""
        steps = revision.version - held.revision.version
        above = Revision(revision.instance_id, revision.version + 1)
        read = await self._ledger.revisions(key, limit=max(steps, 1), before=above, patches=steps > 0)
        if isinstance(read, Failure):
            return read
        changes = read.unwrap()
        if not changes or changes[0].revision != revision:
            return Success(None)  # it is kept no more
        if steps == 0:
            return Success(held)
        patches = [each.patch for each in reversed(changes) if each.patch is not None and each.form == held.form]
        if len(patches) < steps or changes[-1].revision.version != held.revision.version + 1:
            return Success(None)
        return followed(key, held, revision, patches)

    def _keep(self, key: StoreKey, held: Held, instead_of: Held | None = None) -> Held:
        if held.size_bytes < LEAST_BYTES:
            return held
        before = self._held.pop(key, [])
        others = [each for each in before if each is not instead_of and each.revision != held.revision]
        self._held[key] = [*others, held]
        self._size_bytes += _size_bytes(self._held[key]) - _size_bytes(before)
        while self._size_bytes > self._max_bytes and (len(self._held) > 1 or len(self._held[key]) > 1):
            self._drop_oldest()
        return held

    def _drop_oldest(self) -> None:
        key = next(iter(self._held))
        self._size_bytes -= self._held[key].pop(0).size_bytes
        if not self._held[key]:
            del self._held[key]


def _size_bytes(states: list[Held]) -> int:
    return sum(held.size_bytes for held in states)


def _is_worth_it(held: Held, revision: Revision) -> bool:
    steps = revision.version - held.revision.version
    same = held.revision.instance_id == revision.instance_id
    return same and steps >= 0 and steps * STEP_BYTES <= held.size_bytes
