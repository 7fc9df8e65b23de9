"""A circuit breaker: what does not answer is left alone for a while, then tried by one call, and left alone for longer.

closed     every call is made; so many failures in a row open it
open       no call is made until the pause is over
trying     one call is under way: if it succeeds all are made again, if it fails the next pause is twice as long
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

__all__ = ["CLOSED", "Breaker", "BreakerRule", "admit_call", "after_failure"]


@final
@dataclass(frozen=True, slots=True)
class BreakerRule:
    """After how many failures in a row there is a pause, and how long the first and the longest one are."""

    failures: int = 3
    first_ms: int = 1_000
    longest_ms: int = 60_000


@final
@dataclass(frozen=True, slots=True)
class Breaker:
    """How things stand. `until_ms` is the end of the pause, or of the time in which a call that tries is to answer."""

    failures: int = 0
    pause_ms: int = 0
    until_ms: int | None = None
    trying: bool = False


CLOSED: Final = Breaker()
"""As it is at first, and after every success."""


def admit_call(breaker: Breaker, rule: BreakerRule, now_ms: int, trial_ms: int) -> Breaker | None:
    """How things stand once a call is made now, or None if it is not to be made.

    A call that tries and tells nothing, because it was cancelled, stands in the way of the next for `trial_ms`. A clock
    that was set back lengthens no pause.
    """
    if breaker.until_ms is None:
        return breaker
    left_ms = breaker.until_ms - now_ms
    if 0 < left_ms <= max(rule.longest_ms, trial_ms):
        return None
    return replace(breaker, until_ms=now_ms + trial_ms, trying=True)


def after_failure(breaker: Breaker, rule: BreakerRule, now_ms: int) -> Breaker:
    """How things stand after a call got no answer. One that was made before the pause began does not lengthen it."""
    if breaker.until_ms is not None and not breaker.trying:
        return breaker
    failures = breaker.failures + 1
    if failures < rule.failures:
        return replace(breaker, failures=failures)
    pause_ms = min(breaker.pause_ms * 2 or rule.first_ms, rule.longest_ms)
    return Breaker(failures, pause_ms, now_ms + pause_ms)
