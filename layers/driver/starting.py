"""Starting runs: the row that a new one begins with, and whether one that is there already is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from ...core.batch import Batch, InsertRun, NoRun
from ...core.codec import same_json
from ...core.lease import hold
from ...core.model import TooLarge, Unavailable, check_name
from ...core.outcome import Failure, Outcome, Success
from ...core.run import WANTS_OWNER, RunRow, next_state
from ...services.engine import RunMismatch
from ...services.workflow import AnyWorkflow
from .telling import telling
from .tools import Services
from .worker import Worker

__all__ = ["Starts"]

ARGUMENT_BYTES = 2 * 2**20
"""The largest arguments of a run, as JSON."""


@final
class Starts:
    """The runs that one engine starts. Those that it can drive are its own, `owner`'s, from the begin."""

    __slots__ = ("_clock", "_ids", "_journal", "_ledger", "_owner", "_worker", "_workflows")

    def __init__(
        self, services: Services, owner: str, workflows: Mapping[str, AnyWorkflow], worker: Worker | None
    ) -> None:
        self._ledger = services.ledger
        self._journal = services.joinable_journal
        self._clock = services.clock
        self._ids = services.ids
        self._owner = owner
        self._workflows = workflows
        self._worker = worker

    async def start(
        self, workflow: AnyWorkflow, args: tuple[object, ...], id: str | None
    ) -> Outcome[str, RunMismatch | TooLarge | Unavailable]:
        """The id of the run, which is there now, whether this call has started it or an earlier one."""
        run_id = self._ids.new() if id is None else check_name("a run's id", id)
        arguments = workflow.arguments.encode(args)
        if len(arguments) > ARGUMENT_BYTES:
            return Failure(TooLarge(f"the arguments of run {run_id!r}", len(arguments), ARGUMENT_BYTES))
        row = self._new_row(run_id, workflow, arguments)
        batch = telling(self._journal, run_id, Batch((NoRun(run_id),), (InsertRun(row),)))
        verdict = await self._ledger.commit(batch)
        match verdict:
            case Success():
                if self._worker is not None and row.owner is not None:
                    self._worker.drive(row)
                elif self._worker is not None:
                    self._worker.look()  # it may be of this name all the same
            case Failure(Unavailable() | TooLarge() as failure):
                if self._worker is not None and row.owner is not None:
                    self._worker.look_into(run_id)  # it may be there all the same, and this engine's own
                return Failure(failure)
            case Failure():
                found = await self._compare(row)
                if isinstance(found, Failure):
                    return found
        return Success(run_id)

    def _new_row(self, run_id: str, workflow: AnyWorkflow, arguments: bytes) -> RunRow:
        """The row of a new run: this engine's own, if it can drive it, and pending otherwise."""
        now_ms = self._clock.now_ms()
        mine = self._worker is not None and self._workflows.get(workflow.name) is workflow
        return RunRow(
            id=run_id,
            workflow=workflow.name,
            version=workflow.version,
            arguments=arguments,
            state=next_state("pending", "claim") if mine else "pending",
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
            owner=self._owner if mine else None,
            fence=1,
            lease_until_ms=hold(now_ms) if mine else 0,
            waiting_on=None if mine else WANTS_OWNER,
        )

    async def _compare(self, row: RunRow) -> Outcome[None, RunMismatch | Unavailable]:
        """Whether the run that has this id is the one that was asked for."""
        read = await self._ledger.run(row.id)
        if isinstance(read, Failure):
            return read
        found = read.unwrap()
        if found is None:  # it was purged between the two
            return Failure(Unavailable(f"run {row.id!r} has just been removed; start it again", "no"))
        if found.workflow == row.workflow and same_json(found.arguments, row.arguments):
            return Success(None)
        return Failure(RunMismatch(row.id, recorded=_in_words(found), requested=_in_words(row)))


def _in_words(row: RunRow) -> str:
    return f"{row.workflow}({row.arguments.decode()[1:-1]})"
