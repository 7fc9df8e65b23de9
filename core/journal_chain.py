"""The chain of a run's journal, walked from what is kept of its beginning to its end.

A walk is given the entries in order, each once, and says what is wrong with one: what it holds, its number, or that
something is missing before it. Numbers have gaps only where the journal was rewound, and the rewinds are links too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from .entry import START, EntryRow, RewindRow, link, link_rewind

__all__ = ["ChainWalk", "entries_between"]


@final
class ChainWalk:
    """A walk along the entries of `run_id`; `base` is the hash before the first one, None is the beginning of all.

    `floor` is the number of the first entry, where it is known: that of a checkpoint that was compacted to.
    """

    __slots__ = ("_chain", "_known", "_last", "_rewinds", "_run_id")

    def __init__(self, run_id: str, rewinds: Sequence[RewindRow], floor: int | None, base: bytes | None) -> None:
        self._run_id = run_id
        self._rewinds = rewinds
        self._chain = START if base is None else base
        self._last = -1 if floor is None else floor - 1
        self._known = base is None or floor is not None  # where the first entry has to be

    @classmethod
    def after(cls, entry: EntryRow, rewinds: Sequence[RewindRow]) -> ChainWalk:
        """A walk that begins behind an entry, which is believed."""
        return cls(entry.run_id, rewinds, entry.seq + 1, entry.chain)

    def step(self, entry: EntryRow) -> str | None:
        """What is wrong with the next entry, None if nothing is."""
        wrong = self._go_on(entry.seq)
        if wrong is not None:
            return wrong
        if link(self._chain, self._run_id, entry.seq, entry.at_ms, entry, entry.no) != entry.chain:
            return "its hash is not that of what it holds, or of what was before it"
        self._chain, self._last, self._known = entry.chain, entry.seq, True
        return None

    def end(self, last_seq: int, chain: bytes) -> str | None:
        """What is wrong with the end of the journal, as it says of itself where it is and which hash it has."""
        if self._known or any(each.to_seq >= self._last for each in self._rewinds):
            wrong = self._go_on(last_seq + 1)
            if wrong is not None:
                return wrong
        return None if chain == self._chain else "the journal has another last hash"

    def _go_on(self, seq: int) -> str | None:
        """Stand before the entry of this number, behind the rewinds to the last place."""
        between = sorted(
            (each for each in self._rewinds if self._last <= each.to_seq < seq), key=lambda each: each.generation
        )
        if not between:
            if self._known and seq != self._last + 1:
                return f"an entry is missing before it, which is numbered {self._last + 1}"
            return None
        for each in between:
            if (each is between[-1] or each.to_seq == self._last) and not self._is_linked(each):
                return f"the rewind to {each.to_seq} is not as it was written"
        newest = between[-1]
        if newest.from_seq + 1 != seq:
            return f"an entry is missing before it, which is numbered {newest.from_seq + 1}"
        self._chain, self._last, self._known = newest.chain, newest.from_seq, True
        return None

    def _is_linked(self, rewind: RewindRow) -> bool:
        place = (rewind.generation, rewind.from_seq, rewind.to_seq, rewind.at_ms)
        return rewind.run_id == self._run_id and rewind.chain == link_rewind(self._chain, self._run_id, *place)


def entries_between(first: int, last: int, rewinds: Iterable[RewindRow]) -> int:
    """How many entries are numbered from `first` to `last`, both included, and were not rewound."""
    count, place = 0, first
    for to_seq, from_seq in sorted((each.to_seq, each.from_seq) for each in rewinds):
        if to_seq >= last:
            break
        if from_seq >= place:
            count += max(0, to_seq - place + 1)
            place = from_seq + 1
    return count + max(0, last - place + 1)
