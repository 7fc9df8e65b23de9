"""Dispatching one cached step: measure, consult, and where nothing is served execute it, record it, and settle it.

    measured      what it reads is known, and with it its key
    consulted     a row is served: its outputs are on the host, and the step is done. Otherwise it says what is wrong
    attempted     that the body begins is recorded, with what stood against the row
    executed      the body has ended and is accepted; all that is needed to bring its outputs back is kept
    recorded      in one commit: the step settles, and the cache has the row. It is never executed for this run again
    settled       the files are on the host, its effects are sent, and the step is done

Somebody who changes its files meanwhile sends it back to the beginning, a bounded number of times.
"""

from __future__ import annotations

from typing import Final, TypeAlias, cast, final

from ...core.outcome import Failure
from ...core.owed import Owed, reads_digest
from ...core.step_sandbox import MaterializationConflict
from ...services.step import Suspended
from ...services.step_sandbox import CachingTransaction, WorkspaceTransaction
from .cached_key import derive_key
from .cached_step import CachedStep, Ended
from .caching import CachePoint
from .consult import NO_READS, Consultation, Moved, Served, Unserved
from .making import Broken, Identified, Made, Making
from .permits import Permit
from .settling import Settling

__all__ = ["REBASES", "Dispatch"]

REBASES: Final = 3
"""How often a step begins anew because somebody else changed its files meanwhile."""


_Found: TypeAlias = tuple[Served, str] | Unserved | Moved | Broken | Made
"""What was found for a step, a row with the digest of its reads; or what came of executing it."""

_CACHE: Final[dict[type, bool]] = {}
"""Which classes of transactions can cache: to look at all of their methods takes a while."""


def _caching(transaction: WorkspaceTransaction) -> CachingTransaction | None:
    """The transaction, if its results can be kept."""
    known = _CACHE.get(type(transaction))
    if known is False:
        return None
    if known is None:
        _CACHE[type(transaction)] = isinstance(transaction, CachingTransaction)
        return _caching(transaction)
    return cast("CachingTransaction", transaction)  # as it was found to be


@final
class Dispatch:
    """Brings one cached step to its end."""

    __slots__ = ("_caching", "_consultation", "_permit", "_settling", "_step")

    def __init__(self, step: CachedStep) -> None:
        self._step = step
        self._caching = step.caching
        self._consultation = Consultation(step)
        self._settling = Settling(step)
        self._permit = Permit(step.caching.permits)

    async def to_its_end(self, owed: Owed | None) -> Ended:
        """What the step is completed with; `owed` is what it was recorded to owe before."""
        opened = await self._caching.sandbox.open()
        if isinstance(opened, Failure):
            return self._step.refused(opened.failure())
        async with opened.unwrap() as transaction:
            with self._permit:
                return await self._on(transaction, owed)

    async def _on(self, transaction: WorkspaceTransaction, owed: Owed | None) -> Ended:
        step = self._step
        caching = _caching(transaction)
        if owed is not None and caching is not None:
            settled = await self._settling.again(owed, caching)
            if settled is not None:
                return settled
        while True:
            tried = await self._try(transaction, caching)
            if not isinstance(tried, MaterializationConflict):
                return tried
            if step.rebases == REBASES:
                return step.refused(tried)
            step.rebases += 1

    async def _try(
        self, transaction: WorkspaceTransaction, caching: CachingTransaction | None
    ) -> Ended | MaterializationConflict:
        """From the measurement to the end, or to somebody else who changed the files."""
        step = self._step
        making = Making(step, transaction)
        near = None if caching is None or not step.is_near else await self._find_nearby(caching)
        found: _Found
        if isinstance(near, tuple):
            found = near
        elif caching is None:
            found = await step.guarded(making.make(None, Unserved()))
        else:
            found = await step.guarded(self._find_or_make(caching, making, near))
        match found:
            case (Served() as served, str() as reads):
                self._permit.give_back()
                return await self._settling.served(served, reads)
            case Moved(conflict):
                return conflict
            case Unserved() as unserved:
                return self._corrupted(unserved)
            case Broken(error, kind):
                return step.failed(error, kind)
            case Made() as made:
                return await self._settle(made, transaction)

    async def _settle(self, made: Made, transaction: WorkspaceTransaction) -> Ended | MaterializationConflict:
        recorded = await self._settling.record(made)
        self._permit.give_back()  # who waits for this key finds the row
        return recorded if isinstance(recorded, Ended) else await self._settling.bring(made, recorded, transaction)

    def _corrupted(self, unserved: Unserved) -> Ended:
        """What is kept is damaged, and the step fails for it."""
        if unserved.error is None:
            raise AssertionError("a row that was not served, and is no failure, is no end of a step")
        told = self._step.told(*unserved.entries)
        return self._step.failed(unserved.error, "cache_corruption", *unserved.writes, *told)

    async def _find_nearby(self, transaction: CachingTransaction) -> tuple[Served, str] | Identified | None:
        """What is served at once to a step without files; otherwise its key, if nobody else holds that.

        The ledger alone is asked, as it is by every durable call: there is nothing to be cut off, so it takes no task.
        """
        step = self._step
        step.record.races.check()
        surrounding = self._caching.surroundings.known(step.call.body)
        if surrounding is None:
            return None
        self._caching.on_point(CachePoint.MEASURED)
        key = derive_key(step.call, NO_READS, step.row.run_id, surrounding, transaction.policy(step.call.body))
        if key is None or self._permit.may_wait(key.digest):
            return None
        _ = await self._permit.take(key.digest)
        served = await self._consultation.glance(key)
        if served is None:
            return Identified(NO_READS, key)
        return served, reads_digest(NO_READS) if served.effects else ""

    async def _find_or_make(
        self, transaction: CachingTransaction, making: Making, identified: Identified | None
    ) -> _Found:
        identified = identified or await self._identify(transaction)
        if identified is None:  # the host cannot be measured; the body is told so by the sandbox, or is executed
            return await making.make(None, Unserved())
        consulted = await self._consultation.ask(identified.key, identified.reads, transaction)
        if isinstance(consulted, Served):
            return consulted, reads_digest(identified.reads) if consulted.effects else ""
        if isinstance(consulted, Moved) or consulted.error is not None:
            return consulted
        return await making.make(identified, consulted)

    async def _identify(self, transaction: CachingTransaction) -> Identified | None:
        """What the step reads, and its key, which nobody else in this engine dispatches then."""
        step = self._step
        boundary = step.call.boundary
        while True:
            reads = NO_READS
            if boundary.reads or boundary.removes:
                measured = await transaction.measure(boundary)
                if isinstance(measured, Failure):
                    return None
                reads = measured.unwrap()
            self._caching.on_point(CachePoint.MEASURED)
            surrounding = await self._caching.surroundings.of(step.call.body)
            key = derive_key(step.call, reads, step.row.run_id, surrounding, transaction.policy(step.call.body))
            if key is None:
                return None
            waited = await self._permit.take(key.digest)
            if step.record.suspending:
                raise Suspended
            if not waited:
                return Identified(reads, key)
