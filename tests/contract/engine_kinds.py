"""Runs with every kind of durable call, and ledgers that refuse, hold back or forget, for tests of the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stepwell import (
    AnyWorkflow,
    Deleted,
    Failure,
    Ledger,
    Outcome,
    Retry,
    Revision,
    Run,
    StepFailed,
    StepId,
    StoreKey,
    Success,
    Unavailable,
    workflow,
)
from stepwell.core.batch import Batch, Document, Receipt, WriteStep
from stepwell.core.run import RunRow
from stepwell.core.step import StepRow
from stepwell.services.ledger import DueRuns, Verdict

from .engine_world import Opened, Refusing, failure, success, until
from .ledger_double import LedgerDouble
from .store_world import append, chats, empty, ids_of

Applied: TypeAlias = Literal["no", "unknown"]

EXPECTED = (["x", "z"], "Conflict", 1, "ValueError", ["plain", "once", "left", "right"])


@dataclass
class AllKinds:
    """A workflow with every kind of durable call, and how often it called its functions, by run."""

    called: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def workflow(self) -> AnyWorkflow:
        def note(run_id: str, name: str) -> str:
            self.called[run_id, name] += 1
            return name

        async def note_async(run_id: str, name: str) -> str:
            return note(run_id, name)

        def fail(run_id: str) -> None:
            note(run_id, "fails")
            raise ValueError("as it must")

        @workflow(name="all kinds")
        async def all_kinds(run: Run) -> tuple[list[str], str, int, str, list[str]]:
            store, error = run.store(chats), ""
            created = success(await store.get_or_create("create", empty))
            await run.defer("tidy", note, run.id, "tidy")
            notes = [await run.step("plain", note, run.id, "plain")]
            notes.append(await run.step("once", note_async, run.id, "once", mode="at_most_once"))
            try:
                await run.step("fails", fail, run.id, retry=Retry(max_attempts=2, initial=0.01))
            except StepFailed as failed:
                error = failed.error.type
            _ = success(await store.update("append", append("x")))
            conflict = failure(await store.update_from("conditional", created, append("y")))
            count = success(await store.select("count", lambda chat: len(chat["messages"])))
            sides = await run.gather(self._left(run, note), run.step("right", note_async, run.id, "right"))
            await run.sleep("nap", 0.01)
            last = success(await store.get("last"))
            assert await store.delete_from("delete", last) == Success(Deleted())
            return ids_of(last.state), type(conflict).__name__, count, error, [*notes, *sides]

        return all_kinds

    async def _left(self, run: Run, note: object) -> str:
        assert callable(note)
        _ = success(await run.store(chats).update("left update", append("z")))
        return str(await run.step("left", lambda: str(note(run.id, "left"))))

    def check(self, run_id: str) -> None:
        """Every function was called once, and the failing one as often as it has attempts."""
        calls = {name: count for (run, name), count in self.called.items() if run == run_id}
        assert calls == {"plain": 1, "once": 1, "fails": 2, "left": 1, "right": 1, "tidy": 1}


async def check_record(app: Opened, run_id: str) -> None:
    """Everything was recorded once: the positions are 1, 2, 3 and so on."""
    rows = (await app.steps(run_id)).values()
    assert sorted(row.position or 0 for row in rows) == list(range(1, len(rows) + 1))
    assert {row.status for row in rows} == {"done", "failed"}
    assert success(await app.ledger.tip(chats.key(run_id))) is None
    left = await app.row(run_id)
    assert (left.state, left.owner, left.problem, left.waiting_on) == ("completed", None, None, None)


class Nth:
    """Refuses the n-th commit, and counts them."""

    def __init__(self, n: int, applied: Applied) -> None:
        self.n = n
        self.made: int = 0
        self._applied: Applied = applied

    def __call__(self, batch: Batch) -> Applied | None:
        if not batch.expects:  # the renewal of leases, as often as time has passed
            return None
        self.made += 1
        return self._applied if self.made == self.n else None

    def around(self, ledger: Ledger) -> Ledger:
        return Refusing(ledger, self)


class Holding:
    """Holds the n-th commit back until it may go on; `renews` says whether leases are renewed meanwhile."""

    def __init__(self, n: int, *, renews: bool = True) -> None:
        self.n = n
        self.renews = renews
        self.made: int = 0
        self.go_on = asyncio.Event()

    def around(self, ledger: Ledger) -> Ledger:
        return HoldingLedger(ledger, self)


class HoldingLedger(LedgerDouble):
    def __init__(self, real: Ledger, holding: Holding) -> None:
        super().__init__(real)
        self._holding = holding

    async def commit(self, batch: Batch) -> Verdict:
        if not (batch.expects or self._holding.renews):
            return Failure(Unavailable("as the test says", "no"))
        self._holding.made += bool(batch.expects)
        if self._holding.made == self._holding.n and batch.expects:
            _ = await self._holding.go_on.wait()
        return await super().commit(batch)


class FailingReads(LedgerDouble):
    """Answers the n-th read with `Unavailable`."""

    def __init__(self, real: Ledger, n: int) -> None:
        super().__init__(real)
        self.n = n
        self.made: int = 0

    def _refused(self) -> Failure[Unavailable] | None:
        self.made += 1
        return Failure(Unavailable("as the test says", "no")) if self.made == self.n else None

    async def receipt(self, key: StoreKey, step: StepId) -> Outcome[Receipt | None, Unavailable]:
        return self._refused() or await super().receipt(key, step)

    async def tip(self, key: StoreKey) -> Outcome[Revision | None, Unavailable]:
        return self._refused() or await super().tip(key)

    async def document(self, key: StoreKey, at: Revision | None = None) -> Outcome[Document | None, Unavailable]:
        return self._refused() or await super().document(key, at)

    async def run(self, run_id: str) -> Outcome[RunRow | None, Unavailable]:
        return self._refused() or await super().run(run_id)

    async def steps(self, run_id: str) -> Outcome[tuple[StepRow, ...], Unavailable]:
        return self._refused() or await super().steps(run_id)

    async def due(
        self, workflows: Sequence[str], now_ms: int, *, dead: Sequence[str] = (), limit: int = 256
    ) -> Outcome[DueRuns, Unavailable]:
        return self._refused() or await super().due(workflows, now_ms, dead=dead, limit=limit)

    async def owners(self) -> Outcome[tuple[str, ...], Unavailable]:
        return self._refused() or await super().owners()


async def far(client: Opened, run_id: str, counted: Nth | Holding, n: int) -> bool:
    return counted.made >= n or (await client.status(run_id)).state == "completed"


class Dying(Nth):
    """Lets so many commits through and none after them; notes which calls were recorded as done."""

    def __init__(self, n: int, recorded: Counter[str]) -> None:
        super().__init__(n, "no")
        self._recorded = recorded

    def __call__(self, batch: Batch) -> Applied | None:
        self.made += bool(batch.expects)
        if self.made > self.n:
            return "no"
        self._recorded.update(w.row.key for w in batch.writes if isinstance(w, WriteStep) and w.row.status == "done")
        return None

    @property
    def is_dead(self) -> bool:
        return self.made > self.n


class Deaf(LedgerDouble):
    """Once `deaf`, commits answer `Unavailable`: what an engine does after that is heard by nobody."""

    def __init__(self, real: Ledger) -> None:
        super().__init__(real)
        self.deaf = False

    async def commit(self, batch: Batch) -> Verdict:
        return Failure(Unavailable("as the test says", "no")) if self.deaf else await super().commit(batch)

    async def commit_all(self, batches: Sequence[Batch]) -> tuple[Verdict, ...]:
        return tuple([await self.commit(batch) for batch in batches])


async def crash(app: Opened, run_id: str) -> None:
    """End the driver of a run of an engine over a `Deaf` ledger as the end of its process would: nothing is written."""
    assert isinstance(app.ledger, Deaf)
    app.ledger.deaf = True
    [driver] = drivers(run_id)
    _ = driver.cancel()
    await until(driver.done)


def drivers(run_id: str) -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == f"stepwell run {run_id}"]
