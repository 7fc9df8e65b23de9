"""Lanes: for each store the operations that wait to change it, planned one after another and committed together.

Compare-and-swap by every caller alone would be a storm on a hot store: each commit makes all others plan again. Here
the operations of one store are planned in memory, each on what the one before it leaves, and go to the ledger in one
call: one transaction and one sync for all of them. The ledger still judges each on its own.

    round       plan every ticket on the speculative tip -> hand over the batches that write -> judge the verdicts
    committed   the tip is the ticket's, and it is answered
    refused     for a reason of its own: it is answered; those after it stood on it, and are planned again
    passed      another process was faster: all are planned again on its state, a bounded number of times
    unwritten   an answer that changes nothing rests on the state it saw: given once that is, or was meanwhile, in force

A call that meets nobody runs its rounds in its caller's task. Where callers meet, a task of the lane's own runs them,
so that no caller's cancellation reaches a neighbour.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from ..core.batch import AlreadyApplied, Batch, Committed, Fenced, Refusal, WriteBase
from ..core.held import Held, wants_base
from ..core.model import Conflict, Contended, ReceiptMismatch, StoreKey, StoreNotFound, TooLarge, Unavailable
from ..core.operation import STATE_BYTES
from ..core.outcome import Failure, Success
from ..services.clock import Clock
from ..services.ledger import Ledger, Verdict
from .ticket import Ticket
from .tip_cache import TipCache
from .watch import Watches

__all__ = ["Lanes", "Limits"]

IDLE_LANES: Final = 1_024
"""How many lanes are kept, before those that nobody is in are dropped."""

AT_ONCE: Final = 3
"""How many rounds in a row that others passed are planned again at once: no time is better than after a commit."""

PAUSE_MS: Final = 32
"""The longest pause before operations that others passed are planned again."""

CLOSED: Final = "the store was closed while a call waited"

AnyTicket: TypeAlias = Ticket[object, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a store service.

    `state_bytes` is the largest state as JSON. `attempts` says how often an operation is planned where other processes
    are faster. `round_size` is the number of operations on one store that are planned and committed together; for so
    long, at most, does one store keep the event loop busy. `tips` is the number of tips that are cached, and
    `tip_bytes` that of their bytes of JSON in all.
    """

    state_bytes: int = STATE_BYTES
    attempts: int = 100
    round_size: int = 512
    tips: int = 16_384
    tip_bytes: int = 256 * 1024 * 1024


@dataclass(slots=True)
class _Lane:
    """`crowded`: in its last round several callers met, so that the next one had better wait a turn for the others.

    `basing`: a base is being written. `base` is one that was written since a tip was kept: of which instance, how long.
    """

    key: StoreKey
    waiting: deque[AnyTicket] = field(default_factory=deque[AnyTicket])
    busy: bool = False
    crowded: bool = False
    losses: int = 0  # rounds in a row that others passed
    basing: bool = False
    base: tuple[str, int] | None = None

    def admit(self, room: int) -> list[AnyTicket]:
        return [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]


@final
class Lanes:
    """The lanes of all stores, over one ledger."""

    def __init__(self, ledger: Ledger, clock: Clock, tips: TipCache, limits: Limits, watches: Watches) -> None:
        self._ledger = ledger
        self._clock = clock
        self._tips = tips
        self._watches = watches
        self._attempts = limits.attempts
        self._round_size = limits.round_size
        self._lanes: dict[StoreKey, _Lane] = {}
        self._most_lanes = IDLE_LANES
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def carry_out(self, ticket: AnyTicket) -> None:
        """Return when the ticket is answered. Cancelling the caller fails nobody else."""
        if self._closed:
            ticket.failed(Unavailable("the store is closed", "no"))
            return
        lane = self._lanes.get(ticket.key) or self._new_lane(ticket.key)
        if lane.busy or lane.crowded:
            lane.waiting.append(ticket)
            self._drive_if_needed(lane)
            await ticket.wait(self._clock)
            return
        lane.busy = True
        try:
            tickets = [ticket]
            while tickets:
                tickets = await self._round(lane, tickets)
        finally:
            self._leave(lane)

    async def close(self) -> None:
        """Stop what runs in the background. Whoever waits in a lane gets `Unavailable`, and whoever comes later.

        Cancelled, it is so when all has stopped. A call that met nobody goes on in its caller's task.
        """
        self._closed = True
        for lane in self._lanes.values():
            _tell_of_closing(lane.waiting)
            lane.waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- who runs the rounds ------------------------------------------------

    def _drive_if_needed(self, lane: _Lane) -> None:
        if lane.waiting and not lane.busy:
            lane.busy = True
            self._spawn(self._drive(lane))

    async def _drive(self, lane: _Lane) -> None:
        tickets: list[AnyTicket] = []
        try:
            while True:
                await asyncio.sleep(0)  # whoever was answered in this turn comes again in the next, with the others
                tickets += lane.admit(self._round_size - len(tickets))
                if not tickets:
                    return
                lane.crowded = len(tickets) > 1
                room = max(1, len(tickets) >> lane.losses)  # whoever plans for a shorter time is passed less often
                tickets = [*await self._round_of_many(lane, tickets[:room]), *tickets[room:]]
        except asyncio.CancelledError:
            _tell_of_closing((*tickets, *lane.waiting))
            lane.waiting.clear()
            raise
        finally:
            self._leave(lane)

    async def _round_of_many(self, lane: _Lane, tickets: list[AnyTicket]) -> list[AnyTicket]:
        try:
            return await self._round(lane, tickets)
        except Exception as error:  # a bug below: those whom it met hear of it, and the lane goes on
            for ticket in tickets:
                ticket.raised(error)
            return []

    def _new_lane(self, key: StoreKey) -> _Lane:
        if len(self._lanes) >= self._most_lanes:
            self._lanes = {key: lane for key, lane in self._lanes.items() if lane.busy or lane.basing}
            self._most_lanes = max(IDLE_LANES, 2 * len(self._lanes))
        lane = self._lanes[key] = _Lane(key)
        return lane

    def _leave(self, lane: _Lane) -> None:
        lane.busy = False
        lane.losses = 0
        self._drive_if_needed(lane)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- a round ------------------------------------------------------------

    async def _round(self, lane: _Lane, tickets: list[AnyTicket]) -> list[AnyTicket]:
        """Plan the tickets, commit what they write, and answer those that can be; the others are given back."""
        if lane.losses:
            await self._pause(lane.losses)
        chain = await self._plan(lane, tickets)
        batches = [ticket.hand_over() for ticket in chain if ticket.writes]
        if not batches:
            lane.losses = 0
            return []
        self._watches.committing(lane.key)
        try:
            if len(batches) == 1:
                return self._judge(lane, chain, (await self._ledger.commit(batches[0]),))
            return self._judge(lane, chain, await self._ledger.commit_all(batches))
        finally:
            self._watches.landed(lane.key)

    async def _pause(self, losses: int) -> None:
        """Nothing for the first retries; then 1, 2, 4 … ms."""
        if losses > AT_ONCE:
            await self._clock.sleep_until_ms(self._clock.now_ms() + min(1 << losses - AT_ONCE - 1, PAUSE_MS))

    async def _plan(self, lane: _Lane, tickets: list[AnyTicket]) -> list[AnyTicket]:
        """Those that write, in order, each on what the one before leaves; and, between them, what rests on them."""
        held = None if lane.losses else self._tips.seen(lane.key)
        is_current = held is None  # cached, it may have been passed: enough to write on, not enough to answer by
        chain: list[AnyTicket] = []
        if is_current:
            current = await self._tips.current(lane.key)
            if isinstance(current, Failure):
                return _all_failed(tickets, current.failure())
            held = current.unwrap()
        for ticket in tickets:
            if ticket.withdrawn:
                continue
            ticket.plan(held)
            if not (ticket.writes or chain or is_current):
                current = await self._tips.current(lane.key)
                if isinstance(current, Failure):
                    return _all_failed(tickets, current.failure())
                seen, held, is_current = held, current.unwrap(), True
                if held is not seen:
                    ticket.plan(held)
            if ticket.writes or chain:
                chain.append(ticket)
                held = ticket.held
            else:
                ticket.stands()
        return chain

    def _judge(self, lane: _Lane, chain: list[AnyTicket], verdicts: Sequence[Verdict]) -> list[AnyTicket]:
        again: list[AnyTicket] = []
        last: tuple[AnyTicket, Committed] | None = None
        written: list[Batch] = []
        broken = passed = False
        following = iter(verdicts)
        for ticket in chain:
            if not ticket.writes:
                if broken:
                    ticket.lost()
                    again.append(ticket)
                else:
                    ticket.stands()
                continue
            verdict = next(following)
            if isinstance(verdict, Success):
                match verdict.unwrap():
                    case Committed() as committed:
                        ticket.committed()
                        last = ticket, committed
                        written.append(ticket.batch)
                        continue
                    case AlreadyApplied(receipt):
                        ticket.applied(receipt)
            else:
                failure = verdict.failure()
                passed = passed or (not broken and isinstance(failure, Conflict | StoreNotFound))
                again += self._refuse(ticket, failure, passed)
            broken = True
        if last is not None:
            self._advance(lane, *last)
            self._watches.committed(lane.key, written)
        lane.losses = lane.losses + 1 if passed else 0
        return again

    def _refuse(self, ticket: AnyTicket, failure: Refusal | TooLarge | Unavailable, passed: bool) -> list[AnyTicket]:
        """Answer a refused ticket, or give it back. It counts as an attempt only where no neighbour was the reason."""
        match failure:
            case Conflict() | StoreNotFound():
                ticket.attempts += passed
                if ticket.attempts < self._attempts:
                    ticket.lost()
                    return [ticket]
                ticket.failed(Contended(ticket.key, ticket.attempts))
            case ReceiptMismatch() | TooLarge():
                ticket.refused(failure)
            case Fenced() | Unavailable():
                ticket.failed(failure)
        return []

    def _advance(self, lane: _Lane, ticket: AnyTicket, committed: Committed) -> None:
        held = ticket.held
        if held is None:
            self._tips.forget(lane.key)
            return
        if lane.base is not None:
            instance_id, size_bytes = lane.base
            lane.base = None
            held = held.sized(size_bytes) if held.revision.instance_id == instance_id else held
        if wants_base(held) and committed.seqs and not (lane.basing or self._closed):
            lane.basing = True
            self._spawn(self._write_base(lane, committed.seqs[-1], held))
            held = held.based()
        self._tips.keep(lane.key, held)

    async def _write_base(self, lane: _Lane, seq: int, held: Held) -> None:
        """In a batch of its own, after the answer. Where it fails, reading is slower until the next one is due.

        The document is written a slice at a time: the state of a revision is the same for ever.
        """
        try:
            document = bytearray()
            for part in held.slices():
                document += part
                await asyncio.sleep(0)
            if isinstance(await self._ledger.commit(Batch(writes=(WriteBase(seq, bytes(document)),))), Success):
                lane.base = held.revision.instance_id, len(document)
        finally:
            lane.basing = False


def _tell_of_closing(tickets: Iterable[AnyTicket]) -> None:
    for ticket in tickets:
        ticket.failed(Unavailable(CLOSED, "unknown" if ticket.handed_over else "no"))


def _all_failed(tickets: Sequence[AnyTicket], failure: Unavailable) -> list[AnyTicket]:
    for ticket in tickets:
        ticket.failed(failure)
    return []
