"""Python's collector of cycles, asked to look more rarely while very many objects are made that are all kept.

It looks whenever 700 objects more are alive, and now and then through all that there are: where millions of them stay,
that takes as long as the work itself, and finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["rarely_collected"]

RARELY: Final = 100_000
"""After how many objects more it looks. What others leave to be collected meanwhile waits for no more than these."""


class _Calm:
    """How many are at such work in this process, and what was set before the first of them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at_work = 0
        self._before: tuple[int, int, int] | None = None

    def begin(self) -> None:
        with self._lock:
            self._at_work += 1
            first, *rest = before = gc.get_threshold()
            if self._at_work == 1 and 0 < first < RARELY:  # 0 is never
                self._before = before
                gc.set_threshold(RARELY, *rest)

    def end(self) -> None:
        with self._lock:
            self._at_work -= 1
            if self._at_work or self._before is None:
                return
            if gc.get_threshold()[0] == RARELY:  # nobody has set another one meanwhile
                gc.set_threshold(*self._before)
            self._before = None


_calm: Final = _Calm()


@contextmanager
def rarely_collected() -> Generator[None]:
    """While this lasts, which may overlap with others of its kind; then it is as before."""
    _calm.begin()
    try:
        yield
    finally:
        _calm.end()
