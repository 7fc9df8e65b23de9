"""The text of the SQL, apart from the schema. Parameters are `?`, in the order in which they are given."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

__all__ = [
    "BASE",
    "CANCEL_REQUESTS",
    "DOCUMENT_CHAIN",
    "FORM",
    "FORM_OF_NUMBER",
    "HELD_FORM",
    "HELD_RECEIPT",
    "HELD_RUN",
    "HELD_STORE",
    "INSERT_BASE",
    "INSERT_FORM",
    "INSERT_HEAD",
    "INSERT_LOG",
    "INSERT_RECEIPT",
    "INSERT_RUN",
    "INSERT_STORE",
    "INSTANCE_BEGIN",
    "INSTANCE_END",
    "LAST_NUMBERS",
    "NEAREST_BASE",
    "OWNERS",
    "PASS",
    "RENEW_LEASES",
    "RUN",
    "STEPS",
    "STORES",
    "STORES_NAMED",
    "TAIL_CHAIN",
    "UPDATE_STORE",
    "UPSERT_BASE",
    "UPSERT_HEAD",
    "UPSERT_STEP",
    "due_runs",
    "next_free",
    "select_runs",
    "update_run",
]

# --- what a group is judged by ----------------------------------------------

LAST_NUMBERS: Final = """
select coalesce((select max(sid) from store), 0), max(coalesce((select max(seq) from log), 0), seq),
       max(coalesce((select max(no) from run), 0), run_no), no, coalesce((select max(fno) from form), 0),
       coalesce((select max(jno) from journal), 0), max(coalesce((select max(no) from entry), 0), entry_no),
       cache_changes
from sequence"""

HELD_STORE: Final = """
select s.sid, s.instance, h.version, h.last_seq from store s join head h on h.sid = s.sid
where s.name = ? and s.id = ?"""

# With whether anybody waits there.
HELD_STORE_TO_WRITE: Final = """
select s.sid, s.instance, h.version, h.last_seq, h.fno, exists (select 1 from line where line.sid = s.sid)
from store s join head h on h.sid = s.sid where s.name = ? and s.id = ?"""

HELD_WAITER: Final = """
select w.no from store s join waiter w on w.sid = s.sid
where s.name = ? and s.id = ? and w.run_id = ? and w.key = ?"""

HELD_RECEIPT: Final = "select kind, instance, version, value from receipt where run_id = ? and key = ? and sid = ?"

HELD_FORM: Final = "select fno from form where name = ? and version = ? and fingerprint = ?"

HELD_RUN: Final = "select no, fence, state from run where id = ?"

# --- what a group writes ----------------------------------------------------

INSERT_STORE: Final = "insert into store (instance, sid, name, id) values (?, ?, ?, ?)"

UPDATE_STORE: Final = "update store set instance = ? where sid = ?"

INSERT_HEAD: Final = "insert into head (version, last_seq, fno, sid) values (?, ?, ?, ?)"

UPSERT_HEAD: Final = f"""
{INSERT_HEAD}
on conflict (sid) do update set version = excluded.version, last_seq = excluded.last_seq, fno = excluded.fno"""

INSERT_FORM: Final = "insert into form (fno, name, version, fingerprint) values (?, ?, ?, ?)"

INSERT_LOG: Final = """
insert into log (seq, sid, version, prev_seq, instance, kind, at_ms, patch, fno) values (?, ?, ?, ?, ?, ?, ?, ?, ?)"""

INSERT_BASE: Final = "insert into base (seq, sid, version, document) values (?, ?, ?, ?)"

# A base belongs to a change of the log; beside one that is not there, or ended an instance, nothing is written.
UPSERT_BASE: Final = """
insert into base (seq, sid, version, document)
select seq, sid, version, ? from log where seq = ? and kind <> 2
on conflict (seq) do update set document = excluded.document"""

INSERT_RECEIPT: Final = """
insert into receipt (run_id, key, sid, kind, instance, version, value) values (?, ?, ?, ?, ?, ?, ?)"""

RUN_COLUMNS: Final = (
    "id, workflow, version, arguments, state, created_at_ms, updated_at_ms, owner, fence, lease_until_ms, wake_at_ms,"
    " waiting_on, problem, outcome, cancel_requested, crashes, mark"
)

READ_COLUMNS: Final = f"{RUN_COLUMNS}, no"

INSERT_RUN: Final = f"""
insert into run ({RUN_COLUMNS}, no) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

# Word for word the conditions of the indices `run_owner` and `run_free`. "is true" keeps the planner from taking the
# index on states instead, which holds every run that waits, for a question about the few that are due.
LIVE: Final = "(state in ('pending', 'running', 'waiting', 'stuck')) is true"

RENEW_LEASES: Final = f"update run set lease_until_ms = ? where owner = ? and {LIVE}"

UPSERT_STEP: Final = """
insert into step (run_no, key, kind, target, status, attempt, position, at_ms, value,
                  pin_sid, pin_instance, pin_version, recorded_at_ms)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (run_no, key) do update set
    kind = excluded.kind, target = excluded.target, status = excluded.status, attempt = excluded.attempt,
    position = excluded.position, at_ms = excluded.at_ms, value = excluded.value, pin_sid = excluded.pin_sid,
    pin_instance = excluded.pin_instance, pin_version = excluded.pin_version,
    recorded_at_ms = excluded.recorded_at_ms"""


@lru_cache(maxsize=64)
def update_run(columns: tuple[str, ...]) -> str:
    """The update of these columns, whose values come first, of the run with the number that comes last."""
    return f"update run set {', '.join(f'{column} = ?' for column in columns)} where no = ?"


# --- waiters ----------------------------------------------------------------

UPDATE_SEQUENCE: Final = "update sequence set no = ?"

WAITER: Final = """
select w.place, w.no, w.due_no, w.passed, w.lno, l.instance, l.queue from waiter w join line l on l.lno = w.lno
where w.run_id = ? and w.key = ? and w.sid = ?"""

INSERT_WAITER: Final = """
insert into waiter (place, no, run_id, key, sid, lno, due_no, passed, registered_at_ms)
values (?, ?, ?, ?, ?, ?, null, 0, ?)"""

REGISTER_AGAIN: Final = "update waiter set no = ?, due_no = null, passed = 0, registered_at_ms = ? where place = ?"

MAKE_DUE: Final = "update waiter set due_no = ? where place = ?"

PASS: Final = "update waiter set passed = 1 where place = ?"

DELETE_WAITER: Final = "delete from waiter where place = ?"

LINE: Final = "select version, paths from line where lno = ?"

QUEUE: Final = "select lno from line where sid = ? and instance = ? and queue = ?"

INSERT_LINE: Final = "insert into line (lno, sid, instance, queue, version, paths) values (?, ?, ?, ?, ?, ?)"

LOOK_AGAIN: Final = "update line set version = ?, paths = ? where lno = ?"

DELETE_LINE: Final = "delete from line where lno = ?"

INSERT_PATH: Final = """
insert into line_path (sid, mask, path, lno) values (?, ?, ?, ?) on conflict do nothing"""

DELETE_PATH: Final = "delete from line_path where sid = ? and mask = ? and path = ? and lno = ?"

DELETE_PATHS: Final = "delete from line_path where sid = ?"

HOLDER: Final = "select 1 from waiter where lno = ? and passed = 0 and due_no is not null limit 1"

ANY_PASSED: Final = "select 1 from waiter where lno = ? and passed = 1 limit 1"

FIRST_WAITING: Final = """
select place from waiter where lno = ? and passed = 0 and due_no is null order by place limit 1"""

ANY_MEMBER: Final = "select 1 from waiter where lno = ? limit 1"

ANY_LINE: Final = "select 1 from line where sid = ? limit 1"

ALL_WAITING: Final = """
select w.place from line l join waiter w on w.lno = l.lno
where l.sid = ? and w.passed = 0 and w.due_no is null order by w.place"""

# Each mask is the next greater one: as many steps as there are masks, however many paths.
MASKS: Final = """
with recursive masks (mask) as (
    select min(mask) from line_path where sid = ?
    union all
    select (select min(p.mask) from line_path p where p.sid = ? and p.mask > m.mask) from masks m
    where m.mask is not null
)
select mask from masks where mask is not null"""

# Of each line with a path in a range of a mask the first who is not due, unless one has the turn.
MET: Final = """
select (select w.place from waiter w
        where w.lno = p.lno and w.passed = 0 and w.due_no is null order by w.place limit 1)
from line_path p
where p.sid = ? and p.mask = ? and p.path between ? and ?
      and not exists (select 1 from waiter d where d.lno = p.lno and d.passed = 0 and d.due_no is not null)"""

LINES_WITH_PATHS: Final = """
select l.lno, l.paths from line l
where l.sid = ? and exists (select 1 from waiter w where w.lno = l.lno and w.passed = 0 and w.due_no is null) limit ?"""

# --- signals ----------------------------------------------------------------

SIGNAL_USED: Final = "select 1 from signal where run_no = ? and name = ? and dedupe = ?"

INSERT_SIGNAL: Final = "insert into signal (no, run_no, name, value, dedupe) values (?, ?, ?, ?, ?)"

READ_SIGNAL: Final = "update signal set read_by = ? where no = ? and run_no = ? and read_by is null"


# --- reading stores ---------------------------------------------------------

STORES: Final = """
select s.name, s.id, s.instance, h.version, l.at_ms, f.version, f.fingerprint
from store s join head h on h.sid = s.sid join log l on l.seq = h.last_seq left join form f on f.fno = h.fno
where s.instance is not null order by s.name, s.id"""

STORES_NAMED: Final = """
select s.name, s.id, s.instance, h.version, l.at_ms, f.version, f.fingerprint
from store s join head h on h.sid = s.sid join log l on l.seq = h.last_seq left join form f on f.fno = h.fno
where s.name = ? and s.instance is not null order by s.name, s.id"""

# The rows with which an instance ends, and begins: the tip's for the one that lives, else that of its deletion.
INSTANCE_BEGIN: Final = """
select ?, min(seq) from log where sid = ? and instance = ?
having count(*) > 0"""

INSTANCE_END: Final = """
select max(seq), min(seq) from log where sid = ? and instance = ?
having max(kind) = 2"""

# Where the way down the chain may begin for an older revision: at the nearest base that is not older.
NEAREST_BASE: Final = """
select seq from base where sid = ? and version >= ? and seq between ? and ? order by version limit 1"""

# Down the chain from one row, until there is a base at or below the wanted version.
DOCUMENT_CHAIN: Final = """
with recursive chain (seq, prev_seq, version, kind, patch, based) as (
    select l.seq, l.prev_seq, l.version, l.kind, l.patch, exists (select 1 from base b where b.seq = l.seq)
    from log l where l.seq = ?
    union all
    select l.seq, l.prev_seq, l.version, l.kind, l.patch, exists (select 1 from base b where b.seq = l.seq)
    from chain c join log l on l.seq = c.prev_seq
    where not (c.based and c.version <= ?) and not (l.kind = 2)
)
select seq, version, kind, patch from chain"""

FORM: Final = "select f.version, f.fingerprint from log l join form f on f.fno = l.fno where l.seq = ?"

BASE: Final = "select document from base where seq = ?"

# Down the chain from one row, until the row that follows the given version, or the row with which the instance began;
# or, where that was cut out, the one below it.
TAIL_CHAIN: Final = """
with recursive chain (prev_seq, version, kind, patch, fno) as (
    select prev_seq, version, kind, patch, fno from log where seq = ?
    union all
    select l.prev_seq, l.version, l.kind, l.patch, l.fno
    from chain c join log l on l.seq = c.prev_seq
    where c.kind = 1 and c.version > ?
)
select version, kind, patch, fno from chain"""

FORM_OF_NUMBER: Final = "select version, fingerprint from form where fno = ?"

# --- reading runs -----------------------------------------------------------

RUN: Final = f"select {READ_COLUMNS} from run where id = ?"

STEPS: Final = """
select t.key, t.kind, t.target, t.status, t.attempt, t.position, t.at_ms, t.value, t.recorded_at_ms,
       s.name, s.id, t.pin_instance, t.pin_version
from run r join step t on t.run_no = r.no left join store s on s.sid = t.pin_sid
where r.id = ?
order by t.position is null, t.position, t.key"""

OWNERS: Final = f"select distinct owner from run where {LIVE} and owner is not null order by owner"


# --- reading waiters and signals --------------------------------------------

WAITER_ROWS: Final = """
select w.due_no, w.registered_at_ms, w.no, w.run_id, w.key, s.name, s.id, l.instance, l.version, l.paths, l.queue
from waiter w join line l on l.lno = w.lno join store s on s.sid = l.sid"""

DUE_WAITERS: Final = f"{WAITER_ROWS} where w.due_no > ? and w.due_no is not null order by w.due_no"

# A run that has ended reads no more.
UNREAD_SIGNALS: Final = f"""
select s.no, r.id from signal s join run r on r.no = s.run_no
where s.read_by is null and s.no > ? and {LIVE} order by s.no"""

SIGNAL_ROWS: Final = """
select s.no, s.name, s.value, s.dedupe from run r join signal s on s.run_no = r.no
where r.id = ? and s.read_by is null order by s.no"""


@lru_cache(maxsize=4)
def select_waiters(store: bool, run: bool) -> str:
    """Waiters in the order of their places; the parameters that are asked for: a store's name and id, a run's id."""
    wanted = ["1 = 1"]
    wanted += ["s.name = ? and s.id = ?"] * store
    wanted += ["w.run_id = ?"] * run
    return f"{WAITER_ROWS} where {' and '.join(wanted)} order by w.place"


@lru_cache(maxsize=16)
def select_runs(state: bool, workflow: bool, after: Literal["id", "no"] | None, newest_first: bool) -> str:
    """Runs in the order of their start, or reversed; the parameters that are asked for, in this order, the limit."""
    wanted = ["1 = 1"]
    wanted += ["state = ?"] * state
    wanted += ["workflow = ?"] * workflow
    if after is not None:
        place = "?" if after == "no" else "(select no from run where id = ?)"
        wanted.append(f"no {'<' if newest_first else '>'} {place}")
    order = "no desc" if newest_first else "no"
    return f"select {READ_COLUMNS} from run where {' and '.join(wanted)} order by {order} limit ?"


CANCEL_REQUESTS: Final = f"select id from run where {LIVE} and owner = ? and cancel_requested = 1 order by id"

CLAIMABLE: Final = "(state in ('pending', 'running', 'waiting')) is true"

# From when on a run may be claimed, if its owner is not known to be dead; the expression of the index `run_free`.
FREE_AT: Final = "(case when owner is null then coalesce(wake_at_ms, 0) else lease_until_ms end)"


@lru_cache(maxsize=64)
def due_runs(workflows: int, dead: int) -> str:
    """Runs that may be claimed; the parameters are the present instant, the dead owners, the workflows, the limit."""
    orphans = f"union all select no from run where {LIVE} and owner in ({_marks(dead)})" if dead else ""
    return f"""
select {READ_COLUMNS} from run
where no in (select no from run where {CLAIMABLE} and {FREE_AT} <= ? {orphans})
    and {CLAIMABLE} and workflow in ({_marks(workflows)})
order by coalesce(wake_at_ms, created_at_ms), no limit ?"""


@lru_cache(maxsize=64)
def next_free(workflows: int, dead: int) -> str:
    """When the next run may be claimed; the parameters are the present instant, the dead owners, the workflows."""
    alive = f"and (owner is null or owner not in ({_marks(dead)}))" if dead else ""
    return f"""
select {FREE_AT} from run
where {CLAIMABLE} and {FREE_AT} > ? {alive} and workflow in ({_marks(workflows)})
order by {FREE_AT} limit 1"""


def _marks(count: int) -> str:
    return ", ".join("?" * count)
