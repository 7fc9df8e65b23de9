"""`Outcome[A, E]`: what a call gives, or the expected failure that it met; both are values.

It is the closed union of the two final classes of returns, so that a `match` in two levels, first `Success` and
`Failure`, then the failures, is proved complete by both type checkers. `returns.result.Result` is open: a match over
it is never complete, and its payload is typed `Any`.
"""

from typing import TypeAlias, TypeVar

from returns.result import Failure, Success

__all__ = ["Failure", "Outcome", "Success"]

_A = TypeVar("_A")
_E = TypeVar("_E")

Outcome: TypeAlias = Success[_A] | Failure[_E]
