"""Commands as bodies of a transaction over a folder: from what they read to what is written back."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stepwell import build, get
from stepwell.core.boundary import Boundary
from stepwell.core.codec import codec_of
from stepwell.core.command import Command, CommandFailure
from stepwell.core.model import RecordedError
from stepwell.core.observation import names_digest
from stepwell.core.outcome import Failure, Success
from stepwell.core.step_sandbox import BodyFailed, UndeclaredRead
from stepwell.layers import artifacts, clock, step_sandbox
from stepwell.layers.workspace.command.runner import CommandRunner
from stepwell.layers.workspace.command_bodies import IsolatedCommands
from stepwell.layers.workspace.ended import Ended
from stepwell.layers.workspace.options import Options
from stepwell.services.step_sandbox import StepSandbox

from .world import PYTHON, declared, files, needs_bwrap, sh

pytestmark = needs_bwrap


@asynccontextmanager
async def sandbox_over(root: Path, *toolchain: str) -> AsyncGenerator[StepSandbox]:
    layer = step_sandbox.layer(root, toolchain=toolchain)
    async with build(layer | artifacts.layer_test() | clock.layer_test()) as built:
        assert isinstance(built, Success), built
        yield get(built.unwrap(), StepSandbox)


async def test_a_01_a_command_that_keeps_to_its_boundary_is_accepted_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("alpha\n")
    boundary = Boundary(reads=("in.txt",), writes=("out/r",))
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        outcome = await transaction.execute(boundary, sh("wc -c < in.txt; echo beta > out/r"))
        assert isinstance(outcome, Success), outcome
        accepted = outcome.unwrap()
        assert (accepted.output.stdout.strip(), accepted.evidence) == (b"6", "enforced")
        assert not (tmp_path / "out").exists()
        assert isinstance(await transaction.materialize(accepted), Success)
    assert (tmp_path / "out" / "r").read_text() == "beta\n"


async def test_b_03_a_command_that_looks_at_what_it_did_not_declare_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cr3t\n")
    for spelling in ("secret", str(tmp_path / "secret")):
        async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
            outcome = await transaction.execute(Boundary(), Command(("cat", spelling), ok=(0, 1)))
            assert isinstance(outcome, Failure)
            failure = outcome.failure()
            assert isinstance(failure, UndeclaredRead)
            assert failure.paths == (spelling,)


async def test_a_command_that_fails_of_what_it_only_looked_for_is_told_what_that_was(tmp_path: Path) -> None:
    """Looking whether something is there is no undeclared read, and yet nobody finds the mistake otherwise."""
    for name in ("src", ".git"):
        (tmp_path / name).mkdir()
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        outcome = await transaction.execute(Boundary(), sh("test -d .git; test -e none; test -d src || exit 3"))
        assert isinstance(outcome, Failure)
        failure = outcome.failure()
        assert isinstance(failure, BodyFailed)
        hint = "it looked for .git, src, which the folder has and the step does not declare"
        assert failure.cause.message == f"/bin/sh ended with exit code 3 ({hint})"
        assert failure.command == CommandFailure(3, "", "", missed=(".git", "src"))


async def test_what_a_command_only_looked_for_is_in_the_evidence_as_what_the_folder_has(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        accepted = (await transaction.execute(Boundary(), sh("test -d src; test -e none; true"))).unwrap()
        assert accepted.record is not None
        probes = {(it.path, it.outcome) for it in accepted.record.observed if it.look == "probe"}
        assert {("src", "undeclared"), ("none", "absent")} <= probes


async def test_a_command_that_fails_tells_all_that_it_printed(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        outcome = await transaction.execute(Boundary(), sh("echo out; echo err >&2; exit 3"))
        failure = outcome.failure()
        assert isinstance(failure, BodyFailed)
        assert failure.cause == RecordedError("CommandFailed", "/bin/sh ended with exit code 3: err", "out\nerr\n")
        assert failure.command == CommandFailure(3, "out\n", "err\n")
        refused = (await transaction.execute(Boundary(), sh("echo out; exec cat secret"))).failure()
        assert isinstance(refused, UndeclaredRead)
        said = "cat: secret: No such file or directory\n"
        assert refused.command == CommandFailure(1, "out\n", said)
        for failed in (failure, refused):  # as the result of a step of a run
            codec = codec_of(type(failed))
            read = codec.decode(codec.encode(failed, "it"), "it")
            assert isinstance(read, BodyFailed | UndeclaredRead)
            assert (read, read.command) == (failed, failed.command)


async def test_of_what_a_failed_command_printed_the_end_is_kept(tmp_path: Path) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x; echo end; exit 1"
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        failure = (await transaction.execute(Boundary(), sh(script))).failure()
        assert isinstance(failure, BodyFailed)
        assert failure.command is not None
        assert (len(failure.command.stdout), failure.command.stdout[-5:]) == (65_536, "xend\n")
        assert failure.cause.traceback.endswith("xend\n")
        assert len(failure.cause.traceback) == 4_096


@pytest.mark.parametrize("script", ["echo x > in.txt", "echo x >> in.txt"])
async def test_a_command_that_fails_of_writing_to_what_it_may_read_is_told_so(tmp_path: Path, script: str) -> None:
    (tmp_path / "in.txt").write_text("alpha\n")
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        failure = (await transaction.execute(Boundary(("in.txt",)), sh(script))).failure()
        assert isinstance(failure, BodyFailed)
        assert failure.command is not None
        assert failure.command.read_only == ("in.txt",)
        assert "it opened in.txt for writing, which the step declares as a read only" in failure.cause.message
        both = await transaction.execute(Boundary(("in.txt",), ("in.txt",)), sh(f"{script}; exit 3"))
        refused = both.failure()
        assert isinstance(refused, BodyFailed)
        assert refused.command == CommandFailure(3, "", "")


UPDATES = {
    "append": "echo more >> log",
    "tee": "echo more | tee -a log",
    "python": '/usr/bin/env python3 -I -S -c \'open("log", "a").write("more")\'',
    "in place": "echo more | dd of=log conv=notrunc 2>&1",
    "touch": "touch log",
    "counted": '/usr/bin/env python3 -I -S -c \'f = open("log", "a+"); f.seek(0); t = f.read(); f.truncate(0); '
    'f.write(t + "more")\'',
    "elsewhere": "ln -s log link; echo more >> link; rm link",
}


@pytest.mark.parametrize("script", UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("writes", ["log", "*"])
async def test_what_is_updated_and_was_not_declared_as_a_read_is_never_lost(
    tmp_path: Path, script: str, writes: str
) -> None:
    """The command would have found it, and has made a file of its own instead of it."""
    (tmp_path / "log").write_text("first\n")
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        refused = await transaction.execute(Boundary((), (writes,)), sh(script))
        assert isinstance(refused, Failure), refused
        failure = refused.failure()
        assert isinstance(failure, UndeclaredRead)
        assert failure.paths == ("log",)
        accepted = (await transaction.execute(Boundary(("log",), (writes,)), sh(script))).unwrap()
        _ = (await transaction.materialize(accepted)).unwrap()
    assert (tmp_path / "log").read_text().startswith("more" if script == UPDATES["in place"] else "first\n")


@pytest.mark.parametrize(
    "script",
    [
        "echo new > log",
        "echo new > tmp; mv tmp log",
        "echo new > log; echo more >> log; touch log",
        "echo new | sort -o log",  # which opens it first, and cuts it to nothing then
    ],
)
async def test_what_is_written_anew_was_not_read(tmp_path: Path, script: str) -> None:
    (tmp_path / "log").write_text("first\n")
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        accepted = (await transaction.execute(Boundary((), ("log",)), sh(script))).unwrap()
        _ = (await transaction.materialize(accepted)).unwrap()
    assert (tmp_path / "log").read_text().startswith("new\n")


async def test_what_a_python_program_imports_of_its_own_is_not_compiled_into_the_folder(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import lib\n")
    (tmp_path / "lib.py").write_text("x = 1\n")
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        for writes in ((), ("*/**",)):
            accepted = await transaction.execute(Boundary(("*.py",), writes), Command((PYTHON, "main.py")))
            assert accepted.unwrap().changes == ()


async def test_a_listing_is_noted_with_the_names_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    for name in ("b", "a", "deep/c"):
        (tmp_path / "src" / name).write_text("1\n")
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        accepted = (await transaction.execute(Boundary(("src/**",)), sh("ls src; find src"))).unwrap()
    assert accepted.record is not None
    listed = {it.path: it.outcome for it in accepted.record.observed if it.look == "list"}
    assert listed == {"src": names_digest(["a", "b", "deep"]), "src/deep": names_digest(["c"])}


async def test_what_is_not_there_yet_may_be_appended_to(tmp_path: Path) -> None:
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        accepted = (await transaction.execute(Boundary((), ("log",)), sh("echo one >> log; echo two >> log"))).unwrap()
        _ = (await transaction.materialize(accepted)).unwrap()
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


async def test_the_loop_does_not_wait_while_looks_are_judged(runner: CommandRunner) -> None:
    """There may be a million of them, and the host is asked about each."""
    askers: set[int] = set()

    def has(path: str) -> bool:
        askers.add(threading.get_ident())
        return False

    async with IsolatedCommands(runner, Options()).run(files(), declared(), sh("cat x; true"), has) as ended:
        assert isinstance(ended, Ended)
    assert len(askers - {threading.get_ident()}) == len(askers) == 1


async def test_b_02_a_folder_within_the_toolchain_is_hidden_from_commands(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "secret").write_text("s3cr3t\n")
    (tmp_path / "tool").write_text("tool\n")
    async with sandbox_over(root, str(tmp_path)) as sandbox, (await sandbox.open()).unwrap() as transaction:
        outcome = await transaction.execute(Boundary(), sh(f"cat {tmp_path}/tool; cat {root}/secret; true"))
        assert isinstance(outcome, Failure)
        failure = outcome.failure()
        assert isinstance(failure, UndeclaredRead)
        assert failure.paths == (f"{root}/secret",)


async def test_names_that_are_no_text_are_told_escaped(tmp_path: Path) -> None:
    touch(tmp_path, b"\xff")
    script = "cat \"$(printf '\\377')\"; cat \"$(printf '\\376')\"; cat \"$(printf '/no/such/\\376')\"; true"
    async with sandbox_over(tmp_path) as sandbox, (await sandbox.open()).unwrap() as transaction:
        outcome = await transaction.execute(Boundary(), sh(script))
        assert isinstance(outcome, Failure), outcome
        failure = outcome.failure()
        assert isinstance(failure, UndeclaredRead)
        assert failure.paths == ("\\xff",)
        accepted = await transaction.execute(Boundary(), sh("cat \"$(printf '\\376')\"; true"))
        assert isinstance(accepted, Success), accepted


def touch(folder: Path, name: bytes) -> None:
    (folder / os.fsdecode(name)).touch()
