"""What journals prove of the heads of the step cache, key by key.

The rules, for the rows of one key that were admitted and not retired:

    one row       it is in force, if it is recorded
    two rows      one of them went without an entry, and nobody can tell which: none is
    no row        none is in force; what retired the last one explains it, or that nobody here admitted the head

A gap is a part of a journal that is gone and of which nothing was carried. It may hide that a row was retired, so a row
is proven only if it was admitted after all gaps had ended, by the order of commits; and it may hide that a row of its
own run was admitted. What cannot be proven is not in force. Nothing is guessed: at worst a result is computed again.

A `Proof` grows entry by entry, in any order, and tells of each key what it tells if it is asked only in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, final

from msgspec import Struct

from .cache_verdict import Difference, Explanation, Verification
from .entry import EntryRow
from .provenance import Carried, Found, Row
from .step_cache import RecordedRef

__all__ = ["Gap", "Proof", "count_differences", "difference"]


class Gap(Struct, frozen=True, gc=False):
    """Entries of a run's journal of which nothing is known but that they were committed before the entry `closed_no`.

    None is an end that is not known.
    """

    run_id: str
    closed_no: int | None

    def may_hide(self, admitted_no: int) -> bool:
        """Whether a row that was admitted by that entry may have been retired in the gap."""
        return self.closed_no is None or admitted_no < self.closed_no


@final
class Proof:
    """All that was found, by key. `gaps` are in order of their runs; of each, the rows that its run recorded are noted.

    It is as large as the journals; to add an entry takes the same time however many there are.
    """

    __slots__ = ("_gaps", "_in_force", "_more", "_retired", "_unseen", "found")

    def __init__(self) -> None:
        self.found: Final = Found()
        self._gaps: dict[str, Gap] = {}
        self._in_force: dict[str, Row] = {}
        self._more: dict[str, tuple[Row, ...]] = {}  # further rows of the keys that have several in force
        self._retired: dict[str, tuple[Row, ...]] = {}
        self._unseen: dict[str, list[RecordedRef]] = {}  # recorded by a run with a gap, so perhaps admitted in it

    def add(self, entries: Iterable[EntryRow]) -> list[str]:
        """Take note of entries of the type: the keys of which they say something."""
        retired, in_force = self.found.retired, self._in_force
        rows = self.found.add_all(entries)
        for row in rows:
            key = row[0]
            if key in in_force or row in retired:
                self._note(row)
            else:  # which is so for nearly every one
                in_force[key] = row
        return [row[0] for row in rows]

    def union(self, carried: Carried) -> list[str]:
        """Take note of what a journal carries: the keys of which that says something."""
        self.found.union(carried)
        rows = [row for row, _ in (*carried.admitted, *carried.retired)]
        for row in rows:
            self._note(row)
        return [row[0] for row in rows]

    def add_gap(self, gap: Gap, recorded: Iterable[RecordedRef] = ()) -> None:
        """Take note of a gap, and of the rows that its run recorded."""
        self._gaps[gap.run_id] = gap
        for ref in recorded:
            self._unseen.setdefault(ref.key_digest, []).append(ref)

    # --- asking ---------------------------------------------------------------

    @property
    def has_gaps(self) -> bool:
        return bool(self._gaps)

    def keys(self) -> set[str]:
        """Every key of which anything was found."""
        return set(self._in_force).union(self._retired, self._unseen)

    def candidate(self, key_digest: str) -> RecordedRef | None:
        """The row that is in force for a key if it is recorded."""
        row = self._in_force.get(key_digest)
        if row is None or key_digest in self._more or (self._gaps and self._gap_over((row,)) is not None):
            return None
        return RecordedRef(*row)

    def candidates(self, live: Mapping[str, RecordedRef]) -> Iterator[RecordedRef]:
        """Those of all keys. Where the head of a key, as `live` has it, is the same row, it is that very object."""
        doubtful = bool(self._gaps or self._more)
        for key, row in self._in_force.items():
            if doubtful and self.candidate(key) is None:
                continue
            head = live.get(key)
            if head is not None and head.recorded_event_seq == row[2] and head.recorded_run_id == row[1]:
                yield head
            else:
                yield RecordedRef(*row)

    def explain(self, key_digest: str, live: RecordedRef | None, *, recorded: bool) -> Explanation:
        """What is to be said of a key whose head is `live`; `recorded` tells whether its candidate is."""
        row = self._in_force.get(key_digest)
        if row is None:
            return self._explain_none(key_digest, live)
        rows = (row, *self._more.get(key_digest, ()))
        if self._gaps and (gap := self._gap_over(rows)) is not None:
            return _unproven(key_digest, gap.run_id, self._refs(rows))
        if len(rows) > 1:
            return Explanation(key_digest, "ambiguous", None, rows=self._refs(rows))
        return Explanation(key_digest, "restored" if recorded else "ledger_missing", RecordedRef(*row))

    def _explain_none(self, key_digest: str, live: RecordedRef | None) -> Explanation:
        """Of a key of which no row is in force."""
        retired = self.found.retired
        if live is not None and _row(live) not in retired:
            if live.recorded_run_id in self._gaps:
                return _unproven(key_digest, live.recorded_run_id, (live,))
            return Explanation(key_digest, "not_admitted", live)
        unseen = next((ref for ref in self._unseen.get(key_digest, ()) if _row(ref) not in retired), None)
        if unseen is not None:
            return _unproven(key_digest, unseen.recorded_run_id, (unseen,))
        row = max(self._retired.get(key_digest, ()), key=lambda each: (retired[each].no, each), default=None)
        if row is None:
            return Explanation(key_digest, "not_admitted", None)
        said = retired[row]
        verdict = "removed" if said.action == "removed" else "retired"
        return Explanation(key_digest, verdict, RecordedRef(*row), said.action, said.reason, said.run_id, said.seq)

    # --- parts ----------------------------------------------------------------

    def _note(self, row: Row) -> None:
        """File a row of which something was found."""
        key = row[0]
        first = self._in_force.get(key)
        in_force = () if first is None else (first, *self._more.get(key, ()))
        if row not in self.found.retired:
            if row not in in_force:
                self._file(key, (*in_force, row))
            return
        if row in in_force:
            self._file(key, tuple(each for each in in_force if each != row))
        retired = self._retired.get(key, ())
        if row not in retired:
            self._retired[key] = (*retired, row)

    def _file(self, key: str, in_force: tuple[Row, ...]) -> None:
        if in_force:
            self._in_force[key] = in_force[0]
        else:
            del self._in_force[key]
        if len(in_force) > 1:
            self._more[key] = in_force[1:]
        else:
            _ = self._more.pop(key, None)

    def _gap_over(self, rows: Iterable[Row]) -> Gap | None:
        """The first gap in which one of these may have been retired."""
        admitted = self.found.admitted
        for run_id in sorted(self._gaps):
            gap = self._gaps[run_id]
            if any(gap.may_hide(admitted[row].no) for row in rows):
                return gap
        return None

    def _refs(self, rows: Iterable[Row]) -> tuple[RecordedRef, ...]:
        """The rows in the order in which they were admitted."""
        admitted = self.found.admitted
        return tuple(RecordedRef(*row) for row in sorted(rows, key=lambda each: (admitted[each].no, each)))


def difference(explained: Explanation, live: RecordedRef | None) -> Difference | None:
    """How the head of a key stands to what is said of it."""
    due = explained.ref if explained.verdict == "restored" else None
    if live == due:
        return None if live is None else "matching"
    if live is None:
        return "missing"
    return "extra" if due is None else "different"


def count_differences(keys: Iterable[Explanation]) -> Verification:
    """A verification, of explanations that have their differences."""
    told = tuple(keys)
    counts = Counter(each.difference for each in told)
    return Verification(counts["matching"], counts["missing"], counts["extra"], counts["different"], told)


def _unproven(key_digest: str, run_id: str, rows: tuple[RecordedRef, ...]) -> Explanation:
    return Explanation(key_digest, "unproven", rows[0] if len(rows) == 1 else None, run_id=run_id, rows=rows)


def _row(ref: RecordedRef) -> Row:
    return ref.key_digest, ref.recorded_run_id, ref.recorded_event_seq
