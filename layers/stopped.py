"""How work that asks a ledger many times ends when it does not answer."""

from __future__ import annotations

from typing import TypeVar

from ..core.model import Unavailable
from ..core.outcome import Failure, Outcome

__all__ = ["Stopped", "value_of"]

_T = TypeVar("_T")


class Stopped(Exception):
    """The ledger does not answer; what was done so far stays done."""

    def __init__(self, failure: Unavailable) -> None:
        super().__init__(failure.reason)
        self.failure = failure


def value_of(outcome: Outcome[_T, Unavailable]) -> _T:
    if isinstance(outcome, Failure):
        raise Stopped(outcome.failure())
    return outcome.unwrap()
