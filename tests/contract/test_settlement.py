"""Steps executed whole: again after a conflict, and their effects sent once, when the files are on the host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stepwell import Failure, Outcome, RecordedError, Success
from stepwell.core.boundary import Boundary
from stepwell.core.effect import Effect
from stepwell.core.step_sandbox import (
    BodyFailed,
    MaterializationConflict,
    MissingOutput,
    UndeclaredRead,
    UnsupportedBoundary,
)
from stepwell.layers.step_sandbox import make
from stepwell.layers.workspace.settlement import REBASES, Undelivered, settle
from stepwell.services.effect_dispatcher import Dispatched, EffectFailed
from stepwell.services.step import STEP, StepContext
from stepwell.services.step_sandbox import StepSandbox, Workspace, WorkspaceTransaction

from .sandbox_world import Host, World, open_world

BOUNDARY = Boundary(("in.txt",), ("out/r",))


@pytest.fixture(params=["memory", "folder"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "folder" if request.param == "folder" else "memory"
    async with open_world(host, tmp_path / "root") as made:
        yield made


class Sent:
    """A dispatcher that keeps what it is given, once per key; what is in `fails` it cannot deliver."""

    def __init__(self, *fails: str) -> None:
        self.effects: list[Effect] = []
        self.fails = fails
        self.before: Callable[[], None] = lambda: None

    async def dispatch(self, effect: Effect) -> Outcome[Dispatched, EffectFailed]:
        self.before()
        if effect.key in self.fails:
            return Failure(EffectFailed(effect.key, RecordedError("ConnectionError", "nobody there", "")))
        again = effect.key in [sent.key for sent in self.effects]
        if not again:
            self.effects.append(effect)
        return Success(Dispatched(effect.key, again))


def beta(workspace: Workspace) -> str:
    workspace.write_text("out/r", workspace.read_text("in.txt").upper())
    workspace.queue_effect(Effect("k1", "twice"))
    workspace.queue_effect(Effect("k1", "twice"))
    return workspace.read_text("in.txt")


async def test_cb18_and_a_21_effects_are_sent_once_and_only_when_the_files_are_there(world: World) -> None:
    sent = Sent()
    sent.before = lambda: there.append(world.read("out/r"))
    there: list[bytes | None] = []
    settled = (await settle(world.sandbox, BOUNDARY, beta, sent)).unwrap()
    assert (settled.accepted.output, settled.rebases, settled.dispatched) == ("alpha\n", 0, 1)
    assert (sent.effects, there) == ([Effect("k1", "twice")], [b"ALPHA\n"])
    _ = (await settle(world.sandbox, BOUNDARY, beta, sent)).unwrap()
    assert len(sent.effects) == 1


async def test_cb19_without_a_dispatcher_nothing_is_sent_and_that_is_told(world: World) -> None:
    settled = (await settle(world.sandbox, BOUNDARY, beta)).unwrap()
    assert (settled.dispatched, settled.undelivered) == (0, (Undelivered(Effect("k1", "twice"), None),))


async def test_an_effect_without_a_key_is_that_of_its_step(world: World) -> None:
    """Equal effects of two steps are two; of one step, however often it is executed, they are one."""
    sent = Sent()
    for step in (StepContext("mon", "tell", 1), StepContext("mon", "tell", 2), StepContext("tue", "tell", 1)):
        token = STEP.set(step)
        try:
            settled = await settle(world.sandbox, Boundary(), lambda it: it.queue_effect({"to": "Ann"}), sent)
        finally:
            STEP.reset(token)
        assert settled.unwrap().dispatched == 1
    assert [effect.payload for effect in sent.effects] == [{"to": "Ann"}] * 2


async def test_two_effects_of_a_step_with_one_key_and_two_payloads_are_a_mistake(world: World) -> None:
    def body(workspace: Workspace) -> None:
        workspace.queue_effect(Effect("k1", "one"))
        workspace.queue_effect(Effect("k1", "other"))

    failed = (await settle(world.sandbox, Boundary(), body)).failure()
    assert isinstance(failed, BodyFailed)
    assert (failed.cause.type, "'k1'" in failed.cause.message) == ("ValueError", True)


async def test_an_effect_that_cannot_be_sent_takes_nothing_back(world: World) -> None:
    settled = (await settle(world.sandbox, BOUNDARY, beta, Sent("k1"))).unwrap()
    assert [it.effect.key for it in settled.undelivered] == ["k1"]
    assert world.read("out/r") == b"ALPHA\n"


async def test_cb20_b4_and_a_10_a_step_that_is_refused_sends_nothing(world: World) -> None:
    def peeks(workspace: Workspace) -> None:
        workspace.queue_effect("k1")
        _ = workspace.read_bytes("secret")

    sent, before = Sent(), world.snapshot()
    assert isinstance((await settle(world.sandbox, BOUNDARY, peeks, sent)).failure(), UndeclaredRead)
    missing = await settle(world.sandbox, BOUNDARY, lambda workspace: workspace.queue_effect("k1"), sent)
    assert isinstance(missing.failure(), MissingOutput)
    assert (sent.effects, world.snapshot()) == ([], before)


class Rival:
    """Changes a file of the host after each of the first executions of a sandbox, before they are materialized."""

    def __init__(self, world: World, path: str, times: int) -> None:
        self.world, self.path, self.left, self.executions = world, path, times, 0

    def sandbox(self) -> StepSandbox:
        async def opened() -> Outcome[WorkspaceTransaction, UnsupportedBoundary]:
            self.executions += 1
            return await self.world.sandbox.open()

        return make(opened)

    def interfere(self) -> None:
        if self.left:
            self.left -= 1
            self.world.write(self.path, f"edit {self.left}\n")


@pytest.mark.parametrize("path", ["out/r", "in.txt"], ids=["cb14 target", "m_04 and cb15 read"])
async def test_cb14_cb15_and_m_04_a_step_whose_files_changed_is_executed_again(world: World, path: str) -> None:
    rival = Rival(world, path, 1)

    def body(workspace: Workspace) -> str:
        read = beta(workspace)
        rival.interfere()
        return read

    sent = Sent()
    settled = (await settle(rival.sandbox(), BOUNDARY, body, sent)).unwrap()
    assert (settled.rebases, rival.executions, len(sent.effects)) == (1, 2, 1)
    read = "edit 0\n" if path == "in.txt" else "alpha\n"
    assert (settled.accepted.output, world.read("out/r")) == (read, read.upper().encode())


async def test_a_step_that_always_meets_others_gives_up(world: World) -> None:
    rival = Rival(world, "out/r", 100)

    def body(workspace: Workspace) -> None:
        _ = beta(workspace)
        rival.interfere()

    sent = Sent()
    settled = await settle(rival.sandbox(), BOUNDARY, body, sent)
    assert settled == Failure(MaterializationConflict(("out/r",)))
    assert (rival.executions, sent.effects) == (REBASES + 1, [])
    assert (world.read("out/r") or b"").startswith(b"edit")


async def test_a_file_that_a_glob_would_have_matched_is_a_change_of_what_was_read(world: World) -> None:
    def body(workspace: Workspace) -> list[str]:
        names = workspace.glob("src/*.py")
        workspace.write_text("out/r", "1")
        if len(names) == 2:
            world.write("src/new.py", "N=1\n")
        return names

    settled = (await settle(world.sandbox, Boundary(("src/*.py",), ("out/r",)), body)).unwrap()
    assert (settled.rebases, len(settled.accepted.output)) == (1, 3)


async def test_a_read_that_is_gone_or_appeared_is_a_change_of_what_was_read(world: World) -> None:
    def body(workspace: Workspace) -> tuple[bool, bool]:
        there = workspace.exists("in.txt"), workspace.exists("absent")
        workspace.write_text("out/r", "1")
        if not there[1]:
            world.write("absent", "now it is there\n")
            world.remove("in.txt")
        return there

    settled = (await settle(world.sandbox, Boundary(("in.txt", "absent"), ("out/r",)), body)).unwrap()
    assert (settled.rebases, settled.accepted.output) == (1, (False, True))


async def test_cb17_a_host_that_refuses_is_not_tried_again() -> None:
    opened: list[int] = []

    async def refuses() -> Outcome[WorkspaceTransaction, UnsupportedBoundary]:
        opened.append(1)
        return Failure(UnsupportedBoundary(message="no"))

    refused = await settle(make(refuses), BOUNDARY, beta)
    assert (refused, opened) == (Failure(UnsupportedBoundary(message="no")), [1])
