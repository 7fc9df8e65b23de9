"""Random programs of several clients on a few stores, under a ledger that fails and lets others pass, against a model.

Every update appends a token of its own, so a state tells which updates led to it and in which order. What is checked:

- of each instance, versions are contiguous, and the state at a version is the tokens of the updates up to it;
- an update that succeeded is there once, one that failed is not, and one that is unclear is there at most once;
- a step is applied at most once, and all its successes are one and the same;
- time: whatever began after another call had ended sees what that call left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from stepwell import (
    Conflict,
    Contended,
    Deleted,
    Failure,
    InvalidState,
    Ledger,
    Outcome,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StepId,
    StoreKey,
    StoreNotFound,
    Success,
    TooLarge,
    Unavailable,
    Updated,
    define_store,
)
from stepwell.core.batch import Batch, Document, Receipt
from stepwell.core.patch import replay_json
from stepwell.layers.ids import CountedIds
from stepwell.layers.memory.ledger import MemoryLedger
from stepwell.layers.store import LedgerStore, Limits
from stepwell.layers.wake_bus import MemoryWakeBus
from stepwell.services.ledger import Verdict

from .ledger_double import LedgerDouble
from .store_world import PassingClock

tokens = define_store("histories", list[str])

Fault: TypeAlias = Literal["none", "no", "lost", "applied"]
Kind: TypeAlias = Literal["update", "update_from", "get", "create", "delete", "delete_from"]


Gave: TypeAlias = Outcome[
    Snapshot[list[str]] | Updated[list[str]] | Deleted | None,
    Conflict | StoreNotFound | InvalidState | Contended | ReceiptMismatch | TooLarge | Unavailable,
]


@dataclass(frozen=True)
class Call:
    kind: Kind
    id: str
    step: int | None
    pause: int  # turns of the loop before it


@dataclass(frozen=True)
class Done:
    """A call that has ended: what it was, what it gave, and when it began and ended."""

    call: Call
    token: str
    outcome: Gave
    began: int
    ended: int


class Faulty(LedgerDouble):
    """Follows a script: how many turns each call takes, and how each commit ends."""

    def __init__(self, real: Ledger, turns: Sequence[int], faults: Sequence[Fault]) -> None:
        super().__init__(real)
        self._turns = list(turns)
        self._faults = list(faults)

    async def _pause(self) -> None:
        for _ in range(self._turns.pop() if self._turns else 0):
            await asyncio.sleep(0)

    async def commit(self, batch: Batch) -> Verdict:
        (verdict,) = await self.commit_all((batch,))
        return verdict

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        await self._pause()
        fault = self._faults.pop() if self._faults else "none"
        if fault == "no":
            return tuple(Failure(Unavailable("refused", "no")) for _ in batches)
        if fault == "lost":
            return tuple(Failure(Unavailable("cut off", "unknown")) for _ in batches)
        verdicts = await super().commit_all(batches)
        await self._pause()
        if fault == "applied":
            return tuple(Failure(Unavailable("cut off", "unknown")) for _ in batches)
        return verdicts

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        await self._pause()
        found = await super().tip(key)
        await self._pause()
        return found

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        await self._pause()
        return await super().document(key, at)

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        await self._pause()
        return await super().receipt(key, step)


@dataclass
class History:
    """The calls of a program as they ended, on a clock that counts beginnings and ends."""

    done: list[Done] = field(default_factory=list[Done])
    time: int = 0

    def tick(self) -> int:
        self.time += 1
        return self.time

    async def run(self, store: LedgerStore, name: str, program: Sequence[Call]) -> None:
        """One task of a client, one call after the other. Conditional calls use the last revision that it saw."""
        seen: dict[str, Revision] = {}
        for number, call in enumerate(program):
            for _ in range(call.pause):
                await asyncio.sleep(0)
            step = None if call.step is None else StepId("run", f"{call.kind}-{call.step}")
            token = f"{name}.{number}" if step is None else step.key
            began = self.tick()
            outcome = await perform(store, call, token, step, seen.get(call.id, Revision("none", 0)))
            self.done.append(Done(call, token, outcome, began, self.tick()))
            if (saw := observed(self.done[-1])) is not None:
                seen[call.id] = saw[0]


async def perform(store: LedgerStore, call: Call, token: str, step: StepId | None, seen: Revision) -> Gave:
    def updater(state: list[str]) -> None:
        state.append(token)

    match call.kind:
        case "update":
            return await store.update(tokens, call.id, updater, step=step)
        case "update_from":
            return await store.update_from(tokens, call.id, seen, updater, step=step)
        case "get":
            return await store.get(tokens, call.id)
        case "create":
            return await store.get_or_create(tokens, call.id, [])
        case "delete":
            return await store.delete(tokens, call.id)
        case "delete_from":
            return await store.delete_from(tokens, call.id, seen, step=step)


# --- checking --------------------------------------------------------------------


def observed(done: Done) -> tuple[Revision, list[str]] | None:
    """The revision and the state that a call saw or made."""
    if isinstance(done.outcome, Failure):
        return None
    value = done.outcome.unwrap()
    return (value.revision, value.state) if isinstance(value, Snapshot | Updated) else None


def check_states(history: History) -> dict[Revision, list[str]]:
    """One state for each revision, each version with one token more than the one before."""
    states: dict[Revision, list[str]] = {}
    for done in history.done:
        if (seen := observed(done)) is not None:
            revision, state = seen
            assert states.setdefault(revision, state) == state
            assert len(state) == len(set(state)) == revision.version
    for revision, state in states.items():
        for other, longer in states.items():
            if other.instance_id == revision.instance_id and other.version > revision.version:
                assert longer[: len(state)] == state
    return states


def check_updates(history: History, states: dict[Revision, list[str]]) -> None:
    by_step: dict[tuple[str, str], Revision] = {}
    for done in history.done:
        if isinstance(done.outcome, Failure):
            failure = done.outcome.failure()
            assert not isinstance(failure, Conflict) or failure.expected != failure.actual
            continue
        value = done.outcome.unwrap()
        if isinstance(value, Updated):
            assert (value.previous_version, value.state[-1]) == (value.version - 1, done.token)
            if done.call.step is not None:
                assert by_step.setdefault((done.call.id, done.token), value.revision) == value.revision
    for token in (done.token for done in history.done if done.call.step is None and is_untouched(done.outcome)):
        assert not any(token in state for state in states.values())


def is_untouched(outcome: Gave) -> bool:
    """Whether the call says that nothing was changed."""
    if not isinstance(outcome, Failure):
        return False
    failure = outcome.failure()
    return not isinstance(failure, Unavailable) or failure.applied == "no"


def check_time(history: History) -> None:
    """What began after another call had ended sees no earlier version of the same instance."""
    for earlier in history.done:
        before = observed(earlier)
        if before is None or earlier.call.step is not None:  # a step's result is of when it was applied
            continue
        for later in history.done:
            after = observed(later)
            if after is None or later.call.step is not None or later.began < earlier.ended:
                continue
            if later.call.id == earlier.call.id and after[0].instance_id == before[0].instance_id:
                assert after[0].version >= before[0].version


def check_absence(history: History) -> None:
    """A store is missing only where a deletion may have come between; and one that was deleted is gone."""
    deletions = [done for done in history.done if done.call.kind in ("delete", "delete_from")]
    for done in history.done:
        if isinstance(done.outcome, Failure) and isinstance(done.outcome.failure(), StoreNotFound):
            creations = [other for other in history.done if other.call.id == done.call.id and observed(other)]
            if any(other.ended < done.began for other in creations):
                assert any(other.call.id == done.call.id and other.began < done.ended for other in deletions)


calls = st.builds(
    Call,
    st.sampled_from(["update", "update", "update", "update_from", "get", "create", "delete", "delete_from"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, None, 1, 2]),
    st.integers(0, 3),
)
programs = st.lists(st.lists(calls, min_size=1, max_size=6), min_size=1, max_size=4)
faults = st.lists(st.sampled_from(["none", "none", "none", "none", "no", "lost", "applied"]), max_size=30)


@given(
    st.lists(st.tuples(programs, st.lists(st.integers(0, 4), max_size=60), faults), min_size=1, max_size=3),
    st.sampled_from([Limits(), Limits(round_size=1), Limits(tips=1), Limits(attempts=2)]),
)
def test_histories_are_those_of_the_model(
    clients: list[tuple[list[list[Call]], list[int], list[Fault]]], limits: Limits
) -> None:
    asyncio.run(play(clients, limits))


async def play(clients: list[tuple[list[list[Call]], list[int], list[Fault]]], limits: Limits) -> None:
    """Each client is a store of its own over the one ledger; each of its programs is a task."""
    clock, ids = PassingClock(), CountedIds()
    memory = MemoryLedger(clock)
    history = History()
    stores = [
        LedgerStore(Faulty(memory, turns, faults), clock, ids, MemoryWakeBus(), limits) for _, turns, faults in clients
    ]
    final = LedgerStore(memory, clock, ids, MemoryWakeBus())
    for id in ("a", "b"):
        await final.get_or_create(tokens, id, [])
    await asyncio.gather(
        *(
            history.run(store, f"{at}.{number}", program)
            for at, (store, (tasks, _, _)) in enumerate(zip(stores, clients, strict=True))
            for number, program in enumerate(tasks)
        )
    )
    for id in ("a", "b"):
        await history.run(final, f"final-{id}", [Call("get", id, None, 0), Call("create", id, None, 0)])
    check_updates(history, check_states(history))
    check_time(history)
    check_absence(history)
    check_contention(history, limits)
    await check_log(memory, history)
    for store in stores:
        await store.close()


def check_contention(history: History, limits: Limits) -> None:
    for done in history.done:
        if isinstance(done.outcome, Failure) and isinstance(failure := done.outcome.failure(), Contended):
            assert failure.attempts == limits.attempts


async def check_log(memory: MemoryLedger, history: History) -> None:
    """Over all instances, each token was committed at most once to a store, and once if its update succeeded."""
    for id in ("a", "b"):
        seen = [saw for done in history.done if done.call.id == id and (saw := observed(done)) is not None]
        longest: dict[str, list[str]] = {}
        for revision, state in sorted(seen, key=lambda saw: saw[0].version):
            longest[revision.instance_id] = state
        found = [token for state in longest.values() for token in state]
        assert len(found) == len(set(found))
        for done in history.done:
            if done.call.id == id and isinstance(done.outcome, Success) and "update" in done.call.kind:
                assert found.count(done.token) == 1
        for revision, state in seen:  # what was read is what is kept
            document = (await memory.document(StoreKey("histories", id), revision)).unwrap()
            assert document is not None
            assert json.loads(replay_json(document.base, document.patches)) == state
