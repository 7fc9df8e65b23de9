"""How operations on one store meet: what they share, and what no neighbour may notice."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from pathlib import Path

import pytest

from stepwell import (
    Conflict,
    Failure,
    InvalidState,
    Outcome,
    Revision,
    StepId,
    Store,
    StoreKey,
    StoreNotFound,
    Unavailable,
)
from stepwell.core.batch import Batch, DeleteStore, Document, Receipt, WriteBase
from stepwell.layers.store import Limits
from stepwell.services.ledger import StoreTip, Verdict

from .ledger_double import Gated, LedgerDouble, Rivalled, Scripted
from .store_contract import made, messages
from .store_world import Chat, Counted, World, append, chats, failure, ids_of, open_world, success

KEY = StoreKey("chat", "c")
NO = Unavailable("the disk is full", "no")
UNKNOWN = Unavailable("the disk is gone", "unknown")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("memory", tmp_path) as opened:
        yield opened


async def store_over(world: World, ledger: LedgerDouble, limits: Limits | None = None) -> Store:
    return (await world.client(around=lambda _: ledger, limits=limits)).store


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def writes(batch: Batch, kind: type[object]) -> bool:
    return any(isinstance(write, kind) for write in batch.writes)


# --- sharing ---------------------------------------------------------------------


async def test_callers_of_one_store_share_a_call_of_the_ledger(world: World) -> None:
    gate = Gated(world.memory, opened=True)
    store = await store_over(world, gate)
    await made(store)
    gate.calls.clear()
    results = await asyncio.gather(*(store.update(chats, "c", append(str(n))) for n in range(100)))
    assert sorted(success(result).version for result in results) == list(range(1, 101))
    assert gate.calls == [1, 99]  # the first met nobody; the others came together


@pytest.mark.parametrize("steps", [False, True])
async def test_callers_that_come_again_go_on_sharing(world: World, steps: bool) -> None:
    gate = Gated(world.memory, opened=True)
    store = await store_over(world, gate)
    await made(store)

    async def caller(name: str) -> None:
        for turn in range(10):
            step = StepId(name, str(turn)) if steps else None
            success(await store.update(chats, "c", append(name), step=step))

    gate.calls.clear()
    await asyncio.gather(*(caller(f"caller-{number}") for number in range(50)))
    assert gate.calls[0] == 1
    assert gate.calls.count(50) >= 9
    assert sum(gate.calls) == 500


async def test_other_stores_do_not_wait(world: World) -> None:
    gate = Gated(world.memory)
    await made((await world.client()).store, "slow")
    await made((await world.client()).store, "other")
    store = await store_over(world, gate)
    tasks = [asyncio.create_task(store.update(chats, id, append("x"))) for id in ("slow", "slow", "other")]
    await turns()
    assert gate.calls == [1, 1]  # one of each store is with the ledger
    gate.open()
    assert [success(await task).version for task in tasks] == [1, 2, 1]


async def test_a_call_that_meets_nobody_needs_no_task(world: World) -> None:
    store = (await world.client()).store
    await made(store)
    before = asyncio.all_tasks()
    seen: list[int] = []
    success(await store.update(chats, "c", lambda _: seen.append(len(asyncio.all_tasks() - before))))
    assert seen == [0]


# --- answers that rest on a neighbour ----------------------------------------------


async def test_not_found_after_a_neighbours_deletion_is_given_once_that_is_committed(world: World) -> None:
    failing = True
    gate = Gated(Scripted(world.memory, before=lambda batch: NO if failing and writes(batch, DeleteStore) else None))
    store = await store_over(world, gate)
    gate.open()
    await made(store)
    gate.shut()
    first = asyncio.create_task(store.update(chats, "c", append("first")))
    await turns()
    deletion = asyncio.create_task(store.delete(chats, "c"))
    behind = asyncio.create_task(store.update(chats, "c", append("behind")))
    await turns()
    gate.open()
    assert success(await first).version == 1
    assert failure(await deletion) == NO
    assert success(await behind).version == 2  # the deletion it rested on was not committed
    assert await messages(store) == (2, ["first", "behind"])

    failing = False
    gate.shut()
    first = asyncio.create_task(store.update(chats, "c", append("x")))
    await turns()
    deletion = asyncio.create_task(store.delete(chats, "c"))
    behind = asyncio.create_task(store.update(chats, "c", append("y")))
    await turns()
    gate.open()
    assert success(await first).version == 3
    assert success(await deletion) is None
    assert failure(await behind) == StoreNotFound(KEY)


async def test_what_an_updater_raised_on_a_neighbours_state_is_raised_once_that_is_committed(world: World) -> None:
    gate = Gated(Scripted(world.memory, before=lambda batch: NO if b"poison" in repr(batch).encode() else None))
    store = await store_over(world, gate)
    gate.open()
    await made(store)
    gate.shut()

    def picky(chat: Chat) -> None:
        if "poison" in ids_of(chat):
            raise LookupError("poisoned")
        chat["messages"].append({"id": "picky"})

    first = asyncio.create_task(store.update(chats, "c", append("first")))
    await turns()
    poison = asyncio.create_task(store.update(chats, "c", append("poison")))
    behind = asyncio.create_task(store.update(chats, "c", picky))
    await turns()
    gate.open()
    assert success(await first).version == 1
    assert failure(await poison) == NO
    assert ids_of(success(await behind).state) == ["first", "picky"]


async def test_one_that_fails_takes_no_neighbour_along(world: World) -> None:
    gate = Gated(world.memory)
    await made((await world.client()).store)
    store = await store_over(world, gate)

    def invalid(chat: Chat) -> None:
        chat["messages"].append({"id": 1})  # type: ignore[typeddict-item]  # pyright: ignore[reportArgumentType]

    def raises(chat: Chat) -> None:
        chat["messages"].append({"id": "never"})
        raise KeyError("mine")

    def stops(chat: Chat) -> None:
        raise StopIteration

    snapshot = success(await store.get(chats, "c"))
    calls = [
        store.update(chats, "c", append("a")),
        store.update(chats, "c", invalid),
        store.update(chats, "c", append("b")),
        store.update(chats, "c", raises),
        store.update_from(chats, "c", snapshot, append("late")),
        store.update(chats, "c", stops),
        store.update(chats, "c", append("c")),
    ]
    tasks = [asyncio.create_task(call) for call in calls]
    await turns()
    gate.open()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result).__name__ for result in results] == [
        *("Success", "Failure", "Success", "KeyError", "Failure", "RuntimeError", "Success")
    ]
    assert isinstance(tasks[1].result().failure(), InvalidState)
    assert isinstance(tasks[4].result().failure(), Conflict)
    assert await messages(store) == (3, ["a", "b", "c"])


async def test_an_exception_reaches_its_own_caller_with_its_traceback(world: World) -> None:
    gate = Gated(world.memory)
    await made((await world.client()).store)
    store = await store_over(world, gate)

    def fails_here(chat: Chat) -> None:
        raise ZeroDivisionError("by zero")

    first = asyncio.create_task(store.update(chats, "c", append("a")))
    failing = asyncio.create_task(store.update(chats, "c", fails_here))
    behind = asyncio.create_task(store.update(chats, "c", append("b")))
    await turns()
    gate.open()
    with pytest.raises(ZeroDivisionError) as raised:
        await failing
    assert "fails_here" in "".join(traceback.format_exception(raised.value))
    assert [success(await task).version for task in (first, behind)] == [1, 2]


async def test_updaters_see_the_context_of_their_caller(world: World) -> None:
    who: ContextVar[str] = ContextVar("who")
    gate = Gated(world.memory)
    await made((await world.client()).store)
    store = await store_over(world, gate)

    async def caller(name: str) -> None:
        who.set(name)
        success(await store.update(chats, "c", lambda chat: chat["messages"].append({"id": who.get()})))

    tasks = [asyncio.create_task(caller(name)) for name in ("ann", "bob", "cid")]
    await turns()
    gate.open()
    await asyncio.gather(*tasks)
    assert (await messages(store))[1] == ["ann", "bob", "cid"]


# --- other processes ----------------------------------------------------------------


async def test_a_whole_round_that_was_passed_is_planned_again(world: World) -> None:
    other = (await world.client()).store
    await made(other)
    passes = 2

    async def rival() -> None:
        nonlocal passes
        if passes:
            passes -= 1
            success(await other.update(chats, "c", append("other")))

    store = await store_over(world, Rivalled(world.memory, rival))
    updaters = [Counted(append(str(number))) for number in range(5)]
    results = await asyncio.gather(*(store.update(chats, "c", updater) for updater in updaters))
    assert sorted(success(result).version for result in results) == [2, 4, 5, 6, 7] or passes == 0
    version, ids = await messages(other)
    assert (version, sorted(ids)) == (7, ["0", "1", "2", "3", "4", "other", "other"])


async def test_a_version_that_another_made_is_not_taken_for_the_neighbours(world: World) -> None:
    """Two versions of one name: the rival's 2 is not the 2 on which the second of the round was planned."""
    other = (await world.client()).store
    await made(other)
    gate = Gated(world.memory)
    store = await store_over(world, gate)
    tasks = [asyncio.create_task(store.update(chats, "c", append(name))) for name in ("first", "x", "y")]
    await turns()
    gate.let_one()
    assert success(await tasks[0]).version == 1
    await turns()
    assert gate.calls == [1, 2]  # x and y are with the ledger, planned on 1 and on 2
    success(await other.update(chats, "c", append("other")))
    gate.open()
    for task in tasks[1:]:
        assert ids_of(success(await task).state)[:2] == ["first", "other"]
    version, ids = await messages(other)
    assert (version, sorted(ids)) == (4, ["first", "other", "x", "y"])


async def test_reads_see_what_another_client_committed_and_nothing_that_is_not_committed(world: World) -> None:
    gate = Gated(world.memory)
    store, other = await store_over(world, gate), (await world.client()).store
    await made(other)
    success(await store.get(chats, "c"))
    for number in range(3):
        success(await other.update(chats, "c", append(str(number))))
        assert await messages(store) == (number + 1, [str(n) for n in range(number + 1)])
    pending = asyncio.create_task(store.update(chats, "c", append("pending")))
    await turns()
    assert await messages(store) == await messages(other) == (3, ["0", "1", "2"])
    gate.open()
    success(await pending)
    assert (await messages(store))[1][-1] == "pending"
    success(await other.delete(chats, "c"))
    assert isinstance(failure(await store.get(chats, "c")), StoreNotFound)
    again = await made(other)
    assert success(await store.get(chats, "c")).revision == again.revision


async def test_a_conflict_is_never_judged_by_what_was_cached(world: World) -> None:
    store, other = (await world.client()).store, (await world.client()).store
    await made(store)
    updated = success(await other.update(chats, "c", append("other")))  # `store` has not seen it
    later = success(await store.update_from(chats, "c", updated.revision, append("mine")))
    assert later.version == 2
    success(await other.delete(chats, "c"))
    assert failure(await store.update(chats, "c", append("late"))) == StoreNotFound(KEY)
    again = await made(other)
    assert success(await store.update_from(chats, "c", again, append("new"))).version == 1

    def picky(chat: Chat) -> None:
        if len(chat["messages"]) < 2:
            raise LookupError("too few")

    success(await other.update(chats, "c", append("second")))
    success(await store.update(chats, "c", picky))  # what it raises on the state of before is nobody's answer


async def test_a_step_that_another_client_applies_meanwhile_is_answered_by_its_receipt(world: World) -> None:
    step = StepId("run", "key")
    other = (await world.client()).store
    snapshot = await made(other)

    class Meanwhile(LedgerDouble):
        """The other client applies the step after this one has looked for its receipt."""

        async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
            found = await super().receipt(key, step)
            success(await other.update_from(chats, "c", snapshot, append("x"), step=step))
            return found

    store = await store_over(world, Meanwhile(world.memory))
    updated = success(await store.update_from(chats, "c", snapshot, append("x"), step=step))
    assert (updated.version, ids_of(updated.state)) == (1, ["x"])
    assert await messages(other) == (1, ["x"])


# --- failures of the ledger ----------------------------------------------------------


@pytest.mark.parametrize("unavailable", [NO, UNKNOWN])
async def test_unavailable_passes_through_and_the_next_call_works(world: World, unavailable: Unavailable) -> None:
    failing = True
    scripted = Scripted(world.memory, before=lambda _: unavailable if failing else None)
    await made((await world.client()).store)
    store = await store_over(world, scripted)
    results = await asyncio.gather(*(store.update(chats, "c", append(str(n))) for n in range(5)))
    assert [failure(result) for result in results] == [unavailable] * 5
    assert failure(await store.delete(chats, "c")) == unavailable
    assert failure(await store.get_or_create(chats, "new", {"messages": []})) == unavailable
    failing = False
    assert success(await store.update(chats, "c", append("x"))).version == 1
    assert await messages(store) == (1, ["x"])


async def test_with_a_step_an_unclear_commit_is_settled_by_the_next_call(world: World) -> None:
    failing = True
    scripted = Scripted(world.memory, after=lambda _: UNKNOWN if failing else None)
    await made((await world.client()).store)
    store = await store_over(world, scripted)
    step = StepId("run", "key")
    updater = Counted(append("x"))
    assert failure(await store.update(chats, "c", updater, step=step)) == UNKNOWN
    failing = False
    updated = success(await store.update(chats, "c", updater, step=step))
    assert (updated.version, updater.runs) == (1, 1)
    assert await messages(store) == (1, ["x"])
    assert success(await store.update(chats, "c", append("y"))).version == 2  # though the tip was not known


async def test_a_reading_that_fails_is_unavailable(world: World) -> None:
    class Unreadable(LedgerDouble):
        failing = True

        async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
            return Failure(NO) if self.failing else await super().tip(key)

        async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
            return Failure(NO) if self.failing else await super().document(key, at)

        async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
            return Failure(NO) if self.failing else await super().receipt(key, step)

        async def stores(self, name: str | None = None) -> Outcome[tuple[StoreTip, ...], Unavailable]:
            return Failure(NO) if self.failing else await super().stores(name)

    snapshot = await made((await world.client()).store)
    ledger = Unreadable(world.memory)
    store = await store_over(world, ledger)
    step = StepId("run", "key")
    updater = Counted(append("x"))
    for outcome in (
        await store.get(chats, "c"),
        await store.get_or_create(chats, "c", {"messages": []}),
        await store.update(chats, "c", updater),
        await store.update(chats, "c", updater, step=step),
        await store.update_from(chats, "c", snapshot, updater),
        await store.delete(chats, "c"),
        await store.delete_from(chats, "c", snapshot),
        await store.list_ids(chats),
    ):
        assert failure(outcome) == NO
    assert updater.runs == 0
    ledger.failing = False
    assert success(await store.update(chats, "c", updater, step=step)).version == 1
    ledger.failing = True
    assert failure(await store.update(chats, "c", updater, step=step)) == NO
    assert updater.runs == 1


async def test_a_bug_in_the_ledger_reaches_those_whom_it_met_and_nobody_else(world: World) -> None:
    class Broken(LedgerDouble):
        broken = True

        async def commit(self, batch: Batch) -> Verdict:
            (verdict,) = await self.commit_all((batch,))
            return verdict

        async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
            await asyncio.sleep(0)
            if self.broken:
                raise OSError("a bug")
            return await super().commit_all(batches)

    await made((await world.client()).store)
    ledger = Broken(world.memory)
    store = await store_over(world, ledger)
    results = await asyncio.gather(
        *(store.update(chats, "c", append(str(n))) for n in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [OSError] * 3
    ledger.broken = False
    assert success(await store.update(chats, "c", append("x"))).version == 1


def set_unrelated(number: int) -> Callable[[Chat], None]:
    return lambda chat: chat.update({"unrelated": number})


# --- bases and the cache ---------------------------------------------------------------


class Bases(LedgerDouble):
    """Counts the bases that are written, and can refuse them."""

    written = 0
    refusing = False

    async def commit(self, batch: Batch) -> Verdict:
        if writes(batch, WriteBase):
            assert len(batch.writes) == 1  # in a batch of its own
            if self.refusing:
                return Failure(NO)
            self.written += 1
        return await super().commit(batch)


async def test_a_long_log_gets_a_base_beside_the_answers(world: World) -> None:
    ledger = Bases(world.memory)
    store = await store_over(world, ledger)
    await made(store)
    for number in range(250):
        success(await store.update(chats, "c", set_unrelated(number)))
    await turns()
    assert 2 <= ledger.written <= 4
    document = success(await world.memory.document(KEY))
    assert document is not None
    assert len(document.patches) <= 110
    fresh = (await world.client()).store
    assert success(await fresh.get(chats, "c")).state.get("unrelated") == 249


async def test_a_base_that_cannot_be_written_harms_nobody(world: World) -> None:
    ledger = Bases(world.memory)
    ledger.refusing = True
    store = await store_over(world, ledger)
    await made(store)
    for number in range(250):
        success(await store.update(chats, "c", set_unrelated(number)))
    await turns()
    assert ledger.written == 0
    fresh = (await world.client()).store
    assert success(await fresh.get(chats, "c")).state.get("unrelated") == 249
    for number in range(5):  # it has read the long log, and pays for it at once
        success(await fresh.update(chats, "c", set_unrelated(number)))
    await turns()
    document = success(await world.memory.document(KEY))
    assert document is not None
    assert len(document.patches) <= 5


@pytest.mark.parametrize("limits", [Limits(tips=2), Limits(tip_bytes=64)])
async def test_more_stores_than_the_cache_holds(world: World, limits: Limits) -> None:
    store = (await world.client(limits=limits)).store
    names = [f"c-{number}" for number in range(6)]
    for name in names:
        await made(store, name)
    for turn in range(1, 4):
        for name in names:
            assert success(await store.update(chats, name, append(str(turn)))).version == turn
    for name in names:
        assert await messages(store, name) == (3, ["1", "2", "3"])
