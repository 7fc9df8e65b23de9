"""Digests of files that have not changed since they were read, told by their status and for a moment's trust only.

A status may stay the same although the bytes do not: within one tick of a clock, or through a mapping into memory. So a
young file is read every time, and nothing that is kept or decided for good rests on a remembered digest.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias, final

from .calls import SystemCalls
from .pinned import read_all

__all__ = ["DigestMemo"]

YOUNG_NS: Final = 2_000_000_000
"""For how long after its last change a file is young."""

FILES: Final = 4_096

_Stamp: TypeAlias = tuple[int, int, int, int, int]


@final
class DigestMemo:
    """The digests of the files that were read last. Safe to be used by several threads."""

    def __init__(self, calls: SystemCalls, now_ms: Callable[[], int]) -> None:
        self._calls = calls
        self._now_ms = now_ms
        self._lock = Lock()
        self._digests: OrderedDict[_Stamp, str] = OrderedDict()

    def digest(self, descriptor: int, status: os.stat_result) -> str:
        """The digest of an open file, which is read only if it is young or has changed."""
        stamp = _stamp(status)
        settled = self._is_settled(status)
        if settled and (known := self._find(stamp)) is not None:
            return known
        digest = read_all(self._calls, descriptor)
        if settled and _stamp(self._calls.stat(descriptor)) == stamp:
            self._remember(stamp, digest)
        return digest

    def _is_settled(self, status: os.stat_result) -> bool:
        changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        return status.st_mtime_ns > 0 and changed_ns + YOUNG_NS < self._now_ms() * 1_000_000

    def _find(self, stamp: _Stamp) -> str | None:
        with self._lock:
            if stamp not in self._digests:
                return None
            self._digests.move_to_end(stamp)
            return self._digests[stamp]

    def _remember(self, stamp: _Stamp, digest: str) -> None:
        with self._lock:
            self._digests[stamp] = digest
            if len(self._digests) > FILES:
                _ = self._digests.popitem(last=False)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
