"""Paths as rows that a database can search: who has read what a commit has changed.

A path is bytes, each segment ending itself, so that whatever is beneath a path begins with its bytes and nothing else
does. A read that is met by a write is found in one of two ways:

    above or at the write   it is one of the write's own beginnings: one row each
    beneath the write       it begins with the bytes of the write: one range

Segments of a read that are `EACH` stand in the bytes as such, and their positions in the `mask`; the beginnings of a
write are looked for once for each mask that the store has, with the same segments replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from ...core.model import Path
from ...core.paths import EACH, SHAPE

__all__ = ["PathRow", "Range", "path_rows", "ranges_met"]

PathRow: TypeAlias = tuple[int, bytes]
"""A mask, whose bit n says that segment n stands for any, and the bytes of the path."""

Range: TypeAlias = tuple[int, bytes, bytes]
"""A mask, and the least and the greatest bytes of paths under it."""

MASK_BITS: Final = 62
"""How deep a segment may stand for any: masks are whole numbers of 64 bits with a sign. A read that goes deeper counts
as one of the whole part above."""

ANY: Final = b"*"
BEYOND: Final = b"\xff"
"""Greater than the first byte of every segment."""


def path_rows(reads: Iterable[Path]) -> set[PathRow]:
    """What is stored for the paths that a look has read."""
    return {_row(read) for read in reads}


def ranges_met(writes: Iterable[Path], masks: Iterable[int]) -> set[Range]:
    """Where the rows are of all reads under these masks that are met by one of these writes."""
    known = tuple(masks)
    found: set[Range] = set()
    for write in writes:
        segments = [_segment(segment) for segment in write]
        for mask in known:
            _add_ranges(write, segments, mask, found)
    return found


def _add_ranges(write: Path, segments: list[bytes], mask: int, found: set[Range]) -> None:
    begin, deepest = b"", mask.bit_length()
    for depth, segment in enumerate(segments):
        if depth >= deepest:  # a read under this mask has a segment for each of its bits
            found.add((mask, begin, begin))
        if mask >> depth & 1:
            if write[depth] is SHAPE:
                return  # it is no element: no read under this mask goes on here
            segment = ANY
        begin += segment
    found.add((mask, begin, begin + BEYOND))


def _row(read: Path) -> PathRow:
    mask, encoded = 0, b""
    for depth, segment in enumerate(read):
        if segment is EACH:
            if depth >= MASK_BITS:
                break
            mask |= 1 << depth
        encoded += _segment(segment)
    return mask, encoded


def _segment(segment: str | int) -> bytes:
    if isinstance(segment, int):
        return b"i%d\0" % segment
    if segment is SHAPE:
        return b"#"
    if segment is EACH:
        return ANY
    text = segment.encode("utf-8", "surrogatepass")
    if b"\0" in text or b"\1" in text:
        text = text.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return b"s" + text + b"\0"
