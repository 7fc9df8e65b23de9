"""Layers: recipes for services, wired by type, acquired in order in one scope, released in reverse.

    @provides
    async def mail(clock: Clock) -> AsyncIterator[Mail]:      # parameters are needs, what is yielded is given
        async with connect() as connection:
            yield SmtpMail(connection, clock)                 # opened before the yield, closed after it

`Layer[Out, Need]` carries both sides as unions of service types; a layer that needs nothing is `Layer[S, S]`. `a | b`
unites them, `a.override(b)` replaces services wherever they are needed. `build` takes only a layer all of whose needs
are among what it gives, so a forgotten service is a type error. The order is decided before anything is acquired
(`core/wiring.py`); punq holds what was built and injects the constructors of users' classes.

Types are compared by structure, services by identity: the checkers can pass a composition that cannot be built, two
services of one shape for example. `Layer.plan` has the last word, and a test that plans each composition is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, final, overload

from ..core.outcome import Failure, Outcome, Success
from ..core.wiring import Cycle, Missing, Node, Nodes, Plan, named, plan
from .recipe import Makes, Recipe, Scope, read_recipe

if TYPE_CHECKING:
    import punq
    from typing_extensions import TypeForm

__all__ = [
    "Cycle",
    "Env",
    "Failed",
    "Gives",
    "Layer",
    "LayerError",
    "Missing",
    "build",
    "fresh",
    "get",
    "provide",
    "provides",
]

_T = TypeVar("_T")
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_D = TypeVar("_D")
_F = TypeVar("_F")
_G = TypeVar("_G")
_H = TypeVar("_H")
_I = TypeVar("_I")
_J = TypeVar("_J")
_K = TypeVar("_K")
_N = TypeVar("_N")
_Out = TypeVar("_Out")
_Out_co = TypeVar("_Out_co", covariant=True)
_Out_contra = TypeVar("_Out_contra", contravariant=True)
_Need_co = TypeVar("_Need_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Failed:
    """Acquiring `service` raised `cause`, or gave it as a failure. What was acquired before has been released."""

    service: object
    cause: object

    def __str__(self) -> str:
        cause = f"{type(self.cause).__name__}: {self.cause}" if isinstance(self.cause, Exception) else str(self.cause)
        return f"{named(self.service)} could not be acquired: {cause}"


LayerError: TypeAlias = Missing | Cycle | Failed


# --- layers -----------------------------------------------------------------


class Gives(Generic[_Out_co, _Need_co]):
    """A layer as `override` takes it: one that gives at most these services. `nodes` is for this module alone."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Nodes[Recipe]) -> None:
        self.nodes: Nodes[Recipe] = MappingProxyType(dict(nodes))


@final
class Layer(Gives[_Out, _Need_co], Generic[_Out, _Need_co]):
    """Recipes for the services in `_Out`, which need those in `_Need_co`. Immutable; `provides` makes the first."""

    __slots__ = ()

    def __or__(self, other: Layer[_B, _N], /) -> Layer[_Out | _B, _Need_co | _N]:
        """The services of both, each free to need any other's. Two recipes for one service are a ValueError."""
        _admit(other, "|")
        both = {service for service, node in other.nodes.items() if self.nodes.get(service, node) != node}
        if both:
            raise ValueError(f"both layers give {_listed(both)}: join one of them, or replace one by `override`")
        return Layer({**self.nodes, **other.nodes})

    def override(self, other: Gives[_Out, _N], /) -> Layer[_Out, _Need_co | _N]:
        """This layer with the services of `other` in place of its own, wherever they are needed.

        A service that this layer does not give is a ValueError. What `provide` has hidden is not reached.
        """
        _admit(other, "override()")
        unknown = other.nodes.keys() - self.nodes.keys()
        if unknown:
            raise ValueError(f"nothing to override: {_listed(unknown)} is not given by {self!r}; join it by `|`")
        return Layer({**self.nodes, **other.nodes})

    def plan(self) -> Outcome[Plan[Recipe], Missing | Cycle]:
        """The order of acquisition, or what is wrong with this layer. Acquires nothing."""
        return plan(self.nodes)

    def __repr__(self) -> str:
        return f"Layer({_listed(self.nodes)})"


def provide(layer: Layer[_A, _A | _B], private: Layer[_B, _B]) -> Layer[_A, _A]:
    """`layer` with its needs met from `private`, which stays hidden: no other layer sees or overrides it."""
    return Layer({s: replace(n, private={**private.nodes, **n.private}) for s, n in layer.nodes.items()})


def fresh(layer: Layer[_A, _N]) -> Layer[_A, _N]:
    """`layer`, not shared: each that needs one of its services has its own."""
    return Layer({service: replace(node, shared=False) for service, node in layer.nodes.items()})


@overload
def provides(make: Callable[[], Makes[_T]]) -> Layer[_T, _T]: ...
@overload
def provides(make: Callable[[_A], Makes[_T]]) -> Layer[_T, _A]: ...
@overload
def provides(make: Callable[[_A, _B], Makes[_T]]) -> Layer[_T, _A | _B]: ...
@overload
def provides(make: Callable[[_A, _B, _C], Makes[_T]]) -> Layer[_T, _A | _B | _C]: ...
@overload
def provides(make: Callable[[_A, _B, _C, _D], Makes[_T]]) -> Layer[_T, _A | _B | _C | _D]: ...
@overload
def provides(make: Callable[[_A, _B, _C, _D, _F], Makes[_T]]) -> Layer[_T, _A | _B | _C | _D | _F]: ...
@overload
def provides(make: Callable[[_A, _B, _C, _D, _F, _G], Makes[_T]]) -> Layer[_T, _A | _B | _C | _D | _F | _G]: ...
@overload
def provides(
    make: Callable[[_A, _B, _C, _D, _F, _G, _H], Makes[_T]],
) -> Layer[_T, _A | _B | _C | _D | _F | _G | _H]: ...
@overload
def provides(
    make: Callable[[_A, _B, _C, _D, _F, _G, _H, _I], Makes[_T]],
) -> Layer[_T, _A | _B | _C | _D | _F | _G | _H | _I]: ...
@overload
def provides(
    make: Callable[[_A, _B, _C, _D, _F, _G, _H, _I, _J], Makes[_T]],
) -> Layer[_T, _A | _B | _C | _D | _F | _G | _H | _I | _J]: ...
@overload
def provides(
    make: Callable[[_A, _B, _C, _D, _F, _G, _H, _I, _J, _K], Makes[_T]],
) -> Layer[_T, _A | _B | _C | _D | _F | _G | _H | _I | _J | _K]: ...
def provides(make: Callable[..., Makes[_T]]) -> Layer[_T, object]:
    """The layer of one recipe, an annotated function as `layers/recipe.py` says. Each call is another recipe."""
    recipe = read_recipe(make)
    return Layer({recipe.service: Node(recipe.service, recipe, recipe.needs)})


def _admit(other: object, call: str) -> None:
    """No checker need have seen what is joined."""
    if not isinstance(other, Gives):
        given = "a function: is `@provides` missing?" if callable(other) else repr(other)
        raise TypeError(f"{call} joins layers, not {given}")


def _listed(services: Mapping[object, object] | set[object]) -> str:
    return ", ".join(sorted(map(named, services)))


# --- built services ---------------------------------------------------------


@final
class Env(Generic[_Out_contra]):
    """Built services, for as long as their scope is open. `Env[A | B]` is accepted wherever `Env[A]` is asked for."""

    __slots__ = ("container", "services")

    def __init__(self, services: Mapping[object, object]) -> None:
        import punq  # not above: it costs every `import stepwell` 25 ms, and is needed only where services are built

        self.services = MappingProxyType(dict(services))
        self.container: punq.Container = punq.Container()
        for service, value in services.items():
            self.container.register(service, instance=value)

    def make(self, cls: type[_A]) -> _A:
        """A `cls`, with the services that its constructor asks for; other parameters need a default."""
        import punq

        try:
            return self.container.instantiate(cls)
        except (punq.MissingDependencyError, punq.InvalidForwardReferenceError) as error:
            raise LookupError(
                f"cannot make {named(cls)}: {error}; the services here are {_listed(self.services)}"
            ) from error

    def __repr__(self) -> str:
        return f"Env({_listed(self.services)})"


def get(env: Env[_T], service: TypeForm[_T]) -> _T:
    """A service by its type; one that the environment lacks is a type error, and a LookupError."""
    if service not in env.services:
        raise LookupError(f"no {named(service)} here; the services are {_listed(env.services)}")
    return env.container.resolve(service)


# --- building ---------------------------------------------------------------


def build(layer: Layer[_T, _T]) -> AbstractAsyncContextManager[Outcome[Env[_T], LayerError], None]:
    """Acquire in order, give the services, and release in reverse order, each exactly once, whatever happens.

    What is wrong with the layer, or an exception while acquiring, is the answer; what was acquired before has been
    released then. Cancellation is never an answer: it goes on after the release. A release that raises lets the others
    run and is raised, as in a `finally`: with what went wrong before as its context.
    """
    return _Build(layer)


class _NotAcquired(Exception):
    """Carries a `Failed`, so that an error in the release that follows has it as its context."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(str(failed))
        self.failed = failed


class _Build(AbstractAsyncContextManager[Outcome[Env[_T], LayerError], None], Generic[_T]):
    __slots__ = ("_layer", "_scope")

    def __init__(self, layer: Layer[_T, _T]) -> None:
        self._layer = layer
        self._scope = Scope()

    async def __aenter__(self) -> Outcome[Env[_T], LayerError]:
        planned = self._layer.plan()
        if isinstance(planned, Failure):
            return planned
        try:
            return Success(await self._acquire(planned.unwrap()))
        except _NotAcquired as stopped:
            await self._scope.close()
            return Failure(stopped.failed)
        except BaseException:
            await self._scope.close()
            raise

    async def _acquire(self, planned: Plan[Recipe]) -> Env[_T]:
        values: list[object] = []
        for step in planned.steps:
            try:
                acquired = await step.recipe.acquire([values[at] for at in step.args], self._scope)
            except Exception as error:
                raise _NotAcquired(Failed(step.service, error)) from error
            if isinstance(acquired, Failure):
                raise _NotAcquired(Failed(step.service, acquired.failure()))
            values.append(acquired.unwrap())
        return Env({service: values[at] for service, at in planned.gives.items()})

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._scope.close()
