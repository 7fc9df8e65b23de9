"""The arguments of a workflow, or of the body of a cached step, as JSON by the types of its parameters."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, TypeVar, final, get_args

from ..core.codec import Codec, hints_of, parameters_of

__all__ = ["Arguments", "arguments_of", "takes"]

_R = TypeVar("_R")


@final
class Arguments:
    """The arguments of a function after its first parameter, as a JSON array: an element each, defaults filled in."""

    __slots__ = ("_exactly", "_name", "_parameters", "_signature", "_what")

    def __init__(self, name: str, fn: Callable[..., object]) -> None:
        self._name = name
        self._parameters = parameters_of(fn)
        signature = inspect.signature(fn)
        self._signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        self._what = tuple(f"{name}: argument {parameter.name!r}" for parameter, _ in self._parameters)
        are_plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p, _ in self._parameters)
        self._exactly = len(self._parameters) if are_plain else None
        """So many arguments are bound one to one, without a look at the signature."""

    def encode(self, args: tuple[object, ...]) -> bytes:
        """The arguments of a call. A TypeError names the parameter that is missing, too many, or of the wrong type."""
        if len(args) == self._exactly:
            return self._written(args)
        try:
            bound = self._signature.bind(*args)
        except TypeError as error:
            raise TypeError(f"{self._name}{self._signature}: {error}") from None
        bound.apply_defaults()
        return self._written(bound.args)

    def decode(self, parts: tuple[bytes, ...]) -> tuple[object, ...]:
        """The arguments of a call, one JSON text each. A TypeError names the parameter that no longer fits."""
        least = sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p, _ in self._parameters)
        most = None if any(p.kind is p.VAR_POSITIONAL for p, _ in self._parameters) else len(self._parameters)
        if len(parts) < least or (most is not None and len(parts) > most):
            raise TypeError(f"{self._name}{self._signature}: {len(parts)} arguments were given")
        return tuple(codec.decode(part, what) for what, codec, part in self._each(parts))

    def _written(self, values: tuple[object, ...]) -> bytes:
        return b"[" + b",".join([codec.encode(value, what) for what, codec, value in self._each(values)]) + b"]"

    def _each(self, values: tuple[_R, ...]) -> list[tuple[str, Codec, _R]]:
        pairs: list[tuple[str, Codec, _R]] = []
        for at, value in enumerate(values):
            place = min(at, len(self._parameters) - 1)
            pairs.append((self._what[place], self._parameters[place][1], value))
        return pairs


def arguments_of(name: str, body: Callable[..., object]) -> Arguments:
    """The arguments of the body of a cached step, which is looked at once. A TypeError if it takes no workspace."""
    found = _ARGUMENTS.get(body) if isinstance(body, FunctionType) else None
    if found is None:
        _check_workspace(name, body)
        found = Arguments(name, body)
        if isinstance(body, FunctionType):
            _ARGUMENTS[body] = found
    return found


def _check_workspace(name: str, body: Callable[..., object]) -> None:
    """A TypeError if the first parameter cannot be the workspace, as far as can be told."""
    from .step_sandbox import Workspace  # here: who has no cached steps needs none of it

    first = next(iter(inspect.signature(body).parameters.values()), None)
    if first is None or first.kind is first.KEYWORD_ONLY:
        raise TypeError(f"{name} takes no workspace: that is the first argument of a body, before those of the step")
    hint = hints_of(body).get(first.name, object)
    if not takes(hint, Workspace):
        raise TypeError(
            f"{name} takes {getattr(hint, '__name__', hint)} {first.name!r} first: the first argument of a body is its "
            "Workspace, before those of the step"
        )


def takes(hint: object, protocol: type[object]) -> bool:
    """Whether what has the protocol may be given for an annotation: not for a class, or a union of classes, that are
    none of its own; of another Protocol nothing is known."""
    parts = get_args(hint)
    if parts:
        return any(takes(part, protocol) for part in parts)
    return (
        hint is Any
        or not isinstance(hint, type)
        or hint in protocol.__mro__
        or hint.__dict__.get("_is_protocol", False) is True
    )


_ARGUMENTS: Final[weakref.WeakKeyDictionary[FunctionType, Arguments]] = weakref.WeakKeyDictionary()
