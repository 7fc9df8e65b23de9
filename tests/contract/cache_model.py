"""What a step cache is to hold after any history, told by a model that knows no journal, no ledger and no fold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from stepwell.core.step_cache import RecordedRef, Standing

__all__ = ["KEYS", "RUNS", "CacheModel", "Kind", "Op", "programs"]

KEYS = ("k", "l", "m")
RUNS = ("a", "b", "c")

Kind: TypeAlias = Literal[
    "put", "again", "foreign", "evict", "retire", "sweep", "compact", "rewind", "forget", "rebuild", "verify", "chat"
]


@dataclass(frozen=True)
class Op:
    """One thing that is done. `key`, `run` and `number` are there for the kinds that need them."""

    kind: Kind
    key: str
    run: str
    number: int


OPS = st.builds(
    Op,
    st.sampled_from(
        [
            *("put", "put", "put", "put", "again", "foreign", "evict", "retire", "retire", "sweep"),
            *("compact", "compact", "rewind", "forget", "rebuild", "verify", "chat"),
        ]
    ),
    st.sampled_from(KEYS),
    st.sampled_from(RUNS),
    st.integers(0, 3),
)
programs = st.lists(OPS, min_size=1, max_size=30)


@dataclass
class CacheModel:
    """`heads` are the rows in force; a row is proven if a run of this ledger admitted it and nobody retired it."""

    results: dict[RecordedRef, int] = field(default_factory=dict[RecordedRef, int])
    created: dict[RecordedRef, int] = field(default_factory=dict[RecordedRef, int])
    heads: dict[str, RecordedRef] = field(default_factory=dict[str, RecordedRef])
    admitted: set[RecordedRef] = field(default_factory=set[RecordedRef])
    retired: set[RecordedRef] = field(default_factory=set[RecordedRef])

    def put(self, ref: RecordedRef, result: int, now_ms: int, *, foreign: bool = False) -> Standing:
        known, head = ref in self.results, self.heads.get(ref.key_digest)
        if not known:
            self.results[ref] = result
            self.created[ref] = now_ms
        if head is not None:
            return "existing_same" if head == ref or self.results[head] == result else "conflict"
        self.heads[ref.key_digest] = ref
        if not known and not foreign:
            self.admitted.add(ref)
        return "existing_same" if known else "inserted"

    def end(self, key: str) -> RecordedRef | None:
        """The head of a key goes, and it is said why."""
        ref = self.heads.pop(key, None)
        if ref is not None:
            self.retired.add(ref)
        return ref

    def sweep(self, before_ms: int) -> int:
        old = [key for key, ref in self.heads.items() if self.created[ref] < before_ms]
        for key in old:
            _ = self.end(key)
        return len(old)

    def forget(self, run: str) -> None:
        for ref in [ref for ref in self.results if ref.recorded_run_id == run]:
            if self.heads.get(ref.key_digest) == ref:
                _ = self.end(ref.key_digest)
            del self.results[ref]
            self.admitted.discard(ref)

    def rebuild(self) -> None:
        self.heads = self.proven()

    def proven(self) -> dict[str, RecordedRef]:
        """The heads that a rebuild leaves."""
        return {key: ref for key, ref in self.heads.items() if ref in self.admitted and ref not in self.retired}
