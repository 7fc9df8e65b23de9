"""What a cached step's key tells apart of its call: arguments, how they are read, and the run that it is a step of."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from stepwell import Boundary, Run, Workspace, current_step, workflow

from .cached_world import Cached, CachedWorld
from .engine_world import success

WRITES = Boundary(writes=("out/r",))


def names(workspace: Workspace, given: dict[str, int]) -> str:
    workspace.write_text("out/r", "")
    return " ".join(given)


def number(workspace: Workspace, given: float) -> str:
    workspace.write_text("out/r", "")
    return repr(given)


def deep(workspace: Workspace, given: object) -> str:
    workspace.write_text("out/r", "")
    return repr(given)


def whose(workspace: Workspace) -> str:
    workspace.write_text("out/r", "")
    return current_step().run_id


class EngineCachedKeysContract:
    async def test_a_body_that_can_tell_the_order_of_a_dict_is_executed_for_another(self, cached: CachedWorld) -> None:
        seen = [await given(cached, names, each) for each in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2})]
        assert seen == [("a b", "miss"), ("b a", "miss"), ("a b", "verified_hit")]

    async def test_numbers_that_json_does_not_know_are_arguments_too(self, cached: CachedWorld) -> None:
        nan, infinite = float("nan"), float("inf")
        seen = [await given(cached, number, each) for each in (nan, infinite, nan, 0.0, -0.0)]
        assert [result for result, _ in seen] == ["nan", "inf", "nan", "0.0", "-0.0"]
        assert [how for _, how in seen] == ["miss", "miss", "verified_hit", "miss", "miss"]

    async def test_arguments_that_are_nested_deeply_have_a_key(self, cached: CachedWorld) -> None:
        nested: object = 1
        for _ in range(120):
            nested = [nested]
        assert [how for _, how in [await given(cached, deep, nested) for _ in range(2)]] == ["miss", "verified_hit"]

    async def test_large_and_small_numbers_are_told_apart(self, cached: CachedWorld) -> None:
        values: list[object] = [1, 1.0, True, "1", [1], 2**70, 2**70 + 1, None, 10**400]
        seen = [await given(cached, deep, each) for each in values]
        assert [result for result, _ in seen] == [repr(each) for each in values]

    async def test_another_type_of_a_parameter_is_another_key(self, cached: CachedWorld) -> None:
        """With the same code, and arguments that are the same JSON."""

        def kind(workspace: Workspace, given: Any) -> str:
            workspace.write_text("out/r", "")
            return type(given).__name__

        seen: list[tuple[object, str]] = []
        for annotation, value in ((list[int], [1]), (set[int], {1}), (list[int], [1])):
            kind.__annotations__["given"] = annotation
            body = FunctionType(kind.__code__, kind.__globals__, kind.__name__)
            body.__annotations__ = {**kind.__annotations__}
            seen.append(await given(cached, body, value))
        assert seen == [("list", "miss"), ("set", "miss"), ("list", "verified_hit")]

    async def test_another_policy_of_the_sandbox_is_another_key(self, cached: CachedWorld) -> None:
        seen: list[str] = []
        for policy in (None, "with a network", "with a network", None):
            cached.meddlings.policy = policy
            seen.append((await given(cached, deep, 1))[1])
        assert seen == ["miss", "miss", "verified_hit", "verified_hit"]

    async def test_a_body_that_asks_for_its_run_is_executed_in_each(self, cached: CachedWorld) -> None:
        @workflow(name="flow")
        async def flow(run: Run) -> str:
            return await run.cached_step("step", whose, boundary=WRITES)

        async with cached.engine(flow) as app:
            assert [await app.run(flow, run_id) for run_id in ("r1", "r2")] == ["r1", "r2"]


async def given(cached: CachedWorld, body: Callable[[Workspace, Any], str], value: object) -> tuple[object, str]:
    """What a step with this argument gives in a run of its own, and what became of it in the cache."""

    @workflow(name="flow")
    async def flow(run: Run) -> str:
        return await run.cached_step("step", body, value, boundary=WRITES)

    async with cached.engine(flow) as app:
        result = success(await success(await app.app.engine.start(flow)).result())
        (how,) = counted(app)
        return result, how


def counted(app: Cached) -> list[str]:
    return [name for name, count in app.metrics.counts.items() for _ in range(count)]
