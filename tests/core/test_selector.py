"""What is told of selectors: a name for people, and one queue for those that find the same."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial

import pytest

from stepwell.core.selector import queue_of, selector_name

State = dict[str, int]


class Colour(Enum):
    RED = 1
    BLUE = 2


def first(state: State) -> int | None:
    return state.get("a")


def above(limit: object) -> Callable[[State], object]:
    return lambda state: (state.get("a"), limit) if state else None


def defaulted(limit: int) -> Callable[[State], object]:
    def look(state: State, least: int = limit, *, most: int = 9) -> object:
        return least < state.get("a", 0) < most

    return look


class Watcher:
    def look(self, state: State) -> object:
        return state.get("a")

    def __call__(self, state: State) -> object:
        return state.get("b")


def test_a_selector_is_named_with_the_line_where_it_is_written() -> None:
    line = first.__code__.co_firstlineno
    assert selector_name(first) == f"first (test_selector.py:{line})"
    assert selector_name(partial(first)) == f"first (test_selector.py:{line})"
    assert selector_name(above(1)) == f"<lambda> (test_selector.py:{above.__code__.co_firstlineno + 1})"
    assert selector_name(Watcher().look).startswith("Watcher.look (test_selector.py:")
    assert selector_name(Watcher()) == "Watcher"


def test_selectors_of_one_code_and_equal_captures_share_a_queue() -> None:
    assert queue_of(first) is not None
    assert queue_of(above(1)) == queue_of(above(1))
    assert queue_of(partial(first)) == queue_of(partial(first))
    assert queue_of(above((1, "a", None, frozenset({2, 3})))) == queue_of(above((1, "a", None, frozenset({3, 2}))))
    assert queue_of(above(first)) == queue_of(above(first))
    assert queue_of(above(int)) == queue_of(above(int))


def reads_a(state: State) -> object:
    return state.get("a")


def reads_b(state: State) -> object:
    return state.get("b")


DIFFERENT: list[tuple[Callable[..., object], Callable[..., object]]] = [
    (first, above(1)),
    (above(1), above(2)),
    (above(1), above(True)),
    (above(1), above(1.0)),
    (above("1"), above(1)),
    (above((1,)), above(frozenset({1}))),
    (above(Colour.RED), above(Colour.BLUE)),
    (above(int), above(float)),
    (defaulted(1), defaulted(2)),
    (partial(above, 1), partial(above, 2)),
    (reads_a, reads_b),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_can_find_another_thing_has_another_queue(
    one: Callable[..., object], other: Callable[..., object]
) -> None:
    assert queue_of(one) is not None
    assert queue_of(one) != queue_of(other)


def test_a_selector_may_call_itself() -> None:
    def itself(state: State) -> object:
        return itself({}) if state else None

    assert queue_of(itself) == queue_of(itself) != queue_of(first)


def test_what_a_selector_names_of_its_module_tells_it_apart() -> None:
    code = compile("def free(state):\n    return state.get(KIND) or helper(state)\n", "worker.py", "exec")
    help_code = compile("def helper(state):\n    return state.get(KIND)\n", "worker.py", "exec")

    def made(kind: object) -> Callable[..., object]:
        space: dict[str, object] = {"__name__": "__main__", "KIND": kind}
        exec(code, space)
        exec(help_code, space)
        free = space["free"]
        assert callable(free)
        return free

    assert queue_of(made("a")) == queue_of(made("a")) is not None
    assert queue_of(made("a")) != queue_of(made("b"))
    assert queue_of(made(["a"])) == queue_of(made(["a"])) not in (None, queue_of(made(["b"])))
    assert queue_of(made({"a": {1, 2}})) == queue_of(made({"a": {2, 1}})) is not None
    assert queue_of(made([object()])) is None


def test_code_that_differs_in_its_form_alone_has_queues_of_its_own() -> None:
    def made(text: str) -> Callable[..., object]:
        space: dict[str, object] = {"__name__": "worker"}
        exec(compile(text, "worker.py", "exec"), space)
        selector = space["f"]
        assert callable(selector)
        return selector

    forms = [
        "f = lambda s: len(s) > 1",
        "f = lambda *s: len(s) > 1",
        "f = lambda s, /: len(s) > 1",
        "f = lambda **s: len(s) > 1",
        "def f(s):\n    try:\n        x = s[0]\n    except LookupError:\n        return 1\n    return x.y",
        "def f(s):\n    try:\n        x = s[0]\n        return x.y\n    except LookupError:\n        return 1",
    ]
    names = [queue_of(made(form)) for form in forms]
    assert None not in names
    assert len(set(names)) == len(forms)


def local_member() -> Enum:
    class Local(Enum):
        A = 1

    return Local.A


def made_class() -> type[object]:
    class Local:
        pass

    return Local


def marked() -> Callable[[State], object]:
    def look(state: State) -> object:
        return state.get("a")

    vars(look)["kind"] = "a"
    return look


def partial_of_its_own(fn: Callable[[State], object]) -> Callable[[State], object]:
    class Own(partial[object]):
        pass

    return Own(fn)


def test_what_cannot_be_told_has_no_queue() -> None:
    assert queue_of(above(object())) is None
    assert queue_of(Watcher().look) is None
    assert queue_of(Watcher()) is None
    assert queue_of(partial_of_its_own(above(1))) is None
    assert queue_of(above(local_member())) is None
    assert queue_of(above(made_class())) is None
    assert queue_of(above(Watcher)) is None
    assert queue_of(above(pytest)) is None
    assert queue_of(above(10**5_000)) is None
    assert queue_of(marked()) is None
    assert queue_of(Colour) is None
    assert queue_of(len) is None
