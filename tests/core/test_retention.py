"""Which changes of a history go, and that each cut on the way leaves it readable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.model import Revision, StoreKey
from stepwell.core.retention import CUT_BYTES, CUT_ROWS, SETTLING_MS, Cut, Cutter, Retention, StoredChange, outlives
from stepwell.core.run import RunRow, RunState

KEY = StoreKey("orders", "o-1")
MINUTE = SETTLING_MS


@dataclass
class Chain:
    """A history by number, as a host keeps it: what is below each change, and which have a base."""

    changes: dict[int, StoredChange]
    below: dict[int, int | None] = field(default_factory=dict[int, int | None])
    based: set[int] = field(default_factory=set[int])
    top: int | None = None

    @classmethod
    def of(cls, changes: list[StoredChange]) -> Chain:
        """From the newest to the oldest."""
        chain = cls({change.seq: change for change in changes})
        chain.below = {change.seq: change.below for change in changes}
        chain.based = {change.seq for change in changes if change.base_bytes}
        chain.top = changes[0].seq
        return chain

    def walk(self) -> list[int]:
        found: list[int] = []
        seq = self.top
        while seq is not None:
            found.append(seq)
            seq = self.below[seq]
        return found

    def cut(self, cut: Cut) -> None:
        write = cut.write
        walk = self.walk()
        place = walk.index(write.seqs[0])
        assert tuple(walk[place : place + len(write.seqs)]) == write.seqs
        assert walk[place + len(write.seqs) :][:1] == ([] if write.below is None else [write.below])
        if write.above is None:
            assert (place, write.below) == (0, None)
            self.top = None
            return
        assert walk[place - 1] == write.above
        above = self.changes[write.above]
        if cut.based is not None:
            assert (above.kind, cut.based) == ("patched", above.revision)
            self.based.add(write.above)
        self.below[write.above] = write.below

    def check(self) -> None:
        """Every patch has a base, or follows the version right below it; no end is there for nothing below the top."""
        walk = self.walk()
        for seq, below in zip(walk, [*walk[1:], None], strict=bool(walk)):  # of a store that is gone nothing stays
            change = self.changes[seq]
            if change.kind == "patched" and seq not in self.based:
                assert below is not None
                assert self.changes[below].revision == Revision(
                    change.revision.instance_id, change.revision.version - 1
                )


kinds = st.lists(st.sampled_from(["patched", "patched", "patched", "ended"]), max_size=20)


@st.composite
def histories(draw: st.DrawFn) -> list[StoredChange]:
    """One minute between two changes, with bases here and there."""
    changes: list[StoredChange] = []
    revision: Revision | None = None
    for seq, kind in enumerate(["patched", *draw(kinds)], 1):
        below = seq - 1 or None
        if revision is None:
            revision = Revision(f"i{seq}", 0)
            changes.append(StoredChange(seq, below, revision, "created", seq * MINUTE, 0, 10))
        elif kind == "ended":
            changes.append(StoredChange(seq, below, revision, "deleted", seq * MINUTE))
            revision = None
        else:
            revision = Revision(revision.instance_id, revision.version + 1)
            base = draw(st.sampled_from([0, 0, 10]))
            changes.append(StoredChange(seq, below, revision, "patched", seq * MINUTE, 5, base))
    return changes[::-1]


@given(
    histories(),
    st.builds(Retention, keep_revisions=st.none() | st.integers(1, 6), keep_age_ms=st.none() | st.integers(0, 900_000)),
    st.sets(st.integers(1, 21)),
    st.integers(0, 25),
    st.integers(1, 5),
)
def test_every_cut_leaves_a_whole_history_and_in_the_end_only_what_is_kept(
    changes: list[StoredChange], policy: Retention, pinned: set[int], horizon: int, page: int
) -> None:
    now_ms = (len(changes) + 2) * MINUTE
    pins = {change.revision for change in changes if change.seq in pinned}
    cutter = Cutter(KEY, policy, now_ms, horizon, pins.__contains__)
    chain = Chain.of(changes)
    cuts: list[Cut] = []
    for begin in range(0, len(changes), page):
        for cut in cutter.cuts(changes[begin : begin + page]):
            chain.cut(cut)
            chain.check()
            cuts.append(cut)
    for cut in cutter.end():
        chain.cut(cut)
        chain.check()
        cuts.append(cut)
    kept = [chain.changes[seq] for seq in chain.walk()]
    revisions = [change for change in changes if change.kind != "deleted"]
    for newer, change in enumerate(revisions):
        above = next((other for other in changes[::-1] if other.seq > change.seq), None)
        must_stay = above is None or above.seq > horizon or change.revision in pins
        may_stay = above is not None and policy.keeps(newer, above.at_ms, now_ms)
        assert (change in kept) == (must_stay or may_stay)
    instances = {change.revision.instance_id for change in kept if change.kind != "deleted"}
    for change in kept[1:]:
        assert change.revision.instance_id in instances
    assert sum(cut.revisions for cut in cuts) == len(revisions) - sum(change.kind != "deleted" for change in kept)


def patches(count: int, size: int) -> list[StoredChange]:
    rows = [StoredChange(n, n - 1 or None, Revision("i", n), "patched", n, size, 0, None) for n in range(count, 0, -1)]
    return [*rows[:-1], StoredChange(1, None, Revision("i", 1), "created", 1, 0, 10)]


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(CUT_ROWS + 2, 1, [CUT_ROWS, 1]), (6, CUT_BYTES // 2, [2, 2, 1]), (4, 2 * CUT_BYTES, [1, 1, 1])],
    ids=["rows", "bytes", "huge patches"],
)
def test_a_cut_is_bounded(count: int, size: int, expected: list[int]) -> None:
    cutter = Cutter(KEY, Retention(keep_revisions=1), 10 * MINUTE, count, lambda _: False)
    cuts = [*cutter.cuts(patches(count, size)), *cutter.end()]
    assert [cut.revisions for cut in cuts] == expected
    assert [cut.based is not None for cut in cuts] == [True] + [False] * (len(cuts) - 1)


@pytest.mark.parametrize(
    ("state", "ago", "keep", "stays"),
    [
        ("completed", 10 * MINUTE, 5 * MINUTE, False),
        ("failed", 10 * MINUTE, 5 * MINUTE, False),
        ("cancelled", 4 * MINUTE, 5 * MINUTE, True),
        ("completed", 10 * MINUTE, None, True),
        ("stuck", 10 * MINUTE, 0, True),
        ("completed", MINUTE - 1, 0, True),
        ("completed", MINUTE, 0, False),
    ],
)
def test_a_run_goes_some_time_after_its_end(state: RunState, ago: int, keep: int | None, stays: bool) -> None:
    row = RunRow(id="r", workflow="w", state=state, created_at_ms=0, updated_at_ms=1000)
    assert outlives(row, Retention(keep_ended_runs_ms=keep), 1000 + ago) == stays


LIMITS = ("keep_revisions", "keep_age_ms", "keep_ended_runs_ms")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("given", [1.5, True, "3", Revision("i", 0)], ids=repr)
def test_a_limit_is_a_whole_number(limit: str, given: object) -> None:
    limits: dict[str, Any] = {limit: given}
    with pytest.raises(TypeError, match=f"{limit} is a whole number, not "):
        Retention(**limits)
