"""One store call of a run on its way: the row that will record it, and the batch that commits it with the operation."""

from __future__ import annotations

from typing import final

from msgspec.structs import replace

from ...core.batch import Batch, Write, WriteStep
from ...core.codec import error_json
from ...core.model import StoreKey, Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.run_events import Changed
from ...core.step import Pin, StepRow
from ...core.store_outcome import Named, StoreFailure, write_outcome
from ...services.step import Suspended
from ..recorded import as_recorded, is_misuse, left_by_exit
from .record import RunRecord
from .telling import look_up, telling
from .tools import Tools

__all__ = ["StoreCall"]


@final
class StoreCall:
    """Its row is numbered once, however often its batch is planned.

    `creates` is the instance of the store that its operation would make; `is_unclear`: its batch may be committed.
    """

    __slots__ = ("_record", "_row", "_store", "_told", "_tools", "_writes", "creates", "is_unclear", "numbered")

    def __init__(self, record: RunRecord, row: StepRow, store: StoreKey, tools: Tools) -> None:
        self._record = record
        self._row = row
        self._store = store
        self._tools = tools
        self._writes: tuple[Write, ...] | None = None
        self._told: StepRow | None = None
        self.numbered: StepRow | None = None
        self.creates: str | None = None
        self.is_unclear = False

    def row(self, outcome: Outcome[Named, StoreFailure]) -> StepRow:
        """The row that records this outcome, pinning the revision whose state is to be read back."""
        named = outcome.unwrap() if isinstance(outcome, Success) else None
        is_read_back = named is not None and named.kind in ("snapshot", "updated") and named.value is None
        revision = named.revision if named is not None and is_read_back else None
        pin = None if revision is None else Pin(self._store, revision)
        return replace(self._row, value=write_outcome(outcome), pin=pin)

    def failed(self, error: BaseException) -> StepRow:
        """The row that records what the caller's own function raised."""
        if self.numbered is not None:
            self._record.turn.abandon(_numbered(self.numbered))
        if isinstance(error, SystemExit):
            left, error = error, left_by_exit(error, f"a function of {self._row.key!r}")
            error.__cause__ = left
        kind = "type" if is_misuse(error) else "error"
        return replace(self._row, status="failed", value=error_json(as_recorded(error), kind))

    def cut(self) -> None:
        """It comes to nothing, for now or for good: cancellation takes its place, or it is tried again later."""
        if self.numbered is not None:
            self._record.turn.abandon(_numbered(self.numbered))
            self.numbered = self._writes = None

    def join(self, outcome: Outcome[Named, StoreFailure]) -> Batch:
        """What is committed beside the operation when it comes to this outcome."""
        row = self.row(outcome)
        if self.numbered is None:
            self.numbered = self._record.number(row)
        else:
            self.numbered = replace(row, position=self.numbered.position, recorded_at_ms=self.numbered.recorded_at_ms)
        if self._writes is None:
            self._writes = (*self._record.waiter_removal(row.key), *self._record.going_on())
        batch = Batch((self._record.fence,), (WriteStep(self.numbered), *self._writes))
        if self.numbered == self._told:
            return batch
        return telling(self._tools.joinable_journal, row.run_id, batch, self._changed(outcome))

    def _changed(self, outcome: Outcome[Named, StoreFailure]) -> Changed | None:
        """What the operation changes, if it comes to this outcome."""
        if isinstance(outcome, Failure) or self._record.history.was_dropped(self._row.key):
            return None  # what a dropped call has done is not done again: its receipt answers
        named = outcome.unwrap()
        revision = named.revision
        if named.kind == "snapshot" and (revision is None or revision.instance_id != self.creates):
            return None
        return Changed(self._store, revision)

    async def find_out(self) -> Outcome[None, Unavailable]:
        """Before the operation is tried again: whether its row is committed, and the journal told."""
        if not self.is_unclear or self.numbered is None or self._tools.joinable_journal is None:
            return Success(None)
        batch = Batch((), (WriteStep(self.numbered),))
        found = await look_up(self._tools.ledger, self._row.run_id, batch)
        if isinstance(found, Failure):
            return found
        self._told = self.numbered if found.unwrap() else None
        return Success(None)

    async def come_first(self) -> None:
        """In a race that is not decided, wait until only this call may decide it: so what it takes is not lost.

        Raises Lost if another branch has decided it.
        """
        if self.numbered is None and self._record.races.may_lose:
            self.numbered = self._record.number(self._row)
            await self._record.turn.claim(_numbered(self.numbered))
            if self._record.suspending:
                raise Suspended


def _numbered(row: StepRow) -> int:
    assert row.position is not None
    return row.position
