"""The rows of a group, over the writing connection: what has to be known to judge it, and what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from msgspec import structs

from ...core.batch import Committed
from ...core.model import Revision, StoreKey
from ...core.outcome import Success
from ...core.run import ENDED
from ...services.ledger import Verdict
from .connection import Connection
from .group import Judged, Rows
from .held import Asked, Held, HeldRun, HeldStore
from .held_journals import HeldJournals
from .journal_writing import write_journals
from .points import CommitPoint, OnPoint
from .retention import KEEP_NUMBERS, write_removals, write_spent
from .rows import optional_integer, read_receipt, to_integer, to_text
from .statements import (
    HELD_FORM,
    HELD_RECEIPT,
    HELD_RUN,
    HELD_STORE_TO_WRITE,
    HELD_WAITER,
    INSERT_BASE,
    INSERT_FORM,
    INSERT_HEAD,
    INSERT_LOG,
    INSERT_RECEIPT,
    INSERT_STORE,
    LAST_NUMBERS,
    UPDATE_STORE,
    UPSERT_BASE,
    UPSERT_HEAD,
    UPSERT_STEP,
)
from .waiting import WaitingRows

__all__ = ["read_held", "write_rows", "write_waiting"]


def read_held(connection: Connection, group: Sequence[Judged], held: Held | None) -> Held:
    """What is stored of all that the group asks for, read inside its transaction.

    `held` is what the group before it left, if nobody else has written since: that need not be read again.
    """
    asked = Asked.of(batch for batch, *_ in group)
    if held is None:
        (numbers,) = connection.rows(LAST_NUMBERS)
        sid, seq, no, sequence, fno, *others = map(to_integer, numbers)
        held = Held(sid, seq, no, sequence, fno, HeldJournals(connection, *others))
    for key in asked.stores:
        _read_store(connection, key, held)
    for name, form in asked.forms:
        if (name, form) not in held.forms and (row := connection.row(HELD_FORM, name, form.version, form.fingerprint)):
            held.forms[name, form] = to_integer(row[0])
    for key, step in asked.receipts:
        store = _read_store(connection, key, held)
        if store and (row := connection.row(HELD_RECEIPT, step.run_id, step.key, store.sid)):
            held.receipts[key, step] = read_receipt(key, step, row)
    for run_id in asked.runs:
        if run_id not in held.runs and (row := connection.row(HELD_RUN, run_id)):
            held.runs[run_id] = HeldRun(to_integer(row[0]), to_integer(row[1]), row[2] in ENDED)
    for key, step in asked.waiters:
        if row := connection.row(HELD_WAITER, key.name, key.id, step.run_id, step.key):
            held.generations[key, step] = to_integer(row[0])
    return held


def _read_store(connection: Connection, key: StoreKey, held: Held) -> HeldStore | None:
    store = held.stores.get(key)
    if store is None and (row := connection.row(HELD_STORE_TO_WRITE, key.name, key.id)):
        sid, instance, version, seq, fno, waited = row
        tip = None if instance is None else Revision(to_text(instance), to_integer(version))
        store = HeldStore(to_integer(sid), tip, optional_integer(seq), optional_integer(fno), waited=bool(waited))
        store.instance = None if tip is None else tip.instance_id
        held.stores[key] = store
    return store


def write_rows(connection: Connection, held: Held, rows: Rows, reached: OnPoint) -> None:
    """Write table by table, and say so after each kind of row."""
    if rows.spent:
        write_spent(connection, rows)
    if held.new_forms:
        forms = [(held.forms[name, form], name, form.version, form.fingerprint) for name, form in held.new_forms]
        connection.run_many(INSERT_FORM, forms)
    if rows.touched:
        stores = rows.stores()
        connection.insert_rows(INSERT_STORE, stores.new)
        connection.insert_rows(INSERT_HEAD, stores.new_heads)
        connection.run_many(UPDATE_STORE, stores.changed)
        connection.insert_rows(UPSERT_HEAD, stores.heads)
        reached(CommitPoint.AFTER_STORES)
    if rows.log:
        connection.insert_rows(INSERT_LOG, rows.log)
        reached(CommitPoint.AFTER_LOG)
    if rows.bases or rows.later_bases:
        connection.insert_rows(INSERT_BASE, rows.bases)
        connection.run_many(UPSERT_BASE, rows.later_bases)
        reached(CommitPoint.AFTER_BASES)
    if rows.receipts:
        connection.insert_rows(INSERT_RECEIPT, rows.receipts)
        reached(CommitPoint.AFTER_RECEIPTS)
    if rows.removals:
        write_removals(connection, rows)
    if rows.removals or rows.spent:
        connection.run(KEEP_NUMBERS, held.last_seq, held.last_no)
    if rows.runs:
        for sql, changes in groupby(rows.runs, key=itemgetter(0)):  # in their order
            connection.run_many(sql, [values for _, values in changes])
        reached(CommitPoint.AFTER_RUNS)
    if rows.steps:
        connection.insert_rows(UPSERT_STEP, rows.steps)
        reached(CommitPoint.AFTER_STEPS)
    if rows.journals:
        write_journals(connection, rows.journals, reached)


def write_waiting(connection: Connection, held: Held, rows: Rows, verdicts: list[Verdict], reached: OnPoint) -> bool:
    """Write waiters and signals, put what was registered into the verdicts, and say whether a wake came to be owed."""
    if not rows.waits and not rows.signals:
        return False
    waiting = WaitingRows(connection, held, rows)
    if rows.waits:
        waiting.write_waiters()
        reached(CommitPoint.AFTER_WAITERS)
    if rows.signals:
        waiting.write_signals()
        reached(CommitPoint.AFTER_SIGNALS)
    waiting.write_sequence()
    for number, registered in waiting.registered.items():
        verdict = verdicts[number].unwrap()
        assert isinstance(verdict, Committed)  # nothing of the others was written
        verdicts[number] = Success(structs.replace(verdict, registered=tuple(registered)))
    return waiting.woke
