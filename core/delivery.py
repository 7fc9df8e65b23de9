"""Delivery: which of the wakes that are owed are to be handed over again, and when.

    found        handed over at once
    failed       again after a pause that doubles from 100 ms to 30 s, and after each commit of the ledger
    delivered    a waiter's: again after a pause that doubles from 5 s to 5 min; a signal's: never
    due for 5 s  one of a queue: its turn is to pass; if that fails, again after a pause that doubles to 30 s
    gone         forgotten: whoever hands over again looks first whether the wake is still owed

What is kept here is a plan, not the truth: the ledger has that, and after a restart the plan is made anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from .waiter import Wake

__all__ = ["Deliveries", "failure_pause_ms", "pass_pause_ms", "repeat_pause_ms"]

FAILURE_MS: Final = 100
FAILURE_CAP_MS: Final = 30_000

REPEAT_MS: Final = 5_000
REPEAT_CAP_MS: Final = 300_000

PASS_MS: Final = 5_000
PASS_CAP_MS: Final = 30_000

CROWD: Final = 64
"""From so many wakes on, those that are to be repeated are gathered in rounds."""

ROUND_MS: Final = 250
"""How far apart such rounds are: a wake is repeated so much later, and one look at the ledger serves them all."""

_Act: TypeAlias = Literal["pass", "wake"]


def failure_pause_ms(failures: int) -> int:
    """The pause after so many failures in a row, at least one, in milliseconds."""
    return _doubled(FAILURE_MS, failures, FAILURE_CAP_MS)


def repeat_pause_ms(deliveries: int) -> int:
    """The pause after so many deliveries that nobody acknowledged, at least one, in milliseconds."""
    return _doubled(REPEAT_MS, deliveries, REPEAT_CAP_MS)


def pass_pause_ms(asked: int) -> int:
    """The pause before the turn of one in a queue is to pass, the so-manieth time from 1, in milliseconds."""
    return _doubled(PASS_MS, asked, PASS_CAP_MS)


def _doubled(first_ms: int, times: int, cap_ms: int) -> int:
    return min(first_ms << min(times - 1, 16), cap_ms)


@dataclass(slots=True)
class _Owed:
    """A wake and its instants; `pass_at_ms` is None where there is no queue, or its turn has passed."""

    wake: Wake
    wake_at_ms: int
    pass_at_ms: int | None
    failures: int = 0
    deliveries: int = 0
    asked: int = 1


@final
class Deliveries:
    """The plan of one ledger's deliveries. Wakes are named by their numbers."""

    __slots__ = ("_agenda", "_failing", "_owed")

    def __init__(self) -> None:
        self._owed: dict[int, _Owed] = {}
        self._failing: dict[int, None] = {}
        self._agenda: list[tuple[int, int, _Act]] = []  # a heap; what no longer agrees with `_owed` is passed over

    def __len__(self) -> int:
        """How many wakes are kept."""
        return len(self._owed)

    @property
    def failing(self) -> bool:
        """Whether any wake's last delivery failed."""
        return bool(self._failing)

    # --- what happened --------------------------------------------------------

    def found(self, wake: Wake, now_ms: int) -> None:
        """The wake is owed, and is being handed over."""
        queued = wake.waiter is not None and wake.waiter.queue is not None
        owed = _Owed(wake, now_ms, now_ms + PASS_MS if queued else None)
        self._owed[wake.no] = owed
        if owed.pass_at_ms is not None:
            heapq.heappush(self._agenda, (owed.pass_at_ms, wake.no, "pass"))

    def delivered(self, no: int, now_ms: int) -> None:
        """The wake was handed over."""
        owed = self._owed.get(no)
        if owed is None:
            return
        if owed.wake.waiter is None:
            self.gone(no)
            return
        _ = self._failing.pop(no, None)
        owed.failures = 0
        owed.deliveries += 1
        at_ms = now_ms + repeat_pause_ms(owed.deliveries)
        if len(self._owed) > CROWD:
            at_ms += -at_ms % ROUND_MS
        self._plan(owed, at_ms)

    def failed(self, no: int, now_ms: int) -> None:
        """The wake could not be handed over. An attempt before its time leaves the time as it was."""
        owed = self._owed.get(no)
        if owed is None:
            return
        early = no in self._failing and owed.wake_at_ms > now_ms
        self._failing[no] = None
        if not early:
            owed.failures += 1
            self._plan(owed, now_ms + failure_pause_ms(owed.failures))

    def gone(self, no: int) -> None:
        """The wake is owed no more."""
        _ = self._owed.pop(no, None)
        _ = self._failing.pop(no, None)

    def gone_but(self, still: Container[int], after: int) -> None:
        """Of the wakes numbered after `after`, none but these are still owed."""
        for no in [no for no in self._owed if no > after and no not in still]:
            self.gone(no)

    def not_passed(self, no: int, now_ms: int) -> None:
        """The turn of the wake could not pass."""
        owed = self._owed.get(no)
        if owed is None:
            return
        owed.asked += 1
        owed.pass_at_ms = now_ms + pass_pause_ms(owed.asked)
        heapq.heappush(self._agenda, (owed.pass_at_ms, no, "pass"))

    # --- what is to be done ---------------------------------------------------

    def next_at_ms(self) -> int | None:
        """The earliest instant at which something is to be done."""
        while self._agenda and not self._holds(*self._agenda[0]):
            _ = heapq.heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else None

    def to_do(self, now_ms: int, *, failed_to: int = 0) -> tuple[list[Wake], list[Wake]]:
        """The wakes to be handed over again, and those whose turn is to pass, each in the order of their numbers.

        The first are also, before their time, those up to the number `failed_to` whose last delivery failed. Each of
        the first is to be answered by `delivered`, `failed` or `gone`.
        """
        wakes = dict.fromkeys(no for no in self._failing if no <= failed_to)
        turns: list[int] = []
        while (at_ms := self.next_at_ms()) is not None and at_ms <= now_ms:
            _, no, act = heapq.heappop(self._agenda)
            if act == "wake":
                wakes[no] = None
            else:
                turns.append(no)
                self._owed[no].pass_at_ms = None
        return [self._owed[no].wake for no in sorted(wakes)], [self._owed[no].wake for no in sorted(turns)]

    # --- instants -------------------------------------------------------------

    def _plan(self, owed: _Owed, at_ms: int) -> None:
        owed.wake_at_ms = at_ms
        heapq.heappush(self._agenda, (at_ms, owed.wake.no, "wake"))

    def _holds(self, at_ms: int, no: int, act: _Act) -> bool:
        owed = self._owed.get(no)
        return owed is not None and at_ms == (owed.wake_at_ms if act == "wake" else owed.pass_at_ms)
