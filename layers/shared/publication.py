"""Rows to a shared tier, and bytes to it and from it: the bytes first, the row last, everything verified.

None of it is done inside a transaction, and none of it can fail a run: what does not work is told as a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from tempfile import TemporaryFile
from typing import Final, TypeAlias, TypeVar, final
from weakref import WeakValueDictionary

from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.shared_row import is_shareable
from ...core.step_cache import CacheConflict, CacheEntry
from ...services.artifacts import ArtifactCorruption, ArtifactMissing, Artifacts, InvalidDigest
from ...services.shared_tier import SharedTier, TierFailure, Unpublished

__all__ = ["Fetched", "Turns", "fetch", "hydrate", "publish", "share", "told"]

AT_ONCE: Final = 8
"""How many artifacts are asked for, or moved, at one time."""

_A = TypeVar("_A")
_B = TypeVar("_B")

Fetched: TypeAlias = ArtifactMissing | ArtifactCorruption | InvalidDigest | TierFailure
"""Why bytes did not come: those of the tier, and those of who keeps them here."""


@final
class Turns:
    """Who moves a digest: one at a time. Whoever is interrupted lets the next one begin anew."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, digest: str) -> asyncio.Lock:
        return self._locks.setdefault(digest, asyncio.Lock())


async def publish(
    tier: SharedTier, artifacts: Artifacts, entry: CacheEntry, needed: Iterable[str]
) -> Outcome[None, Unpublished]:
    """Give a tier a row, and before it the bytes that it names. It is there for everybody, or it is told why not.

    A row whose evidence is not "enforced" is refused, and nobody is asked. What the tier has already is not sent.
    """
    if not is_shareable(entry):
        text = f'only what has the evidence "enforced", for everybody, is shared, not {entry.meta.get("evidence")!r}'
        return Failure(Unpublished("evidence", text))
    shared = await share(tier, artifacts, needed)
    if isinstance(shared, Failure):
        return shared
    published = await tier.publish(entry)
    if isinstance(published, Success):
        return Success(None)
    why = published.failure()
    if isinstance(why, CacheConflict):
        text = f"the shared tier has another result, recorded by run {why.existing.recorded_run_id}"
        return Failure(Unpublished("row", text, why.existing))
    return Failure(Unpublished("row", told(why)))


async def share(
    tier: SharedTier, artifacts: Artifacts, digests: Iterable[str], turns: Turns | None = None
) -> Outcome[None, Unpublished]:
    """See to it that a tier has these bytes: ask for each, send it if it is missing, and ask again for what was sent.

    With the same `turns` nobody sends what another one is just sending.
    """
    taken = turns or Turns()
    sent: list[str] = []
    for digest, given in await _each(dict.fromkeys(digests), lambda each: _give(tier, artifacts, each, taken)):
        if isinstance(given, Failure):
            return Failure(Unpublished("blobs", f"artifact {digest} was not shared: {told(given.failure())}"))
        if given.unwrap():
            sent.append(digest)
    for digest, has in await _each(sent, tier.has):
        if isinstance(has, Failure):
            return Failure(Unpublished("blobs", told(has.failure())))
        if not has.unwrap():
            return Failure(Unpublished("blobs", f"the shared tier took artifact {digest}, and does not have it"))
    return Success(None)


async def hydrate(tier: SharedTier, artifacts: Artifacts, digests: Iterable[str]) -> bool:
    """See to it that these bytes are here: whether they all are. What does not work is no failure."""
    missing = await artifacts.find_missing(digests)
    if isinstance(missing, Failure):
        return False
    fetched = await _each(missing.unwrap(), lambda each: fetch(tier, artifacts, each))
    return all(isinstance(one, Success) for _, one in fetched)


async def fetch(tier: SharedTier, artifacts: Artifacts, digest: str) -> Outcome[None, Fetched]:
    """Bring bytes here from a tier. Wrong ones are not kept."""
    try:
        with TemporaryFile() as spool:
            copied = await tier.copy(digest, spool.write)
            if isinstance(copied, Failure):
                return copied
            _ = spool.seek(0)
            kept = await artifacts.put_stream(spool)
            return kept if isinstance(kept, Failure) else Success(None)
    except OSError as error:
        return _no_room(error)


async def _give(tier: SharedTier, artifacts: Artifacts, digest: str, turns: Turns) -> Outcome[bool, Fetched]:
    """Give a tier bytes that it does not have: whether they were sent."""
    async with turns.of(digest):
        has = await tier.has(digest)
        if isinstance(has, Failure) or has.unwrap():
            return has if isinstance(has, Failure) else Success(False)
        try:
            with TemporaryFile() as spool:
                copied = await artifacts.copy(digest, spool.write)
                if isinstance(copied, Failure):
                    return copied
                _ = spool.seek(0)
                put = await tier.put(digest, spool)
                return put if isinstance(put, Failure) else Success(True)
        except OSError as error:
            return _no_room(error)


def _no_room(error: OSError) -> Failure[Unavailable]:
    """What the temporary file meets while bytes pass through it."""
    return Failure(Unavailable(f"there is no room for an artifact that is moved: {error}", "no"))


async def _each(items: Iterable[_A], work: Callable[[_A], Awaitable[_B]]) -> list[tuple[_A, _B]]:
    """What each item comes to, in their order, a few at a time. Whoever is cancelled, or raises, ends the others."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: _A) -> tuple[_A, _B]:
        async with room:
            return item, await work(item)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in items]
    return [task.result() for task in tasks]


def told(failure: object) -> str:
    """The text of a failure."""
    match failure:
        case Unavailable(reason=reason):
            return reason
        case _:
            text = getattr(failure, "message", None)
            return text if isinstance(text, str) else str(failure)
