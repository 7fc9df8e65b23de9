"""What every ledger must do for runs and their steps; a part of `LedgerContract`."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from stepwell.core.batch import (
    Batch,
    ChangeRun,
    Committed,
    Fenced,
    RenewLeases,
    RunFence,
    WriteStep,
)
from stepwell.core.outcome import Failure, Success
from stepwell.core.run import RunRow, RunState
from stepwell.core.step import Pin, StepRow
from stepwell.services.ledger import DueRuns, Ledger

from .ledger_batches import (
    CHARGE,
    NOW_MS,
    ORDER,
    RUN,
    at,
    create,
    start,
)


class LedgerRunsContract:
    # --- runs ---------------------------------------------------------------

    async def test_a_run_is_kept_with_all_its_columns(self, ledger: Ledger) -> None:
        row = RunRow(
            id="run-2",
            workflow="fulfil",
            version="v2",
            arguments=b'["o-1"]',
            state="waiting",
            created_at_ms=1,
            updated_at_ms=2,
            owner="host:1",
            fence=3,
            lease_until_ms=4,
            wake_at_ms=5,
            waiting_on="timer",
            problem="none",
            outcome=b"null",
            cancel_requested=True,
            crashes=6,
            mark=7,
        )
        await ledger.commit(start(RUN) + start(row))
        assert await ledger.run("run-1") == Success(RUN)
        assert await ledger.run("run-2") == Success(row)
        assert await ledger.run("run-3") == Success(None)

    async def test_a_run_id_is_given_once(self, ledger: Ledger) -> None:
        await ledger.commit(start(RUN))
        assert await ledger.commit(start(replace(RUN, workflow="other"))) == Failure(Fenced("run-1"))
        assert await ledger.run("run-1") == Success(RUN)

    async def test_columns_of_a_run_change_and_the_others_stay(self, ledger: Ledger) -> None:
        await ledger.commit(start(RUN))
        await ledger.commit(Batch(writes=(ChangeRun("run-1", {"cancel_requested": True, "problem": "slow"}),)))
        assert await ledger.run("run-1") == Success(replace(RUN, cancel_requested=True, problem="slow"))
        await ledger.commit(
            Batch(writes=(ChangeRun("run-1", {"problem": None, "outcome": b"1"}), ChangeRun("run-1", {})))
        )
        assert await ledger.run("run-1") == Success(replace(RUN, cancel_requested=True, outcome=b"1"))

    async def test_an_old_fence_writes_nothing(self, ledger: Ledger) -> None:
        await ledger.commit(start(RUN))
        claim = Batch((RunFence("run-1", 0),), (ChangeRun("run-1", {"fence": 1, "owner": "host:1"}),))
        verdicts = await ledger.commit_all([claim, claim])
        assert verdicts == (Success(Committed()), Failure(Fenced("run-1")))
        late = Batch((RunFence("run-1", 0),), (WriteStep(CHARGE),))
        assert await ledger.commit(late) == Failure(Fenced("run-1"))
        assert await ledger.steps("run-1") == Success(())
        assert await ledger.commit(Batch((RunFence("run-9", 0),))) == Failure(Fenced("run-9"))

    async def test_runs_are_listed_in_the_order_of_their_start(self, ledger: Ledger) -> None:
        rows = (
            replace(RUN, id="z"),
            replace(RUN, id="a", workflow="other", state="stuck"),
            replace(RUN, id="m", state="stuck"),
            replace(RUN, id="b", state="failed"),
        )
        for row in rows:
            await ledger.commit(start(row))

        async def ids(
            *,
            state: RunState | None = None,
            workflow: str | None = None,
            limit: int = 100,
            after: str | None = None,
            newest_first: bool = False,
        ) -> list[str]:
            found = await ledger.runs(
                state=state, workflow=workflow, limit=limit, after=after, newest_first=newest_first
            )
            return [row.id for row in found.unwrap()]

        assert await ids() == ["z", "a", "m", "b"]
        assert await ids(limit=2) == ["z", "a"]
        assert await ids(limit=2, after="a") == ["m", "b"]
        assert await ids(after="b") == []
        assert await ids(after="unknown") == []
        assert await ids(state="stuck") == ["a", "m"]
        assert await ids(workflow="fulfil") == ["z", "m", "b"]
        assert await ids(state="stuck", workflow="fulfil", after="z") == ["m"]
        assert await ids(newest_first=True) == ["b", "m", "a", "z"]
        assert await ids(newest_first=True, limit=1, after="m") == ["a"]
        assert await ids(newest_first=True, state="stuck", after="b") == ["m", "a"]
        assert await ids(newest_first=True, after="unknown") == []

    async def test_leases_of_an_owner_are_renewed_together(self, ledger: Ledger) -> None:
        rows = (
            replace(RUN, id="mine-1", owner="host:1", state="running", lease_until_ms=1),
            replace(RUN, id="mine-2", owner="host:1", state="waiting", lease_until_ms=1),
            replace(RUN, id="ended", owner="host:1", state="completed", lease_until_ms=1),
            replace(RUN, id="other", owner="host:2", state="running", lease_until_ms=1),
        )
        for row in rows:
            await ledger.commit(start(row))
        await ledger.commit(Batch(writes=(RenewLeases("host:1", 9),)))
        leases = {row.id: row.lease_until_ms for row in (await ledger.runs()).unwrap()}
        assert leases == {"mine-1": 9, "mine-2": 9, "ended": 1, "other": 1}

    async def test_a_lease_renewed_after_the_run_was_given_up_stays_given_up(self, ledger: Ledger) -> None:
        await ledger.commit(start(replace(RUN, owner="host:1", state="running", lease_until_ms=1)))
        give_up = Batch(writes=(ChangeRun("run-1", {"owner": None, "lease_until_ms": 0}),))
        take = Batch(writes=(ChangeRun("run-1", {"owner": "host:1", "lease_until_ms": 5}),))
        renew = Batch(writes=(RenewLeases("host:1", 9),))
        await ledger.commit_all([give_up, renew])
        assert (await ledger.run("run-1")).unwrap() == replace(RUN, state="running")
        await ledger.commit_all([take, renew])
        assert (await ledger.run("run-1")).unwrap() == replace(RUN, state="running", owner="host:1", lease_until_ms=9)

    async def test_due_runs_are_nobodys_and_their_time_has_come(self, ledger: Ledger) -> None:
        rows = (
            replace(RUN, id="pending", created_at_ms=NOW_MS - 5),
            replace(RUN, id="overdue", state="waiting", wake_at_ms=NOW_MS - 9),
            replace(RUN, id="on-time", state="waiting", wake_at_ms=NOW_MS),
            replace(RUN, id="later", state="waiting", wake_at_ms=NOW_MS + 7),
            replace(
                RUN, id="expired", state="running", owner="host:1", lease_until_ms=NOW_MS, created_at_ms=NOW_MS - 7
            ),
            replace(RUN, id="expired-timer", state="waiting", owner="host:1", wake_at_ms=NOW_MS + 50),
            replace(RUN, id="held", state="running", owner="host:2", lease_until_ms=NOW_MS + 30),
            replace(RUN, id="future", created_at_ms=NOW_MS + 20),
            replace(RUN, id="stuck", state="stuck"),
            replace(RUN, id="ended", state="completed"),
            replace(RUN, id="unknown", workflow="other"),
        )
        for row in rows:
            await ledger.commit(start(row))
        due = (await ledger.due(["fulfil", "unused"], NOW_MS)).unwrap()
        assert [row.id for row in due.rows] == ["overdue", "expired", "pending", "on-time", "future", "expired-timer"]
        assert due.rows[0] == rows[1]
        assert due.next_at_ms == NOW_MS + 7
        assert [row.id for row in (await ledger.due(["fulfil"], NOW_MS, limit=2)).unwrap().rows] == [
            "overdue",
            "expired",
        ]
        assert [row.id for row in (await ledger.due(["other"], NOW_MS)).unwrap().rows] == ["unknown"]
        assert await ledger.due([], NOW_MS) == Success(DueRuns((), None))

    async def test_runs_of_a_dead_owner_are_due_at_once(self, ledger: Ledger) -> None:
        lease = NOW_MS + 30
        rows = (
            replace(RUN, id="dead-1", state="running", owner="host:1", lease_until_ms=lease, created_at_ms=1),
            replace(RUN, id="dead-2", state="waiting", owner="host:2", lease_until_ms=lease, wake_at_ms=lease + 9),
            replace(RUN, id="alive", state="running", owner="host:3", lease_until_ms=lease + 1),
            replace(RUN, id="stuck", state="stuck", owner="host:1", lease_until_ms=lease),
        )
        for row in rows:
            await ledger.commit(start(row))
        assert await ledger.due(["fulfil"], NOW_MS) == Success(DueRuns((), lease))
        due = (await ledger.due(["fulfil"], NOW_MS, dead=["host:1", "host:2", "host:9"])).unwrap()
        assert ([row.id for row in due.rows], due.next_at_ms) == (["dead-1", "dead-2"], lease + 1)

    async def test_owners_are_those_of_runs_that_have_not_ended(self, ledger: Ledger) -> None:
        assert await ledger.owners() == Success(())
        rows = (
            replace(RUN, id="1", owner="host:2", state="running"),
            replace(RUN, id="2", owner="host:1", state="waiting"),
            replace(RUN, id="3", owner="host:1", state="stuck"),
            replace(RUN, id="4", owner="host:3", state="completed"),
            replace(RUN, id="5"),
        )
        for row in rows:
            await ledger.commit(start(row))
        assert await ledger.owners() == Success(("host:1", "host:2"))

    async def test_an_owner_learns_which_of_its_runs_are_to_be_cancelled(self, ledger: Ledger) -> None:
        rows = (
            replace(RUN, id="b", owner="host:1", state="running", cancel_requested=True),
            replace(RUN, id="a", owner="host:1", state="waiting", cancel_requested=True),
            replace(RUN, id="c", owner="host:1", state="running"),
            replace(RUN, id="d", owner="host:2", state="running", cancel_requested=True),
            replace(RUN, id="e", owner="host:1", state="cancelled", cancel_requested=True),
        )
        for row in rows:
            await ledger.commit(start(row))
        assert await ledger.cancel_requests("host:1") == Success(("a", "b"))
        assert await ledger.cancel_requests("host:9") == Success(())

    # --- steps --------------------------------------------------------------

    async def test_a_step_is_kept_with_all_its_columns(self, ledger: Ledger) -> None:
        step = StepRow(
            run_id="run-1",
            key="pay",
            kind="store.update",
            target="orders/o-1",
            status="done",
            attempt=2,
            position=1,
            at_ms=3,
            value=b'"paid"',
            pin=Pin(ORDER, at(0)),
            recorded_at_ms=4,
        )
        await ledger.commit(start(RUN) + create() + Batch(writes=(WriteStep(step),)))
        assert await ledger.steps("run-1") == Success((step,))
        assert await ledger.steps("run-2") == Success(())

    async def test_a_pin_may_name_a_store_that_is_not_there(self, ledger: Ledger) -> None:
        step = structs.replace(CHARGE, pin=Pin(ORDER, at(4)))
        await ledger.commit(start(RUN) + Batch(writes=(WriteStep(step),)))
        assert await ledger.steps("run-1") == Success((step,))
        assert await ledger.stores() == Success(())

    async def test_a_step_replaces_the_row_of_its_key(self, ledger: Ledger) -> None:
        started = structs.replace(CHARGE, status="started", attempt=1, at_ms=5, pin=Pin(ORDER, at(0)))
        await ledger.commit(start(RUN) + Batch(writes=(WriteStep(started),)))
        done = structs.replace(CHARGE, status="done", attempt=1, position=1, value=b"1")
        await ledger.commit(Batch(writes=(WriteStep(done),)))
        assert await ledger.steps("run-1") == Success((done,))

    async def test_steps_come_by_position_and_then_the_open_ones_by_key(self, ledger: Ledger) -> None:
        other = replace(RUN, id="run-2")
        rows = [
            structs.replace(CHARGE, key=key, position=position)
            for key, position in (("a", 12), ("z", None), ("b", 2), ("y", None), ("c", 3))
        ]
        writes = tuple(WriteStep(row) for row in (*rows, structs.replace(CHARGE, run_id="run-2", key="a", position=1)))
        await ledger.commit(start(RUN) + start(other) + Batch(writes=writes))
        assert [row.key for row in (await ledger.steps("run-1")).unwrap()] == ["b", "c", "a", "y", "z"]
