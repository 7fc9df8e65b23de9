"""How often a step is tried, and when the next attempt is due."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .model import StepId

__all__ = ["NO_RETRY", "Retry", "pause_ms"]


@dataclass(frozen=True, slots=True)
class Retry:
    """`max_attempts` executions in all; the pauses between, in seconds, are `initial` times `factor` for each failure.

    A pause is at most `cap` seconds, and 0 means at once. `jitter` lengthens each pause by up to that fraction of it,
    by an amount that depends only on the run, the step's key and the attempt. `retry_if` says which failures deserve
    another attempt: it is asked about the exception; without it every exception does. A returned `Failure` is a result,
    and is tried again only if `retry_if` says so of it or of what it holds. A ValueError names a number that makes no
    sense.
    """

    max_attempts: int = 3
    initial: float = 0.2
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 0.0
    retry_if: Callable[[Any], bool] | None = None  # asked about exceptions and failures of any type

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"Retry(max_attempts={self.max_attempts}): a step has at least one attempt")
        for name, least in (("initial", 0.0), ("factor", 0.0), ("cap", 0.0), ("jitter", 0.0)):
            value = float(getattr(self, name))
            if not least <= value < float("inf"):
                raise ValueError(f"Retry({name}={value}): it must be a number of at least {least:g}")


NO_RETRY = Retry(max_attempts=1)


def pause_ms(retry: Retry, failed: int, step: StepId) -> int:
    """How many milliseconds after its `failed`-th attempt, counted from 1, the step may be tried again."""
    try:
        seconds = retry.initial * retry.factor ** (failed - 1)
    except OverflowError:
        seconds = retry.cap
    seconds = min(seconds, retry.cap)
    if retry.jitter:
        drawn = hashlib.blake2b(f"{step.run_id}\0{step.key}\0{failed}".encode(), digest_size=4).digest()
        seconds = min(seconds * (1 + retry.jitter * int.from_bytes(drawn) / 2**32), retry.cap)
    return round(seconds * 1000)
