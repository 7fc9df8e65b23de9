"""Recipes: annotated functions that make a service, read once and followed in a scope.

A recipe's parameters are the services that it needs; a parameter with a default is no need. What it says it gives is
the service: `AsyncIterator[S]` or `Iterator[S]`, where what follows the `yield` releases, whatever happened in between;
or, for a coroutine, `Outcome[S, E]`, where a `Failure` is an expected failure of acquiring. A generator raises
`Refused` for one.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, UnionType
from typing import Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ..core.kind import is_a
from ..core.outcome import Failure, Outcome, Success
from ..core.wiring import named

__all__ = ["Makes", "Recipe", "Refused", "Scope", "read_recipe"]

_T = TypeVar("_T")

Makes: TypeAlias = AsyncIterator[_T] | Iterator[_T] | Awaitable[Success[_T] | Failure[object]]
"""What calling a recipe gives."""

_END: Final = object()


class Refused(Exception):
    """What a recipe raises before its `yield` where acquiring fails as can be expected: `failure` is the cause."""

    def __init__(self, failure: object) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Scope:
    """What has been acquired, to be released in reverse order, each exactly once."""

    __slots__ = ("_releases",)

    def __init__(self) -> None:
        self._releases: list[Callable[[], Awaitable[None]]] = []

    def push(self, release: Callable[[], Awaitable[None]]) -> None:
        self._releases.append(release)

    async def close(self) -> None:
        """Release all. One that raises lets the others run; of several errors each is the context of the next.

        Nested `finally` says that exactly. An AsyncExitStack does not: outside an exception it drops the earlier error.
        """
        if self._releases:
            release = self._releases.pop()
            try:
                await release()
            finally:
                await self.close()


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """An annotated function, and what its annotations say. Sharing goes by its identity."""

    service: object
    needs: tuple[object, ...]
    make: Callable[..., Makes[object]]

    async def acquire(self, needs: list[object], scope: Scope) -> Outcome[object, object]:
        """The service, made from `needs`; `scope` releases it. What the recipe raises is raised."""
        try:
            return await self._acquire(needs, scope)
        except Refused as refused:
            return Failure(refused.failure)

    async def _acquire(self, needs: list[object], scope: Scope) -> Outcome[object, object]:
        made = self.make(*needs)
        if isinstance(made, AsyncIterator):
            service = await anext(made, _END)
            if service is not _END:
                scope.push(partial(self._release_async, made))
        elif isinstance(made, Iterator):
            service = next(made, _END)
            if service is not _END:
                scope.push(partial(self._release, made))
        elif not is_a(made, Awaitable):
            forms = "be a generator that yields it, or a coroutine that returns an Outcome"
            raise TypeError(f"the recipe of {named(self.service)} gave a {type(made).__name__}; it must {forms}")
        else:
            outcome = await made
            self._admit(outcome)
            return outcome
        if service is _END:
            raise RuntimeError(f"the recipe of {named(self.service)} ended without a yield")
        return Success(service)

    def _admit(self, outcome: object) -> None:
        """No checker need have seen the recipe's body."""
        if type(outcome) not in (Success, Failure):
            raise TypeError(f"the recipe of {named(self.service)} gave {outcome!r}, not a Success or a Failure")

    async def _release_async(self, made: AsyncIterator[object]) -> None:
        if await anext(made, _END) is not _END:
            if isinstance(made, AsyncGenerator):
                await made.aclose()
            raise self._yielded_twice()

    async def _release(self, made: Iterator[object]) -> None:
        if next(made, _END) is not _END:
            if isinstance(made, Generator):
                made.close()
            raise self._yielded_twice()

    def _yielded_twice(self) -> RuntimeError:
        return RuntimeError(f"the recipe of {named(self.service)} has a second yield: one gives, what follows releases")


# --- reading annotations ----------------------------------------------------


def read_recipe(make: Callable[..., Makes[object]]) -> Recipe:
    """The recipe that `make` is; a TypeError says which annotation is missing or cannot be understood."""
    name = getattr(make, "__qualname__", repr(make))
    if not callable(make):
        raise TypeError(f"provides() takes an annotated function, not {name}")
    try:
        hints: dict[str, object] = get_type_hints(make, localns=_names_around(make))
    except NameError as error:
        raise TypeError(
            f"recipe {name}: {error}; its annotations are read when it runs, so import them for that"
        ) from None
    needs: list[object] = []
    for parameter in inspect.signature(make).parameters.values():
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(f"recipe {name}: {parameter} must be a plain parameter, or have a default")
        if parameter.name not in hints:
            raise TypeError(f"recipe {name}: {parameter.name} needs an annotation, the service that it asks for")
        needs.append(hints[parameter.name])
    return Recipe(_given(name, hints.get("return")), tuple(needs), make)


def _given(name: str, hint: object) -> object:
    """The service in a recipe's return annotation."""
    for part in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        origin, args = get_origin(part), get_args(part)
        if not args or not isinstance(origin, type):
            continue
        if origin is Success or issubclass(origin, AsyncIterator | Iterator):
            return args[0]
        if issubclass(origin, Awaitable):
            return _given(name, args[-1])
    forms = "AsyncIterator[S], Iterator[S] or, as a coroutine, Outcome[S, E]"
    raise TypeError(f"recipe {name} must say what it gives, as {forms}, not {hint}")


def _names_around(make: Callable[..., object]) -> dict[str, object]:
    """The names that a nested recipe's annotations may use beside its module's: those of the functions around it."""
    function = inspect.unwrap(make)
    names: dict[str, object] = {}
    if not isinstance(function, FunctionType) or "<locals>" not in function.__qualname__:
        return names
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals is function.__globals__ and function.__qualname__.startswith(
            f"{frame.f_code.co_qualname}.<locals>."
        ):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # bound only after the recipe was made
            continue
    return names
