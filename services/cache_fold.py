"""The heads of the step cache as a fold of the journal: made anew, compared, explained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from ..core.journal import Compacted
from ..core.model import Unavailable
from ..core.outcome import Outcome
from ..core.step_cache import RecordedRef

__all__ = ["CacheFold", "Compacted", "Explanation", "KeyVerdict", "Rebuilt", "RecordedRef", "Verification"]

KeyVerdict: TypeAlias = Literal[
    "restored", "retired", "removed", "ambiguous", "ledger_missing", "unproven", "not_admitted"
]
"""What the journal says of a key: this row is in force; it was retired, by the action and for the reason named; it was
removed by a sweep, retention, an eviction, or because it was damaged; two rows are in force, one of which went without
an entry; the row is not recorded any more; what would prove it is gone; nobody here admitted the live head, as one that
came from a shared tier."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the journal says of one key; `ref` is the row that it is about. The rest says more, and does not compare.

    `rows` are all rows of the key that are in question; `action` and `reason` are those of a retirement, which stands
    in the journal of `run_id` under `seq`; an unproven key names the run whose entries are missing.
    """

    key_digest: str
    verdict: str
    ref: RecordedRef | None
    action: str | None = field(default=None, compare=False)
    reason: str | None = field(default=None, compare=False)
    run_id: str | None = field(default=None, compare=False)
    seq: int | None = field(default=None, compare=False)
    rows: tuple[RecordedRef, ...] = field(default=(), compare=False)
    difference: Literal["matching", "missing", "extra", "different"] | None = field(default=None, compare=False)
    """How the live head stands to it, in a verification."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild found and made.

    `runs` have entries about the cache; `compacted` and `rewound` journals lost some, which were carried. `admitted`
    and `retired` count rows, `heads` those that are in force now.
    """

    runs: int
    compacted: int
    rewound: int
    admitted: int
    retired: int
    heads: int
    keys: tuple[Explanation, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """How the heads stand to the journal: as it says, gone, not to be there, another row than it says."""

    matching: int
    missing: int
    extra: int
    different: int
    keys: tuple[Explanation, ...]


class CacheFold(Protocol):
    """Every call may answer `Unavailable`, and has changed nothing then."""

    async def rebuild(self) -> Outcome[Rebuilt, Compacted | Unavailable]:
        """Put in force what the journals prove, and nothing else; what is committed meanwhile is honoured."""
        ...

    async def verify(self) -> Outcome[Verification, Unavailable]:
        """Compare the heads with what `rebuild` would make of them. Writes nothing."""
        ...

    async def explain(self, key_digest: str) -> Outcome[Explanation, Unavailable]:
        """What the journals say of one key."""
        ...
