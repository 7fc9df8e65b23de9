"""Signals to runs: each is read once, in order, whenever it comes, and by nobody who does not get it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypedDict

import pytest
from pydantic import BaseModel

from stepwell import (
    Failure,
    InvalidSignal,
    Outcome,
    Run,
    RunEnded,
    RunNotFound,
    Success,
    TimedOut,
    TooLarge,
    Unavailable,
    workflow,
)
from stepwell.core.batch import Batch, SendSignal
from stepwell.core.signal import UNREAD_SIGNALS, SignalRow
from stepwell.core.step import VALUE_BYTES
from stepwell.layers import wake_bus as wake_buses
from stepwell.services.ledger import Verdict

from .engine_kinds import Applied
from .engine_world import NOW_MS, EngineWorld, Opened, Refusing, ended, failure, success, until
from .ledger_double import LedgerDouble


class Decision(BaseModel):
    approved: bool
    by: str = "nobody"


@dataclass(frozen=True)
class Vote:
    points: int


class Note(TypedDict):
    text: str


@workflow
async def decides(run: Run) -> Outcome[Decision, TimedOut | InvalidSignal]:
    return await run.signal("decision", Decision)


@workflow
async def reads_three(run: Run) -> list[int]:
    return [(await run.signal("n", int)).unwrap() for _ in range(3)]


@workflow
async def joins_two(run: Run) -> str:
    first = (await run.signal("a", str)).unwrap()
    return f"{first}+{(await run.signal('b', str)).unwrap()}"


@workflow
async def waits_a_minute(run: Run) -> Outcome[int, TimedOut | InvalidSignal]:
    return await run.signal("n", int, timeout=60)


async def unread(app: Opened, run_id: str) -> list[bytes]:
    return [row.value for row in success(await app.ledger.signals(run_id))]


class EngineSignalsContract:
    # --- sending ----------------------------------------------------------------

    async def test_a_run_waits_for_a_signal_and_gives_it(self, world: EngineWorld) -> None:
        async with world.engine(decides) as app:
            handle = success(await app.engine.start(decides, id="r"))
            await app.waits_for("r", "signal 'decision'")
            assert (await app.status("r")).state == "waiting"
            assert await handle.signal("decision", Decision(approved=True, by="ada")) == Success(None)
            assert await ended(handle) == Success(Decision(approved=True, by="ada"))
            assert await unread(app, "r") == []

    async def test_a_signal_that_comes_early_is_kept(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as client:
            handle = success(await client.engine.start(reads_three, id="r"))
            for n in (3, 1, 2):
                assert await client.engine.signal("r", "n", n) == Success(None)
            assert await client.engine.signal("r", "other", "not asked for") == Success(None)
        async with world.engine(reads_three) as app:
            assert await app.result_in_time(handle.id) == Success([3, 1, 2])
            assert await unread(app, "r") == [b'"not asked for"']

    async def test_o47_signals_that_come_in_the_other_order_are_read_in_that_of_the_workflow(
        self, world: EngineWorld
    ) -> None:
        async with world.engine(joins_two) as app:
            handle = success(await app.engine.start(joins_two, id="r"))
            await app.waits_for("r", "signal 'a'")
            assert await handle.signal("b", "b") == Success(None)
            assert (await app.status("r")).state == "waiting"
            assert await handle.signal("a", "a") == Success(None)
            assert await ended(handle) == Success("a+b")

    async def test_there_is_nobody_to_signal_before_a_run_exists_and_after_its_end(self, world: EngineWorld) -> None:
        async with world.engine(waits_a_minute) as app:
            assert await app.engine.signal("r", "n", 1) == Failure(RunNotFound("r"))
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            assert await handle.signal("n", 1) == Success(None)
            assert await ended(handle) == Success(1)
            assert await handle.signal("n", 1) == Failure(RunEnded("r", "completed"))
            _ = success(await app.engine.start(waits_a_minute, id="c"))
            await app.waits_for("c", "signal 'n'")
            assert await app.engine.cancel("c") == Success(None)
            await app.becomes("c", "cancelled")
            assert await app.engine.signal("c", "n", 1) == Failure(RunEnded("c", "cancelled"))

    async def test_a_run_that_ends_while_it_is_signalled_has_ended(self, world: EngineWorld) -> None:
        """Between the engine's look at the run and its commit."""

        class Ending(LedgerDouble):
            async def commit(self, batch: Batch) -> Verdict:
                if sends(batch):
                    _ = success(await driving.engine.cancel("r"))
                    await driving.becomes("r", "cancelled")
                return await super().commit(batch)

        async with world.engine(waits_a_minute) as driving:
            _ = success(await driving.engine.start(waits_a_minute, id="r"))
            await driving.waits_for("r", "signal 'n'")
            async with world.engine(drive=False, around=Ending) as client:
                assert await client.engine.signal("r", "n", 1) == Failure(RunEnded("r", "cancelled"))
                assert await unread(client, "r") == []

    async def test_o43_what_was_sent_under_a_dedupe_is_sent_once(self, world: EngineWorld) -> None:
        async with world.engine(reads_three) as app:
            handle = success(await app.engine.start(reads_three, id="r"))
            assert await handle.signal("n", 1, dedupe="one") == Success(None)
            assert await handle.signal("n", 7, dedupe="one") == Success(None)
            await until(lambda: _has_read(app, "r", 1))
            assert await handle.signal("n", 8, dedupe="one") == Success(None)  # the first was read
            assert await handle.signal("other", 9, dedupe="one") == Success(None)  # of another name
            assert await handle.signal("n", 2, dedupe="two") == Success(None)
            assert await handle.signal("n", 2) == Success(None)
            assert await ended(handle) == Success([1, 2, 2])

    @pytest.mark.parametrize("applied", ["no", "unknown"])
    async def test_a_signal_of_unknown_fate_is_sent_once_by_a_retry(self, world: EngineWorld, applied: Applied) -> None:
        refused: list[Batch] = []

        def judge(batch: Batch) -> Applied | None:
            if refused or not sends(batch):
                return None
            refused.append(batch)
            return applied

        async with world.engine(drive=False, around=lambda ledger: Refusing(ledger, judge)) as client:
            handle = success(await client.engine.start(reads_three, id="r"))
            answer = failure(await handle.signal("n", 5, dedupe="d"))
            assert isinstance(answer, Unavailable)
            assert answer.applied == applied
            for n in (5, 6, 7):
                assert await handle.signal("n", n, dedupe="d" if n == 5 else None) == Success(None)
        async with world.engine(reads_three) as app:
            assert await app.result_in_time("r") == Success([5, 6, 7])

    async def test_a_wrong_name_or_dedupe_is_misuse(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(decides, id="r"))
            for name in ("", "x" * 513, "a\0"):
                with pytest.raises(ValueError, match="a signal's name"):
                    _ = await app.engine.signal("r", name, 1)
            with pytest.raises(ValueError, match="dedupe"):
                _ = await app.engine.signal("r", "n", 1, dedupe="")
            with pytest.raises(TypeError, match="dedupe"):
                _ = await app.engine.signal("r", "n", 1, dedupe=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            assert await unread(app, "r") == []

    # --- values -----------------------------------------------------------------

    async def test_o45_what_is_no_json_is_misuse_where_no_type_is_known(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(decides, id="r"))
            for value in ((1, 2), {"at": {1}}, object(), float("nan")):
                with pytest.raises(TypeError, match="the value of the signal 'n'"):
                    _ = await app.engine.signal("r", "n", value)
            assert await app.engine.signal("r", "n", Vote(3)) == Success(None)
            assert await app.engine.signal("r", "n", Decision(approved=False)) == Success(None)
            assert await app.engine.signal("r", "n", Note(text="x")) == Success(None)
            assert await app.engine.signal("r", "n", [1, None, {"a": 2.5}]) == Success(None)
            assert await unread(app, "r") == [
                b'{"points":3}',
                b'{"approved":false,"by":"nobody"}',
                b'{"text":"x"}',
                b'[1,null,{"a":2.5}]',
            ]

    async def test_a_value_of_the_wrong_type_is_refused_where_the_type_is_known(self, world: EngineWorld) -> None:
        async with world.engine(decides) as app:
            handle = success(await app.engine.start(decides, id="r"))
            await app.waits_for("r", "signal 'decision'")
            refused = failure(await handle.signal("decision", {"approved": "perhaps"}))
            assert isinstance(refused, InvalidSignal)
            assert refused.name == "decision"
            assert "approved" in refused.message
            assert isinstance(failure(await handle.signal("decision", Vote(1))), InvalidSignal)
            assert await unread(app, "r") == []
            assert await handle.signal("decision", {"approved": True}) == Success(None)  # what its JSON is
            assert await ended(handle) == Success(Decision(approved=True))

    async def test_a_value_of_the_wrong_type_is_read_once_where_it_was_not_known(self, world: EngineWorld) -> None:
        seen: list[list[Outcome[Decision, TimedOut | InvalidSignal]]] = []

        @workflow
        async def reads_two(run: Run) -> None:
            seen.append([])
            seen[-1].append(await run.signal("decision", Decision))
            seen[-1].append(await run.signal("decision", Decision))
            _ = await run.signal("end", int)

        async with world.engine(drive=False) as client:
            _ = success(await client.engine.start(reads_two, id="r"))
            assert await client.engine.signal("r", "decision", "no decision") == Success(None)
            assert await client.engine.signal("r", "decision", {"approved": True}) == Success(None)
        for restart in range(2):
            async with world.engine(reads_two) as app:
                await until(lambda restart=restart: len(seen) > restart and len(seen[-1]) == 2)  # type: ignore[misc]
                assert await unread(app, "r") == []
        assert seen[0] == seen[1]
        invalid, decision = seen[0]
        assert isinstance(invalid, Failure)
        assert isinstance(invalid.failure(), InvalidSignal)
        assert decision == Success(Decision(approved=True))

    async def test_a_value_over_the_limit_is_too_large(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(decides, id="r"))
            answer = failure(await app.engine.signal("r", "n", "x" * VALUE_BYTES))
            assert answer == TooLarge("the value of the signal 'n'", VALUE_BYTES + 2, VALUE_BYTES)
            assert await app.engine.signal("r", "n", "x" * (VALUE_BYTES - 2)) == Success(None)

    async def test_so_many_signals_may_be_unread_and_no_more(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(reads_three, id="r"))
            sent = (SendSignal(SignalRow("r", "n", str(n).encode())) for n in range(UNREAD_SIGNALS - 2))
            _ = success(await app.ledger.commit(Batch((), tuple(sent))))
            assert await app.engine.signal("r", "n", 1) == Success(None)
            assert await app.engine.signal("r", "n", 2, dedupe="last") == Success(None)
            full = failure(await app.engine.signal("r", "n", 3))
            assert isinstance(full, TooLarge)
            assert full.limit_bytes == UNREAD_SIGNALS
            assert await app.engine.signal("r", "n", 2, dedupe="last") == Success(None)
            assert len(await unread(app, "r")) == UNREAD_SIGNALS
        async with world.engine(reads_three) as app:
            assert await app.result_in_time("r") == Success([0, 1, 2])

    async def test_one_engine_that_sends_many_at_once_does_not_pass_the_limit(self, world: EngineWorld) -> None:
        async with world.engine(drive=False) as app:
            _ = success(await app.engine.start(reads_three, id="r"))
            sent = (SendSignal(SignalRow("r", "n", str(n).encode())) for n in range(UNREAD_SIGNALS - 50))
            _ = success(await app.ledger.commit(Batch((), tuple(sent))))
            answers = await asyncio.gather(*(app.engine.signal("r", "n", n) for n in range(150)))
            assert sum(answer == Success(None) for answer in answers) == 50
            refused = [answer.failure() for answer in answers if isinstance(answer, Failure)]
            assert {type(failed) for failed in refused} == {TooLarge}
            assert len(await unread(app, "r")) == UNREAD_SIGNALS

    async def test_signals_that_are_refused_by_the_ledger_leave_their_room_to_others(self, world: EngineWorld) -> None:
        refusing = True

        def judge(batch: Batch) -> Applied | None:
            return "no" if refusing and sends(batch) else None

        async with world.engine(drive=False, around=lambda ledger: Refusing(ledger, judge)) as app:
            _ = success(await app.engine.start(reads_three, id="r"))
            sent = tuple(SendSignal(SignalRow("r", "n", str(n).encode())) for n in range(UNREAD_SIGNALS - 2))
            refusing = False
            _ = success(await app.ledger.commit(Batch((), sent)))
            refusing = True
            answers = await asyncio.gather(*(app.engine.signal("r", "n", n) for n in range(10)))
            assert {type(failure(answer)) for answer in answers} <= {Unavailable, TooLarge}
            refusing = False
            answers = await asyncio.gather(*(app.engine.signal("r", "n", n) for n in range(10)))
            assert sum(answer == Success(None) for answer in answers) == 2

    # --- order ------------------------------------------------------------------

    async def test_branches_get_signals_in_the_order_in_which_they_asked(self, world: EngineWorld) -> None:
        @workflow
        async def wide(run: Run) -> list[int]:
            async def one(name: str) -> int:
                await run.step(name, lambda: None)
                return (await run.signal("n", int)).unwrap()

            return list(await run.gather(*(one(str(at)) for at in range(5))))

        async with world.engine(wide) as app:
            handle = success(await app.engine.start(wide, id="r"))
            await app.waits_for("r", "signal 'n'; signal 'n'; signal 'n'; signal 'n'; signal 'n'")
            asked = [row.key for row in (await app.steps("r")).values() if row.kind == "step"]
            for n in range(5):
                assert await handle.signal("n", n) == Success(None)
            got = success(await ended(handle))
            assert [got[int(name)] for name in asked] == list(range(5))
            keys = [key for key, row in (await app.steps("r")).items() if row.kind == "signal"]
            assert keys == [f"signal:n:{n}" for n in range(1, 6)]

    # --- deadlines --------------------------------------------------------------

    async def test_s142_a_signal_that_does_not_come_in_time_is_recorded_so(self, world: EngineWorld) -> None:
        seen: list[object] = []

        @workflow
        async def impatient(run: Run) -> None:
            seen.append(await run.signal("n", int, timeout=60))
            await run.sleep("pause", 60)
            seen.append(await run.signal("n", int))

        async with world.engine(impatient) as app:
            handle = success(await app.engine.start(impatient, id="r"))
            await app.waits_for("r", "signal 'n'")
            assert (await app.row("r")).wake_at_ms == NOW_MS + 60_000
            assert (await app.steps("r"))["signal:n:1"].status == "waiting"
            await app.clock.advance(60_000)
            await app.waits_for("r", "'pause'")
            assert await handle.signal("n", 7) == Success(None)
        async with world.engine(impatient) as app:
            assert await app.result_in_time("r") == Success(None)
        assert seen == [Failure(TimedOut(60_000)), Failure(TimedOut(60_000)), Success(7)]

    async def test_s141_a_signal_that_is_there_after_the_deadline_counts(self, world: EngineWorld) -> None:
        async with world.engine(waits_a_minute) as app:
            _ = success(await app.engine.start(waits_a_minute, id="r"))
            await app.waits_for("r", "signal 'n'")
        async with world.engine(drive=False) as client:
            await client.clock.advance(61_000)
            assert await client.engine.signal("r", "n", 7) == Success(None)
        async with world.engine(waits_a_minute) as app:
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            assert await ended(handle) == Success(7)

    async def test_the_deadline_counts_from_the_first_time_that_it_was_reached(self, world: EngineWorld) -> None:
        async with world.engine(waits_a_minute) as app:
            _ = success(await app.engine.start(waits_a_minute, id="r"))
            await app.waits_for("r", "signal 'n'")
            await app.clock.advance(59_000)
        async with world.engine(waits_a_minute) as app:
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            await app.clock.advance(1_000)
            assert failure(await ended(handle)) == TimedOut(60_000)

    async def test_scenario_4_a_wait_that_timed_out_or_was_cancelled_consumes_nothing(self, world: EngineWorld) -> None:
        @workflow
        async def gives_up(run: Run) -> str:
            first = await run.signal("n", int, timeout=60)
            try:
                _ = await run.signal("n", int)
            except asyncio.CancelledError:
                last = await run.signal("n", int)
                return f"{first} {last}"
            return "read"

        async with world.engine(gives_up) as app:
            handle = success(await app.engine.start(gives_up, id="r"))
            await app.waits_for("r", "signal 'n'")
            await app.clock.advance(60_000)
            await until(lambda: _waits(app, "r", "signal:n:2"))
            _ = success(await app.engine.cancel("r"))
            await until(lambda: _waits(app, "r", "signal:n:3"))
            assert await handle.signal("n", 7) == Success(None)
            await app.becomes("r", "cancelled")
            rows = await app.steps("r")
            assert [rows[f"signal:n:{n}"].status for n in (1, 2, 3)] == ["done", "cancelled", "done"]
            assert rows["signal:n:3"].value == b'{"signal":7}'

    # --- parked runs, and hints -------------------------------------------------

    async def test_o48_a_run_that_nobody_has_reads_its_signal_when_it_is_taken_up(self, world: EngineWorld) -> None:
        async with world.engine(waits_a_minute) as app:
            _ = success(await app.engine.start(waits_a_minute, id="r"))
            await app.waits_for("r", "signal 'n'")
        async with world.engine(drive=False) as client:
            assert await client.engine.signal("r", "n", 7) == Success(None)
        async with world.engine(waits_a_minute) as app:
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            assert await ended(handle) == Success(7)  # with its deadline a minute ahead

    async def test_a_signal_is_read_without_any_hint(self, world: EngineWorld) -> None:
        async with world.engine(waits_a_minute, bus=wake_buses.layer_noop()) as app:
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            await app.waits_for("r", "signal 'n'")
            assert await handle.signal("n", 7) == Success(None)
            assert await app.ended_in_time(handle, by_ms=100) == Success(7)
            assert app.clock.now_ms() < NOW_MS + 60_000

    async def test_a_bus_that_fails_never_fails_a_signal(self, world: EngineWorld) -> None:
        async def broken(_: str) -> None:
            raise OSError("the bus is broken")

        reported: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(str(told["message"])))
        async with world.engine(waits_a_minute, bus=wake_buses.layer_noop(wake=broken)) as app:
            handle = success(await app.engine.start(waits_a_minute, id="r"))
            await app.waits_for("r", "signal 'n'")
            assert await handle.signal("n", 7) == Success(None)
            assert await app.ended_in_time(handle, by_ms=100) == Success(7)
        assert any("the wake bus failed" in message for message in reported)


def sends(batch: Batch) -> bool:
    return any(isinstance(write, SendSignal) for write in batch.writes)


async def _has_read(app: Opened, run_id: str, count: int) -> bool:
    rows = (await app.steps(run_id)).values()
    return sum(row.kind == "signal" and row.status == "done" for row in rows) >= count


async def _waits(app: Opened, run_id: str, key: str) -> bool:
    row = (await app.steps(run_id)).get(key)
    return row is not None and row.status == "waiting"
