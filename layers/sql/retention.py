"""The end of rows: of stretches of a history, of whole ones, of runs; and what is asked before, of pins and sizes.

What a table frees it fills again before its file grows, so a database that is collected regularly stays as it is.
"""

from __future__ import annotations

from typing import Final

from ...core import paths as core_paths
from ...core.batch import CutLog, ForgetRun, SweepSignals, TrimRun
from ...core.model import Revision, StepId, StoreKey
from ...services.ledger import PinPage, RunWeight, SignalPage, StoredPin
from .connection import Connection
from .group import Erasure, Rows
from .rows import Row, optional_integer, to_integer, to_text
from .schema import DELETED

__all__ = [
    "KEEP_NUMBERS",
    "histories",
    "last_change",
    "pins",
    "run_weight",
    "stale_signals",
    "write_removals",
    "write_spent",
]

KEEP_NUMBERS: Final = "update sequence set seq = max(seq, ?), run_no = max(run_no, ?)"

# --- histories --------------------------------------------------------------

# The parameters are the row below the stretch, the instance; the row above, and the first and the last of the stretch.
CUT: Final = """
update log set prev_seq = ?, instance = coalesce(instance, ?)
where seq = ? and prev_seq = ? and exists (select 1 from log l where l.seq = ? and l.prev_seq is ?)
      and (kind <> 1 or exists (select 1 from base where base.seq = log.seq))
returning seq"""

DELETE_LOG: Final = "delete from log where seq = ?"
DELETE_BASE: Final = "delete from base where seq = ?"

# Down the chain from one row to the first that is not newer than another: that one, and the one above it, if any.
BORDER: Final = """
with recursive chain (seq, prev_seq, kind) as (
    select seq, prev_seq, kind from log where seq = ?
    union all
    select l.seq, l.prev_seq, l.kind from chain c join log l on l.seq = c.prev_seq where c.seq > ?
)
select seq, kind from chain order by seq limit 2"""

BEGIN_AT: Final = "update log set prev_seq = null where seq = ?"

ERASE_LOG: Final = """
with recursive chain (seq, prev_seq) as (
    select seq, prev_seq from log where seq = ?
    union all
    select l.seq, l.prev_seq from chain c join log l on l.seq = c.prev_seq
)
delete from log where seq in (select seq from chain)"""

ERASE_BASES: Final = "delete from base where sid = ? and seq <= ?"

ERASE_RECEIPT: Final = """
update receipt set value = x'' where run_id = ? and key = ? and sid = ?
    and not exists (select 1 from log where log.sid = receipt.sid and log.instance = receipt.instance)"""

ERASE_PATHS: Final = """
update line set paths = ? where sid = ?
    and not exists (select 1 from log where log.sid = line.sid and log.instance = line.instance)"""

ANYTHING: Final = core_paths.encode(((),))


def write_removals(connection: Connection, rows: Rows) -> None:
    for removal in rows.removals:
        match removal:
            case CutLog():
                _cut(connection, removal)
            case Erasure():
                _erase(connection, removal)


def _cut(connection: Connection, cut: CutLog) -> None:
    if cut.above is not None:
        first, last = cut.seqs[0], cut.seqs[-1]
        if connection.row(CUT, cut.below, cut.instance_id, cut.above, first, last, cut.below) is None:
            return  # somebody else has cut there
    numbers: list[Row] = [(seq,) for seq in cut.seqs]
    connection.run_many(DELETE_LOG, numbers)
    connection.run_many(DELETE_BASE, numbers)


def _erase(connection: Connection, erasure: Erasure) -> None:
    sid, upto = erasure.sid, erasure.upto
    border = connection.rows(BORDER, erasure.last_seq, upto)
    if border and to_integer(border[0][0]) <= upto and border[0][1] == DELETED:
        for seq, _ in border[1:]:
            connection.run(BEGIN_AT, seq)
        connection.run(ERASE_LOG, border[0][0])
        connection.run(ERASE_BASES, sid, upto)
    connection.run_many(ERASE_RECEIPT, [(step.run_id, step.key, sid) for step in erasure.write.receipts])
    connection.run(ERASE_PATHS, ANYTHING, sid)


# --- runs -------------------------------------------------------------------

TRIM_RECEIPTS: Final = """
delete from receipt where run_id = ? and (key, sid) in (
    select key, sid from receipt where run_id = ? order by key, sid limit ?)"""

TRIM_STEPS: Final = """
delete from step where run_no = ? and key in (select key from step where run_no = ? order by key limit ?)"""

TRIM_SIGNALS: Final = """
delete from signal where no in (
    select no from signal where run_no = ? and read_by is null order by no limit ?)"""

FORGET_RECEIPTS: Final = "delete from receipt where run_id = ?"
FORGET_STEPS: Final = "delete from step where run_no = ?"
FORGET_SIGNALS: Final = "delete from signal where run_no = ? and read_by is null"
FORGET_RUN: Final = "delete from run where no = ?"

SWEEP_SIGNALS: Final = """
delete from signal where no between ? and ? and read_by is not null
    and not exists (select 1 from run where run.no = signal.run_no)"""


def write_spent(connection: Connection, rows: Rows) -> None:
    """Before anything else of the group: the id of a run may be used anew in it."""
    for write, run_no in rows.spent:
        match write:
            case TrimRun(run_id, most):
                connection.run(TRIM_RECEIPTS, run_id, run_id, most)
                connection.run(TRIM_STEPS, run_no, run_no, most)
                connection.run(TRIM_SIGNALS, run_no, most)
            case ForgetRun(run_id):
                connection.run(FORGET_RECEIPTS, run_id)
                connection.run(FORGET_STEPS, run_no)
                connection.run(FORGET_SIGNALS, run_no)
                connection.run(FORGET_RUN, run_no)
            case SweepSignals(first, last):
                connection.run(SWEEP_SIGNALS, first, last)


# --- questions --------------------------------------------------------------

HISTORIES: Final = """
select s.name, s.id from store s join head h on h.sid = s.sid
where h.last_seq is not null and (s.name, s.id) > (?, ?) order by s.name, s.id limit ?"""

PINS_OF_RECEIPTS: Final = """
select r.run_id, r.key, r.sid, s.name, s.id, r.instance, r.version, length(r.value)
from receipt r left join store s on s.sid = r.sid
where (r.run_id, r.key, r.sid) > (?, ?, ?) order by r.run_id, r.key, r.sid limit ?"""

PINS_OF_STEPS: Final = """
select t.run_no, t.key, s.name, s.id, t.pin_instance, t.pin_version, r.id
from step t join run r on r.no = t.run_no left join store s on s.sid = t.pin_sid
where (t.run_no, t.key) > (?, ?) order by t.run_no, t.key limit ?"""

# Of a row that is long, only the length is read.
WEIGHT: Final = """
select (select count(*) from receipt where run_id = r.id), count(t.key), coalesce(sum(length(t.value)), 0)
from run r left join step t on t.run_no = r.no where r.id = ? group by r.no"""

LAST_CHANGE: Final = "select coalesce(max(seq), 0) from log"

STALE_SIGNALS: Final = """
select no, read_by is not null and not exists (select 1 from run where run.no = signal.run_no)
from signal where no > ? order by no limit ?"""


def histories(connection: Connection, after: StoreKey | None, limit: int) -> tuple[StoreKey, ...]:
    name, id = ("", "") if after is None else (after.name, after.id)
    return tuple(StoreKey(to_text(name), to_text(id)) for name, id in connection.rows(HISTORIES, name, id, limit))


def pins(connection: Connection, after: tuple[str | int, ...] | None, limit: int) -> PinPage:
    """First those of receipts, then those of steps. A place is that of a receipt, of three parts, or of a step."""
    if after is None or len(after) == 3:
        rows = connection.rows(PINS_OF_RECEIPTS, *(after or ("", "", 0)), limit)
        found = tuple(_receipt_pin(row) for row in rows)
        if len(rows) == limit:
            last = rows[-1]
            return PinPage(found, (to_text(last[0]), to_text(last[1]), to_integer(last[2])))
        return PinPage(found, (0, ""))
    rows = connection.rows(PINS_OF_STEPS, *after, limit)
    found = tuple(_step_pin(row) for row in rows if row[2] is not None)
    return PinPage(found, (to_integer(rows[-1][0]), to_text(rows[-1][1])) if len(rows) == limit else None)


def _receipt_pin(row: Row) -> StoredPin:
    run_id, key, _, name, id, instance, version, value_bytes = row
    return StoredPin(
        StoreKey(to_text(name), to_text(id)),
        Revision(to_text(instance), to_integer(version)),
        StepId(to_text(run_id), to_text(key)),
        optional_integer(value_bytes) or 0,
    )


def _step_pin(row: Row) -> StoredPin:
    _, key, name, id, instance, version, run_id = row
    return StoredPin(
        StoreKey(to_text(name), to_text(id)),
        Revision(to_text(instance), to_integer(version)),
        StepId(to_text(run_id), to_text(key)),
    )


def run_weight(connection: Connection, run_id: str) -> RunWeight:
    row = connection.row(WEIGHT, run_id)
    if row is None:
        return RunWeight(0, 0)
    receipts, steps, size_bytes = map(to_integer, row)
    return RunWeight(max(receipts, steps), size_bytes)


def last_change(connection: Connection) -> int:
    ((seq,),) = connection.rows(LAST_CHANGE)
    return to_integer(seq)


def stale_signals(connection: Connection, after: int, limit: int) -> SignalPage:
    rows = connection.rows(STALE_SIGNALS, after, limit)
    numbers = tuple(to_integer(no) for no, is_stale in rows if is_stale)
    return SignalPage(numbers, to_integer(rows[-1][0]) if len(rows) == limit else None)
