"""What a run has recorded, and what its workflow has asked for since it was last begun from the top.

This is the whole of replay: a durable call asks for its key, and gets the decision that `core.step` has for the row of
that key, or a refusal. Results reach the workflow in the order of their positions; `position` is the last one given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from .model import StoreKey
from .step import Decision, Mode, StepRow, decide_step, mismatch

__all__ = ["STEPS", "Asked", "History", "Refused"]

STEPS = 50_000
"""How many durable calls a run may record."""


READS: Final = frozenset({"store.get", "store.select"})
"""Calls that change nothing and take no time: one that is made anew under another key does no harm."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a durable call is to do, and the row that it does it by."""

    decision: Decision
    row: StepRow | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A durable call that cannot be made, and why.

    "duplicate": the key was used before; "full": the run has recorded as many calls as it may; "mismatch": another call
    was recorded under the key, so the code was changed since.
    """

    reason: Literal["duplicate", "full", "mismatch"]
    problem: str


Answer: TypeAlias = Asked | Refused


class History:
    """The rows of one run, by key. It lives for one execution of the workflow and is not shared.

    Rows that were dropped count as if they were not there. Calls that a branch lost in a race came to nothing, so the
    workflow need not ask for them again; a branch that was cancelled before it came to one never does.
    """

    __slots__ = ("_asked", "_dropped", "_new", "_position", "_rows", "_unasked")

    def __init__(self, rows: Iterable[StepRow] = ()) -> None:
        self._rows: dict[str, StepRow] = {}
        self._dropped: set[str] = set()
        for row in rows:
            if row.status == "dropped":
                self._dropped.add(row.key)
            else:
                self._rows[row.key] = row
        alike = (row for row in self._rows.values() if row.kind not in READS and row.status != "lost")
        self._unasked = Counter((row.kind, row.target) for row in alike)
        self._asked: dict[str, str] = {}
        self._new: list[str] = []
        self._position = max((row.position or 0 for row in self._rows.values()), default=0)

    @property
    def position(self) -> int:
        """The last position given, 0 before the first."""
        return self._position

    def ask(self, key: str, kind: str, target: str, mode: Mode = "at_least_once") -> Answer:
        """What the durable call `kind` on `target` under `key` is to do. Each key may be asked for once."""
        if (before := self._asked.get(key)) is not None:
            return Refused(
                "duplicate", f"the key {key!r} is used twice in this run, by {before} and by {kind} {target}"
            )
        row = self._rows.get(key)
        if row is None and len(self._rows) >= STEPS:
            return Refused(
                "full", f"this run has recorded {STEPS} durable calls, which is the limit; {key!r} is one more"
            )
        if row is not None and (problem := mismatch(row, kind, target)) is not None:
            return Refused("mismatch", problem)
        self._asked[key] = f"{kind} {target}".rstrip()
        if row is None:
            self._new.append(key)
        elif row.status != "lost":
            self._unasked[kind, target] -= 1
        return Asked(decide_step(row, mode), row)

    def has_like(self, kind: str, target: str) -> bool:
        """Whether a call of this kind on this target is recorded that is yet to be asked for; reads do not count."""
        return self._unasked[kind, target] > 0

    def like(self, kind: str, target: str) -> StepRow:
        """The first one of them."""
        return next(row for row in self.unasked() if (row.kind, row.target) == (kind, target))

    def was_dropped(self, key: str) -> bool:
        """Whether the call of this key is made anew because somebody said so."""
        return key in self._dropped

    def take_position(self) -> int:
        """The number of the next completion."""
        self._position += 1
        return self._position

    def row(self, key: str) -> StepRow | None:
        """The row of a key, as it was last recorded."""
        return self._rows.get(key)

    def all_of(self, kind: str, target: str) -> tuple[StepRow, ...]:
        """The recorded calls of this kind on this target, asked for or not."""
        return tuple(row for row in self._rows.values() if (row.kind, row.target) == (kind, target))

    def pinning(self, store: StoreKey, instance_id: str) -> tuple[str, ...]:
        """The keys of the calls that name a revision of this instance, in order."""
        rows = (row for row in self._rows.values() if row.pin is not None and row.pin.key == store)
        return tuple(row.key for row in rows if row.pin is not None and row.pin.revision.instance_id == instance_id)

    def waits(self, kinds: Collection[str]) -> bool:
        """Whether a call of these kinds that was recorded to wait has not been recorded to end."""
        return any(row.status == "waiting" and row.kind in kinds for row in self._rows.values())

    def record(self, row: StepRow) -> None:
        """The row is durable now."""
        self._rows[row.key] = row

    def new(self) -> tuple[str, ...]:
        """The calls that the workflow has made and that were not recorded before, in words, in order."""
        return tuple(f"{key!r} ({self._asked[key]})" for key in self._new)

    def unasked(self) -> tuple[StepRow, ...]:
        """Recorded calls that the workflow has to make again and has not, by position."""
        rows = (row for key, row in self._rows.items() if key not in self._asked and row.status != "lost")
        return tuple(sorted(rows, key=lambda row: (row.position is None, row.position or 0, row.key)))
