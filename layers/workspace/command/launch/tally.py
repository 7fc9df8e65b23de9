"""What was looked up, each different look once, with how often it was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Final, final

from .looks import Look

__all__ = ["Tally"]


BYTES: Final = 64 << 20


@final
class Tally:
    """Keeps looks in the order of the first of each kind, up to a limit.

    Those of `shown` places are not kept, unless these are `hidden`. There is a limit on their bytes too: a path has up
    to 4 KiB, and what it is kept in is memory of the host.
    """

    def __init__(self, shown: Sequence[str], hidden: Sequence[str], limit: int) -> None:
        places = [place.rstrip("/") for place in shown]
        self._shown = tuple(f"{place}/" for place in places)
        self._above = frozenset(above for place in places for above in _above(place))
        self._hidden = tuple(f"{place}/" for place in hidden)
        self._limit = limit
        self._room = BYTES
        self._counts: dict[Look, int] = {}
        self.complete = True

    def note(self, looks: Sequence[Look]) -> None:
        for look in looks:
            if self._is_shown(look.path):
                continue
            if look in self._counts:
                self._counts[look] += 1
            elif len(self._counts) < self._limit and len(look.path) <= self._room:
                self._counts[look] = 1
                self._room -= len(look.path)
            else:
                self.complete = False

    def _is_shown(self, path: str) -> bool:
        inside = f"{path}/"
        return path in self._above or (inside.startswith(self._shown) and not inside.startswith(self._hidden))

    def written(self) -> int:
        """A descriptor of a file in memory with a line of JSON for each look."""
        made = os.memfd_create("looks", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(made), "w") as file:
            for look, count in self._counts.items():
                file.write(json.dumps([look.kind, look.path, look.present, count]) + "\n")
        os.lseek(made, 0, os.SEEK_SET)
        return made


def _above(place: str) -> list[str]:
    """The directories that a place lies in."""
    parts = place.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]
