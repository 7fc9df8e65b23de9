"""The durable waits of one run on stores: look, park under what was read, look again when woken.

    look         the selector runs on the state in force; what it finds ends the wait, and so does a store that is gone
    miss         the waiter is registered with what was read, in the batch that says that the run waits
    woken        by a change of what was read, by a deletion, by the deadline, or by the poll: look again; where several
                 waits of the run are woken, only those that are due do

The moment is taken before the look, so that no wake between the look and the wait is missed; a wake is a hint, and a
miss registers the waiter anew. The row that records the end of the wait removes the waiter in the same batch. A wait
belongs to the instance that it looked at first. After the deadline it looks once more: a match wins.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Generic, TypeAlias, TypeVar, final

from msgspec.structs import replace

from ...core.batch import WriteStep
from ...core.codec import Codec
from ...core.draft import track_reads
from ...core.model import (
    InvalidState,
    Paths,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    Taken,
    TimedOut,
    Unavailable,
    Unmatched,
)
from ...core.operation import Take
from ...core.outcome import Failure, Outcome, Success
from ...core.selector import queue_of, selector_name
from ...core.step import VALUE_BYTES, StepRow, span_of, to_wait
from ...core.store_outcome import Named, StoreFailure
from ...core.waiter import Waiter
from ...services.store import Claim, Looked, Selector, StoreDefinition
from .doorbell import Moment
from .record import RunRecord
from .store_call import StoreCall
from .store_steps import Cancelled, StoreSteps, Told, mapped, named_of, recorded_outcome, unanswered
from .tools import Tools
from .wait import Reason

__all__ = ["Looking", "StoreWaits", "Taking", "encoded_selection", "not_awaitable"]

_R = TypeVar("_R")
_T = TypeVar("_T")

Live: TypeAlias = Callable[[StoreCall, str | None], Awaitable[Outcome[Named, StoreFailure]]]
"""One look, at the instance that is named if one is; Unmatched is a miss."""

Queue: TypeAlias = Callable[[], str | None]
"""Finds the name of the queue in which a wait gets its turn; None is none."""


def _no_queue() -> None:
    """Each is woken as if it were alone."""


READ_PATHS = 1_024
"""More paths than this of one waiter, and it waits for any change of the store."""


@dataclass(frozen=True, slots=True)
class Looking(Generic[_T, _R]):
    """What `when` looks for."""

    key: str
    definition: StoreDefinition[_T]
    id: str
    selector: Selector[_T, _R]
    codec: Codec

    @property
    def store(self) -> StoreKey:
        return self.definition.key(self.id)

    @property
    def what(self) -> str:
        return f"the value that {self.key!r} selected"


@dataclass(frozen=True, slots=True)
class Taking(Looking[_T, _R]):
    """What `take` looks for, and how it makes it its own."""

    claim: Claim[_T, _R]


@final
class StoreWaits:
    """The waits of one run."""

    def __init__(self, record: RunRecord, tools: Tools, steps: StoreSteps) -> None:
        self.record = record
        self._tools = tools
        self._steps = steps
        self._reading: asyncio.Task[frozenset[tuple[StoreKey, StepId]]] | None = None

    # --- what is looked for ---------------------------------------------------

    async def when(self, looking: Looking[_T, _R], timeout_ms: int | None) -> Outcome[Named, StoreFailure]:
        """Wait until the selector finds something."""

        async def live(_: StoreCall, instance_id: str | None) -> Outcome[Named, StoreFailure]:
            return await self._look(looking, instance_id)

        return await self._recorded(looking, "store.when", live, timeout_ms)

    async def take(self, taking: Taking[_T, _R]) -> Outcome[Named, StoreFailure]:
        """Wait until the selector finds something and the claim has made it the run's own."""

        async def live(call: StoreCall, instance_id: str | None) -> Outcome[Named, StoreFailure]:
            return await self.take_once(call, taking, instance_id, is_final=_is_found)

        return await self._recorded(taking, "store.take", live, None, partial(queue_of, taking.selector))

    async def _look(self, looking: Looking[_T, _R], instance_id: str | None) -> Outcome[Named, StoreFailure]:
        looked = await self._steps.insistently(partial(self._looked, looking))
        if isinstance(looked, Failure):
            return looked
        found = looked.unwrap()
        if instance_id not in (None, found.revision.instance_id):
            return Failure(StoreNotFound(looking.store))
        selected = found.selected
        if selected is None or selected is False:
            return Failure(Unmatched(found.revision, found.read_paths))
        value = encoded_selection(selected, looking.codec, looking.what)
        return Success(Named("selected", found.revision, value=value))

    async def _looked(
        self, looking: Looking[_T, _R]
    ) -> Outcome[Looked[_R], StoreNotFound | InvalidState | Unavailable]:
        if (lookable := self._tools.lookable) is not None:
            return await lookable.look(looking.definition, looking.id, looking.selector)
        got = await self._tools.store.get(looking.definition, looking.id)
        if isinstance(got, Failure):
            return got
        snapshot: Snapshot[_T] = got.unwrap()
        selected, read_paths = track_reads(snapshot.state, looking.selector)
        return Success(Looked(selected, read_paths, snapshot.revision))

    async def take_once(
        self,
        call: StoreCall,
        taking: Taking[_T, _R],
        instance_id: str | None,
        *,
        is_final: Callable[[Outcome[object, StoreFailure]], bool] = lambda _: True,
    ) -> Outcome[Named, StoreFailure]:
        """Take if the selector finds something; what `is_final` is recorded in the same batch."""
        await call.come_first()
        step = StepId(self.record.row.id, taking.key)
        selector, claim, definition = taking.selector, taking.claim, taking.definition

        def name(taken: Taken[_R]) -> Named:
            value = encoded_selection(taken.selected, taking.codec, taking.what)
            return Named("selected", taken.revision, value=value)

        operation = Take(taking.store, definition.schema, selector, claim, step, instance_id)
        if instance_id is not None and self._tools.joinable is None:
            looked = await self._look(taking, instance_id)
            if isinstance(looked, Failure) and isinstance(looked.failure(), StoreNotFound):
                return looked
        plain = partial(self._tools.store.take, definition, taking.id, selector, claim, step=step)
        return mapped(await self._steps.apply(call, operation, name, plain, is_final=is_final), named_of)

    # --- the wait ---------------------------------------------------------------

    async def _recorded(
        self, looking: Looking[_T, _R], kind: str, live: Live, timeout_ms: int | None, queue: Queue = _no_queue
    ) -> Outcome[Named, StoreFailure]:
        """The recorded outcome of a wait, or what it comes to now, recorded and handed over in its turn."""
        record, key, store = self.record, looking.key, looking.store
        if (before := record.history.row(key)) is not None and before.status == "waiting":
            record.open_waiters[key] = store
        asked = await record.begin(key, kind, str(store))
        if asked.row is not None and asked.decision in ("answer", "raise"):
            await record.hand_over(asked.row)
            return recorded_outcome(asked.row)
        row = asked.row or to_wait(record.new(key, kind, str(store)), timeout_ms)
        call = StoreCall(record, replace(row, status="done", at_ms=None), store, self._tools)
        wait = _Wait(self, looking, kind, row, live, queue, is_new=asked.row is None)

        async def ended(call: StoreCall) -> Outcome[Told[Named], StoreFailure]:
            return mapped(await wait.end(call), unanswered)

        return mapped(await self._steps.concluded(call, key, kind, store, ended), named_of)

    async def look_again(self, store: StoreKey, key: str) -> str | None:
        """The instance that an earlier owner's wait looked at, whose waiter is still registered."""
        ledger, run_id = self._tools.ledger, self.record.row.id
        found = await self._steps.insistently(partial(ledger.waiters, key=store, run_id=run_id))
        if isinstance(found, Failure):
            return None
        seen = (row.waiter.seen.instance_id for row in found.unwrap() if row.waiter.step.key == key)
        return next(seen, None)

    async def park(self, row: StepRow, waiter: Waiter, moment: Moment, text: str, *, is_new: bool) -> Reason:
        """Register the waiter and show that the run waits; then wait. "wake" comes at once if it is due already."""
        record, waiters = self.record, self._tools.joinable_waiters
        record.waits.begin(row.key, text, row.at_ms)
        record.open_waiters[row.key] = waiter.key
        writes = (WriteStep(row),) if is_new else ()
        until_ms = row.at_ms
        if waiters is not None:
            registration = waiters.registration(waiter).writes
            registered = await record.commit(*writes, *registration, *record.standing())
            if any(answer.due for answer in registered):
                return "wake"
        else:
            if shown := (*writes, *record.standing()):
                _ = await record.commit(*shown)
            answer = await self._tools.waiters.register(waiter)
            if isinstance(answer, Success) and answer.unwrap().due:
                return "wake"
            if isinstance(answer, Failure):  # nobody will wake it: it looks now and then
                again_ms = record.clock.now_ms() + UNREGISTERED_MS
                until_ms = again_ms if until_ms is None else min(until_ms, again_ms)
        while (reason := await record.woken(moment, until_ms)) == "wake":
            moment = record.doorbell.moment()
            if waiters is None or len(record.open_waiters) == 1 or not await self._waits_still(waiter):
                break
        return reason

    async def _waits_still(self, waiter: Waiter) -> bool:
        """Whether the waiter is registered and owed nothing: the wake was for another wait of the run.

        Nothing that it read was changed then, so it need not look, nor register again. One reading serves all that were
        woken before it began.
        """
        if (reading := self._reading) is None:
            reading = self._reading = asyncio.get_running_loop().create_task(self._waiting())
        return (waiter.key, waiter.step) in await asyncio.shield(reading)

    async def _waiting(self) -> frozenset[tuple[StoreKey, StepId]]:
        """The waiters of the run that are owed nothing; none if the ledger does not answer."""
        self._reading = None
        read = await self._tools.ledger.waiters(run_id=self.record.row.id)
        rows = () if isinstance(read, Failure) else read.unwrap()
        return frozenset((row.waiter.key, row.waiter.step) for row in rows if row.due_no is None)


UNREGISTERED_MS = 1_000
"""How often a wait looks that could not be registered."""


@final
class _Wait(Generic[_T, _R]):
    """One wait under way: the row that shows it, and the instance that it belongs to once it has looked."""

    def __init__(
        self,
        waits: StoreWaits,
        looking: Looking[_T, _R],
        kind: str,
        row: StepRow,
        live: Live,
        queue: Queue,
        *,
        is_new: bool,
    ) -> None:
        self._waits = waits
        self._looking = looking
        self._row = row
        self._live = live
        self._find_queue = queue
        self._is_new = is_new
        self._text = f"{kind.removeprefix('store.')} {looking.key!r} of {looking.store}: " + selector_name(
            looking.selector
        )

    async def end(self, call: StoreCall) -> Outcome[Named, StoreFailure]:
        """Look, and wait, until there is an outcome. Raises Cancelled if cancellation came first."""
        waits, row, store = self._waits, self._row, self._looking.store
        record = waits.record
        instance_id = None if self._is_new else await waits.look_again(store, row.key)
        find_queue = lru_cache(maxsize=1)(self._find_queue)  # at the first miss, and once
        while True:
            moment = record.doorbell.moment()
            is_last = row.at_ms is not None and row.at_ms <= record.clock.now_ms()
            outcome = await self._live(call, instance_id)
            missed = None if isinstance(outcome, Success) else outcome.failure()
            if not isinstance(missed, Unmatched):
                return outcome
            if instance_id not in (None, missed.revision.instance_id):
                return Failure(StoreNotFound(store))
            if is_last:
                await record.in_line(row.key)
                return Failure(TimedOut(span_of(row)))
            instance_id = missed.revision.instance_id
            step = StepId(row.run_id, row.key)
            waiter = Waiter(store, step, missed.revision, _bounded(missed.read_paths), queue=find_queue())
            reason = await waits.park(row, waiter, moment, self._text, is_new=self._is_new)
            self._is_new = False
            if reason == "cancel":
                raise Cancelled


# --- helpers ------------------------------------------------------------------


def _is_found(outcome: Outcome[object, StoreFailure]) -> bool:
    return not (isinstance(outcome, Failure) and isinstance(outcome.failure(), Unmatched))


def _bounded(paths: Paths) -> Paths:
    return paths if len(paths) <= READ_PATHS else ((),)


def encoded_selection(value: object, codec: Codec, what: str) -> bytes:
    """A selected value as JSON that gives it back; a TypeError or ValueError if it cannot be recorded."""
    encoded = codec.encode(value, what)
    _ = codec.decode(encoded, what)
    if len(encoded) > VALUE_BYTES:
        raise ValueError(f"{what} is {len(encoded)} bytes of JSON, and the limit is {VALUE_BYTES}")
    return encoded


def not_awaitable(value: object, key: str) -> object:
    """What a selector gave; a TypeError if it is async."""
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(f"the selector of {key!r} is async; a selector is an ordinary function of the state")
