"""Bodies that are careless or up to something: what they leave behind is what they did, and nothing slips through."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from io import BufferedIOBase, TextIOWrapper
from pathlib import Path

import pytest

from stepwell.core.boundary import Boundary
from stepwell.core.effect import as_effect
from stepwell.core.step_sandbox import BodyFailed, LimitExceeded, MaterializationConflict, UndeclaredRead
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.workspace.bodies import THREADS
from stepwell.layers.workspace.handle import DRAFT_BYTES
from stepwell.services.step_sandbox import Workspace

from .sandbox_world import Host, World, open_world
from .step_sandbox_contract import code_of, error_of

HOSTS: tuple[Host, ...] = ("memory", "folder")


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world("folder" if request.param == "folder" else "memory", tmp_path / "root") as made:
        yield made


# --- handles ------------------------------------------------------------------


async def test_text_that_is_in_a_handle_when_the_body_ends_is_written(world: World) -> None:
    def body(workspace: Workspace) -> None:
        left.append(workspace.open_text("out/r", "w"))
        _ = left[0].write("not closed, not flushed")

    left: list[TextIOWrapper] = []
    _ = await world.settle(body)
    assert world.read("out/r") == b"not closed, not flushed"


async def test_of_several_open_handles_the_last_one_opened_has_the_last_word(world: World) -> None:
    def body(workspace: Workspace) -> None:
        for number in range(20):
            left.append(workspace.open_binary("out/r", "w"))
            _ = left[-1].write(b"%d" % number)

    left: list[BufferedIOBase] = []
    assert (await world.run(body)).unwrap().changes[0].data == b"19"


async def test_an_open_handle_goes_with_its_file(world: World) -> None:
    def body(workspace: Workspace) -> None:
        for name in ("removed", "moved", "dir/within", "replaced", "by"):
            left.append(workspace.open_binary(f"out/{name}", "w"))
            _ = left[-1].write(name.encode())
        workspace.remove("out/removed")
        workspace.rename("out/moved", "out/there")
        workspace.rename("out/dir", "out/elsewhere")
        workspace.rename("out/by", "out/replaced")

    left: list[BufferedIOBase] = []
    _ = await world.settle(body, writes=("out/**",))
    ended = {path: world.read(path) for path in ("out/there", "out/elsewhere/within", "out/replaced")}
    assert ended == {"out/there": b"moved", "out/elsewhere/within": b"dir/within", "out/replaced": b"by"}
    assert [world.read(f"out/{name}") for name in ("removed", "moved", "dir/within", "by")] == [None] * 4


@pytest.mark.parametrize("mode", ["a", "a+"])
async def test_appending_to_what_the_host_has_is_a_read_of_it(world: World, mode: str) -> None:
    def body(workspace: Workspace) -> None:
        with workspace.open_binary("secret", "a" if mode == "a" else "a+") as log:
            _ = log.write(b"more\n")

    before = world.snapshot()
    refused = (await world.run(body, reads=(), writes=("secret",))).failure()
    assert isinstance(refused, UndeclaredRead)
    assert refused.paths == ("secret",)
    assert world.snapshot() == before
    _ = await world.settle(body, reads=("secret",), writes=("secret",))
    assert world.read("secret") == b"s3cr3t\nmore\n"


@pytest.mark.parametrize("host", HOSTS)
async def test_a_file_that_is_written_again_and_again_takes_no_more_room(host: Host, tmp_path: Path) -> None:
    def body(workspace: Workspace) -> int:
        with workspace.open_text("out/r", "w") as log:
            for _ in range(500):
                _ = log.write("a line of a log that is flushed often\n" * 10)
                log.flush()
            return sum(os.fstat(int(each)).st_size for each in descriptors_of_nameless_files())

    async with open_world(host, tmp_path / "root", limits=WorkspaceLimits(memory_bytes=10_000)) as world:
        accepted = (await world.run(body)).unwrap()
        assert accepted.output < 1_000_000  # while all versions together are 50 MB
        assert len(accepted.changes[0].data or b"") == 190_000


def descriptors_of_nameless_files() -> list[str]:
    """Those of this process that are of files which were never named, or are no more."""
    at = "/proc/self/fd"
    return [
        each for each in os.listdir(at) if os.path.islink(f"{at}/{each}") and "deleted" in os.readlink(f"{at}/{each}")
    ]


async def test_a_handle_that_is_kept_keeps_no_descriptor(world: World) -> None:
    def body(workspace: Workspace) -> int:
        for number in range(8):
            left.append(workspace.open_binary(f"out/{number}", "w"))
            _ = left[-1].write(bytes(DRAFT_BYTES + 1))
        return len(os.listdir("/proc/self/fd"))

    left: list[BufferedIOBase] = []
    before = len(os.listdir("/proc/self/fd"))
    accepted = (await world.run(body, writes=("out/**",))).unwrap()
    assert accepted.output >= before + len(left)
    assert len(os.listdir("/proc/self/fd")) == before


# --- what was not declared ------------------------------------------------------


async def test_the_exec_bit_opens_no_file_that_is_only_to_be_removed(world: World) -> None:
    def body(workspace: Workspace) -> bytes:
        workspace.set_executable("old", True)
        return workspace.read_bytes("old")

    refused = (await world.run(body, reads=(), writes=(), removes=("old",), mode="hard")).failure()
    assert isinstance(refused, UndeclaredRead)
    assert refused.paths == ("old",)


async def test_a_directory_that_the_body_made_by_writing_in_it_is_no_undeclared_read(world: World) -> None:
    def body(workspace: Workspace) -> list[str]:
        workspace.write_text("out/r", "1")
        looks: list[Callable[[], object]] = [
            lambda: workspace.read_bytes("out"),
            lambda: workspace.open_binary("out", "w"),
            lambda: workspace.set_executable("out", True),
        ]
        return [code_of(look) for look in looks]

    codes = (await world.run(body)).unwrap().output
    assert codes == ["is_directory", "is_directory", "unsupported_file_type"]


async def test_a_directory_of_which_a_file_may_not_be_seen_is_not_half_moved(world: World) -> None:
    def body(workspace: Workspace) -> list[str]:
        workspace.write_text("src/b.py", "B=2\n")
        assert code_of(lambda: workspace.rename("src", "out")) == "not_found"
        return [*workspace.list_dir(""), *workspace.list_dir("src")]

    accepted = (await world.run(body, ("in.txt",), ("src/b.py",), ("src/a.py",), "expected")).unwrap()
    assert accepted.output == ["in.txt", "src", "a.py", "b.py"]


async def test_p_10_a_directory_is_not_moved_to_where_its_paths_would_be_too_deep(world: World) -> None:
    def body(workspace: Workspace) -> None:
        workspace.write_text("/".join(["d"] * 40), "1")
        workspace.make_dir("/".join(["out"] * 40))
        workspace.rename("d", "/".join([*["out"] * 40, "d"]))

    assert (await world.run(body, writes=("**",))).failure() == LimitExceeded("path_depth", 80, 64)


async def test_a_link_to_what_is_no_text_is_refused(world: World) -> None:
    refused = await world.run(lambda it: it.make_link("out/r", "\udc80"))
    assert error_of(refused) == ("invalid_path", error_of(refused)[1])
    assert "out/r" in error_of(refused)[1]


@pytest.mark.parametrize("host", HOSTS)
async def test_what_is_moved_is_counted_once(host: Host, tmp_path: Path) -> None:
    def body(workspace: Workspace) -> None:
        workspace.write_text("out/one", "1234")
        workspace.rename("out/one", "out/two")
        workspace.rename("out", "there")

    async with open_world(host, tmp_path / "root", limits=WorkspaceLimits(nodes=3, produced_bytes=4)) as world:
        _ = await world.settle(body, writes=("there/**",))
        assert world.read("there/two") == b"1234"


# --- effects ------------------------------------------------------------------


async def test_an_effect_is_what_it_was_when_it_was_asked_for(world: World) -> None:
    def body(workspace: Workspace) -> None:
        mail: dict[str, object] = {"to": ["ann"]}
        workspace.queue_effect(mail)
        mail["to"] = {1, 2}

    accepted = (await world.run(body, writes=())).unwrap()
    assert accepted.effects == (as_effect({"to": ["ann"]}),)


# --- bodies that go on, or never begin ----------------------------------------------


async def test_a_body_that_swallows_its_cancellation_is_cancelled_all_the_same(world: World) -> None:
    begun = asyncio.Event()

    async def body(workspace: Workspace) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            workspace.write_text("out/r", "after all")
        return "done"

    async with await world.open() as transaction:
        running = asyncio.ensure_future(transaction.execute(Boundary((), ("out/r",)), body))
        await begun.wait()
        _ = running.cancel()
        with pytest.raises(asyncio.CancelledError):
            _ = await running


async def test_a_body_that_goes_on_after_its_time_was_given_up(tmp_path: Path) -> None:
    async def body(workspace: Workspace) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            workspace.write_text("out/r", "after all")
        return "done"

    async with open_world("memory", tmp_path, limits=WorkspaceLimits(wall=20)) as world:
        assert (await world.run(body)).failure() == LimitExceeded("wall", 20, 20)


async def test_bodies_that_were_given_up_take_nobodys_turn(tmp_path: Path) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def stuck(_workspace: Workspace) -> None:
        begun.release()
        _ = go_on.wait(60)

    try:
        async with open_world("memory", tmp_path) as world, await world.open() as transaction:
            running = [asyncio.ensure_future(transaction.execute(Boundary(), stuck)) for _ in range(THREADS)]
            for _ in running:
                assert await asyncio.to_thread(begun.acquire, timeout=60)
            for each in running:
                _ = each.cancel()
            ended = await asyncio.gather(*running, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            async with asyncio.timeout(30):
                assert (await transaction.execute(Boundary(), lambda _: 7)).unwrap().output == 7
    finally:
        go_on.set()


async def test_a_sandbox_that_was_closed_executes_nothing(tmp_path: Path) -> None:
    async def later(_workspace: Workspace) -> int:
        return 1

    async with open_world("memory", tmp_path) as world:
        transaction = await world.open()
    assert error_of(await transaction.execute(Boundary(), lambda _: 1))[0] == "closed"
    assert error_of(await transaction.execute(Boundary(), later))[0] == "closed"


async def test_a_generator_is_no_body(world: World) -> None:
    def yields(workspace: Workspace) -> Iterator[int]:
        workspace.write_text("out/r", "1")
        yield 1

    async def yields_later(workspace: Workspace) -> AsyncIterator[int]:
        workspace.write_text("out/r", "1")
        yield 1

    bodies: list[Callable[[Workspace], object]] = [yields, yields_later]
    for body in bodies:
        failed = (await world.run(body)).failure()
        assert isinstance(failed, BodyFailed)
        assert (failed.cause.type, "generator" in failed.cause.message) == ("TypeError", True)


async def test_what_is_written_is_told_by_its_type(world: World) -> None:
    failed = (await world.run(lambda it: untyped(it.write_text)("out/r", b"1"))).failure()
    assert isinstance(failed, BodyFailed)
    assert (failed.cause.type, "out/r" in failed.cause.message) == ("TypeError", True)


def untyped(call: Callable[..., None]) -> Callable[..., None]:
    """A call as somebody makes it whose program is checked by nobody."""
    return call


# --- what stands in the way on the host -------------------------------------------


@pytest.mark.parametrize("mode", ["hard", "expected"])
@pytest.mark.parametrize("writes", [("in.txt/x",), ("in.txt/**",), ("**",)], ids=str)
async def test_what_is_written_beneath_a_file_of_the_host_is_refused(
    world: World, writes: tuple[str, ...], mode: str
) -> None:
    before = world.snapshot()
    body = await world.run(
        lambda it: it.write_text("in.txt/x", "1"), (), writes, (), "hard" if mode == "hard" else "expected"
    )
    code, message = error_of(body)
    assert (code, "'in.txt/x'" in message, "'in.txt'" in message) == ("not_a_directory", True, True)
    assert world.snapshot() == before


async def test_a_directory_that_nobody_emptied_is_not_replaced_by_a_file(world: World) -> None:
    before = world.snapshot()
    async with await world.open() as transaction:
        accepted = await transaction.execute(Boundary((), ("src",)), lambda it: it.write_text("src", "1"))
        refused = await transaction.materialize(accepted.unwrap())
    assert refused.failure() == MaterializationConflict(("src",))
    assert world.snapshot() == before


async def test_an_empty_directory_is_replaced_by_a_file(world: World) -> None:
    _ = await world.settle(lambda it: it.make_dir("out"), reads=(), writes=("out/**",))
    _ = await world.settle(lambda it: it.write_text("out", "1"), reads=(), writes=("out",))
    assert world.read("out") == b"1"


@pytest.mark.parametrize("path", [".git/config", ".GIT/new"])
async def test_cb10_what_belongs_to_git_is_not_changed_even_if_it_is_declared(world: World, path: str) -> None:
    world.write(".git/config", "1")
    before = world.snapshot()
    written = await world.run(lambda it: it.write_text(path, "2"), reads=(), writes=(path,))
    removed = await world.run(lambda it: it.remove(path), reads=(), writes=(), removes=(path,))
    made = await world.run(lambda _: None, reads=(), writes=(".git/hooks/**",))
    assert [error_of(it)[0] for it in (written, removed, made)] == ["protected_path"] * 3
    assert world.snapshot() == before
