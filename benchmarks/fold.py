"""The fold of the step cache over a journal, against reading the same entries alone.

    python benchmarks/fold.py [entries, default 200000] [rounds, default 7]

Both sides read one table of a SQLite file, decode the payload and build an `Entry`; one of them also reduces it. They
take turns within a round, so that both meet the same machine. `provenance only` is the worst journal there is: every
entry grows the state. In `mixed`, four of five entries are of another kind, as when whole runs are read. The last
column is what `reduce` adds to each entry; it should hardly grow with their number. This is the pure fold, entry by
entry, as `Journal.project` does it; benchmarks/cache.py measures a whole rebuild.
"""

from __future__ import annotations

import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final, TypeAlias

import msgspec

from stepwell.core.cache_fold import EVENT_TYPE, PROJECTION
from stepwell.core.journal import Entry

Row: TypeAlias = tuple[str, int, str, bytes, int]

HEADER: Final = (
    f"{'journal':<18}{'entries':>10}{'read µs':>10}{'read + fold µs':>17}{'fold µs':>10}   ratio (quartiles)"
)

_decode: Final = msgspec.json.Decoder().decode


def write(db: sqlite3.Connection, entries: int, other_kinds: int) -> None:
    """Make the journal anew: after each entry of the cache, `other_kinds` entries of another kind."""
    with db:
        db.execute("drop table if exists entry")
        db.execute("create table entry (run_id text, seq int, event_type text, payload blob, at_ms int)")
        rows = (row(seq, of_cache=seq % (other_kinds + 1) == 0) for seq in range(entries))
        db.executemany("insert into entry values (?, ?, ?, ?, ?)", rows)


def row(seq: int, *, of_cache: bool) -> Row:
    """Entry `seq`: one in ten retires the row of five entries before; the others admit one, each under its own key."""
    retires = seq % 10 == 5
    named = seq - 5 if retires else seq
    payload = {
        "action": "stale_read_set" if retires else "admitted",
        "key_digest": f"{named:064x}",
        "recorded_run_id": f"run-{named % 50}",
        "recorded_event_seq": named,
    }
    return f"run-{seq % 50}", seq, EVENT_TYPE if of_cache else "step-completed", msgspec.json.encode(payload), seq


def read(db: sqlite3.Connection) -> Iterator[Entry]:
    cells: Iterator[Row] = db.execute("select run_id, seq, event_type, payload, at_ms from entry")
    for run_id, seq, event_type, payload, at_ms in cells:
        yield Entry(run_id, seq, event_type, _decode(payload), None, at_ms, None)


def read_alone(db: sqlite3.Connection) -> float:
    began = perf_counter()
    for _ in read(db):
        pass
    return perf_counter() - began


def read_and_fold(db: sqlite3.Connection) -> float:
    began = perf_counter()
    state = PROJECTION.initial()
    for entry in read(db):
        state = PROJECTION.reduce(state, entry)
    return perf_counter() - began


def measure(db: sqlite3.Connection, entries: int, rounds: int) -> str:
    pairs = [(read_alone(db), read_and_fold(db)) for _ in range(rounds)]
    alone, both = (statistics.median(times) / entries * 1e6 for times in zip(*pairs, strict=True))
    low, ratio, high = statistics.quantiles([folded / bare for bare, folded in pairs], n=4)
    return f"{entries:>10}{alone:>10.2f}{both:>17.2f}{both - alone:>10.2f}   {ratio:.2f} ({low:.2f} to {high:.2f})"


def main(entries: int = 200_000, rounds: int = 7) -> None:
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "journal.db")
        for journal, other_kinds in (("provenance only", 0), ("mixed", 4)):
            for size in (entries // 10, entries):
                write(db, size, other_kinds)
                print(f"{journal:<18}{measure(db, size, rounds)}", flush=True)
        db.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
