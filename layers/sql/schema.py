"""The tables, as numbered migrations; migration n takes a database from version n - 1 to n and is never edited.

A change of a store costs one row in `log`, written at its end, one small row in `head`, and a receipt where a step
asked for one; `store` has what it is found by. The whole document is written only now and then, to `base`. The rows of
one store are a chain through the log, each naming the one before it, from `head.last_seq` down; the chain goes on when
a store is deleted and made again, so that every revision stays readable. The numbers of rows are given by whoever
writes, inside the transaction.

Retention cuts stretches out of a chain (`core/retention.py`). The row above a stretch then names the one below it; if
it is a patch it has a base, and in `instance` its instance, as if that began there. So a patch whose version does not
follow that of the row it names is where reading begins, or is damaged.

Those that wait together are a row of `line`: the members of a queue of one instance, or one waiter alone. What counts
for them all, the revision of the last look and the paths that it read, is there; `line_path` has a row for each path,
to be found by what a commit has changed (`path_rows.py`). `sequence` holds the last number that was given to a
registration, a wake or a signal; none is given twice, also when the rows are gone.

An entry of a run's journal costs one row in `entry`, at its end, where it stands in the order of all commits, and one
in `entry_source` where somebody named a source. `journal_end` has what every append changes; what is carried of entries
that are gone, which may be long, is beside it in `journal`. A row that no chain of hashes holds has a seal of its own
(`journal_rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .dialect import Dialect

__all__ = ["APPLICATION_ID", "CREATED", "DELETED", "MIGRATIONS", "PATCHED", "SCHEMA_VERSION"]

APPLICATION_ID: Final = 0x5357_4C4C
"""What marks a file as ours, in its header: "SWLL"."""

CREATED: Final = 0
PATCHED: Final = 1
DELETED: Final = 2
"""What a row of the log did, in its column `kind`."""


def _tables(d: Dialect) -> tuple[str, ...]:
    return (
        f"""
        create table store (
            sid {d.integer} primary key,
            name text not null,
            id text not null,
            instance text,               -- null: deleted, or known only by a receipt
            version {d.integer} not null,
            last_seq {d.integer},
            updated_at_ms {d.integer} not null,
            unique (name, id)
        )""",
        f"""
        create table log (
            seq {d.integer} primary key,
            sid {d.integer} not null,
            version {d.integer} not null,
            prev_seq {d.integer},
            instance text,               -- only where an instance begins or ends
            kind {d.integer} not null,
            at_ms {d.integer} not null,
            patch {d.bytes}
        )""",
        "create index log_instance on log (sid, instance) where instance is not null",
        f"""
        create table base (
            seq {d.integer} primary key,
            sid {d.integer} not null,
            version {d.integer} not null,
            document {d.bytes} not null
        )""",
        "create index base_revision on base (sid, version, seq)",
        # Keyed by run first: a run's receipts are written one after another, and ids of runs are ordered by time.
        f"""
        create table receipt (
            run_id text not null,
            key text not null,
            sid {d.integer} not null,
            kind text not null,
            instance text not null,
            version {d.integer} not null,
            value {d.bytes} not null,
            primary key (run_id, key, sid)
        ){d.clustered}""",
        f"""
        create table run (
            no {d.integer} primary key,
            id text not null unique,
            workflow text not null,
            version text,
            arguments {d.bytes} not null,
            state text not null,
            created_at_ms {d.integer} not null,
            updated_at_ms {d.integer} not null,
            owner text,
            fence {d.integer} not null,
            lease_until_ms {d.integer} not null,
            wake_at_ms {d.integer},
            waiting_on text,
            problem text,
            outcome {d.bytes},
            cancel_requested {d.integer} not null,
            crashes {d.integer} not null,
            mark {d.integer} not null
        )""",
        "create index run_state on run (state, no)",
        # The conditions stand in the queries word for word: so the planner knows that the index holds all they ask for.
        """
        create index run_free on run ((case when owner is null then coalesce(wake_at_ms, 0) else lease_until_ms end))
            where (state in ('pending', 'running', 'waiting')) is true""",
        """
        create index run_owner on run (owner)
            where (state in ('pending', 'running', 'waiting', 'stuck')) is true and owner is not null""",
        f"""
        create table step (
            run_no {d.integer} not null,
            key text not null,
            kind text not null,
            target text not null,
            status text not null,
            attempt {d.integer} not null,
            position {d.integer},
            at_ms {d.integer},
            value {d.bytes},
            pin_sid {d.integer},
            pin_instance text,
            pin_version {d.integer},
            recorded_at_ms {d.integer} not null,
            primary key (run_no, key)
        ){d.clustered}""",
    )


def _waiting(d: Dialect) -> tuple[str, ...]:
    return (
        f"create table sequence (no {d.integer} not null)",
        "insert into sequence (no) values (0)",
        f"""
        create table line (
            lno {d.integer} primary key,
            sid {d.integer} not null,
            instance text not null,
            queue text,                  -- null: one waiter alone
            version {d.integer} not null,
            paths {d.bytes} not null,
            unique (sid, instance, queue)
        )""",
        f"""
        create table line_path (
            sid {d.integer} not null,
            mask {d.integer} not null,   -- which segments of the path stand for any
            path {d.bytes} not null,
            lno {d.integer} not null,
            primary key (sid, mask, path, lno)
        ){d.clustered}""",
        f"""
        create table waiter (
            place {d.integer} primary key,  -- the number of its first registration
            no {d.integer} not null,        -- that of its last one: its generation
            run_id text not null,
            key text not null,
            sid {d.integer} not null,
            lno {d.integer} not null,
            due_no {d.integer},             -- the number of the wake that is owed to it
            passed {d.integer} not null,    -- 1: it is due, and has had its turn in the queue
            registered_at_ms {d.integer} not null,
            unique (run_id, key, sid)
        )""",
        "create index waiter_line on waiter (lno, passed, due_no, place)",
        "create index waiter_due on waiter (due_no) where due_no is not null",
        f"""
        create table signal (
            no {d.integer} primary key,
            run_no {d.integer} not null,
            name text not null,
            value {d.bytes} not null,
            dedupe text,
            read_by text                    -- the key of a step; null: unread
        )""",
        "create unique index signal_dedupe on signal (run_no, name, dedupe) where dedupe is not null",
        "create index signal_of_run on signal (run_no, no) where read_by is null",
        "create index signal_unread on signal (no) where read_by is null",
    )


def _history(d: Dialect) -> tuple[str, ...]:
    return (
        f"""
        create table form (
            fno {d.integer} primary key,
            name text not null,
            version {d.integer} not null,
            fingerprint text not null,
            unique (name, version, fingerprint)
        )""",
        # The form of the document at a revision; null: not known.
        f"alter table log add column fno {d.integer}",
        # What a change of a store changes, apart from what it is found by: of many stores, few pages.
        f"""
        create table head (
            sid {d.integer} primary key,
            version {d.integer} not null,
            last_seq {d.integer},
            fno {d.integer}              -- the form of the document at the tip
        )""",
        "insert into head select sid, version, last_seq, null from store order by sid",
        "alter table store drop column version",
        "alter table store drop column last_seq",
        "alter table store drop column updated_at_ms",
        # What was given to rows that are gone is not given again.
        f"alter table sequence add column seq {d.integer} not null default 0",
        f"alter table sequence add column run_no {d.integer} not null default 0",
    )


def _journals(d: Dialect) -> tuple[str, ...]:
    # In each table what may be long comes last: what stands before it is read without it.
    return (
        f"""
        create table journal (
            jno {d.integer} primary key,
            run_id text not null unique,    -- there need be no such run
            generation {d.integer} not null,
            floor {d.integer},
            floor_chain {d.bytes},
            seal {d.bytes} not null,
            carried {d.bytes}
        )""",
        f"""
        create table journal_end (
            jno {d.integer} primary key,
            last_seq {d.integer} not null,
            chain {d.bytes} not null,
            seal {d.bytes} not null
        )""",
        f"""
        create table entry (
            no {d.integer} primary key,
            jno {d.integer} not null,
            seq {d.integer} not null,
            type text not null,
            at_ms {d.integer} not null,
            source text,
            source_seq {d.integer},
            spilled {d.integer} not null,
            chain {d.bytes} not null,
            meta {d.bytes},
            payload {d.bytes} not null
        )""",
        "create unique index entry_seq on entry (jno, seq)",
        "create index entry_type on entry (jno, type, seq)",
        # The condition stands in the query word for word.
        "create index entry_provenance on entry (no) where type = 'stepwell.cache-provenance'",
        f"""
        create table entry_source (
            jno {d.integer} not null,
            source text not null,
            source_seq {d.integer} not null,
            seq {d.integer} not null,
            identity {d.bytes} not null,
            seal {d.bytes} not null,
            primary key (jno, source, source_seq)
        ){d.clustered}""",
        f"""
        create table checkpoint (
            jno {d.integer} not null,
            seq {d.integer} not null,
            at_ms {d.integer} not null,
            compacted_at_ms {d.integer},
            seal {d.bytes} not null,
            state {d.bytes} not null,
            primary key (jno, seq)
        )""",
        f"""
        create table rewind (
            jno {d.integer} not null,
            generation {d.integer} not null,
            from_seq {d.integer} not null,
            to_seq {d.integer} not null,
            at_ms {d.integer} not null,
            chain {d.bytes} not null,
            seal {d.bytes} not null,
            primary key (jno, generation)
        ){d.clustered}""",
        f"""
        create table recorded (
            run_id text not null,
            key text not null,
            seq {d.integer} not null,
            created_at_ms {d.integer} not null,
            result_digest {d.bytes} not null,
            seal {d.bytes} not null,
            meta {d.bytes} not null,
            result {d.bytes} not null,
            primary key (run_id, key, seq)
        )""",
        f"""
        create table cache_head (
            key text primary key not null,
            run_id text not null,
            seq {d.integer} not null,
            created_at_ms {d.integer} not null
        ){d.clustered}""",
        "create index cache_head_created on cache_head (created_at_ms)",
        # The last number that was given to an entry which is gone, and how often the step cache was changed.
        f"alter table sequence add column entry_no {d.integer} not null default 0",
        f"alter table sequence add column cache_changes {d.integer} not null default 0",
    )


MIGRATIONS: Final[tuple[Callable[[Dialect], tuple[str, ...]], ...]] = (_tables, _waiting, _history, _journals)

SCHEMA_VERSION: Final = len(MIGRATIONS)
