"""A walk along a journal finds what was changed, left out or put in, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell.core.entry import START, EntryRow, NewEntry, RewindRow, chain_after, link, link_rewind
from stepwell.core.journal import Source
from stepwell.core.journal_chain import ChainWalk, entries_between

RUN = "run"


@dataclass
class Kept:
    """A journal as a host keeps it, in the plainest way."""

    rows: list[EntryRow] = field(default_factory=list[EntryRow])
    rewinds: list[RewindRow] = field(default_factory=list[RewindRow])
    last_seq: int = -1
    chain: bytes = START
    floor: int | None = None
    base: bytes | None = None

    def append(self) -> None:
        seq = self.last_seq + 1
        entry = NewEntry("t", str(seq).encode(), Source("s", seq))
        self.chain = link(self.chain, RUN, seq, seq, entry, seq + 1)
        self.rows.append(EntryRow(RUN, seq, "t", seq, entry.source, entry.payload, None, False, self.chain, seq + 1))
        self.last_seq = seq

    def rewind(self, at: int) -> None:
        """To one of the entries that there are; the floor stays."""
        first = 0 if self.floor is None else 1
        kept = self.rows[: max(first, at % (len(self.rows) + 1))]
        if len(kept) == len(self.rows):
            return
        to_seq, before = (kept[-1].seq, kept[-1].chain) if kept else (-1, START)
        generation = len(self.rewinds) + 1
        self.chain = link_rewind(before, RUN, generation, self.last_seq, to_seq, 7)
        self.rewinds.append(RewindRow(RUN, generation, self.last_seq, to_seq, 7, self.chain))
        self.rows = kept

    def compact(self, at: int) -> None:
        if not self.rows:
            return
        below = at % len(self.rows)
        row = self.rows[below]
        if below:
            self.base = chain_after(self.rows[below - 1], row.seq, self.rewinds)
        elif self.floor is None:
            before = [each for each in self.rewinds if each.to_seq < row.seq]
            self.base = before[-1].chain if before else START
        self.floor, self.rows = row.seq, self.rows[below:]

    def walk(self) -> str | None:
        walk = ChainWalk(RUN, self.rewinds, self.floor, self.base)
        for row in self.rows:
            if (wrong := walk.step(row)) is not None:
                return wrong
        return walk.end(self.last_seq, self.chain)


actions = st.lists(
    st.tuples(st.just("append"), st.just(0))
    | st.tuples(st.just("append"), st.just(0))
    | st.tuples(st.sampled_from(["rewind", "compact"]), st.integers(0, 20)),
    max_size=40,
)


def after(done: list[tuple[str, int]]) -> Kept:
    kept = Kept()
    for name, at in done:
        if name == "append":
            kept.append()
        elif name == "rewind":
            kept.rewind(at)
        else:
            kept.compact(at)
    return kept


@given(actions)
def test_nothing_is_wrong_with_a_journal_as_it_was_written(done: list[tuple[str, int]]) -> None:
    kept = after(done)
    assert kept.walk() is None
    if kept.rows:
        assert entries_between(kept.rows[0].seq, kept.last_seq, kept.rewinds) == len(kept.rows)
        for row in kept.rows:
            walk = ChainWalk.after(row, kept.rewinds)
            rest = [each for each in kept.rows if each.seq > row.seq]
            assert [walk.step(each) for each in rest] == [None] * len(rest)
            assert walk.end(kept.last_seq, kept.chain) is None


@given(actions, st.data())
def test_what_was_changed_is_found(done: list[tuple[str, int]], data: st.DataObject) -> None:
    kept = after(done)
    if not kept.rows:
        return
    at = data.draw(st.integers(0, len(kept.rows) - 1))
    row = kept.rows[at]
    changed = data.draw(
        st.sampled_from(
            [
                replace(row, payload=b"other"),
                replace(row, event_type="other"),
                replace(row, at_ms=row.at_ms + 1),
                replace(row, source=None),
                replace(row, meta=b"{}"),
                replace(row, spilled=True),
                replace(row, chain=bytes(31) + b"1"),
                replace(row, seq=row.seq + 1),
                replace(row, no=row.no + 1),
                None,
            ]
        )
    )
    kept.rows[at : at + 1] = [] if changed is None else [changed]
    assert kept.walk() is not None


@given(actions, st.data())
def test_entries_that_were_put_in_or_put_elsewhere_are_found(done: list[tuple[str, int]], data: st.DataObject) -> None:
    kept = after(done)
    if len(kept.rows) < 2:
        return
    at = data.draw(st.integers(0, len(kept.rows) - 1))
    if data.draw(st.booleans()):
        kept.rows.insert(at, kept.rows[at])
    else:
        other = (at + 1) % len(kept.rows)
        kept.rows[at], kept.rows[other] = kept.rows[other], kept.rows[at]
    assert kept.walk() is not None


def test_a_rewind_that_leads_to_the_end_is_a_link() -> None:
    kept = Kept()
    for _ in range(5):
        kept.append()
    kept.rewind(2)
    assert kept.walk() is None
    for changed in (replace(kept.rewinds[0], from_seq=9), replace(kept.rewinds[0], at_ms=8), None):
        spoilt = Kept(kept.rows, [] if changed is None else [changed], kept.last_seq, kept.chain)
        assert spoilt.walk() is not None


@pytest.mark.parametrize(("last_seq", "chain"), [(4, None), (6, None), (5, b"other")])
def test_the_end_is_compared(last_seq: int, chain: bytes | None) -> None:
    kept = Kept()
    for _ in range(6):
        kept.append()
    kept.last_seq, kept.chain = last_seq, kept.chain if chain is None else chain
    assert kept.walk() is not None


def test_a_forgotten_journal_goes_on_from_its_last_hash() -> None:
    kept = Kept()
    for _ in range(3):
        kept.append()
    forgotten = Kept(last_seq=kept.last_seq, chain=kept.chain, base=kept.chain)
    assert forgotten.walk() is None
    forgotten.append()
    forgotten.append()
    assert forgotten.walk() is None
    forgotten.rows.pop(0)
    assert forgotten.walk() is not None
