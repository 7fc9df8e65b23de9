"""Random graphs of layers: whatever was acquired is released exactly once, in reverse order, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from stepwell import Failed, Failure, Layer, Outcome, Success, build
from stepwell.core.wiring import Node
from stepwell.layers.recipe import Makes, Recipe

Kind: TypeAlias = Literal["async", "sync", "coroutine"]
Acquire: TypeAlias = Literal["gives", "raises", "refuses", "is cancelled"]

KINDS: Sequence[Kind] = ["async", "sync", "coroutine"]
BEHAVES: list[Acquire] = ["gives"]
MAY_FAIL: Sequence[Acquire] = [*BEHAVES * 12, "raises", "refuses", "is cancelled"]  # or few graphs would come far


@dataclass(frozen=True)
class Spec:
    """How one service behaves; `needs` are services before it."""

    kind: Kind
    needs: frozenset[int]
    acquire: Acquire
    release_raises: bool


class AcquireError(Exception):
    pass


class ReleaseError(Exception):
    pass


@st.composite
def graphs(draw: st.DrawFn, trouble: bool) -> list[Spec]:
    """Services that need earlier ones."""
    specs: list[Spec] = []
    for at in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(KINDS))
        needs = draw(st.frozensets(st.integers(0, at - 1), max_size=3)) if at else frozenset[int]()
        acquire = draw(st.sampled_from(MAY_FAIL if trouble else BEHAVES))
        specs.append(Spec(kind, needs, acquire, trouble and draw(st.sampled_from([False] * 4 + [True]))))
    return specs


class Log:
    """Recipes that behave as specified and note what they do."""

    def __init__(self) -> None:
        self.acquired: list[int] = []
        self.released: list[int] = []

    def layer(self, specs: list[Spec], order: list[int]) -> Layer[object, object]:
        """The graph, joined in `order`."""
        nodes: dict[object, Node[Recipe]] = {}
        for service in order:
            needs = tuple(sorted(specs[service].needs))
            nodes[service] = Node(service, Recipe(service, needs, self._recipe(service, specs[service])), needs)
        return Layer(nodes)

    def _recipe(self, service: int, spec: Spec) -> Callable[..., Makes[object]]:
        def acquire(needs: tuple[object, ...]) -> None:
            assert needs == tuple(sorted(spec.needs)), "made with what it needs, in the order of its parameters"
            if spec.acquire == "raises":
                raise AcquireError(service)
            if spec.acquire == "is cancelled":
                raise asyncio.CancelledError(service)
            self.acquired.append(service)

        def release() -> None:
            self.released.append(service)
            if spec.release_raises:
                raise ReleaseError(service)

        async def asynchronous(*needs: object) -> AsyncIterator[object]:
            acquire(needs)
            yield service
            release()

        def synchronous(*needs: object) -> Iterator[object]:
            acquire(needs)
            yield service
            release()

        async def coroutine(*needs: object) -> Outcome[object, object]:
            if spec.acquire == "refuses":
                return Failure(AcquireError(service))
            acquire(needs)
            return Success(service)

        makes: dict[Kind, Callable[..., Makes[object]]] = {
            "async": asynchronous,
            "sync": synchronous,
            "coroutine": coroutine,
        }
        return makes[spec.kind]


def orders(specs: list[Spec], written: list[int]) -> list[int]:
    """The order of acquisition: as written, each after its needs."""
    done: list[int] = []

    def visit(service: int) -> None:
        if service not in done:
            for need in sorted(specs[service].needs):
                visit(need)
            done.append(service)

    for service in written:
        visit(service)
    return done


def chain(error: BaseException | None) -> list[BaseException]:
    errors: list[BaseException] = []
    while error is not None:
        errors.append(error)
        error = error.__context__
    return errors


@given(graphs(trouble=False).flatmap(lambda specs: st.tuples(st.just(specs), st.permutations(range(len(specs))))))
async def test_what_is_acquired_is_released_in_reverse(drawn: tuple[list[Spec], list[int]]) -> None:
    specs, written = drawn
    log = Log()
    async with build(log.layer(specs, written)) as built:
        assert built.unwrap().services == {service: service for service in range(len(specs))}
        assert log.acquired == orders(specs, written)
        assert log.released == []
    assert log.released == [each for each in reversed(log.acquired) if specs[each].kind != "coroutine"]


@given(graphs(trouble=True).flatmap(lambda specs: st.tuples(st.just(specs), st.permutations(range(len(specs))))))
async def test_whatever_goes_wrong_all_is_released_once_and_every_error_is_told(
    drawn: tuple[list[Spec], list[int]],
) -> None:
    specs, written = drawn
    log = Log()
    wrong = ("raises", "is cancelled", "refuses")
    order = orders(specs, written)
    stops = [
        service
        for service in order
        if specs[service].acquire in wrong[:2]
        or (specs[service].acquire, specs[service].kind) == (wrong[2], "coroutine")
    ]
    answer: Outcome[object, object] | None = None
    raised: BaseException | None = None
    try:
        async with build(log.layer(specs, written)) as built:
            answer = built
            assert isinstance(built, Failure) or not log.released, "released before the body has ended"
    except (ReleaseError, asyncio.CancelledError) as error:
        raised = error

    acquired = order[: order.index(stops[0])] if stops else order
    assert log.acquired == acquired
    assert log.released == [each for each in reversed(acquired) if specs[each].kind != "coroutine"]

    failing = [each for each in log.released if specs[each].release_raises]
    told = [error.args[0] for error in chain(raised) if isinstance(error, ReleaseError)]
    assert told == failing[::-1], "each release that raised is in the chain, the last one outermost"
    cancelled = bool(stops) and specs[stops[0]].acquire == "is cancelled"
    if cancelled:
        assert any(isinstance(error, asyncio.CancelledError) for error in chain(raised))
        assert answer is None
    elif stops and failing:
        assert any(isinstance(error.__cause__, AcquireError) or "AcquireError" in str(error) for error in chain(raised))
    elif stops:
        assert isinstance(answer, Failure)
        failed = answer.failure()
        assert isinstance(failed, Failed)
        assert failed.service == stops[0]
        assert isinstance(failed.cause, AcquireError)
    else:
        assert isinstance(answer, Success)
