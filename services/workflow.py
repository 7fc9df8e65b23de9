"""Workflows: ordinary async functions whose first parameter is a `Run`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, final, overload

from ..core.codec import Codec, hints_of, result_codec
from ..core.model import check_name
from .arguments import Arguments, takes
from .run import Run

__all__ = ["AnyWorkflow", "Workflow", "WorkflowCall", "workflow"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class WorkflowCall(Awaitable[_R_co], Protocol[_R_co]):
    """What calling a workflow gives. No plain function gives it, so only a workflow can be started."""

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        ...


@final
class _Call(Generic[_R_co]):
    """One call of a workflow inside another: it runs as a part of the caller's run, under the caller's keys."""

    __slots__ = ("_coroutine", "_name")

    def __init__(self, name: str, coroutine: Coroutine[Any, Any, _R_co]) -> None:
        self._name = name
        self._coroutine = coroutine

    @property
    def workflow(self) -> str:
        return self._name

    def __await__(self) -> Generator[Any, Any, _R_co]:
        return self._coroutine.__await__()


@final
class Workflow(Generic[_P, _R_co]):
    """A function that can be started as a run. `name` is what a run records; `version` is for people."""

    __slots__ = ("__dict__", "_arguments", "_fn", "_name", "_result", "_version")

    def __init__(
        self, fn: Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R_co]], name: str | None, version: str | None
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"a workflow is an `async def` whose first parameter is the run; {fn!r} is not")
        _check_parameters(fn)
        self._fn = fn
        self._name = check_name("a workflow's name", fn.__name__ if name is None else name)
        self._version = version
        self._arguments: Arguments | None = None
        self._result: Codec | None = None
        self.__dict__.update(__doc__=fn.__doc__, __module__=fn.__module__, __wrapped__=fn)

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> str | None:
        return self._version

    @property
    def function(self) -> Callable[..., Coroutine[Any, Any, _R_co]]:
        """The decorated function."""
        return self._fn

    @property
    def arguments(self) -> Arguments:
        """How its arguments are recorded; read from its annotations on first use, when all names exist."""
        if self._arguments is None:
            _check_parameters(self._fn)  # again, since names that did not exist when it was decorated do now
            self._arguments = Arguments(self._name, self._fn)
        return self._arguments

    @property
    def result(self) -> Codec:
        """How its result is recorded."""
        if self._result is None:
            self._result = result_codec(self._fn)
        return self._result

    def __call__(self, run: Run, /, *args: _P.args, **kwargs: _P.kwargs) -> WorkflowCall[_R_co]:
        return _Call(self._name, self._fn(run, *args, **kwargs))

    def __repr__(self) -> str:
        return f"<workflow {self._name}>"


AnyWorkflow: TypeAlias = Workflow[..., object]


@overload
def workflow(fn: Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R]], /) -> Workflow[_P, _R]: ...
@overload
def workflow(
    *, name: str | None = None, version: str | None = None
) -> Callable[[Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R]]], Workflow[_P, _R]]: ...
def workflow(
    fn: Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R]] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
) -> Workflow[_P, _R] | Callable[[Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R]]], Workflow[_P, _R]]:
    """Make a workflow of an `async def` whose first parameter is a `Run`.

    `name` is what runs record, the function's own name if left out: two workflows of one engine need two names, and a
    renamed function keeps its runs by keeping its name. A TypeError says what is wrong with the function.
    """

    def decorate(fn: Callable[Concatenate[Run, _P], Coroutine[Any, Any, _R]]) -> Workflow[_P, _R]:
        return Workflow(fn, name, version)

    return decorate if fn is None else decorate(fn)


# --- parameters -------------------------------------------------------------


def _check_parameters(fn: Callable[..., object]) -> None:
    """A TypeError unless the function can be called with a run and positional arguments, as far as can be told."""
    name = getattr(fn, "__qualname__", repr(fn))
    parameters = list(inspect.signature(fn).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(f"the workflow {name} needs a first parameter, the run")
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise TypeError(
                f"the workflow {name}: {parameter.name!r} can only be given by keyword, and start has no keyword "
                "arguments; give it a default, or a place among the others"
            )
    hints = hints_of(fn)
    first, *others = [(parameter.name, hints.get(parameter.name, object)) for parameter in parameters]
    for other, hint in others:
        if hint is Run:
            raise TypeError(f"the workflow {name}: {other!r} is a Run, and only the first parameter is the run")
    if not takes(first[1], Run):
        raise TypeError(f"the workflow {name}: its first parameter is the run, and {first[0]!r} is no Run")
