"""Identifiers: UUIDs of version 7, which sort by the time at which they were made, and a counted kind for tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, final

from ..services.ids import Ids
from .layer import Layer, provides

__all__ = ["CountedIds", "NoopIds", "TimeOrderedIds", "layer", "layer_noop", "layer_test"]

RANDOM_BITS: Final = 74
"""How much of a UUID of version 7 is random; the rest is 48 bits of milliseconds, the version and the variant."""

STEP_BITS: Final = 32
"""How far apart, at most, are two identifiers of one millisecond: far enough that the next cannot be guessed."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@final
class TimeOrderedIds:
    """UUIDs of version 7, each greater than all before it in this process, also when the clock is set back.

    Safe to be used from several threads. Two processes may interleave within a millisecond.
    """

    def __init__(self, wall_ms: Callable[[], int] = _wall_ms, random: Callable[[int], bytes] = os.urandom) -> None:
        self._wall_ms = wall_ms
        self._random = random
        self._lock = threading.Lock()
        self._last = 0  # the milliseconds above the random bits, as one number

    def new(self) -> str:
        with self._lock:
            now = self._wall_ms() << RANDOM_BITS
            if now >> RANDOM_BITS > self._last >> RANDOM_BITS:
                self._last = now | self._bits(RANDOM_BITS)
            else:  # counting on from the last one may carry into the milliseconds, which is later all the same
                self._last += 1 + self._bits(STEP_BITS)
            return _text(self._last)

    def _bits(self, bits: int) -> int:
        size = (bits + 7) // 8
        return int.from_bytes(self._random(size), "big") >> (8 * size - bits)


def _text(number: int) -> str:
    """48 bits, the version, 12 bits, the variant, 62 bits; in groups of 8, 4, 4, 4 and 12 digits."""
    ms, high, low = number >> RANDOM_BITS, number >> 62 & 0xFFF, number & (1 << 62) - 1
    digits = f"{ms << 80 | 7 << 76 | high << 64 | 2 << 62 | low:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@final
class CountedIds:
    """1, 2, 3 and so on in the form of a UUID; those of another seed are others."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = count(1)

    def new(self) -> str:
        return _text(self._seed << RANDOM_BITS | next(self._count))


@final
class NoopIds:
    """No identifiers: a name cannot be answered as a failure, so asking is a RuntimeError."""

    def new(self) -> str:
        raise RuntimeError("there are no ids here: override them by layer() or layer_test() of stepwell.layers.ids")


def layer() -> Layer[Ids, Ids]:
    """UUIDs of version 7."""

    @provides
    def recipe() -> Iterator[Ids]:
        yield TimeOrderedIds()

    return recipe


def layer_test(*, seed: int = 0) -> Layer[Ids, Ids]:
    """Counted identifiers, the same in every execution. Who shares a ledger shares them, or takes another seed."""

    @provides
    def recipe() -> Iterator[Ids]:
        yield CountedIds(seed)

    return recipe


def layer_noop() -> Layer[Ids, Ids]:
    """No identifiers: whoever asks for one gets a RuntimeError."""

    @provides
    def recipe() -> Iterator[Ids]:
        yield NoopIds()

    return recipe
