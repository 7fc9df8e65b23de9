"""The heads of the step cache as a fold of the journal.

Every entry of the type `EVENT_TYPE` names one recorded row and says what became of it. The fold gathers two sets:

    admitted    the row became the head of its key
    retired     the row was taken out of force, by any action in `RETIRING` and for whatever reason

Nothing ever leaves either set, so the order of entries does not matter: runs may be folded one after another or
interleaved, an entry may be read twice, and a row may be retired before it is seen to be admitted. A row that is
admitted and not retired is in force. A key with two such rows has lost one of them without an entry, and nobody can
tell which; it gets no candidate. Nothing is ever guessed: at worst a result is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from json import JSONEncoder
from typing import Final, TypeAlias, TypeGuard, final

from .growing_set import GrowingSet
from .journal import Entry, Projection
from .step_cache import RecordedRef

__all__ = ["EVENT_TYPE", "PROJECTION", "RETIRING", "State", "candidates", "initial", "reduce", "ref_id"]

EVENT_TYPE: Final = "stepwell.cache-provenance"
RETIRING: Final = ("expired", "stale_read_set", "replay_failed", "removed")

# The members of a RecordedRef. Within the state a plain tuple stands for it, which is made and hashed faster.
_Row: TypeAlias = tuple[str, str, int]

_encode: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@final
class State:
    """The rows that were ever admitted and those that were ever retired. Immutable; equal where both sets are equal.

    Each property builds its set anew, in time proportional to it: keep what you ask more than once.
    """

    __slots__ = ("_admitted", "_retired")

    _admitted: GrowingSet[_Row]
    _retired: GrowingSet[_Row]

    def __init__(self, admitted: Iterable[RecordedRef] = (), retired: Iterable[RecordedRef] = ()) -> None:
        self._admitted = GrowingSet(map(_row, admitted))
        self._retired = GrowingSet(map(_row, retired))

    @property
    def admitted(self) -> frozenset[RecordedRef]:
        """Every row that was once made the head of its key, whether or not it was retired."""
        return frozenset(RecordedRef(*row) for row in self._admitted)

    @property
    def retired(self) -> frozenset[RecordedRef]:
        """Every row that was taken out of force, whether or not it is known to have been admitted."""
        return frozenset(RecordedRef(*row) for row in self._retired)

    def with_admitted(self, row: _Row) -> State:
        """This state with `row` admitted; the same object if it was."""
        admitted = self._admitted.added(row)
        return self if admitted is self._admitted else self._of(admitted, self._retired)

    def with_retired(self, row: _Row) -> State:
        """This state with `row` retired; the same object if it was."""
        retired = self._retired.added(row)
        return self if retired is self._retired else self._of(self._admitted, retired)

    def in_force(self) -> Iterator[_Row]:
        """The rows admitted and not retired."""
        return (row for row in self._admitted if row not in self._retired)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        return self._admitted == other._admitted and self._retired == other._retired

    def __hash__(self) -> int:
        return hash((self._admitted, self._retired))

    def __repr__(self) -> str:
        return f"State(admitted={self.admitted!r}, retired={self.retired!r})"

    @classmethod
    def _of(cls, admitted: GrowingSet[_Row], retired: GrowingSet[_Row]) -> State:
        state = cls.__new__(cls)
        state._admitted, state._retired = admitted, retired
        return state


def initial() -> State:
    """The state before any entry: nothing admitted, nothing retired."""
    return State()


def reduce(state: State, entry: Entry) -> State:
    """The state after `entry`; the same object where the entry changes nothing. It never fails.

    An entry of another type, another action, or a payload that makes no sense changes nothing. A sequence number is
    an int: True, "1" and 1.0 are none, and neither is NaN, which does not even equal itself. Whether a row of that
    name was ever recorded is not decided here. Which run the entry stands in does not matter either: a row can be
    retired in a run other than the one that recorded it.
    """
    if entry.event_type != EVENT_TYPE:
        return state
    payload = entry.payload
    if not _has_members(payload):
        return state
    key_digest = payload.get("key_digest")
    run_id = payload.get("recorded_run_id")
    seq = payload.get("recorded_event_seq")
    if not (isinstance(key_digest, str) and isinstance(run_id, str) and isinstance(seq, int)) or isinstance(seq, bool):
        return state
    action = payload.get("action")
    if action == "admitted":
        return state.with_admitted((key_digest, run_id, seq))
    return state.with_retired((key_digest, run_id, seq)) if action in RETIRING else state


def candidates(state: State) -> tuple[RecordedRef, ...]:
    """The rows in force, at most one a key and in order of the key: admitted, not retired, and the only such row."""
    by_key: dict[str, _Row | None] = {}
    for row in state.in_force():
        key_digest = row[0]
        by_key[key_digest] = None if key_digest in by_key else row
    only = (by_key[key_digest] for key_digest in sorted(by_key))
    return tuple(RecordedRef(*row) for row in only if row is not None)


def ref_id(ref: RecordedRef) -> str:
    """The row's name as one string, a compact JSON array: different rows have different names, whatever is in them."""
    return _encode(_row(ref))


PROJECTION: Final = Projection(initial, reduce)


def _row(ref: RecordedRef) -> _Row:
    return ref.key_digest, ref.recorded_run_id, ref.recorded_event_seq


def _has_members(payload: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(payload, (dict, Mapping))  # a dict is told apart from the rest much faster by its own type
