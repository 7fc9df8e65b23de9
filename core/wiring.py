"""Which recipes are needed, in which order: layers as a graph, pure.

A node is one recipe with the services that it needs. `plan` orders a graph so that needs come first, otherwise as
written, or says what is wrong with it, before anything is acquired. Its rules:

- One recipe with the same arguments is placed once, however many need it; with other arguments it is another instance.
- A node that is not shared is placed anew for each that needs it.
- What a node keeps private is seen by that node and by what it reaches through a private need, and by no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from .outcome import Failure, Outcome, Success

__all__ = ["Cycle", "Missing", "Node", "Nodes", "Plan", "Step", "named", "plan"]

_R = TypeVar("_R")


def named(service: object) -> str:
    """A service as people write it."""
    return service.__qualname__ if isinstance(service, type) else str(service)


# --- values -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node(Generic[_R]):
    """A recipe for `service` in a graph. Recipes are compared by identity: they must not define equality."""

    service: object
    recipe: _R
    needs: tuple[object, ...] = ()
    private: Mapping[object, Node[_R]] = field(default_factory=dict[object, "Node[_R]"], hash=False)
    shared: bool = True


Nodes: TypeAlias = Mapping[object, Node[_R]]
"""From each service to the node that gives it."""


@dataclass(frozen=True, slots=True)
class Step(Generic[_R]):
    """Make `service` by `recipe`, with what earlier steps made, by their positions, as arguments."""

    service: object
    recipe: _R
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan(Generic[_R]):
    """The steps in order, and for each service that the graph gives the position of the step that makes it."""

    steps: tuple[Step[_R], ...]
    gives: Mapping[object, int]


# --- failures ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Missing:
    """`needed_by` asks for `service`, which no layer gives. Nothing was acquired."""

    service: object
    needed_by: object

    def __str__(self) -> str:
        return (
            f"{named(self.needed_by)} needs {named(self.service)}, which no layer gives: "
            f"join one that does by `|`, or meet the need by `provide`"
        )


@dataclass(frozen=True, slots=True)
class Cycle:
    """Services that need each other, in order, the first one repeated at the end. Nothing was acquired."""

    path: tuple[object, ...]

    def __str__(self) -> str:
        return f"these services need each other: {' -> '.join(map(named, self.path))}"


# --- the plan ---------------------------------------------------------------


def plan(nodes: Nodes[_R]) -> Outcome[Plan[_R], Missing | Cycle]:
    """The order in which to make all that `nodes` give, or the first thing that is wrong with the graph."""
    planner = _Planner[_R]()
    gives: dict[object, int] = {}
    for service, node in nodes.items():
        placed = planner.place(node, nodes, ())
        if isinstance(placed, Failure):
            return placed
        gives[service] = placed.unwrap()
    return Success(Plan(tuple(planner.steps), gives))


class _Planner(Generic[_R]):
    """The steps so far. A scope is what a node's needs are looked up in; scopes are compared by identity."""

    def __init__(self) -> None:
        self.steps: list[Step[_R]] = []
        self._placed: dict[tuple[Node[_R], int], int] = {}
        self._made: dict[tuple[_R, tuple[int, ...]], int] = {}
        self._inner: dict[tuple[Node[_R], int], Nodes[_R]] = {}  # held here, so that no identity is used twice

    def place(self, node: Node[_R], scope: Nodes[_R], path: tuple[Node[_R], ...]) -> Outcome[int, Missing | Cycle]:
        """The position of the step that makes `node` in `scope`; `path` is what is being placed and needs it."""
        here = (node, id(scope))
        if node.shared and here in self._placed:
            return Success(self._placed[here])
        if node in path:
            return Failure(Cycle(tuple(each.service for each in (*path[path.index(node) :], node))))
        inner = self._inner.setdefault(here, {**scope, **node.private}) if node.private else scope
        args: list[int] = []
        for need in node.needs:
            within = inner if need in node.private else scope
            if need not in within:
                return Failure(Missing(need, node.service))
            placed = self.place(within[need], within, (*path, node))
            if isinstance(placed, Failure):
                return placed
            args.append(placed.unwrap())
        self._placed[here] = self._make(node, tuple(args))
        return Success(self._placed[here])

    def _make(self, node: Node[_R], args: tuple[int, ...]) -> int:
        made = (node.recipe, args)
        if not node.shared or made not in self._made:
            self._made[made] = len(self.steps)
            self.steps.append(Step(node.service, node.recipe, args))
        return self._made[made]
