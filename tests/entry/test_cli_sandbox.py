"""`sandbox run`: what it says of a command that keeps to what it is given, and of one that does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from dataclasses import fields
from pathlib import Path

import pytest

from stepwell.core.model import RecordedError
from stepwell.core.node import digest_of
from stepwell.core.step_sandbox import (
    BodyFailed,
    LimitExceeded,
    MaterializationConflict,
    MissingOutput,
    SurvivingRemoval,
    UndeclaredRead,
    UndeclaredWrite,
    UnsupportedBoundary,
    WorkspaceError,
)
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.layers.entry.cli.sandbox_problems import SHOWN, problem_of_sandbox
from stepwell.layers.workspace.settlement import SettleFailure

from ..layers.workspace.command.world import needs_bwrap, processes_with
from .shell import Said, Shell

RUN = ("sandbox", "run")
SORT = ("--reads", "src/**", "--writes", "out/sorted.txt", "--", "sort", "-o", "out/sorted.txt", "src/a.txt")


@pytest.fixture
def folder(shell: Shell) -> Path:
    """The folder that commands work on."""
    (shell.folder / "src").mkdir()
    (shell.folder / "src/a.txt").write_text("b\na\n")
    (shell.folder / "secret").write_text("s\n")
    return shell.folder


def files(folder: Path) -> dict[str, bytes]:
    """What is in the folder, without what stepwell keeps there itself."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in found if ".stepwell" not in path.parts}


def refused(shell: Shell, *words: str, code: int = 1) -> Said:
    """What is said of a command that is refused. The folder is as it was."""
    before = files(shell.folder)
    said = shell(*RUN, *words)
    assert (said.code, said.out) == (code, "")
    assert files(shell.folder) == before
    return said


# --- a command that keeps to its boundary -----------------------------------------------


@needs_bwrap
def test_what_a_command_read_and_wrote_is_a_table(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, *SORT)
    assert (said.code, said.out) == (0, "")
    assert (folder / "out/sorted.txt").read_text() == "a\nb\n"
    rows = [line.split() for line in said.err.splitlines()]
    assert rows[0] == ["path", "how", "digest"]
    assert rows[2:] == [
        ["read", "src/a.txt", "stat,", "read", digest_of(b"b\na\n")[:12]],
        ["wrote", "out/sorted.txt", "create", digest_of(b"a\nb\n")[:12]],
    ]


@needs_bwrap
def test_what_it_prints_is_passed_on(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, "--reads", "src/*", "--", "sh", "-c", "cat src/a.txt; echo hm >&2")
    assert (said.code, said.out) == (0, "b\na\n")
    assert said.err.startswith("hm\n")


@needs_bwrap
def test_json_is_one_object(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, "--json", *SORT)
    assert (said.code, said.err) == (0, "")
    told = said.json
    assert told["read"][-1] == {"path": "src/a.txt", "look": "read", "digest": digest_of(b"b\na\n")}
    assert told["wrote"] == [{"path": "out/sorted.txt", "kind": "create", "digest": digest_of(b"a\nb\n")}]
    assert (told["departures"], told["notes"]) == ([], [])
    assert (told["evidence"], told["exit_code"], told["materialized"], told["rebases"]) == ("enforced", 0, True, 0)
    assert (told["stdout"], told["stderr"]) == ("", "")


@needs_bwrap
def test_a_command_that_touches_nothing_says_so(shell: Shell) -> None:
    said = shell(*RUN, "true")
    assert (said.code, said.out, said.err) == (0, "", "it read and wrote none of the folder's files\n")


@needs_bwrap
def test_quietly_only_what_the_command_prints_is_told(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, "--quiet", "--reads", "src/*", "--", "cat", "src/a.txt")
    assert (said.code, said.out, said.err) == (0, "b\na\n", "")
    nothing = shell(*RUN, "--quiet", "true")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "")


@needs_bwrap
def test_what_was_only_looked_for_is_told_to_whoever_asks_what_a_command_needs(shell: Shell, folder: Path) -> None:
    words = ("sh", "-c", "test -e secret; test -e none; echo n > secret")
    said = shell(*RUN, "--expected", "--dry-run", "--writes", "secret", "--", *words)
    assert ["undeclared", "secret", "probe"] in [line.split() for line in said.err.splitlines()]
    assert "as --expected says" not in said.err
    told = shell(*RUN, "--json", "--expected", "--writes", "secret", "--", *words).json
    assert told["departures"] == [{"kind": "undeclared_probe", "path": "secret"}]
    (folder / "secret").write_text("s\n")
    assert shell(*RUN, "--json", "--writes", "secret", "--", *words).json["departures"] == []


@needs_bwrap
def test_a_dry_run_writes_nothing(shell: Shell, folder: Path) -> None:
    before = files(folder)
    said = shell(*RUN, "--dry-run", *SORT)
    assert said.code == 0
    assert said.err.endswith("nothing was written: this was a dry run\n")
    assert files(folder) == before
    assert shell(*RUN, "--dry-run", "--json", *SORT).json["materialized"] is False


@needs_bwrap
def test_the_words_after_the_command_are_its_own(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, "echo", "--json", "--reads", "x", "--", "-h")
    assert (said.code, said.out) == (0, "--json --reads x -- -h\n")


@needs_bwrap
def test_another_folder_variables_and_exit_codes(shell: Shell, folder: Path) -> None:
    words = ("--root", "src", "--env", "WORD=x=y", "--ok", "1", "--ok", "3", "--json")
    said = shell(*RUN, *words, "--", "sh", "-c", "ls; echo $WORD $HOME; exit 3")
    assert (said.json["exit_code"], said.json["stdout"]) == (3, "x=y /stepwell/home\n")


@needs_bwrap
def test_a_file_may_be_removed(shell: Shell, folder: Path) -> None:
    said = shell(*RUN, "--json", "--removes", "secret", "--", "rm", "secret")
    assert said.json["wrote"] == [{"path": "secret", "kind": "remove", "digest": None}]
    assert not (folder / "secret").exists()


@needs_bwrap
def test_a_folder_of_programs_is_shown(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> None:
    tools = tmp_path_factory.mktemp("tools")
    (tools / "greeting").write_text("hello\n")
    said = shell(*RUN, "--toolchain", str(tools), "--", "cat", str(tools / "greeting"))
    assert (said.code, said.out) == (0, "hello\n")


# --- what it prints ---------------------------------------------------------------------


def raw(shell: Shell, *words: str) -> bytes:
    """What a command prints, as bytes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-m", "stepwell", *RUN, *words]
    return subprocess.run(argv, cwd=shell.folder, env=environment, check=True, capture_output=True).stdout


@needs_bwrap
def test_bytes_that_are_no_text_are_passed_on_as_they_are(shell: Shell) -> None:
    octal = r"printf '\377\000\033[1m'"
    assert raw(shell, "sh", "-c", octal) == b"\xff\0\x1b[1m"
    told = json.loads(raw(shell, "--json", "sh", "-c", octal))
    assert (told["stdout"], b64decode(told["stdout_base64"])) == ("�\0\x1b[1m", b"\xff\0\x1b[1m")


@needs_bwrap
def test_a_terminal_obeys_nothing_that_a_command_prints(shell: Shell) -> None:
    assert "\\x1b[2J" in shell.on_terminal(*RUN, "printf", r"\033[2J")


@needs_bwrap
def test_a_command_that_prints_megabytes_is_passed_on_up_to_a_limit(shell: Shell) -> None:
    many = shell(*RUN, "head", "-c", "3000000", "/dev/zero")
    assert (many.code, len(many.out)) == (0, 3_000_000)
    limit = WorkspaceLimits().output_bytes
    more = shell(*RUN, "head", "-c", str(limit + 5), "/dev/zero")
    assert more.out.endswith("\n[5 more bytes were cut off]\n")
    assert "stdout was cut off" in more.err


@needs_bwrap
def test_nobody_has_to_read_to_the_end(shell: Shell) -> None:
    with shell.begin(*RUN, "head", "-c", "1000000", "/dev/zero") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 0
    assert said == "it read and wrote none of the folder's files\n"


# --- one that does not ------------------------------------------------------------------


@needs_bwrap
def test_what_was_read_undeclared_is_named_with_what_the_command_said(shell: Shell, folder: Path) -> None:
    words = ("--reads", "src/**", "--", "cat", "secret", "src/a.txt")
    said = refused(shell, *words)
    assert said.err.startswith("error: it read what was not declared:\n  secret\nnothing was written; ")
    assert "--reads" in said.err
    assert "--toolchain" not in said.err
    assert said.err.endswith("it said:\nb\na\ncat: secret: No such file or directory\n")
    told = refused(shell, "--json", *words).error
    assert (told["code"], told["paths"]) == ("undeclared_read", ["secret"])
    printed = "cat: secret: No such file or directory\n"
    assert (told["exit_code"], told["stdout"], told["stderr"]) == (1, "b\na\n", printed)


@needs_bwrap
def test_what_a_command_printed_before_it_failed_is_passed_on(shell: Shell, folder: Path) -> None:
    words = ("sh", "-c", "echo on stdout; echo on stderr >&2; exit 3")
    said = refused(shell, *words)
    assert said.err == "error: sh ended with exit code 3; nothing was written\non stdout\non stderr\n"
    told = refused(shell, "--json", *words).error
    assert (told["exit_code"], told["stdout"], told["stderr"]) == (3, "on stdout\n", "on stderr\n")
    assert (told["missed"], told["read_only"]) == ([], [])
    probed = refused(shell, "--json", "--reads", "secret", "--", "sh", "-c", "test -e src || echo > secret")
    assert (probed.error["missed"], probed.error["read_only"]) == (["src"], ["secret"])


@needs_bwrap
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("sh", "-c", "test -e src || exit 1"), "(it looked for src, which the folder has and the step does not"),
        (("sh", "-c", "test -e src || exit 1"), "; name by --reads what it looked for\n"),
        (("--reads", "secret", "--", "sh", "-c", "echo x > secret"), "; name by --writes too what it opened"),
        (("--writes", "secret", "--", "cat", "secret"), "; secret is there as an output of before: give it by --reads"),
        (("sh", "-c", "echo Network is unreachable >&2; exit 1"), "; let it reach the network by --network\n"),
    ],
)
def test_who_may_have_declared_too_little_is_told_what_to_add(
    shell: Shell, folder: Path, words: tuple[str, ...], hint: str
) -> None:
    assert hint in refused(shell, *words).err


@needs_bwrap
def test_who_has_declared_enough_is_told_nothing(shell: Shell, folder: Path) -> None:
    script = "test -e secret; echo x > secret; echo Network is unreachable >&2; exit 1"
    words = ("--network", "--reads", "secret", "--writes", "secret", "--", "sh", "-c", script)
    assert refused(shell, *words).err == (
        "error: sh ended with exit code 1; nothing was written\nNetwork is unreachable\n"
    )


@needs_bwrap
def test_a_program_that_this_machine_has_elsewhere_is_named(
    shell: Shell, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tool = tmp_path_factory.mktemp("bin") / "my-tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    said = shell.run(*RUN, "my-tool", PATH=f"{tool.parent}:{os.environ['PATH']}")
    assert said.code == 1
    assert f"give a whole path for another, as by $(which my-tool), which is {tool}\n" in said.err


def test_a_pattern_that_the_shell_has_replaced_is_wrong_usage(shell: Shell, folder: Path) -> None:
    (folder / "src/b.txt").touch()
    said = refused(shell, "--reads", "src/a.txt", "src/b.txt", "--", "true", code=2)
    assert "'src/b.txt' stands before the -- and belongs to no option: quote the pattern" in said.err


@needs_bwrap
def test_what_is_appended_to_has_to_be_read(shell: Shell, folder: Path) -> None:
    append = ("--writes", "secret", "--", "sh", "-c", "echo more >> secret")
    assert "it read what was not declared:\n  secret\n" in refused(shell, *append).err
    assert shell(*RUN, "--reads", "secret", *append).code == 0
    assert (folder / "secret").read_text() == "s\nmore\n"


@needs_bwrap
def test_a_path_outside_the_folder_is_no_matter_of_reads(shell: Shell, folder: Path) -> None:
    said = refused(shell, "cat", "/etc/fstab" if os.path.exists("/etc/fstab") else "/etc/hostname")
    assert "--toolchain" in said.err
    assert "--reads" not in said.err


@needs_bwrap
def test_a_file_of_the_folder_is_named_from_its_top(shell: Shell, folder: Path) -> None:
    said = refused(shell, "cat", str(folder / "secret"))
    assert f"say secret for {folder / 'secret'}" in said.err
    assert "--toolchain" not in said.err


@needs_bwrap
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("touch", "new"), "undeclared_write", "it wrote what was not declared:\n  new\n"),
        (("--writes", "out/x", "--", "true"), "missing_output", "it did not write:\n  out/x\n"),
        (("--removes", "secret", "--", "true"), "surviving_removal", "it did not remove:\n  secret\n"),
        (("sh", "-c", "echo no >&2; exit 3"), "body_failed", "sh ended with exit code 3; nothing was written\nno"),
        (("sh", "-c", "echo on stdout; exit 3"), "body_failed", "on stdout"),
        (("--writes", "o", "--", "sh", "-c", "echo half > o; exit 1"), "body_failed", "exit code 1"),
        (("nosuch",), "body_failed", "nosuch cannot be executed: No such file or directory; a name without a slash"),
        (("--timeout", "0.1", "--", "sleep", "60"), "limit_exceeded", "longer than 0.1 s and was ended; give it"),
        (("--writes", "p", "--", "mkfifo", "p"), "unsupported_file_type", "p (FIFO)"),
        (("--writes", "l", "--", "ln", "-s", "../x", "l"), "path_escapes_workspace", "l"),
    ],
)
def test_each_refusal_says_what_happened_and_changes_nothing(
    shell: Shell, folder: Path, words: tuple[str, ...], code: str, said: str
) -> None:
    told = refused(shell, "--json", *words).error
    assert told["code"] == code
    assert said in told["error"]


@needs_bwrap
def test_what_departs_is_accepted_as_expected_and_told(shell: Shell, folder: Path) -> None:
    script = "cat secret; echo n > new; exit 0"
    words = ("--expected", "--writes", "out", "--removes", "src/a.txt")
    said = shell(*RUN, *words, "--", "sh", "-c", script)
    assert said.code == 0
    rows = {tuple(line.split()) for line in said.err.splitlines()}
    assert {("undeclared", "secret", "read"), ("undeclared", "new", "write")} <= rows
    assert {("missing", "out", "output"), ("surviving", "src/a.txt", "removal")} <= rows
    assert "as --expected says" in said.err
    assert (folder / "new").read_text() == "n\n"
    departures = shell(*RUN, "--json", "--dry-run", *words, "--", "sh", "-c", script).json["departures"]
    assert {"kind": "undeclared_read", "path": "secret"} in departures


# --- where it cannot be done ------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Missing argument"),
        (("--read", "x", "--", "true"), "No such option"),
        (("--timeout", "soon", "--", "true"), "not a valid float"),
        (("--timeout", "0", "--", "true"), "timeout"),
        (("--ok", "300", "--", "true"), "300"),
        (("--env", "WORD", "--", "true"), "NAME=VALUE"),
        (("--env", "=x", "--", "true"), "variable"),
        (("--writes", "../x", "--", "true"), "goes up"),
        (("--reads", "/etc/passwd", "--", "true"), "/etc/passwd"),
        (("--reads", "a\\b", "--", "true"), "backslash"),
        (("--writes", "a", "--removes", "a", "--", "true"), "a"),
        (("--db", "x.db", "--", "true"), "No such option"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(shell: Shell, words: tuple[str, ...], said: str) -> None:
    told = shell(*RUN, *words)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert list(shell.folder.iterdir()) == []
    assert shell(*RUN, "--json", *words).error["code"] == "usage"


def test_the_help_speaks_of_no_database(shell: Shell) -> None:
    said = shell(*RUN, "--help")
    assert said.code == 0
    assert "--db" not in said.out
    assert "--json" in said.out


@pytest.mark.parametrize("root", ["nowhere", "file"])
def test_the_folder_has_to_be_there(shell: Shell, root: str) -> None:
    (shell.folder / "file").touch()
    said = shell(*RUN, "--root", root, "--", "true")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"error: there is no folder {root!r}: make it first, or name another one by --root\n"


def test_without_bubblewrap_nothing_is_executed_and_it_says_what_to_install(shell: Shell, folder: Path) -> None:
    before = files(folder)
    said = shell.run(*RUN, *SORT, PATH="/nowhere")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: there is no bwrap in PATH: install the package bubblewrap")
    assert files(folder) == before
    named = shell(*RUN, "--json", "--bwrap", "/nowhere/bwrap", *SORT).error
    assert (named["code"], "/nowhere/bwrap" in named["error"]) == ("unsupported_boundary", True)


# --- ended from outside -----------------------------------------------------------------


@needs_bwrap
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_ctrl_c_ends_it_and_leaves_the_folder_as_it_was(shell: Shell, folder: Path, words: tuple[str, ...]) -> None:
    before, mark = files(folder), f"86400.{os.getpid()}"
    script = f"echo half > out; rm secret; sleep {mark}"
    declared = ("--writes", "out", "--removes", "secret", *words)
    with shell.begin(*RUN, *declared, "--", "sh", "-c", script) as process:
        while not [found for found in processes_with(f"sleep\0{mark}") if found != process.pid]:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert (json.loads(err)["code"] if words else err.strip()) == ("interrupted" if words else "error: interrupted")
    assert processes_with(f"sleep\0{mark}") == []
    assert files(folder) == before


# --- every failure ----------------------------------------------------------------------

FAILURES: tuple[SettleFailure, ...] = (
    UndeclaredRead(("a",), "d"),
    UndeclaredRead(("/etc/a",), "d", cause=RecordedError("CommandFailed", "m", "said")),
    UndeclaredWrite(("a",), "d"),
    MissingOutput(("a",), "d"),
    SurvivingRemoval(("a",), "d"),
    MaterializationConflict(("a",)),
    BodyFailed(RecordedError("CommandFailed", "cc ended with exit code 1: no", "first\nno")),
    UnsupportedBoundary(message="no bubblewrap: install it"),
    WorkspaceError("name_collision", "A and a are one name"),
)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_every_failure_says_that_nothing_was_written(failure: SettleFailure) -> None:
    problem = problem_of_sandbox(failure, ".")
    assert problem.exit_code == 1
    assert "nothing was written" in problem.message
    assert problem.code.replace("_", "").isalpha()


def test_every_limit_is_told_in_words_with_what_to_do() -> None:
    mere_sizes = {"memory_bytes", "inline_bytes", "inline_total", "trace", "output_bytes"}  # beyond them is no failure
    names = [field.name for field in fields(WorkspaceLimits) if field.name not in mere_sizes]
    told = {name: problem_of_sandbox(LimitExceeded(name, 2**31, 2**30), ".").message for name in names}
    assert [name for name, message in told.items() if f"limit of {name}" in message or "; " not in message] == []
    assert told["file_bytes"] == "a file is too large, 2.0 GiB where 1.0 GiB are allowed; leave it out; " + (
        "nothing was written"
    )


def test_a_great_many_paths_are_counted() -> None:
    paths = tuple(f"p{number}" for number in range(SHOWN + 7))
    problem = problem_of_sandbox(UndeclaredWrite(paths, "d"), ".")
    assert "  and 7 more; --json names all\n" in problem.message
    assert f"  p{SHOWN}\n" not in problem.message
    assert problem.details["paths"] == list(paths)
