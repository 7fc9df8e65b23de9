"""What a store that the engine can join must do: an operation and the rows of its run in one batch."""

from __future__ import annotations

import asyncio

import pytest

from stepwell import (
    Conflict,
    Deleted,
    Failure,
    InvalidState,
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
)
from stepwell.core.batch import Batch, ChangeRun, Fenced, InsertRun, NoRun, RunFence, StoreAt, WriteStep
from stepwell.core.operation import Create, Delete, DeleteFrom, Update, UpdateFrom
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow, StepStatus
from stepwell.layers.store import Limits
from stepwell.services.store import Joinable

from .ledger_double import Gated, Scripted
from .store_contract import made, messages
from .store_world import Chat, Client, Counted, World, append, chats, empty, failure, ids_of, success

KEY = StoreKey("chat", "c")
RUN = "run-1"


class Join:
    """Records what became of a store call as a step of the run, under its fence."""

    def __init__(self, key: str = "key", fence: int = 0, size_bytes: int = 0) -> None:
        self.outcomes: list[Outcome[object, object]] = []
        self._key = key
        self._fence = fence
        self._size_bytes = size_bytes

    def __call__(self, outcome: Outcome[object, object]) -> Batch:
        self.outcomes.append(outcome)
        status: StepStatus = "done" if isinstance(outcome, Success) else "failed"
        value = b"0" * self._size_bytes if isinstance(outcome, Success) else b"null"
        row = StepRow(run_id=RUN, key=self._key, kind="k", target="t", status=status, value=value, recorded_at_ms=0)
        return Batch((RunFence(RUN, self._fence),), (WriteStep(row),))


async def running(client: Client) -> None:
    """There is a run, at fence 0."""
    row = RunRow(id=RUN, workflow="w", created_at_ms=0, updated_at_ms=0)
    success(await client.ledger.commit(Batch((NoRun(RUN),), (InsertRun(row),))))


async def recorded(client: Client) -> dict[str, str]:
    return {row.key: row.status for row in success(await client.ledger.steps(RUN))}


def update(id: str, step: StepId | None = None) -> Update[Chat]:
    return Update(KEY, chats.schema, append(id), step)


class StoreApplyContract:
    async def test_the_store_can_be_joined(self, world: World) -> None:
        assert isinstance((await world.client()).store, Joinable)

    async def test_the_rows_of_the_run_come_with_the_change(self, world: World) -> None:
        client = await world.client()
        await running(client)
        join = Join("create")
        created = success(await client.joinable.apply(Create(KEY, chats.schema, empty(), "i-1"), join))
        assert isinstance(created, Snapshot)
        join = Join("update")
        updated = success(await client.joinable.apply(update("x", StepId(RUN, "update")), join))
        assert isinstance(updated, Updated)
        assert join.outcomes == [Success(updated)]
        deleted = success(await client.joinable.apply(DeleteFrom(KEY, updated.revision), Join("delete")))
        assert deleted == Deleted()
        assert await recorded(client) == {"create": "done", "update": "done", "delete": "done"}

    async def test_a_failure_is_recorded_too(self, world: World) -> None:
        client = await world.client()
        await running(client)
        store = client.joinable
        assert failure(await store.apply(update("x"), Join("missing"))) == StoreNotFound(KEY)
        snapshot = await made(store)
        success(await store.update(chats, "c", append("x")))
        stale = UpdateFrom(KEY, chats.schema, snapshot.revision, append("y"))
        assert isinstance(failure(await store.apply(stale, Join("conflict"))), Conflict)

        def invalid(chat: Chat) -> None:
            chat["messages"].append({"id": 1})  # type: ignore[typeddict-item]  # pyright: ignore[reportArgumentType]

        operation = Update(KEY, chats.schema, invalid)
        assert isinstance(failure(await store.apply(operation, Join("invalid"))), InvalidState)
        assert await recorded(client) == {"missing": "failed", "conflict": "failed", "invalid": "failed"}
        assert await messages(store) == (1, ["x"])

    async def test_what_was_there_already_is_recorded_as_found(self, world: World) -> None:
        client = await world.client()
        await running(client)
        snapshot = await made(client.store)
        never: Chat = {"messages": [{"id": "never"}]}
        again = Create(KEY, chats.schema, never, "i-2")
        join = Join("create")
        assert success(await client.joinable.apply(again, join)) == snapshot
        assert join.outcomes == [Success(snapshot)]
        success(await client.joinable.apply(Delete(KEY), Join("delete")))
        success(await client.joinable.apply(Delete(KEY), Join("delete again")))
        assert await recorded(client) == {"create": "done", "delete": "done", "delete again": "done"}

    async def test_a_step_that_was_applied_is_recorded_by_its_receipt(self, world: World) -> None:
        client = await world.client()
        await running(client)
        await made(client.store)
        step = StepId(RUN, "key")
        first = success(await client.store.update(chats, "c", append("x"), step=step))
        updater, join = Counted(append("x")), Join()
        again = success(await client.joinable.apply(Update(KEY, chats.schema, updater, step), join))
        assert (again, again.state, updater.runs) == (first, first.state, 0)
        assert join.outcomes == [Success(first)]
        assert await recorded(client) == {"key": "done"}
        other = DeleteFrom(KEY, Revision("any", 0), step)
        mismatch = failure(await client.joinable.apply(other, Join("other")))
        assert mismatch == ReceiptMismatch(step, recorded="update", requested="delete_from")
        assert await recorded(client) == {"key": "done", "other": "failed"}

    async def test_an_owner_that_was_fenced_off_changes_nothing(self, world: World) -> None:
        client = await world.client()
        await running(client)
        await made(client.store)
        success(await client.ledger.commit(Batch((RunFence(RUN, 0),), (ChangeRun(RUN, {"fence": 1}),))))
        store = client.joinable
        for operation in (update("x"), update("x", StepId(RUN, "key"))):
            assert failure(await store.apply(operation, Join())) == Fenced(RUN)
        missing = Update(StoreKey("chat", "missing"), chats.schema, append("x"))
        assert failure(await store.apply(missing, Join())) == Fenced(RUN)
        assert await recorded(client) == {}
        assert await messages(store) == (0, [])
        assert success(await store.apply(update("y"), Join("now", fence=1))).version == 1

    async def test_one_that_is_fenced_off_takes_no_neighbour_along(self, world: World) -> None:
        plain = await world.client()
        await running(plain)
        await made(plain.store)
        gate = Gated(plain.ledger)
        client = await world.client(around=lambda _: gate)
        store = client.joinable
        tasks = [
            asyncio.create_task(store.apply(update(str(number)), Join(str(number), fence=number % 2)))
            for number in range(20)
        ]
        gate.open()
        outcomes = [await task for task in tasks]
        assert [failure(outcome) for outcome in outcomes[1::2]] == [Fenced(RUN)] * 10
        assert sorted(success(outcome).version for outcome in outcomes[::2]) == list(range(1, 11))
        version, ids = await messages(store)
        assert (version, sorted(map(int, ids))) == (10, list(range(0, 20, 2)))
        assert await recorded(client) == {str(number): "done" for number in range(0, 20, 2)}

    async def test_the_outcome_may_depend_on_the_plan_and_is_asked_for_again(self, world: World) -> None:
        """Only what was given for the outcome that is returned is committed."""
        plain = await world.client()
        await running(plain)
        await made(plain.store)
        gate = Gated(plain.ledger)
        client = await world.client(around=lambda _: gate)
        join = Join()
        task = asyncio.create_task(client.joinable.apply(update("mine"), join))
        await gate.entered()
        success(await plain.store.update(chats, "c", append("other")))
        gate.open()
        updated = success(await task)
        assert [success(outcome) for outcome in join.outcomes][-1] == updated
        assert len(join.outcomes) == 2
        assert (updated.version, ids_of(updated.state)) == (2, ["other", "mine"])

    async def test_a_join_that_raises_changes_nothing(self, world: World) -> None:
        client = await world.client()
        await made(client.store)

        def join(outcome: Outcome[object, object]) -> Batch:
            raise LookupError("a bug in the join")

        for operation in (update("x"), Update(StoreKey("chat", "missing"), chats.schema, append("x"))):
            with pytest.raises(LookupError, match="a bug in the join"):
                await client.joinable.apply(operation, join)
        assert await messages(client.store) == (0, [])

    async def test_a_join_that_expects_something_of_stores_is_a_bug(self, world: World) -> None:
        client = await world.client()

        def join(outcome: Outcome[object, object]) -> Batch:
            return Batch((StoreAt(StoreKey("chat", "other"), Revision("any", 0)),))

        with pytest.raises(RuntimeError, match="a join expects nothing of stores"):
            await client.joinable.apply(update("x"), join)

    async def test_what_is_too_large_is_recorded_as_that(self, world: World) -> None:
        client = await world.client(limits=Limits(state_bytes=60))
        await running(client)
        await made(client.store)
        join = Join()
        too_large = failure(await client.joinable.apply(update("x" * 100), join))
        assert isinstance(too_large, TooLarge)
        assert join.outcomes == [Failure(too_large)]
        assert await recorded(client) == {"key": "failed"}
        join = Join("huge", size_bytes=200 * 1024 * 1024)  # what is joined is over the limit of a batch
        too_large = failure(await client.joinable.apply(update("y"), join))
        assert isinstance(too_large, TooLarge)
        assert join.outcomes[-1] == Failure(too_large)
        assert await recorded(client) == {"key": "failed", "huge": "failed"}
        assert await messages(client.store) == (0, [])

    @pytest.mark.parametrize("applied", ["no", "unknown"])
    async def test_unavailable_passes_through(self, world: World, applied: str) -> None:
        unavailable = Unavailable("the disk is full", "no" if applied == "no" else "unknown")
        plain = await world.client()
        await running(plain)
        await made(plain.store)
        failing = True
        scripted = Scripted(plain.ledger, before=lambda _: unavailable if failing else None)
        client = await world.client(around=lambda _: scripted)
        missing = Update(StoreKey("chat", "missing"), chats.schema, append("x"))
        for operation in (update("x"), missing):
            assert failure(await client.joinable.apply(operation, Join())) == unavailable
        failing = False
        assert await recorded(client) == {}
        assert success(await client.joinable.apply(update("x"), Join())).version == 1
        assert await recorded(client) == {"key": "done"}
