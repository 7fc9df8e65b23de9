"""The schema of a store's type: what a state must be, and how it is written down.

`StateSchema(type_)` is made once per store definition; it raises TypeError for a type that cannot be kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from .model import Issue
from .outcome import Outcome

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["StateSchema", "Valid"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Valid(Generic[_T_co]):
    """A state that passed: fresh, shared with nobody, and equal to what decoding `json` gives."""

    state: _T_co
    json: bytes


class StateSchema(Generic[_T]):
    """How states of one type are validated, written as JSON and read back. TypeError, naming the field, if they cannot be."""

    def __init__(self, type_: TypeForm[_T]) -> None:
        self.type_: Final = type_

    def validate(self, value: object) -> Outcome[Valid[_T], tuple[Issue, ...]]:
        """The canonical state that `value` stands for, or all that is wrong with it, in order.

        `value` may be anything; it is not changed and not kept. What a validator raises other than ValueError and
        AssertionError is a bug and is passed on.
        """
        raise NotImplementedError

    def decode(self, json: bytes) -> Outcome[_T, tuple[Issue, ...]]:
        """A fresh state from its JSON document, or why the type no longer accepts it."""
        raise NotImplementedError

    def encode(self, state: _T) -> bytes:
        """The JSON document of a canonical state: equal bytes only for strictly equal states."""
        raise NotImplementedError

    def clone(self, state: _T) -> _T:
        """A private copy of a canonical state, to be handed out."""
        raise NotImplementedError
