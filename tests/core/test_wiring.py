"""The pure plan: needs first, each recipe once, and what is wrong with a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stepwell import Cycle, Failure, Missing, Success
from stepwell.core.wiring import Node, plan

Service = Node[object]


def node(service: object, *needs: object) -> Service:
    return Node(service, object(), needs)


def graph(*nodes: Service) -> Mapping[object, Service]:
    return {each.service: each for each in nodes}


def order(nodes: Mapping[object, Service]) -> list[object]:
    return [step.service for step in plan(nodes).unwrap().steps]


def test_needs_come_first_and_the_rest_as_written() -> None:
    assert order(graph(node("b", "a"), node("x"), node("a"))) == ["a", "b", "x"]


def test_a_need_that_nobody_gives_is_named_with_who_needs_it() -> None:
    wrong = plan(graph(node("b", "a")))
    assert wrong == Failure(Missing("a", "b"))
    assert "b needs a, which no layer gives" in str(wrong.failure())


def test_a_cycle_is_the_path_back_to_its_start() -> None:
    wrong = plan(graph(node("x", "a"), node("a", "b"), node("b", "c"), node("c", "a")))
    assert wrong == Failure(Cycle(("a", "b", "c", "a")))
    assert str(wrong.failure()) == "these services need each other: a -> b -> c -> a"


def test_a_service_that_needs_itself_is_a_cycle() -> None:
    assert plan(graph(node("a", "a"))) == Failure(Cycle(("a", "a")))


def test_a_private_need_is_seen_by_its_owner_alone() -> None:
    hidden = replace(node("b", "a"), private=graph(node("a")))
    assert plan(graph(hidden, node("c", "a"))) == Failure(Missing("a", "c"))
    assert order(graph(hidden)) == ["a", "b"]


def test_a_decorator_of_its_own_service_is_no_cycle() -> None:
    inner = node("store")
    outer = replace(node("store", "store"), private=graph(inner))
    steps = plan(graph(outer)).unwrap().steps
    assert [step.recipe for step in steps] == [inner.recipe, outer.recipe]


def test_one_recipe_with_the_same_arguments_is_placed_once_wherever_it_is_hidden() -> None:
    shared = node("a")
    steps = plan(graph(*(replace(node(name, "a"), private=graph(shared)) for name in "bcd"), shared)).unwrap().steps
    assert [step.service for step in steps] == ["a", "b", "c", "d"]
    assert {step.args for step in steps[1:]} == {(0,)}


def test_one_recipe_with_other_arguments_is_another_instance() -> None:
    middle = node("b", "a")
    left = replace(node("left", "b"), private=graph(middle, node("a")))
    right = replace(node("right", "b"), private=graph(middle, node("a")))
    assert order(graph(left, right)) == ["a", "b", "left", "a", "b", "right"]


def test_what_is_not_shared_is_placed_for_each_that_needs_it() -> None:
    apart = replace(node("a"), shared=False)
    planned = plan(graph(node("b", "a"), node("c", "a"), apart)).unwrap()
    assert [step.service for step in planned.steps] == ["a", "b", "a", "c", "a"]
    assert planned.gives["a"] == 4


def test_a_tower_of_diamonds_is_planned_in_linear_time() -> None:
    """A plan that walked every path would take 2 to the power of 60 steps."""
    nodes = [node(0)]
    for level in range(1, 181, 3):
        nodes += [node(level, level - 1), node(level + 1, level - 1), node(level + 2, level, level + 1)]
    assert len(order(graph(*nodes))) == 181


@given(st.lists(st.sets(st.integers(0, 11), max_size=5), min_size=1, max_size=12))
def test_a_plan_puts_needs_first_and_each_node_once(needs: list[set[int]]) -> None:
    """A random graph: service i needs the services in needs[i]; some are not given, some go round."""
    nodes = graph(*(node(service, *sorted(wanted)) for service, wanted in enumerate(needs)))
    match plan(nodes):
        case Success(planned):
            assert planned.gives.keys() == nodes.keys()
            assert sorted(str(step.service) for step in planned.steps) == sorted(map(str, nodes))
            for at, step in enumerate(planned.steps):
                assert planned.gives[step.service] == at
                assert all(arg < at for arg in step.args)
                assert tuple(planned.steps[arg].service for arg in step.args) == nodes[step.service].needs
        case Failure(wrong):
            match wrong:
                case Missing(service, needed_by):
                    assert service not in nodes
                    assert service in nodes[needed_by].needs
                case Cycle(path):
                    assert path[0] == path[-1]
                    assert all(two in nodes[one].needs for one, two in pairwise(path))
