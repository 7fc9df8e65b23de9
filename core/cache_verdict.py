"""What is told of the heads of the step cache: of each key why, what a rebuild made, what a comparison found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from msgspec import Struct

from .step_cache import RecordedRef

__all__ = ["Difference", "Explanation", "KeyVerdict", "Rebuilt", "Verification"]

KeyVerdict: TypeAlias = Literal[
    "restored", "retired", "removed", "ambiguous", "ledger_missing", "unproven", "not_admitted"
]
"""What the journal says of a key: this row is in force; it was retired, by the action and for the reason named; it was
removed by a sweep, retention, an eviction, or because it was damaged; two rows are in force, one of which went without
an entry; the row is not recorded any more; what would prove it is gone; nobody here admitted the live head, as one that
came from a shared tier."""

Difference: TypeAlias = Literal["matching", "missing", "extra", "different"]


@final
class Explanation(Struct, frozen=True, eq=False, gc=False):
    """What the journal says of one key; `ref` is the row that it is about. The rest says more, and does not compare.

    `rows` are all rows of the key that are in question; `action` and `reason` are those of a retirement, which stands
    in the journal of `run_id` under `seq`; an unproven key names the run whose entries are missing. A struct of
    msgspec, since a rebuild makes one for each key that there ever was.
    """

    key_digest: str
    verdict: str
    ref: RecordedRef | None
    action: str | None = None
    reason: str | None = None
    run_id: str | None = None
    seq: int | None = None
    rows: tuple[RecordedRef, ...] = ()
    difference: Difference | None = None
    """How the live head stands to it, in a verification; None where there is none and is to be none."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        return (self.key_digest, self.verdict, self.ref) == (other.key_digest, other.verdict, other.ref)

    def __hash__(self) -> int:
        return hash((self.key_digest, self.verdict, self.ref))


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
