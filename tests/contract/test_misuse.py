"""Misuse: what no caller can mean is a TypeError at once, that says what it is, of what, and what to write instead."""

from __future__ import annotations

import asyncio
import enum
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_asyncio
from pydantic import BaseModel

import stepwell
from stepwell import Boundary, RecordedError, Run, RunFailed, Store, Success, Workspace, define_store, get, workflow
from stepwell.layers.entry.open import App
from stepwell.services.arguments import arguments_of
from stepwell.services.workflow import AnyWorkflow

stock = define_store("stock of test_misuse", dict[str, int])

# Callers without types can pass anything; `Any` stands for them.
Anything = Any


class Order(BaseModel):
    id: int


class Colour(enum.Enum):
    RED = "red"


@workflow
async def priced(run: Run, o: Order) -> Order:
    return o


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[App]:
    path = "memory:" if request.param == "memory" else tmp_path / "misuse.db"
    async with stepwell.open(path, workflows=[priced]) as app:
        yield app


async def failed(*flows: AnyWorkflow) -> RecordedError:
    """The error with which the first of these ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # calls that misuse leaves behind
        async with stepwell.open("memory:", workflows=flows) as app:
            start: Anything = app.start
            outcome = await (await start(flows[0])).unwrap().result(timeout=10)
    failure = outcome.failure()
    assert isinstance(failure, RunFailed)
    return failure.error


def ending_with(body: Callable[[Anything], Awaitable[object]]) -> AnyWorkflow:
    @workflow
    async def misusing(run: Run) -> object:
        return await body(run)

    return misusing


def nothing() -> None: ...


# --- outside a run --------------------------------------------------------------


async def test_an_argument_of_another_class_is_named_with_both(app: App) -> None:
    start: Anything = app.start
    with pytest.raises(TypeError, match="argument 'o' is a dict, and its annotation says Order"):
        await start(priced, {"id": 1}, id="run-1")
    assert isinstance((await app.status("run-1")).failure(), stepwell.RunNotFound)


async def test_what_is_no_definition_is_refused_at_once(app: App) -> None:
    untyped: Anything = app
    with pytest.raises(TypeError, match=r"'orders' is no definition of a store: .*define_store"):
        untyped.store("orders", "x")
    store: Anything = get(app.env, Store)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.get("orders", "x"),
        lambda: store.get_or_create("orders", "x", {}),
        lambda: store.update("orders", "x", nothing),
        lambda: store.update_from("orders", "x", None, nothing),
        lambda: store.delete("orders", "x"),
        lambda: store.delete_from("orders", "x", None),
        lambda: store.list_ids("orders"),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="no definition of a store"):
            await call()


async def test_what_is_no_revision_is_refused_at_once(app: App) -> None:
    shelf: Anything = app.store(stock, "shelf")
    outcome = await shelf.get_or_create({"tea": 1})
    calls: list[Callable[[object], Awaitable[object]]] = [
        lambda given: shelf.update_from(given, nothing),
        lambda given: shelf.delete_from(given),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="expects a Snapshot or a Revision, not a Success; unwrap it first"):
            await call(outcome)
        with pytest.raises(TypeError, match="expects a Snapshot or a Revision, not a int"):
            await call(0)
    assert (await shelf.get()).unwrap().version == 0


async def test_what_is_no_step_id_is_refused_at_once(app: App) -> None:
    shelf: Anything = app.store(stock, "shelf")
    first = (await shelf.get_or_create({"tea": 1})).unwrap()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: shelf.update(nothing, step="k"),
        lambda: shelf.update_from(first, nothing, step="k"),
        lambda: shelf.delete_from(first, step=("run", "k")),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"step=.* is no StepId: write StepId\(run_id, key\)"):
            await call()
    assert (await shelf.get()).unwrap().version == 0


def test_one_workflow_in_place_of_a_list_of_them_is_refused() -> None:
    anything: Anything = priced
    with pytest.raises(TypeError, match=r"workflows= is a list of workflows: write workflows=\[priced\]"):
        stepwell.open("memory:", workflows=anything)
    number: Anything = 3
    with pytest.raises(TypeError, match="workflows= is a list of workflows, not a int"):
        stepwell.open("memory:", workflows=number)


async def test_a_timeout_that_is_no_time_is_refused(app: App) -> None:
    handle: Anything = (await app.start(priced, Order(id=1))).unwrap()
    with pytest.raises(TypeError, match="timeout is a number of seconds or a timedelta, not '5'"):
        await handle.result(timeout="5")


# --- workflows --------------------------------------------------------------------


def test_keyword_only_parameters_without_a_default_are_refused() -> None:
    async def flow(run: Run, *, count: int) -> None: ...

    with pytest.raises(TypeError, match="'count' can only be given by keyword, and start has no keyword arguments"):
        _ = workflow(flow)


class Lines:
    async def method(self, run: Run) -> None: ...


async def no_run(count: int) -> None: ...


async def late_run(run: Run, other: Run) -> None: ...


@pytest.mark.parametrize("fn", [no_run, late_run, Lines.method])
def test_the_run_is_the_first_parameter_and_no_other(fn: Anything) -> None:
    with pytest.raises(TypeError, match="first parameter"):
        _ = workflow(fn)


def test_parameters_that_cannot_be_read_yet_are_judged_at_the_start() -> None:
    async def flow(run: Run, later: object) -> None: ...

    flow.__annotations__["later"] = "Later"
    made = workflow(flow)
    flow.__globals__["Later"] = Run
    try:
        with pytest.raises(TypeError, match="first parameter"):
            _ = made.arguments
    finally:
        del flow.__globals__["Later"]


def test_a_first_parameter_that_a_run_fits_is_taken() -> None:
    async def unnamed(run: Anything) -> None: ...

    async def optional(run: Run | None) -> None: ...

    async def base(run: object) -> None: ...

    for fn in (unnamed, optional, base):
        assert workflow(fn).arguments.encode(()) == b"[]"


# --- durable calls ----------------------------------------------------------------


def counted(n: int) -> int:
    return n


CALLS: list[tuple[Callable[[Anything], Awaitable[object]], str]] = [
    (lambda run: run.step("k", nothing, retry=3), r"step 'k': retry is a Retry, as in Retry(max_attempts=3), not 3"),
    (lambda run: run.step("k", nothing, timeout="5"), "'k': a time is a number of seconds or a timedelta, not '5'"),
    (lambda run: run.sleep("k", "5"), "'k': a time is a number of seconds or a timedelta, not '5'"),
    (lambda run: run.sleep("k", None), "'k': a time is a number of seconds or a timedelta, not None"),
    (lambda run: run.sleep_until("k", "2026-01-01"), "'k': an instant is a datetime, not '2026-01-01'"),
    (lambda run: run.store("orders").get("k"), "'orders' is no definition of a store"),
    (lambda run: run.store(stock).update_from("k", 0, nothing), "expects a Snapshot or a Revision, not a int"),
    (lambda run: run.store(stock).delete_from("k", Success(0)), "not a Success; unwrap it first"),
    (lambda run: run.gather([run.step("k", nothing)]), "not a list; write run.gather(*calls)"),
    (lambda run: run.gather(3), "run.gather awaits durable calls and coroutines, not a int"),
    (lambda run: run.cached_step("k", nothing, boundary=Boundary()), "step 'k': nothing takes no workspace"),
    (lambda run: run.cached_step("k", counted, 3, boundary=Boundary()), "step 'k': counted takes int 'n' first"),
    (lambda run: run.cached_step("k", nothing, boundary=3), "step 'k': boundary is a Boundary"),
    (lambda run: run.step("k", lambda: Colour.RED), "a lambda cannot be annotated: write a def"),
    (lambda run: run.step("k", lambda: datetime(2024, 1, 1, tzinfo=UTC)), "a lambda cannot be annotated: write a def"),
]


@pytest.mark.parametrize(("call", "text"), CALLS, ids=[str(at) for at in range(len(CALLS))])
async def test_a_durable_call_that_nobody_can_mean_is_a_type_error(
    call: Callable[[Anything], Awaitable[object]], text: str
) -> None:
    error = await failed(ending_with(call))
    assert error.type == "TypeError"
    assert text in error.message


async def test_a_lambda_that_selects_something_that_is_not_json_is_told_to_be_a_def() -> None:
    async def body(run: Anything) -> object:
        await run.store(stock).get_or_create("make", {})
        selector: Callable[[object], Colour] = lambda _: Colour.RED  # noqa: E731  # what this is about
        return await run.store(stock).select("k", selector)

    error = await failed(ending_with(body))
    assert (error.type, "a lambda cannot be annotated: write a def" in error.message) == ("TypeError", True)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_step_makes_no_durable_calls(is_async: bool) -> None:
    async def body(run: Anything) -> object:
        async def on_loop() -> None:
            await run.step("inner", nothing)

        def in_thread() -> None:
            run.step("inner", nothing)

        return await run.step("outer", on_loop if is_async else in_thread)

    error = await failed(ending_with(body))
    assert error.type == "StepFailed"
    assert "step 'outer' cannot make the durable call 'inner'" in error.message


async def test_a_step_may_start_another_run() -> None:
    opened: list[App] = []

    @workflow
    async def inner(run: Run) -> int:
        return await run.step("one", int, "1")

    @workflow
    async def outer(run: Run) -> int:
        async def begin() -> int:
            handle = (await opened[0].start(inner)).unwrap()
            return (await handle.result(timeout=10)).unwrap()

        return await run.step("begin", begin)

    async with stepwell.open("memory:", workflows=[outer, inner]) as app:
        opened.append(app)
        assert await (await app.start(outer)).unwrap().result(timeout=10) == Success(1)


async def never() -> None:
    await asyncio.Event().wait()


async def cut_off(run: Run) -> None:
    async with asyncio.timeout(0):
        await run.step("waits", never)


async def cut_off_in_a_branch(run: Run) -> None:
    await run.gather(cut_off(run))


@pytest.mark.parametrize("body", [cut_off, cut_off_in_a_branch])
async def test_a_timeout_around_a_durable_call_says_what_is_wrong(
    body: Callable[[Run], Coroutine[Any, Any, None]],
) -> None:
    error = await failed(ending_with(body))
    assert error.type == "NotReplaySafe"
    assert "'waits' was cut short" in error.message


async def test_a_group_of_errors_names_those_that_it_holds() -> None:
    async def body(run: Run) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("one", nothing))

    error = await failed(ending_with(body))
    assert error.type == "ExceptionGroup"
    assert "NotReplaySafe: the durable call 'one' was made in a task" in error.message


async def test_a_result_of_another_class_is_named_with_both() -> None:
    async def flow(run: Run) -> Order:
        return {"id": 1}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    error = await failed(workflow(flow))
    assert error.message.startswith("the result of the workflow flow is a dict, and its annotation says Order")


class Reader(Protocol):
    def read_text(self, path: str) -> str: ...


def test_a_body_is_taken_if_its_first_parameter_may_be_a_workspace() -> None:
    def unnamed(workspace: Anything, n: int) -> int:
        return n

    def base(workspace: object, n: int) -> int:
        return n

    def part(workspace: Reader, n: int) -> int:
        return n

    def either(workspace: Workspace | None, n: int) -> int:
        return n

    def many(*of: Workspace) -> int:
        return len(of)

    for body in (unnamed, base, part, either):
        assert arguments_of("body", body).encode((3,)) == b"[3]"
    assert arguments_of("many", many).encode(()) == b"[]"
