"""Big lists in chunks, so that a copy of one shares all but what is then written.

A `Chunked` stands for a plain list inside states that the library holds; users never get one. It is a directory of
chunks, plain lists of some hundred elements. A copy takes the directory alone, and a write copies the one chunk that it
meets. Two that came from one another are compared by the chunks that they do not share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, compress, count, islice
from operator import is_not, ne
from typing import Final, TypeAlias, TypeGuard, overload

__all__ = ["CHUNK", "Chunked", "Elements", "differing", "differing_back", "shared_runs"]

CHUNK: Final = 512
"""How many elements a chunk has when it is made; one of more than twice as many is cut up."""


class Chunked:
    """A list in chunks: it does what a list does, as far as states need it. Not for threads to write at once.

    `chunk` is how many elements a chunk has. No chunk is empty, and each but the last is a quarter full.
    """

    __slots__ = ("_chunk", "_chunks", "_length", "_owned", "_starts")

    def __init__(self, values: Iterable[object] = (), chunk: int = CHUNK) -> None:
        held = list(values)
        self._chunk = chunk
        self._chunks = [held[at : at + chunk] for at in range(0, len(held), chunk)]
        self._length = len(held)
        self._owned: set[int] = set(map(id, self._chunks))  # of chunks that no other directory has
        self._starts: list[int] | None = None  # the index of the first element of each chunk; shared, never changed

    def copy(self) -> Chunked:
        """An equal one that is written by itself. It costs the directory."""
        made: Chunked = _new(Chunked)
        made._chunk = self._chunk
        made._chunks = self._chunks.copy()
        made._length = self._length
        made._owned = set()
        made._starts = self._starts
        if self._owned:
            self._owned = set()
        return made

    # --- reading ---

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[object]:
        return chain.from_iterable(self._chunks)

    def __reversed__(self) -> Iterator[object]:
        return chain.from_iterable(map(reversed, reversed(self._chunks)))

    @overload
    def __getitem__(self, index: int) -> object: ...
    @overload
    def __getitem__(self, index: slice) -> list[object]: ...
    def __getitem__(self, index: int | slice) -> object:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return list(islice(self.since(start), max(stop - start, 0))) if step == 1 else list(self)[index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("list index out of range")
        starts = self._starts or self.starts()
        at = bisect_right(starts, index) - 1
        return self._chunks[at][index - starts[at]]

    def since(self, start: int) -> Iterator[object]:
        """The elements from `start` on."""
        if start >= self._length:
            return iter(())
        starts = self.starts()
        at = bisect_right(starts, start) - 1
        rest = islice(self._chunks, at + 1, None)
        return chain(islice(self._chunks[at], start - starts[at], None), chain.from_iterable(rest))

    def starts(self) -> list[int]:
        """The index of the first element of each chunk; not to be changed."""
        if self._starts is None:
            self._starts = [0, *accumulate(map(len, self._chunks))][: len(self._chunks)]
        return self._starts

    def chunks(self) -> list[list[object]]:
        """The chunks; not to be changed."""
        return self._chunks

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Chunked) else other)

    def __repr__(self) -> str:
        return repr(list(self))

    # --- writing ---

    @overload
    def __setitem__(self, index: int, value: object) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[object]) -> None: ...
    def __setitem__(self, index: int | slice, value: object) -> None:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            assert step == 1, "states are written by runs of elements"
            assert _is_iterable(value)
            self._splice(start, max(start, stop), list(value))
            return
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError("list assignment index out of range")
        starts = self._starts or self.starts()
        at = bisect_right(starts, index) - 1
        self._own(at)[index - starts[at]] = value

    def append(self, value: object) -> None:
        at = len(self._chunks) - 1
        if at >= 0 and len(self._chunks[at]) < self._chunk:
            self._own(at).append(value)
        else:
            self._starts = [*self.starts(), self._length]
            self._chunks.append([value])
            self._owned.add(id(self._chunks[-1]))
        self._length += 1

    def _own(self, at: int) -> list[object]:
        """The chunk at a place of the directory, copied unless no other directory has it."""
        chunk = self._chunks[at]
        if id(chunk) not in self._owned:
            chunk = self._chunks[at] = chunk.copy()
            self._owned.add(id(chunk))
        return chunk

    def _splice(self, start: int, stop: int, values: list[object]) -> None:
        """Put `values` in place of the elements from `start` to `stop`: the chunks that these are in are made anew."""
        starts, chunks = self.starts(), self._chunks
        first = last = bisect_right(starts, start) - 1 if start < self._length else max(len(chunks) - 1, 0)
        if stop > start:
            last = bisect_right(starts, stop - 1) - 1
        if chunks:
            values = [*chunks[first][: start - starts[first]], *values, *chunks[last][stop - starts[last] :]]
            last += 1
        if len(values) < self._chunk // 4:  # too small to stand alone
            if last < len(chunks):
                values += chunks[last]
                last += 1
            elif first:
                first -= 1
                values = chunks[first] + values
        made = [values] if 0 < len(values) <= 2 * self._chunk else self._cut(values)
        self._owned.update(map(id, made))
        self._length += sum(map(len, made)) - sum(map(len, chunks[first:last]))
        chunks[first:last] = made
        self._starts = None

    def _cut(self, values: list[object]) -> list[list[object]]:
        """Chunks of nearly one length, so that none in the middle is small."""
        pieces = -(-len(values) // self._chunk)
        length = -(-len(values) // max(pieces, 1))
        return [values[at : at + length] for at in range(0, len(values), length)] if values else []


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable)


def _new(type_: type[Chunked]) -> Chunked:
    return object.__new__(type_)


Elements: TypeAlias = list[object] | Chunked


# --- what two lists do not share -----------------------------------------------------


def differing(one: Elements, other: Elements, start: int = 0) -> Iterator[tuple[int, object, object]]:
    """The elements from `start` on that are not the very same object in both lists, beside their index.

    Chunks that both share at one index are passed over; the others cost a step of C for each element.
    """
    if start >= min(len(one), len(other)):
        return
    aligned = _aligned(one, other)
    if aligned and _is_chunked(one) and _is_chunked(other):
        starts, mine, its = one.starts(), one.chunks(), other.chunks()
        for at in compress(range(aligned), map(is_not, mine, its)):
            if starts[at] + len(mine[at]) > start:
                for index, old, new in _unlike(starts[at], mine[at], its[at]):
                    if index >= start:
                        yield index, old, new
        if aligned == len(mine) == len(its):
            return
        start = max(start, starts[aligned - 1] + len(mine[aligned - 1]))
    yield from _unlike_since(start, one, other)


def _aligned(one: Elements, other: Elements) -> int:
    """How many chunks at the beginning have the same indices in both lists."""
    if not (_is_chunked(one) and _is_chunked(other)):
        return 0
    mine, its = one.starts(), other.starts()
    if len(one) == len(other) and (mine is its or mine == its):
        return len(mine)
    least = min(len(mine), len(its))
    apart = next(compress(count(), map(ne, mine, its)), least)
    return max(apart - 1, 0)  # the last one may end elsewhere


def _unlike(start: int, one: list[object], other: list[object]) -> Iterator[tuple[int, object, object]]:
    return compress(zip(count(start), one, other, strict=False), map(is_not, one, other))


def _unlike_since(start: int, one: Elements, other: Elements) -> Iterator[tuple[int, object, object]]:
    pairs = zip(count(start), _since(one, start), _since(other, start), strict=False)
    return compress(pairs, map(is_not, _since(one, start), _since(other, start)))


def _since(values: Elements, start: int) -> Iterator[object]:
    if _is_chunked(values):
        return values.since(start)
    return iter(values) if not start else map(values.__getitem__, range(start, len(values)))


def differing_back(one: Elements, other: Elements) -> Iterator[tuple[int, object, object]]:
    """The same from the ends of both lists on, beside how many elements come after."""
    shared = alike = 0
    if _is_chunked(one) and _is_chunked(other):
        mine, its = one.chunks(), other.chunks()
        least = min(len(mine), len(its))
        shared = next(compress(count(), map(is_not, reversed(mine), reversed(its))), least)
        alike = sum(map(len, mine[len(mine) - shared :]))
    pairs = zip(count(alike), _backwards(one, shared), _backwards(other, shared), strict=False)
    return compress(pairs, map(is_not, _backwards(one, shared), _backwards(other, shared)))


def shared_runs(one: Elements, other: Elements, start: int, end: int) -> list[tuple[int, int, int]]:
    """Runs of chunks that both lists share in one order: where in `one`, where in `other`, and how many elements.

    They are looked for from `start` on in both, and before their last `end` elements. None are found in plain lists.
    """
    if not (_is_chunked(one) and _is_chunked(other)) or start >= min(len(one), len(other)) - end:
        return []
    most = len(one) - end
    places = {id(chunk): at for at, chunk in zip(one.starts(), one.chunks(), strict=True) if at >= start}
    found: list[tuple[int, int, int]] = []
    least, its_end, length = start, start, 0
    for its, chunk in zip(other.starts(), other.chunks(), strict=True):
        at = places.get(id(chunk), -1)
        if at < least or its < start or at + len(chunk) > most or its + len(chunk) > len(other) - end:
            continue
        if length and (at, its) == (least, its_end):
            found.pop()
        else:
            length = 0
        length += len(chunk)
        least, its_end = at + len(chunk), its + len(chunk)
        found.append((least - length, its_end - length, length))
    return found


def _backwards(values: Elements, without: int) -> Iterator[object]:
    """The elements from the end on, `without` so many chunks."""
    if not _is_chunked(values):
        return reversed(values)
    chunks = values.chunks()
    return chain.from_iterable(map(reversed, islice(reversed(chunks), without, None)))


def _is_chunked(values: Elements) -> TypeGuard[Chunked]:
    return type(values) is Chunked
