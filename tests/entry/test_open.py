"""`open` and `open_blocking`: what is opened, how it fails, and what is left when the block ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import chdir
from pathlib import Path
from types import FunctionType

import pytest

import stepwell
from stepwell import (
    App,
    Clock,
    Engine,
    Failure,
    Ids,
    Ledger,
    ManualClock,
    Run,
    RunFailed,
    StepSandbox,
    Store,
    Success,
    Unavailable,
    Waiters,
    WakeBus,
    WorkspaceRefusal,
    define_store,
    get,
    provides,
    workflow,
)
from stepwell.layers import app as apps
from stepwell.layers import clock as clocks
from stepwell.layers import ledger
from stepwell.layers.entry.open import open_layer
from stepwell.services.ledger import CannotOpen

numbers = define_store("test_open.numbers", dict[str, int])


def twice(number: int) -> int:
    return 2 * number


def add_one(state: dict[str, int]) -> None:
    state["a"] += 1


@workflow(name="test_open.double")
async def double(run: Run, number: int) -> int:
    return await run.step("twice", twice, number)


@workflow(name="test_open.fails")
async def fails(run: Run) -> None:
    raise RuntimeError("no")


@workflow(name="test_open.listens")
async def listens(run: Run) -> int:
    return (await run.signal("number", int)).unwrap()


@workflow(name="test_open.waits")
async def waits(run: Run) -> int:
    return (await run.store(numbers, "n-1").when("two", lambda state: state["a"] >= 2 and state["a"])).unwrap()


@workflow(name="test_open.naps")
async def naps(run: Run) -> str:
    await run.sleep("nap", 3600)
    return "rested"


@pytest.mark.parametrize("path", ["memory:", "app.db"])
async def test_an_application_that_has_ended_answers_unavailable(path: str, tmp_path: Path) -> None:
    async with stepwell.open(path if path == "memory:" else tmp_path / path, workflows=[double]) as app:
        handle = (await app.start(double, 4, id="r")).unwrap()
        assert await handle.result() == Success(8)
    closed = Unavailable("the ledger is closed", "no")
    assert await app.start(double, 4, id="s") == Failure(closed)
    assert await app.result("r") == Failure(closed)
    assert await app.store(numbers, "a").get_or_create({"a": 1}) == Failure(closed)


@workflow(name="test_open.double")
async def another_of_that_name(run: Run) -> None: ...


async def not_a_workflow(run: Run) -> None: ...


@pytest.fixture(params=["memory:", "app.db"], ids=["memory", "sqlite"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.param if request.param == "memory:" else str(tmp_path / request.param)


# --- open ---------------------------------------------------------------------


async def test_an_application_starts_runs_keeps_stores_and_gives_its_services(path: str) -> None:
    async with stepwell.open(path, workflows=[double]) as app:
        handle = (await app.start(double, 21, id="d-1")).unwrap()
        assert await handle.result(timeout=30) == Success(42)
        assert await app.result("d-1", timeout=30) == Success(42)
        assert [status.state for status in (await app.runs()).unwrap()] == ["completed"]
        counter = app.store(numbers, "n-1")
        assert (await counter.get_or_create({"a": 1})).unwrap().state == {"a": 1}
        assert (await get(app.env, Store).get(numbers, "n-1")).unwrap().state == {"a": 1}
        assert (await get(app.env, Engine).status("d-1")).unwrap().id == "d-1"
        assert [tip.key.id for tip in (await get(app.env, Ledger).stores()).unwrap()] == ["n-1"]
        assert get(app.env, Clock).now_ms() > 0
        assert get(app.env, Ids).new() < get(app.env, Ids).new()
        assert await get(app.env, Waiters).due("d-1") == Success(())
        assert await get(app.env, WakeBus).waiters("d-1") == 0


def test_an_application_answers_each_call_of_an_engine_itself() -> None:
    """One that it left to the Protocol would answer None."""
    calls = {name for name, value in vars(Engine).items() if isinstance(value, FunctionType) and name[0] != "_"}
    assert calls <= vars(App).keys()


async def test_an_application_sends_signals_and_wakes_who_waits_for_a_state(path: str) -> None:
    async with stepwell.open(path, workflows=[listens, waits]) as app:
        counter = app.store(numbers, "n-1")
        _ = (await counter.get_or_create({"a": 1})).unwrap()
        listening = (await app.start(listens, id="l-1")).unwrap()
        waiting = (await app.start(waits, id="w-1")).unwrap()
        outside = asyncio.create_task(counter.when(lambda state: state["a"] >= 2, timeout=30))
        assert await app.signal("l-1", "number", 7) == Success(None)
        assert await listening.result(timeout=30) == Success(7)
        _ = (await counter.update(add_one)).unwrap()
        assert await waiting.result(timeout=30) == Success(2)
        assert await outside == Success(True)
        assert await get(app.env, WakeBus).waiters("w-1") == 0
        assert await get(app.env, Ledger).waiters() == Success(())


async def test_what_was_committed_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    for expected in ({"a": 1}, {"a": 2}, {"a": 3}):
        async with stepwell.open(tmp_path / "app.db") as app:
            counter = app.store(numbers, "n-1")
            await counter.get_or_create({"a": 0})
            updated = await counter.update(add_one)
            assert updated.unwrap().state == expected


async def test_memory_is_gone_when_the_block_ends() -> None:
    for _ in range(2):
        async with stepwell.open("memory:") as app:
            assert (await get(app.env, Store).list_ids(numbers)).unwrap() == ()
            await app.store(numbers, "n-1").get_or_create({})


async def test_s139_a_result_is_there_at_once_in_a_later_process_and_for_a_client_without_workflows(
    tmp_path: Path,
) -> None:
    async with stepwell.open(tmp_path / "app.db", workflows=[double, fails]) as app:
        await (await app.start(double, 4, id="well")).unwrap().result()
        await (await app.start(fails, id="ill")).unwrap().result()
    async with stepwell.open(tmp_path / "app.db") as client:
        assert await client.result("well") == Success(8)
        match await client.result("ill"):
            case Failure(RunFailed("ill", error)):
                assert (error.type, error.message) == ("RuntimeError", "no")
            case other:
                pytest.fail(str(other))


async def test_a_client_drives_nothing(path: str) -> None:
    async with stepwell.open(path, workflows=[double], drive=False) as app:
        handle = (await app.start(double, 1)).unwrap()
        assert (await handle.status()).unwrap().state == "pending"
        await handle.cancel()
        assert (await handle.status()).unwrap().state == "cancelled"


async def test_after_the_block_every_call_fails_closed(tmp_path: Path) -> None:
    async with stepwell.open(tmp_path / "app.db") as app:
        pass
    assert isinstance((await app.status("x")).failure(), Unavailable)
    assert isinstance((await app.store(numbers, "n").get()).failure(), Unavailable)


async def test_in_a_test_an_hour_passes_when_the_clock_is_advanced() -> None:
    clock = ManualClock(1_000)
    async with open_layer(apps.layer_test(workflows=[naps]).override(clocks.layer_test(clock))) as app:
        handle = (await app.start(naps)).unwrap()
        await clock.advance(3_599_000)
        assert (await handle.status()).unwrap().state == "waiting"
        await clock.advance(1_000)
        assert await handle.result() == Success("rested")


async def test_where_every_service_is_absent_nothing_is_pretended() -> None:
    async with open_layer(apps.layer_noop()) as app:
        assert isinstance((await app.start(double, 1)).failure(), Unavailable)
        assert isinstance((await app.store(numbers, "n").get_or_create({})).failure(), Unavailable)


# --- what cannot be opened ------------------------------------------------------


@pytest.mark.parametrize("wrong", ["sqlite:///app.db", "file://app.db", "mysql://localhost/app"])
async def test_an_address_is_no_path(wrong: str, tmp_path: Path) -> None:
    with chdir(tmp_path), pytest.raises(ValueError, match="is an address; give the path of the SQLite file alone"):
        _ = stepwell.open(wrong)
    assert os.listdir(tmp_path) == []


async def test_memory_without_its_colon_is_taken_for_a_slip(tmp_path: Path) -> None:
    with chdir(tmp_path):
        with pytest.raises(ValueError, match="for an application in memory write 'memory:'"):
            _ = stepwell.open("memory")
        async with stepwell.open("./memory"):
            pass
        async with stepwell.open("memory") as app:
            assert await app.runs() == Success(())


@pytest.mark.parametrize("wrong", ["postgresql://localhost/app", "postgres://localhost/app"])
async def test_there_is_no_postgresql_host_yet(wrong: str) -> None:
    with pytest.raises(ValueError, match="no PostgreSQL host"):
        stepwell.open(wrong)
    with pytest.raises(ValueError, match="no PostgreSQL host"):
        stepwell.open_blocking(wrong)


@pytest.mark.parametrize("wrong", ["", ":memory:"])
def test_what_sqlite_would_take_for_a_database_that_is_gone_at_once_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="'memory:'"):
        stepwell.open(wrong)


def test_a_path_is_text_or_a_path() -> None:
    with pytest.raises(TypeError, match="int"):
        stepwell.open(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_two_workflows_of_one_name_are_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_open\.double"):
        stepwell.open(tmp_path / "app.db", workflows=[double, another_of_that_name])
    assert list(tmp_path.iterdir()) == []


def test_the_same_workflow_twice_is_one() -> None:
    stepwell.open("memory:", workflows=[double, double])


def test_what_is_no_workflow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not_a_workflow"):
        stepwell.open(
            tmp_path / "app.db",
            workflows=[not_a_workflow],  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        )


async def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, " * 100)
    before = file.read_bytes()
    with pytest.raises(CannotOpen, match=r"letter\.txt: it is not an SQLite database"):
        async with stepwell.open(file):
            pass
    assert file.read_bytes() == before


async def test_another_cause_is_told_as_a_runtime_error_from_it() -> None:
    @provides
    async def broken() -> AsyncIterator[Ledger]:
        raise OSError("the disk is on fire")
        yield

    with pytest.raises(RuntimeError, match="Ledger could not be acquired: OSError: the disk is on fire") as caught:
        async with open_layer(apps.layer_test().override(broken)):
            pass
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_composition_of_ones_own_can_be_opened() -> None:
    async with open_layer(apps.layer_test(workflows=[double]).override(ledger.layer_noop())) as app:
        assert isinstance((await app.status("x")).failure(), Unavailable)


# --- the folders ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["nosuch", "nosuch/folder", "file.txt", ""])
async def test_a_workspace_that_is_no_folder_is_refused_before_a_database_is_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").touch()
    with chdir(tmp_path), pytest.raises(ValueError, match=f"the workspace '{name}' .*: make the folder first"):
        async with stepwell.open("x.db", workspace=name):
            raise AssertionError("it was opened")
    assert os.listdir(tmp_path) == ["file.txt"]


async def test_a_workspace_where_no_sandbox_is_possible_leaves_no_database(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceRefusal, match="/proc cannot be used"):
        async with stepwell.open(tmp_path / "x.db", workspace="/proc"):
            raise AssertionError("it was opened")
    assert os.listdir(tmp_path) == []


async def test_a_sandbox_without_a_workspace_is_refused_with_what_to_give(path: str) -> None:
    async with stepwell.open(path) as app:
        refused = await get(app.env, StepSandbox).open()
    assert "workspace=" in refused.failure().message


# --- open_blocking --------------------------------------------------------------


def test_without_a_loop_through_the_portal(path: str) -> None:
    with stepwell.open_blocking(path, workflows=[double]) as portal:
        handle = portal.call(lambda: portal.app.start(double, 5, id="d")).unwrap()
        assert portal.call(handle.result, 30) == Success(10)
        counter = portal.app.store(numbers, "n")
        assert portal.call(counter.get_or_create, {"a": 1}).unwrap().state == {"a": 1}
        assert portal.call(counter.update, add_one).unwrap().state == {"a": 2}


async def raise_lookup(text: str) -> None:
    raise LookupError(text)


def test_exceptions_come_through_the_portal_and_it_stays_open() -> None:
    with stepwell.open_blocking("memory:") as portal:
        with pytest.raises(LookupError, match="not here"):
            portal.call(raise_lookup, "not here")
        assert portal.call(portal.app.runs).unwrap() == ()


def test_a_database_that_cannot_be_opened_is_told_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear reader, " * 100)
    with pytest.raises(CannotOpen), stepwell.open_blocking(tmp_path / "letter.txt"):
        pass
    assert "stepwell-portal" not in {thread.name for thread in threading.enumerate()}


def test_a_closed_portal_says_so_and_leaves_no_thread() -> None:
    with stepwell.open_blocking("memory:") as portal:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        portal.call(portal.app.runs)
    assert "stepwell-portal" not in {thread.name for thread in threading.enumerate()}


def test_a_portal_is_entered_once() -> None:
    opening = stepwell.open_blocking("memory:")
    with opening:
        pass
    with pytest.raises(RuntimeError, match="entered before"), opening:
        pass


def test_a_call_on_the_portals_own_loop_would_wait_for_itself() -> None:
    async def call_again() -> None:
        portal.call(portal.app.runs)

    with stepwell.open_blocking("memory:") as portal, pytest.raises(RuntimeError, match="await"):
        portal.call(call_again)


def function_of(thread: int) -> str:
    """Where another thread stands."""
    return sys._current_frames()[thread].f_code.co_name  # pyright: ignore[reportPrivateUsage]  # the only way to see it


def test_an_interrupt_in_the_caller_cancels_what_it_waits_for() -> None:
    cancelled = threading.Event()

    main = threading.main_thread().ident
    assert main is not None

    async def wait_for_ever() -> None:
        while function_of(main) != "wait":  # noqa: ASYNC110  # nothing tells when it does
            await asyncio.sleep(0)
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with stepwell.open_blocking("memory:") as portal:
        with pytest.raises(KeyboardInterrupt):
            portal.call(wait_for_ever)
        assert cancelled.wait(30)
        assert portal.call(portal.app.runs).unwrap() == ()


def test_calls_of_other_threads_end_with_the_block() -> None:
    begun, met = threading.Event(), list[BaseException]()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call(portal: stepwell.BlockingApp) -> None:
        try:
            portal.call(wait_for_ever)
        except RuntimeError as error:
            met.append(error)

    with stepwell.open_blocking("memory:") as portal:
        thread = threading.Thread(target=call, args=(portal,))
        thread.start()
        assert begun.wait(30)
    thread.join(30)
    assert ["closed" in str(error) for error in met] == [True]


def test_calls_end_when_the_loop_is_torn_down() -> None:
    met: list[str] = []

    @workflow
    async def leaving(run: Run) -> None:
        raise SystemExit(3)

    def use() -> None:
        try:
            with stepwell.open_blocking("memory:", workflows=[leaving]) as portal:
                handle = portal.call(lambda: portal.app.start(leaving)).unwrap()
                while True:
                    _ = portal.call(handle.status)
        except BaseException as error:
            met.append(type(error).__name__)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(30)
    assert met in (["RuntimeError"], ["SystemExit"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is what is tried here
def test_a_process_that_was_forked_has_no_portal() -> None:
    with stepwell.open_blocking("memory:") as portal:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                portal.call(portal.app.runs)
            except RuntimeError as error:
                os.write(writer, str(error).encode())
            finally:
                os._exit(0)  # nothing of the parent's may end here
        os.close(writer)
        with open(reader, "rb") as said:
            assert b"forked" in said.read()
        assert os.waitpid(child, 0)[1] == 0
        assert portal.call(portal.app.runs).unwrap() == ()


def test_what_a_release_raises_comes_out_of_the_block() -> None:
    @provides
    async def fragile(clock: Clock) -> AsyncIterator[Ledger]:
        from stepwell.layers.memory.ledger import MemoryLedger

        yield MemoryLedger(clock)
        raise OSError("could not be closed")

    from stepwell.layers.entry.portal import Portal

    with pytest.raises(OSError, match="could not be closed"), Portal(open_layer(apps.layer_test().override(fragile))):
        pass


def test_the_app_is_an_engine() -> None:
    assert Engine in App.__mro__
