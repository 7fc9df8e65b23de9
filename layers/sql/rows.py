"""Rows of the database as values of ours, and values as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, get_args

from ...core import paths
from ...core.batch import Form, Receipt
from ...core.model import Revision, StepId, StoreKey
from ...core.run import RunRow, RunState
from ...core.signal import SignalRow
from ...core.step import Pin, StepRow, StepStatus
from ...core.waiter import Waiter, WaiterRow

__all__ = [
    "Row",
    "Value",
    "bounded",
    "optional_blob",
    "optional_integer",
    "optional_text",
    "read_form",
    "read_receipt",
    "read_run",
    "read_signal",
    "read_step",
    "read_waiter",
    "run_row",
    "to_blob",
    "to_integer",
    "to_text",
]

Value: TypeAlias = int | float | str | bytes | None

Row: TypeAlias = tuple[Value, ...]
"""A row as a driver gives it, the readers below say what each column must be; and the parameters of a statement."""

RUN_STATES: Final[Mapping[str, RunState]] = {state: state for state in get_args(RunState)}
STEP_STATUSES: Final[Mapping[str, StepStatus]] = {status: status for status in get_args(StepStatus)}


MOST: Final = 2**63 - 1
"""The largest number that SQLite holds; no version, and no count of rows, comes near it."""


def bounded(number: int) -> int:
    """The number, or the nearest one that SQLite can compare with what it holds."""
    return max(-MOST, min(number, MOST))


def to_integer(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"the database holds {value!r} where a whole number belongs")


def to_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"the database holds {value!r} where text belongs")


def to_blob(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    raise TypeError(f"the database holds {value!r} where bytes belong")


def optional_integer(value: Value) -> int | None:
    return None if value is None else to_integer(value)


def optional_text(value: Value) -> str | None:
    return None if value is None else to_text(value)


def optional_blob(value: Value) -> bytes | None:
    return None if value is None else to_blob(value)


def read_form(row: Row | None) -> Form | None:
    """In the order of the columns of `FORM`; None where there is none."""
    return None if row is None else Form(to_integer(row[0]), to_text(row[1]))


def read_receipt(key: StoreKey, step: StepId, row: Row) -> Receipt:
    """In the order of the columns of `HELD_RECEIPT`."""
    kind, instance, version, value = row
    return Receipt(key, step, to_text(kind), Revision(to_text(instance), to_integer(version)), to_blob(value))


def run_row(row: RunRow) -> Row:
    """In the order of the columns of `INSERT_RUN`, but for the run's number."""
    return (
        row.id,
        row.workflow,
        row.version,
        row.arguments,
        row.state,
        row.created_at_ms,
        row.updated_at_ms,
        row.owner,
        row.fence,
        row.lease_until_ms,
        row.wake_at_ms,
        row.waiting_on,
        row.problem,
        row.outcome,
        int(row.cancel_requested),
        row.crashes,
        row.mark,
    )


def read_run(row: Row) -> RunRow:
    """In the order of the columns of `RUN`."""
    return RunRow(
        id=to_text(row[0]),
        workflow=to_text(row[1]),
        version=optional_text(row[2]),
        arguments=to_blob(row[3]),
        state=RUN_STATES[to_text(row[4])],
        created_at_ms=to_integer(row[5]),
        updated_at_ms=to_integer(row[6]),
        owner=optional_text(row[7]),
        fence=to_integer(row[8]),
        lease_until_ms=to_integer(row[9]),
        wake_at_ms=optional_integer(row[10]),
        waiting_on=optional_text(row[11]),
        problem=optional_text(row[12]),
        outcome=optional_blob(row[13]),
        cancel_requested=bool(row[14]),
        crashes=to_integer(row[15]),
        mark=to_integer(row[16]),
        no=to_integer(row[17]),
    )


def read_step(run_id: str, row: Row) -> StepRow:
    """In the order of the columns of `STEPS`."""
    pin = None
    if row[9] is not None:
        pin = Pin(StoreKey(to_text(row[9]), to_text(row[10])), Revision(to_text(row[11]), to_integer(row[12])))
    return StepRow(
        run_id=run_id,
        key=to_text(row[0]),
        kind=to_text(row[1]),
        target=to_text(row[2]),
        status=STEP_STATUSES[to_text(row[3])],
        attempt=to_integer(row[4]),
        position=optional_integer(row[5]),
        at_ms=optional_integer(row[6]),
        value=optional_blob(row[7]),
        recorded_at_ms=to_integer(row[8]),
        pin=pin,
    )


def read_waiter(row: Row) -> WaiterRow:
    """In the order of the columns of `WAITER_ROWS`."""
    waiter = Waiter(
        key=StoreKey(to_text(row[5]), to_text(row[6])),
        step=StepId(to_text(row[3]), to_text(row[4])),
        seen=Revision(to_text(row[7]), to_integer(row[8])),
        read_paths=paths.decode(to_blob(row[9])),
        generation=to_integer(row[2]),
        queue=optional_text(row[10]),
    )
    return WaiterRow(waiter, optional_integer(row[0]), to_integer(row[1]))


def read_signal(run_id: str, row: Row) -> SignalRow:
    """In the order of the columns of `SIGNAL_ROWS`."""
    no, name, value, dedupe = row
    return SignalRow(run_id, to_text(name), to_blob(value), optional_text(dedupe), to_integer(no))
