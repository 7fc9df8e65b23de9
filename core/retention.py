"""Retention: which revisions and runs are kept, decided purely from what is stored.

The rules:

    1. what is in force      a store that exists keeps its tip, whatever the policy says
    2. what is pinned        a revision that a receipt or a step names stays for as long as that is there
    3. what is settling      a revision that was in force a moment ago stays: a run may be about to pin it
    4. the policy            of the rest a revision goes if each limit that is set lets it go; without any, none goes

A revision can be read from a base, a whole document, and the patches that follow it. So a patch of which the change
right below goes is given a base of its own first, and what goes is cut out in stretches, from the newest on: after each
cut the history is whole, and shorter. A cut may be the last one that is made, by a process that ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, TypeAlias, final

from msgspec import Struct

from .batch import CutLog, Form
from .model import Revision, StoreKey, check_whole
from .run import RunRow

__all__ = [
    "CUT_BYTES",
    "CUT_ROWS",
    "SETTLING_MS",
    "ChangeKind",
    "Cut",
    "Cutter",
    "Retention",
    "StoredChange",
    "earliest",
    "outlives",
]

CUT_ROWS: Final = 250
"""How many changes, or rows of a run, go in one batch: so few that nobody waits for it."""

CUT_BYTES: Final = 2 * 1024 * 1024
"""How many bytes of patches and bases go in one batch, unless a single change has more."""

SETTLING_MS: Final = 60_000
"""For how long a revision stays after it was in force, whatever the policy says.

A run records, and so pins, what it read a moment before. One that takes longer than its lease lost its fence, and pins
nothing; this is four leases.
"""

ChangeKind: TypeAlias = Literal["created", "patched", "deleted"]


class StoredChange(Struct, frozen=True, gc=False):
    """A change of a store as it is stored: the revision that it made, or ended, when, and how.

    `seq` is its number, `below` that of the change below it in the history of the store. `patch_bytes` and `base_bytes`
    are the lengths of its patch and of the base beside it, 0 where there is none; `patch` is None where nobody asked.
    """

    seq: int
    below: int | None
    revision: Revision
    kind: ChangeKind
    at_ms: int
    patch_bytes: int = 0
    base_bytes: int = 0
    patch: bytes | None = None
    form: Form | None = None


@final
class Retention(Struct, frozen=True, kw_only=True):
    """How much is kept; None keeps all. TypeError or ValueError: a limit that makes no sense.

    `keep_revisions` of each store, the newest, those of its deleted instances included; and those that were in force
    within the last `keep_age_ms` milliseconds. Where both are set, a revision stays if either keeps it. Runs that ended
    longer than `keep_ended_runs_ms` milliseconds ago go, with their steps and receipts, and pin nothing any more.
    """

    keep_revisions: int | None = None
    keep_age_ms: int | None = None
    keep_ended_runs_ms: int | None = None

    def __post_init__(self) -> None:
        for name, limit, least in (
            ("keep_revisions", self.keep_revisions, 1),
            ("keep_age_ms", self.keep_age_ms, 0),
            ("keep_ended_runs_ms", self.keep_ended_runs_ms, 0),
        ):
            if limit is not None:
                _ = check_whole(name, limit, least)

    @property
    def limits_revisions(self) -> bool:
        return self.keep_revisions is not None or self.keep_age_ms is not None

    def keeps(self, newer: int, left_ms: int, now_ms: int) -> bool:
        """Whether it keeps a revision that is no tip, from how many are newer and when it was in force last."""
        since_ms = now_ms - left_ms
        if not self.limits_revisions or since_ms < SETTLING_MS:
            return True
        if self.keep_revisions is not None and newer < self.keep_revisions:
            return True
        return self.keep_age_ms is not None and since_ms < self.keep_age_ms

    def lets_go_at_ms(self, newer: int, left_ms: int) -> int | None:
        """From when on it does not keep such a revision; None: it does until there are newer ones."""
        if not self.limits_revisions or (self.keep_revisions is not None and newer < self.keep_revisions):
            return None
        return left_ms + max(self.keep_age_ms or 0, SETTLING_MS)

    def forgets_at_ms(self, ended_ms: int) -> int | None:
        """From when on it does not keep a run that ended at `ended_ms`; None: it keeps runs."""
        return None if self.keep_ended_runs_ms is None else ended_ms + max(self.keep_ended_runs_ms, SETTLING_MS)


def outlives(row: RunRow, policy: Retention, now_ms: int) -> bool:
    """Whether the policy keeps the run."""
    if not row.ended or policy.keep_ended_runs_ms is None:
        return True
    return now_ms - row.updated_at_ms < max(policy.keep_ended_runs_ms, SETTLING_MS)


class Cut(Struct, frozen=True, gc=False):
    """A stretch that goes. `based` is the revision that needs a base before, None if the one above the cut needs none.

    `revisions` is how many revisions go, `size_bytes` how long their patches and bases are.
    """

    write: CutLog
    based: Revision | None
    revisions: int
    size_bytes: int


@final
class Cutter:
    """Finds the cuts in the history of one store, from its changes in their order, the newest first.

    Changes after the one numbered `horizon` stay, and so does the revision that was in force then: what pins them may
    not have been seen by `is_pinned`.
    """

    def __init__(
        self, key: StoreKey, policy: Retention, now_ms: int, horizon: int, is_pinned: Callable[[Revision], bool]
    ) -> None:
        self._key = key
        self._policy = policy
        self._now_ms = now_ms
        self._horizon = horizon
        self._is_pinned = is_pinned
        self._newer = 0
        self._last: StoredChange | None = None
        self._above = _Stay(None, None, is_based=True)
        self._over: _Stay | None = None  # what stays above the end of an instance of which nothing was kept so far
        self._going: list[StoredChange] = []
        self._size_bytes = 0
        self.next_at_ms: int | None = None
        """When the first of the revisions goes that stay only because they are young."""

    def cuts(self, changes: Iterable[StoredChange]) -> Iterator[Cut]:
        """The cuts that these next changes make certain."""
        for change in changes:
            if change.kind == "deleted":
                yield from self.end()
                self._over, self._above = self._above, _Stay(change, change.below, is_based=True)
            elif self._keeps(change):
                yield from self._cut()
                self._over, self._above = None, _Stay(change, change.below, is_based=change.base_bytes > 0)
            else:
                self._going.append(change)
                self._size_bytes += change.patch_bytes + change.base_bytes
                if len(self._going) >= CUT_ROWS or self._size_bytes >= CUT_BYTES:
                    yield from self._cut()
            self._last = change
            self._newer += change.kind != "deleted"

    def end(self) -> Iterator[Cut]:
        """The cuts that are left when an instance, or the history, has come to its beginning."""
        yield from self._cut()
        over, ended = self._over, self._above.change
        if over is None or ended is None:
            return
        below = self._above.below
        if over.change is None and below is not None:  # the newest end stays above what is pinned of older instances
            return
        yield Cut(_write(self._key, over.change, (ended.seq,), below), None, 0, 0)
        self._over, self._above = None, _Stay(over.change, below, is_based=True)

    def _cut(self) -> Iterator[Cut]:
        going, size_bytes = self._going, self._size_bytes
        if not going:
            return
        self._going, self._size_bytes = [], 0
        above = self._above
        needs_base = above.change is not None and above.change.kind == "patched" and not above.is_based
        write = _write(self._key, above.change, tuple(change.seq for change in going), going[-1].below)
        yield Cut(write, above.change.revision if above.change and needs_base else None, len(going), size_bytes)
        self._above = _Stay(above.change, going[-1].below, is_based=True)

    def _keeps(self, change: StoredChange) -> bool:
        newer = self._last
        if newer is None or self._is_pinned(change.revision):
            return True
        if newer.seq <= self._horizon and not self._policy.keeps(self._newer, newer.at_ms, self._now_ms):
            return False
        self.next_at_ms = earliest(self.next_at_ms, self._policy.lets_go_at_ms(self._newer, newer.at_ms))
        return True


class _Stay(Struct, frozen=True, gc=False):
    """A change that stays, None at the top; what follows it now, and whether reading may begin at it."""

    change: StoredChange | None
    below: int | None
    is_based: bool


def earliest(one: int | None, other: int | None) -> int | None:
    """The earlier of two instants, where None is never."""
    return min((each for each in (one, other) if each is not None), default=None)


def _write(key: StoreKey, above: StoredChange | None, seqs: tuple[int, ...], below: int | None) -> CutLog:
    return CutLog(
        key, None if above is None else above.seq, seqs, below, "" if above is None else above.revision.instance_id
    )
