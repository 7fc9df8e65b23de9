"""`--workspace` and `--artifacts` of `run` and `worker`: the folders that their steps work with."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

import stepwell
from stepwell import Success
from stepwell.layers.entry.open import current_app

from .filing import filing
from .shell import Shell

FILING = str(Path(__file__).with_name("filing.py"))


def write(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "in.txt").write_text(text)
    return folder


@pytest.fixture
def folder(shell: Shell) -> Path:
    return write(shell.folder / "project", "alpha\n")


def test_a_step_of_a_run_uses_the_sandbox_of_its_application(shell: Shell, folder: Path) -> None:
    said = shell.run("run", f"{FILING}:filing", "--id", "f", "--workspace", "project")
    assert (said.code, said.out, said.err) == (0, "ALPHA\n\n", "")
    assert (folder / "out.txt").read_text() == "ALPHA\n"


def test_a_worker_does_so_with_a_run_that_was_there_before(shell: Shell, folder: Path) -> None:
    with stepwell.open_blocking(shell.folder / "stepwell.db", drive=False) as portal:
        portal.call(lambda: portal.app.start(filing, id="f")).unwrap()
    said = shell.run("worker", FILING, "--once", "--workspace", "project")
    assert (said.code, "filing  f  completed" in said.out) == (0, True)
    assert (folder / "out.txt").read_text() == "ALPHA\n"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--workspace", "project"], "project/.stepwell/artifacts"),
        (["--artifacts", "kept"], "kept"),
        (["--workspace", "project", "--artifacts", "kept"], "kept"),
    ],
)
def test_artifacts_are_kept_in_their_folder_or_in_the_workspace(
    shell: Shell, folder: Path, options: list[str], kept: str
) -> None:
    said = shell.run("run", f"{FILING}:keeping", "--id", "k", *options)
    assert (said.code, said.err) == (0, "")
    assert said.out == hashlib.sha256(b"kept").hexdigest() + "\n"
    assert os.listdir(shell.folder / kept)


def test_without_a_workspace_the_step_is_refused_and_told_what_to_give(shell: Shell) -> None:
    said = shell.run("run", f"{FILING}:filing", "--id", "f")
    assert (said.code, "workspace=" in said.err) == (1, True)


@pytest.mark.parametrize("words", [["run", f"{FILING}:filing"], ["worker", FILING, "--once"]], ids=["run", "worker"])
def test_a_workspace_that_is_not_there_is_wrong_usage_and_makes_nothing(shell: Shell, words: list[str]) -> None:
    said = shell(*words, "--workspace", "nosuch")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: the workspace 'nosuch' does not exist: make the folder first, or name another one\n"
    assert list(shell.folder.iterdir()) == []


def test_a_workspace_where_no_sandbox_is_possible_is_a_failure_and_makes_nothing(shell: Shell) -> None:
    said = shell("run", f"{FILING}:filing", "--workspace", "/proc")
    assert (said.code, "/proc cannot be used" in said.err) == (1, True)
    assert list(shell.folder.iterdir()) == []


async def test_each_application_drives_its_runs_as_its_own(tmp_path: Path) -> None:
    first, second = write(tmp_path / "one", "one"), write(tmp_path / "two", "two")
    async with (
        stepwell.open("memory:", workflows=[filing], workspace=first) as one,
        stepwell.open("memory:", workflows=[filing], workspace=second) as two,
    ):
        assert await (await one.start(filing)).unwrap().result() == Success("ONE")
        assert await (await two.start(filing)).unwrap().result() == Success("TWO")
        with pytest.raises(RuntimeError, match="this is none"):
            current_app()
