"""Watches: who waits in memory until a selector finds something in a store, and what makes them look again.

A wait has no durable row. It looks, is parked under what the selector read, and looks again only when that may differ:

    a commit here     the lanes name the paths that it changed: whoever read one of them is released
    any other commit  the ledger's news: the tips of the watched stores are compared, and where one has moved, what the
                      patches since then touch counts
    a deletion        all who wait for the store are released: a wait belongs to the instance that it looked at
    the poll          in case that no news came: the tip is compared
    the deadline      it looks once more: a match wins

Whoever is released is told over the wake bus, under an id of its own; with a bus that never wakes the poll is left. The
moment of the bus and the count of news are taken before each look, so that nothing between look and park is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, final

from ..core import patch
from ..core.batch import Batch, CreateStore, DeleteStore, PatchStore
from ..core.held import Held
from ..core.look import decide_look
from ..core.model import InvalidState, Paths, Revision, StoreKey, StoreNotFound, TimedOut, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..core.poll import DEFAULT_POLL, PollPolicy
from ..core.schema import StateSchema
from ..core.waiter_index import WaiterIndex
from ..services.clock import Clock
from ..services.ids import Ids
from ..services.ledger import Ledger, News
from ..services.wake_bus import WakeBus, WakeToken
from .tip_cache import TipCache

__all__ = ["Watches"]

_R = TypeVar("_R")
_T = TypeVar("_T")

CLOSED: Final = "the store was closed while a call waited"

TURNS: Final = 4
"""How many turns of the loop news wait before tips are compared: what was committed here has been told by then."""

SLICE: Final = 64
"""How many tips are compared before the loop gets a turn."""

REST: Final = 9
"""For how many times as long as it took to compare all tips they are left alone, up to `LONGEST_REST_MS`."""

LONGEST_REST_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class _Wait:
    """`here`: it was released by a commit of this process, whose state is the tip that was last seen."""

    id: str
    seen: Revision | None = None
    read_paths: Paths = ()
    here: bool = False
    hint: asyncio.Task[None] | None = None
    timer: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Watch:
    """A store that is waited for: by how many, who is parked, and up to which revision they have been told."""

    waits: int = 0
    told: Revision | None = None
    parked: dict[_Wait, None] = field(default_factory=dict[_Wait, None])
    index: WaiterIndex[_Wait] = field(default_factory=WaiterIndex[_Wait])

    def park(self, wait: _Wait) -> None:
        self.parked[wait] = None
        for path in wait.read_paths:
            self.index.add(path, wait)

    def unpark(self, wait: _Wait) -> None:
        if wait in self.parked:
            del self.parked[wait]
            for path in wait.read_paths:
                self.index.remove(path, wait)


@final
class Watches:
    """The waits of one store service, over one ledger and one event loop."""

    def __init__(
        self, ledger: Ledger, clock: Clock, ids: Ids, bus: WakeBus, tips: TipCache, poll: PollPolicy = DEFAULT_POLL
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._bus = bus
        self._tips = tips
        self._poll = poll
        self._watches: dict[StoreKey, _Watch] = {}
        self._waits: dict[_Wait, None] = {}
        self._news = 0
        self._unsubscribe: Callable[[], None] | None = None
        self._flights: dict[StoreKey, asyncio.Future[None] | None] = {}
        self._to_compare = False
        self._comparing: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def close(self) -> None:
        """Whoever still waits gets `Unavailable`."""
        self._closed = True
        tasks = [wait.timer for wait in self._waits if wait.timer is not None]
        tasks += [*self._tasks, *([self._comparing] if self._comparing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- waiting --------------------------------------------------------------

    async def when(
        self,
        key: StoreKey,
        schema: StateSchema[_T],
        selector: Callable[[_T], _R | Literal[False] | None],
        timeout_ms: int | None,
    ) -> Outcome[_R, StoreNotFound | InvalidState | TimedOut | Unavailable]:
        """What the selector finds, at once or as soon as it finds something. Cancelled, it leaves nothing behind."""
        deadline_ms = None if timeout_ms is None else self._clock.now_ms() + timeout_ms
        wait = _Wait(self._ids.new())
        polls = 0
        try:
            while not self._closed:
                token, news = self._bus.token(wait.id), self._news
                is_late = deadline_ms is not None and self._clock.now_ms() >= deadline_ms
                current = await self._current(key, wait)
                if isinstance(current, Failure):
                    return current
                held = current.unwrap()
                if held is None or (wait.seen is not None and held.revision.instance_id != wait.seen.instance_id):
                    return Failure(StoreNotFound(key))
                if held.revision != wait.seen:
                    outcome = decide_look(key, schema, held, selector)
                    if not isinstance(outcome, Success):
                        return Failure(outcome.failure())
                    looked = outcome.unwrap()
                    if looked.selected is not None and looked.selected is not False:
                        return Success(looked.selected)
                    if wait in self._waits:
                        self._watches[key].unpark(wait)  # from under what it read before
                    wait.seen, wait.read_paths = looked.revision, looked.read_paths
                if is_late and timeout_ms is not None:
                    return Failure(TimedOut(timeout_ms))
                if self._closed:
                    break
                if wait not in self._waits:
                    self._enter(key, wait)  # and then once more, since what came meanwhile was not heard of
                elif self._park(key, wait, held.revision, news):
                    poll_ms = self._clock.now_ms() + self._poll.pause_ms(polls + 1)
                    until_ms = poll_ms if deadline_ms is None else min(poll_ms, deadline_ms)
                    polls += await self._sleep(wait, token, until_ms)
            return Failure(Unavailable(CLOSED, "no"))
        finally:
            self._leave(key, wait)
            if wait.hint is not None:
                await _end(wait.hint)

    async def _current(self, key: StoreKey, wait: _Wait) -> Outcome[Held | None, Unavailable]:
        """A state that was in force since the last look."""
        seen, here, wait.here = wait.seen, wait.here, False
        held = self._tips.seen(key) if here else None
        if held is not None and seen is not None and _is_after(held.revision, seen):
            return Success(held)  # which needs no question of the ledger for each of thousands
        return await self._tips.current(key)

    async def _sleep(self, wait: _Wait, token: WakeToken, until_ms: int) -> bool:
        """Until the bus wakes, or until the instant; whether it was the instant. Then the bus is still listened to."""
        loop = asyncio.get_running_loop()
        hint = wait.hint = wait.hint or loop.create_task(self._bus.await_wake(wait.id, token))
        timer = wait.timer = loop.create_task(self._clock.sleep_until_ms(until_ms))
        try:
            await asyncio.wait((hint, timer), return_when=asyncio.FIRST_COMPLETED)
            if hint.done():
                wait.hint = None
                if hint.cancelled() or hint.exception() is not None:  # a bus that fails is one that never wakes
                    await asyncio.wait((timer,))
            return timer.done()
        finally:
            wait.timer = None
            await _end(timer)

    # --- who waits ------------------------------------------------------------

    def _enter(self, key: StoreKey, wait: _Wait) -> None:
        self._waits[wait] = None
        self._watches.setdefault(key, _Watch()).waits += 1
        if self._unsubscribe is None:
            self._unsubscribe = self._ledger.subscribe(self._hear)

    def _leave(self, key: StoreKey, wait: _Wait) -> None:
        if wait not in self._waits:
            return
        del self._waits[wait]
        watch = self._watches[key]
        watch.unpark(wait)
        watch.waits -= 1
        if watch.waits == 0:
            del self._watches[key]
        if not self._waits and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            if self._comparing is not None:
                self._comparing.cancel()

    def _park(self, key: StoreKey, wait: _Wait, seen: Revision, news: int) -> bool:
        """Let commits after `seen` release the wait. False: there was one already, so that it has to look again."""
        watch = self._watches[key]
        told = watch.told
        if told is not None and _is_after(told, seen):
            return False
        if told is None or not watch.parked:
            watch.told = seen  # nobody else has to be told of what came before
        elif told != seen:
            if told.instance_id != seen.instance_id:  # one of the two is gone: the comparison tells which
                self._release(watch, list(watch.parked))
                watch.told = seen
            self._compare_soon()
        if news != self._news:
            self._compare_soon()
        watch.park(wait)
        return True

    # --- what releases --------------------------------------------------------

    def committing(self, key: StoreKey) -> None:
        """The ledger gets batches on this store; `landed` follows in any case. One flight at a time for each store."""
        self._flights[key] = None

    def landed(self, key: StoreKey) -> None:
        """The verdicts are there, or will not be heard of; what was committed has been told."""
        waiting = self._flights.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _landing(self, key: StoreKey) -> None:
        """Return when what is on its way has been told: its paths are known exactly, those of a patch only roughly."""
        if key in self._flights:
            waiting = self._flights[key]
            if waiting is None or waiting.done():  # whoever waited before was ended
                waiting = self._flights[key] = asyncio.get_running_loop().create_future()
            await waiting

    def committed(self, key: StoreKey, batches: Iterable[Batch]) -> None:
        """Batches on this store were committed here, in this order, and its tip has been seen."""
        watch = self._watches.get(key)
        if watch is None:
            return
        for batch in batches:
            for write in batch.writes:
                match write:
                    case PatchStore():
                        changed = patch.touched(patch.decode(write.patch)) if write.changed is None else write.changed
                        self._changed(watch, write.revision, changed, here=True)
                    case DeleteStore():
                        self._release(watch, list(watch.parked))
                        watch.told = None
                    case CreateStore():
                        watch.told = write.revision
                    case _:
                        pass

    def _changed(self, watch: _Watch, revision: Revision, changed: Paths, *, here: bool) -> None:
        told = watch.told
        if told is None or not _is_after(revision, told):
            return
        found = watch.index.match(changed)
        met = [wait for wait in found if wait.seen is not None and _is_after(revision, wait.seen)]
        met.sort(key=_by_id)  # they get their turns in the order in which they began to wait
        for wait in met:
            wait.here = here
        self._release(watch, met)
        if revision.version == told.version + 1:
            watch.told = revision
        else:
            self._compare_soon()  # others have committed in between

    def _release(self, watch: _Watch, waits: list[_Wait]) -> None:
        for wait in waits:
            watch.unpark(wait)
        if waits:
            self._spawn(self._wake([wait.id for wait in waits]))

    async def _wake(self, ids: list[str]) -> None:
        for id in ids:
            try:
                await self._bus.wake(id)
            except Exception:  # whatever a bus may raise: a wake is a hint, and the poll finds what it was about
                continue

    # --- what others committed --------------------------------------------------

    def _hear(self, news: News) -> None:
        self._news += 1
        self._compare_soon()

    def _compare_soon(self) -> None:
        self._to_compare = True
        if self._comparing is None and not self._closed:
            self._comparing = asyncio.get_running_loop().create_task(self._compare())
            self._comparing.add_done_callback(self._compared)

    def _compared(self, _: asyncio.Task[None]) -> None:
        self._comparing = None
        if self._to_compare and self._watches:  # it was ended with the last wait, and there is a new one
            self._compare_soon()

    async def _compare(self) -> None:
        """Compare the tips of the watched stores while there are news; it takes a tenth of the time at most."""
        while self._to_compare:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self._to_compare = False
            began_ms = self._clock.now_ms()
            for place, key in enumerate(list(self._watches), 1):
                await self._compare_store(key)
                if place % SLICE == 0:
                    await asyncio.sleep(0)
            now_ms = self._clock.now_ms()
            rest_ms = min(REST * (now_ms - began_ms), LONGEST_REST_MS)
            if rest_ms > 0:
                await self._clock.sleep_until_ms(now_ms + rest_ms)

    async def _compare_store(self, key: StoreKey) -> None:
        """Release those who may have been met by commits that nobody named; nobody, where the ledger cannot answer."""
        if not self._is_behind(key, None):
            return
        answer = await self._ledger.tip(key)
        if isinstance(answer, Failure):
            return
        tip = answer.unwrap()
        if self._is_behind(key, tip):
            await self._landing(key)
        watch = self._watches.get(key)
        if watch is None or watch.told is None or not self._is_behind(key, tip):
            return
        told, commits = watch.told, None
        if tip is not None and tip.instance_id == told.instance_id:
            tail = await self._ledger.tail(key, told)
            if isinstance(tail, Failure):
                return
            commits = tail.unwrap()
            await self._landing(key)
        if commits is not None:
            for commit in commits:
                if self._is_behind(key, commit.revision):
                    self._changed(watch, commit.revision, patch.touched(patch.decode(commit.patch)), here=False)
        elif watch.told == told:  # the instance is gone, or its log does not reach back so far
            self._release(watch, list(watch.parked))
            watch.told = tip
        else:
            self._to_compare = True

    def _is_behind(self, key: StoreKey, tip: Revision | None) -> bool:
        """Whether somebody waits for the store who has not been told of `tip`."""
        watch = self._watches.get(key)
        told = None if watch is None else watch.told
        return told is not None and told != tip and (tip is None or not _is_after(told, tip))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _end(task: asyncio.Task[None]) -> None:
    """Let a task end that nobody needs any more, however it ends."""
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        _ = task.exception()  # which asyncio would report as one that nobody has seen


def _by_id(wait: _Wait) -> str:
    return wait.id


def _is_after(revision: Revision, other: Revision) -> bool:
    return revision.instance_id == other.instance_id and revision.version > other.version
