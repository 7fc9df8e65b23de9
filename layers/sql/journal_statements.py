"""The text of the SQL of journals and the step cache. Parameters are `?`, in the order in which they are given."""

from __future__ import annotations

from typing import Final

from ...core.cache_fold import EVENT_TYPE

__all__ = [
    "CACHE_CHANGES",
    "CHECKPOINT",
    "CHECKPOINTS",
    "CUT_ABOVE",
    "CUT_BELOW",
    "CUT_SOURCES",
    "DELETE_CHECKPOINTS",
    "DELETE_CHECKPOINTS_ABOVE",
    "DELETE_CHECKPOINTS_BELOW",
    "DELETE_HEAD",
    "DELETE_RECORDED",
    "DELETE_REWINDS",
    "ENTRIES",
    "ENTRY_AT",
    "ENTRY_PLACES",
    "ENTRY_PLACES_OF_TYPE",
    "FEW_HEADS_BEFORE",
    "HAS_CHECKPOINT",
    "HAS_ENTRY",
    "HEAD",
    "HEADS",
    "HEADS_BEFORE",
    "HELD_HEAD",
    "HELD_JOURNAL",
    "HELD_RECORDED",
    "HELD_SOURCE",
    "INSERT_END",
    "INSERT_ENTRY",
    "INSERT_JOURNAL",
    "INSERT_RECORDED",
    "INSERT_REWIND",
    "INSERT_SOURCE",
    "IN_FORCE",
    "IS_RECORDED",
    "JOURNAL",
    "JOURNALS",
    "JOURNAL_PLACE",
    "KEEP_ENTRY_NUMBER",
    "LAST_ENTRY",
    "LAST_REWIND",
    "MANY_HEADS_BEFORE",
    "NEWEST",
    "PROVENANCE",
    "RECORDED",
    "RECORDED_OF",
    "REWINDS",
    "SOURCE",
    "SOURCES",
    "STAMP_CHECKPOINT",
    "STRAY",
    "UPDATE_CACHE_CHANGES",
    "UPDATE_JOURNAL",
    "UPSERT_CHECKPOINT",
    "UPSERT_END",
    "UPSERT_HEAD",
]

# --- what a group is decided by ---------------------------------------------

HELD_JOURNAL: Final = """
select j.jno, e.last_seq, e.chain, j.generation, j.floor, j.floor_chain
from journal j left join journal_end e on e.jno = j.jno where j.run_id = ?"""

HELD_SOURCE: Final = "select seq, identity from entry_source where jno = ? and source = ? and source_seq = ?"

HELD_HEAD: Final = """
with h as materialized (select key, run_id, seq from cache_head where key = ?)
select h.run_id, h.seq, r.result_digest
from h left join recorded r on r.run_id = h.run_id and r.key = h.key and r.seq = h.seq"""

HELD_RECORDED: Final = """
select seal, result_digest, created_at_ms from recorded where run_id = ? and key = ? and seq = ?"""

HAS_ENTRY: Final = "select 1 from entry where jno = ? and seq = ?"

HAS_CHECKPOINT: Final = "select 1 from checkpoint where jno = ? and seq = ?"

LAST_ENTRY: Final = "select seq, chain from entry where jno = ? and seq between ? and ? order by seq desc limit 1"

LAST_REWIND: Final = """
select chain from rewind where jno = ? and to_seq between ? and ? order by generation desc limit 1"""

# --- what a group writes ----------------------------------------------------

INSERT_JOURNAL: Final = """
insert into journal (run_id, generation, floor, floor_chain, seal, carried, jno) values (?, ?, ?, ?, ?, ?, ?)"""

UPDATE_JOURNAL: Final = """
update journal set generation = ?, floor = ?, floor_chain = ?, seal = ?, carried = ? where jno = ?"""

INSERT_END: Final = "insert into journal_end (last_seq, chain, seal, jno) values (?, ?, ?, ?)"

UPSERT_END: Final = f"""
{INSERT_END}
on conflict (jno) do update set last_seq = excluded.last_seq, chain = excluded.chain, seal = excluded.seal"""

INSERT_ENTRY: Final = """
insert into entry (no, jno, seq, type, at_ms, source, source_seq, spilled, chain, meta, payload)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

INSERT_SOURCE: Final = """
insert into entry_source (jno, source, source_seq, seq, identity, seal) values (?, ?, ?, ?, ?, ?)"""

CUT_BELOW: Final = "delete from entry where jno = ? and seq < ?"
CUT_ABOVE: Final = "delete from entry where jno = ? and seq > ?"
CUT_SOURCES: Final = "delete from entry_source where jno = ? and seq > ?"

KEEP_ENTRY_NUMBER: Final = "update sequence set entry_no = max(entry_no, ?)"

UPSERT_CHECKPOINT: Final = """
insert into checkpoint (jno, seq, at_ms, compacted_at_ms, seal, state) values (?, ?, ?, null, ?, ?)
on conflict (jno, seq) do update set
    at_ms = excluded.at_ms, compacted_at_ms = null, seal = excluded.seal, state = excluded.state"""

STAMP_CHECKPOINT: Final = "update checkpoint set compacted_at_ms = ?, seal = ? where jno = ? and seq = ?"

DELETE_CHECKPOINTS_BELOW: Final = "delete from checkpoint where jno = ? and seq < ?"
DELETE_CHECKPOINTS_ABOVE: Final = "delete from checkpoint where jno = ? and seq > ?"
DELETE_CHECKPOINTS: Final = "delete from checkpoint where jno = ?"

INSERT_REWIND: Final = """
insert into rewind (jno, generation, from_seq, to_seq, at_ms, chain, seal) values (?, ?, ?, ?, ?, ?, ?)"""

DELETE_REWINDS: Final = "delete from rewind where jno = ?"

INSERT_RECORDED: Final = """
insert into recorded (run_id, key, seq, created_at_ms, result_digest, seal, meta, result)
values (?, ?, ?, ?, ?, ?, ?, ?)"""

DELETE_RECORDED: Final = "delete from recorded where run_id = ?"

UPSERT_HEAD: Final = """
insert into cache_head (key, run_id, seq, created_at_ms) values (?, ?, ?, ?)
on conflict (key) do update set
    run_id = excluded.run_id, seq = excluded.seq, created_at_ms = excluded.created_at_ms"""

DELETE_HEAD: Final = "delete from cache_head where key = ?"

UPDATE_CACHE_CHANGES: Final = "update sequence set cache_changes = ?"

# --- reading journals -------------------------------------------------------

JOURNAL_COLUMNS: Final = """
select j.run_id, j.generation, j.floor, j.floor_chain, j.seal, e.last_seq, e.chain, e.seal, j.carried
from journal j left join journal_end e on e.jno = j.jno"""

# A journal that was rewound before its first entry is none.
BEGUN: Final = "coalesce(e.last_seq, 0) >= 0"

JOURNAL: Final = f"{JOURNAL_COLUMNS} where j.run_id = ? and {BEGUN}"

JOURNALS: Final = f"{JOURNAL_COLUMNS} where j.run_id > ? and {BEGUN} order by j.run_id limit ?"

JOURNAL_PLACE: Final = "select jno, floor from journal where run_id = ?"

ENTRY_COLUMNS: Final = "no, seq, type, at_ms, source, source_seq, spilled, chain, meta, payload"

ENTRIES: Final = f"select {ENTRY_COLUMNS} from entry where jno = ? and seq > ? order by seq limit ?"

# Where entries are, by an index alone, to be read one by one.
ENTRY_PLACES: Final = "select seq, no from entry where jno = ? and seq > ? order by seq limit ?"
ENTRY_PLACES_OF_TYPE: Final = """
select seq, no from entry where jno = ? and type = ? and seq > ? and seq <= ? order by seq limit ?"""
ENTRY_AT: Final = f"select {ENTRY_COLUMNS} from entry where no = ?"

OF_ALL_RUNS: Final = f"""
select j.run_id, {", ".join(f"e.{column}" for column in ENTRY_COLUMNS.split(", "))}
from entry e left join journal j on j.jno = e.jno"""

NEWEST: Final = f"{OF_ALL_RUNS} order by e.no desc limit ?"

PROVENANCE: Final = f"{OF_ALL_RUNS} where e.type = '{EVENT_TYPE}' and e.no > ? order by e.no limit ?"

SOURCE: Final = """
select s.source, s.source_seq, s.seq, s.identity, s.seal from journal j join entry_source s on s.jno = j.jno
where j.run_id = ? and s.source = ? and s.source_seq = ?"""

SOURCES: Final = """
select s.source, s.source_seq, s.seq, s.identity, s.seal from journal j join entry_source s on s.jno = j.jno
where j.run_id = ? and (s.source, s.source_seq) > (?, ?) order by s.source, s.source_seq limit ?"""

CHECKPOINT: Final = "select seq, at_ms, compacted_at_ms, seal, state from checkpoint where jno = ? and seq = ?"

CHECKPOINTS: Final = """
select c.seq, c.at_ms, c.compacted_at_ms, c.seal, c.state from journal j join checkpoint c on c.jno = j.jno
where j.run_id = ? order by c.seq desc"""

REWINDS: Final = """
select r.generation, r.from_seq, r.to_seq, r.at_ms, r.chain, r.seal from journal j join rewind r on r.jno = j.jno
where j.run_id = ? order by r.generation"""

# One of each table that belongs to no journal.
STRAY: Final = " union all ".join(
    f"select * from (select '{table}', jno, {seq} from {table} where jno not in (select jno from journal) limit 1)"
    for table, seq in (
        ("journal_end", "last_seq"),
        ("entry", "seq"),
        ("entry_source", "seq"),
        ("checkpoint", "seq"),
        ("rewind", "to_seq"),
    )
)

# --- reading the step cache -------------------------------------------------

CACHE_CHANGES: Final = "select cache_changes from sequence"

HEAD: Final = "select key, run_id, seq, created_at_ms from cache_head where key = ?"

HEADS: Final = "select key, run_id, seq, created_at_ms from cache_head where key > ? order by key limit ?"

HEADS_BEFORE: Final = """
select key, run_id, seq, created_at_ms from cache_head where key > ? and created_at_ms < ? order by key limit ?"""

# The same found by their age, where few are so old.
FEW_HEADS_BEFORE: Final = """
select key, run_id, seq, created_at_ms from cache_head
where created_at_ms < ? and key || '' > ? order by key || '' limit ?"""

MANY_HEADS_BEFORE: Final = "select 1 from cache_head where created_at_ms < ? limit 1 offset ?"

RECORDED: Final = """
select created_at_ms, result_digest, seal, meta, result from recorded where run_id = ? and key = ? and seq = ?"""

# The head by itself first: as one join it takes SQLite three times as long.
IN_FORCE: Final = """
with h as materialized (select key, run_id, seq from cache_head where key = ?)
select h.run_id, h.seq, r.created_at_ms, r.result_digest, r.seal, r.meta, r.result
from h left join recorded r on r.run_id = h.run_id and r.key = h.key and r.seq = h.seq"""

RECORDED_OF: Final = """
select key, seq from recorded where run_id = ? and (key, seq) > (?, ?) order by key, seq limit ?"""

IS_RECORDED: Final = "select key, run_id, seq from recorded where run_id = ? and key = ? and seq = ?"
