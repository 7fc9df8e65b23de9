"""What becomes of runs whose states were purged: they say so, can be helped, and can be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepwell import Failure, Revision, Run, RunCancelled, RunStatus, StepId, StoreNotFound, Success, Waiter, workflow
from stepwell.core.batch import Batch, ChangeRun, RegisterWaiter
from stepwell.layers.revisions import LedgerRevisions
from stepwell.services.ledger import Ledger, Verdict

from .engine_world import EngineWorld, Host, Opened, ended, failure, success
from .ledger_batches import committed
from .ledger_double import LedgerDouble
from .store_world import append, chats, empty

KEY = chats.key("c")
Prepare = Callable[[Opened], object]


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> EngineWorld:
    host: Host = "memory" if request.param == "memory" else "sqlite"
    return EngineWorld(host, tmp_path / "app.db")


@workflow
async def chat(run: Run) -> str:
    store = run.store(chats, "c")
    _ = await store.get_or_create("create", empty)
    updated = await store.update("append", append("x"))
    await run.sleep("pause", 60)
    match updated:
        case Success():
            return "as it was"
        case Failure(StoreNotFound(expected=expected, reason=reason)):
            return f"{expected is not None}: {reason}"
        case Failure(other):
            return repr(other)


async def purged(world: EngineWorld) -> None:
    """The run "r" of `chat` sleeps, nobody drives it, and its store is purged."""
    async with world.engine(chat) as app:
        _ = success(await app.engine.start(chat, id="r"))
        await app.waits_for("r", "'pause'")
    async with world.engine(drive=False) as app:
        assert success(await LedgerRevisions(app.ledger, app.clock).purge(chats, "c")).deleted


async def stuck(app: Opened) -> RunStatus:
    await app.clock.advance(60_000)
    return await app.becomes("r", "stuck")


async def test_a_run_that_needs_an_erased_state_says_what_happened_and_what_to_do(world: EngineWorld) -> None:
    await purged(world)
    async with world.engine(chat) as app:
        problem = (await stuck(app)).problem or ""
        assert "revision 0 of store chat/c, which the run has read, is kept no more: its state was erased by purge" in (
            problem
        )
        assert "`resume('r', drop=['create', 'append'])`, or cancel it" in problem
        assert "bring the code back" not in problem


async def test_it_goes_on_without_the_calls_that_read_the_state(world: EngineWorld) -> None:
    """The update that was applied is not applied to the store that is made again."""
    await purged(world)
    async with world.engine(chat) as app:
        _ = await stuck(app)
        _ = success(await app.engine.resume("r", drop=["create", "append"]))
        result = success(await app.result_in_time("r"))
        assert isinstance(result, str)
        assert result.startswith("True: step 'append' of run 'r' was applied and made version 1 of chat/c")
        assert "erased by purge" in result
        assert success(await app.store.get(chats, "c")).version == 0
    async with world.engine(chat) as app:
        assert await ended(success(await app.engine.start(chat, id="r"))) == Success(result)


async def test_it_can_be_cancelled_once_it_is_stuck(world: EngineWorld) -> None:
    await purged(world)
    async with world.engine(chat) as app:
        _ = await stuck(app)
        _ = success(await app.engine.cancel("r"))
        assert await app.result_in_time("r") == Failure(RunCancelled("r"))


async def test_one_that_is_to_be_cancelled_ends_so(world: EngineWorld) -> None:
    """Also where it waits on a store: nobody waits there any more."""
    await purged(world)
    async with world.engine(drive=False) as app:
        waiter = Waiter(chats.key("other"), StepId("r", "pause"), Revision("i", 0), ((),))
        committed(await app.ledger.commit(Batch((), (RegisterWaiter(waiter),))))
        _ = success(await app.engine.cancel("r"))
        assert (await app.status("r")).state == "waiting"
    async with world.engine(chat) as app:
        assert await app.result_in_time("r") == Failure(RunCancelled("r"))
        row = await app.row("r")
        assert (row.owner, row.waiting_on) == (None, None)


class CancelledMeanwhile(LedgerDouble):
    """Another process asks the run to end right before it is recorded as stuck."""

    async def commit(self, batch: Batch) -> Verdict:
        if any(isinstance(write, ChangeRun) and write.columns.get("state") == "stuck" for write in batch.writes):
            asked = ChangeRun("r", {"cancel_requested": True})
            committed(await super().commit(Batch((), (asked,))))
        return await super().commit(batch)


async def test_a_cancel_that_comes_while_it_gets_stuck_is_honoured(world: EngineWorld) -> None:
    await purged(world)

    def around(ledger: Ledger) -> Ledger:
        return CancelledMeanwhile(ledger)

    async with world.engine(chat, around=around) as app:
        await app.clock.advance(60_000)
        assert await app.result_in_time("r") == Failure(RunCancelled("r"))


async def test_a_step_that_was_applied_says_that_its_state_was_erased(world: EngineWorld) -> None:
    step = StepId("somebody", "append")
    async with world.engine(drive=False) as app:
        store = app.store.handle(chats, "c")
        _ = success(await store.get_or_create(empty))
        applied = success(await store.update(append("x"), step=step)).revision
        _ = success(await LedgerRevisions(app.ledger, app.clock).purge(chats, "c"))
        for _ in range(2):
            erased = failure(await store.update(append("x"), step=step))
            assert isinstance(erased, StoreNotFound)
            assert (erased.key, erased.expected) == (KEY, applied)
            assert "a retry does not help" in (erased.reason or "")
            _ = success(await store.get_or_create(empty))  # the second time there is another one
