"""One store call of a run on its way: the row that will record it, and the batch that commits it with the operation."""

from __future__ import annotations

from typing import final

from msgspec.structs import replace

from ...core.batch import Batch, Write, WriteStep
from ...core.codec import error_json
from ...core.model import StoreKey
from ...core.outcome import Outcome, Success
from ...core.step import Pin, StepRow
from ...core.store_outcome import Named, StoreFailure, write_outcome
from ...services.step import Suspended
from ..recorded import as_recorded, is_misuse, left_by_exit
from .record import RunRecord

__all__ = ["StoreCall"]


@final
class StoreCall:
    """Its row is numbered once, however often its batch is planned."""

    __slots__ = ("_record", "_row", "_store", "_writes", "numbered")

    def __init__(self, record: RunRecord, row: StepRow, store: StoreKey) -> None:
        self._record = record
        self._row = row
        self._store = store
        self._writes: tuple[Write, ...] | None = None
        self.numbered: StepRow | None = None

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
        return Batch((self._record.fence,), (WriteStep(self.numbered), *self._writes))

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
