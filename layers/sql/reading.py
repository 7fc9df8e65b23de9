"""Reading: one function for each question that a ledger answers, over a connection."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from ...core.batch import Commit, Document, Form, Receipt
from ...core.model import Revision, StepId, StoreKey
from ...core.run import RunRow, RunState
from ...core.signal import SignalRow
from ...core.step import StepRow
from ...core.waiter import WaiterRow, Wake
from ...services.ledger import DueRuns, StoreTip
from . import statements as sql
from .connection import Connection
from .held import KEPT
from .rows import (
    bounded,
    optional_integer,
    read_form,
    read_receipt,
    read_run,
    read_signal,
    read_step,
    read_waiter,
    to_blob,
    to_integer,
    to_text,
)
from .schema import DELETED, PATCHED

__all__ = [
    "cancel_requests",
    "changes",
    "document",
    "due",
    "owners",
    "receipt",
    "run",
    "runs",
    "signals",
    "snapshot",
    "steps",
    "stores",
    "tail",
    "tip",
    "waiters",
    "wakes",
    "way_down",
]

# --- stores -----------------------------------------------------------------


def receipt(connection: Connection, sids: dict[StoreKey, int], key: StoreKey, step: StepId) -> Receipt | None:
    """`sids` are the numbers of stores that have been looked up: a store keeps its number, even when it is deleted."""
    sid = sids.get(key)
    if sid is None:
        store = connection.row(sql.HELD_STORE, key.name, key.id)
        if store is None:
            return None
        if len(sids) >= KEPT:
            sids.clear()
        sid = sids[key] = to_integer(store[0])
    row = connection.row(sql.HELD_RECEIPT, step.run_id, step.key, sid)
    return None if row is None else read_receipt(key, step, row)


def tip(connection: Connection, key: StoreKey) -> Revision | None:
    row = connection.row(sql.HELD_STORE, key.name, key.id)
    if row is None or row[1] is None:
        return None
    return Revision(to_text(row[1]), to_integer(row[2]))


def tail(connection: Connection, key: StoreKey, after: Revision) -> tuple[Commit, ...] | None:
    # The rows below a tip never change; if they are cut out in between, a version is missing.
    row = connection.row(sql.HELD_STORE, key.name, key.id)
    if row is None or row[1] != after.instance_id:
        return None
    behind = to_integer(row[2]) - after.version
    if behind <= 0:
        return () if behind == 0 else None
    rows = connection.rows(sql.TAIL_CHAIN, to_integer(row[3]), after.version + 1)
    if len(rows) != behind or any(kind != PATCHED for _, kind, _, _ in rows) or rows[-1][0] != after.version + 1:
        return None  # the instance began later, or is kept only from a later revision on
    forms = {fno: read_form(connection.row(sql.FORM_OF_NUMBER, fno)) for fno in {row[3] for row in rows}}
    return tuple(
        Commit(Revision(after.instance_id, to_integer(version)), to_blob(patch), forms[fno])
        for version, _, patch, fno in reversed(rows)
    )


def document(connection: Connection, key: StoreKey, at: Revision | None) -> Document | None:
    """A ValueError says that the tip, which must be there, cannot be found."""
    with snapshot(connection):
        row = connection.row(sql.HELD_STORE, key.name, key.id)
        if row is None:
            return None
        sid, instance, version, last_seq = row
        tip = None if instance is None else Revision(to_text(instance), to_integer(version))
        if at is not None and at != tip:
            begin = way_down(connection, to_integer(sid), at, at.instance_id == instance, optional_integer(last_seq))
            return None if begin is None else _from_chain(connection, begin, at)
        if tip is None:
            return None
        found = _from_chain(connection, to_integer(last_seq), tip)
        if found is None or found.seq != last_seq:
            raise ValueError(f"the log does not lead to version {tip.version}")
        return found


def way_down(connection: Connection, sid: int, at: Revision, current: bool, last_seq: int | None) -> int | None:
    """The row of the log from which the way down to a revision is short; None where there was no such instance."""
    if current:
        ends = connection.row(sql.INSTANCE_BEGIN, last_seq, sid, at.instance_id)
    else:
        ends = connection.row(sql.INSTANCE_END, sid, at.instance_id)
    if ends is None:
        return None
    end, begin = to_integer(ends[0]), to_integer(ends[1])
    nearest = connection.row(sql.NEAREST_BASE, sid, bounded(at.version), begin, end)
    return end if nearest is None else to_integer(nearest[0])


def _from_chain(connection: Connection, begin: int, at: Revision) -> Document | None:
    rows = [row for row in connection.rows(sql.DOCUMENT_CHAIN, begin, bounded(at.version)) if row[2] != DELETED]
    chain = [row for row in rows if to_integer(row[1]) <= at.version]
    if not chain or chain[0][1] != at.version:
        return None
    *patched, based = chain
    if any(row[1] != at.version - behind for behind, row in enumerate(chain)):
        raise ValueError("versions are missing from the log")
    base = connection.row(sql.BASE, to_integer(based[0]))
    if base is None:
        raise ValueError("it has no base")
    patches = tuple(to_blob(patch) for _, _, _, patch in reversed(patched))
    seq = to_integer(chain[0][0])
    return Document(at, seq, to_blob(base[0]), patches, read_form(connection.row(sql.FORM, seq)))


def stores(connection: Connection, name: str | None) -> tuple[StoreTip, ...]:
    rows = connection.rows(sql.STORES) if name is None else connection.rows(sql.STORES_NAMED, name)
    return tuple(
        StoreTip(
            StoreKey(to_text(name), to_text(id)),
            Revision(to_text(instance), to_integer(version)),
            to_integer(updated_at_ms),
            None if form is None else Form(to_integer(form), to_text(fingerprint)),
        )
        for name, id, instance, version, updated_at_ms, form, fingerprint in rows
    )


@contextmanager
def snapshot(connection: Connection) -> Generator[None]:
    """What is read inside is of one moment."""
    connection.run("begin")
    try:
        yield
    finally:
        if connection.in_transaction:  # some errors have ended it, and are what is to be told
            connection.run("rollback")


# --- runs -------------------------------------------------------------------


def run(connection: Connection, run_id: str) -> RunRow | None:
    row = connection.row(sql.RUN, run_id)
    return None if row is None else read_run(row)


def runs(
    connection: Connection,
    state: RunState | None,
    workflow: str | None,
    limit: int,
    after: str | int | None,
    newest_first: bool,
) -> tuple[RunRow, ...]:
    wanted = [value for value in (state, workflow, after) if value is not None]
    place = None if after is None else "id" if isinstance(after, str) else "no"
    text = sql.select_runs(state is not None, workflow is not None, place, newest_first)
    return tuple(map(read_run, connection.rows(text, *wanted, bounded(limit))))


def steps(connection: Connection, run_id: str) -> tuple[StepRow, ...]:
    return tuple(read_step(run_id, row) for row in connection.rows(sql.STEPS, run_id))


def due(connection: Connection, workflows: Sequence[str], now_ms: int, dead: Sequence[str], limit: int) -> DueRuns:
    if not workflows:
        return DueRuns((), None)
    with snapshot(connection):
        rows = connection.rows(sql.due_runs(len(workflows), len(dead)), now_ms, *dead, *workflows, bounded(limit))
        later = connection.row(sql.next_free(len(workflows), len(dead)), now_ms, *dead, *workflows)
    return DueRuns(tuple(map(read_run, rows)), None if later is None else to_integer(later[0]))


def owners(connection: Connection) -> tuple[str, ...]:
    return tuple(to_text(owner) for (owner,) in connection.rows(sql.OWNERS))


def cancel_requests(connection: Connection, owner: str) -> tuple[str, ...]:
    return tuple(to_text(run_id) for (run_id,) in connection.rows(sql.CANCEL_REQUESTS, owner))


def changes(connection: Connection) -> int:
    """SQLite changes this number when another connection has committed; this one only reads."""
    (version,) = connection.rows("pragma data_version")[0]
    return to_integer(version)


# --- waiters and signals ----------------------------------------------------


def waiters(connection: Connection, key: StoreKey | None, run_id: str | None) -> tuple[WaiterRow, ...]:
    wanted = [] if key is None else [key.name, key.id]
    wanted += [] if run_id is None else [run_id]
    return tuple(map(read_waiter, connection.rows(sql.select_waiters(key is not None, run_id is not None), *wanted)))


def wakes(connection: Connection, after: int) -> tuple[Wake, ...]:
    with snapshot(connection):  # a number that is missing here must not come to light below one that is given
        due = connection.rows(sql.DUE_WAITERS, after)
        unread = connection.rows(sql.UNREAD_SIGNALS, after)
    owed = [Wake(to_integer(no), to_text(run_id), None) for no, run_id in unread]
    for row in map(read_waiter, due):
        assert row.due_no is not None
        owed.append(Wake(row.due_no, row.waiter.step.run_id, row.waiter))
    return tuple(sorted(owed, key=lambda wake: wake.no))


def signals(connection: Connection, run_id: str, name: str | None) -> tuple[SignalRow, ...]:
    rows = [read_signal(run_id, row) for row in connection.rows(sql.SIGNAL_ROWS, run_id)]
    return tuple(row for row in rows if name in (None, row.name))
