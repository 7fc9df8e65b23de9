"""`run` and `worker`: what they start, go on with, report and leave behind."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import stepwell
from stepwell import Clock, Ledger, ManualClock, Success, get
from stepwell.core.batch import Batch, InsertRun, NoRun
from stepwell.core.run import RunRow
from stepwell.layers import app as apps
from stepwell.layers import clock as clocks
from stepwell.layers.driver.owner import name_owner
from stepwell.layers.entry.cli.output import Output
from stepwell.layers.entry.cli.problem import Problem
from stepwell.layers.entry.cli.worker import LOOK_MS, Follower
from stepwell.layers.entry.open import open_layer

from .shell import SHOP, Shell


def write_module(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"from stepwell import Run, workflow\n\n{text}\n")


# --- results --------------------------------------------------------------------


def test_a_run_prints_what_it_ended_with(shell: Shell) -> None:
    said = shell("run", f"{SHOP}:greet", "ann", "--id", "g-1")
    assert (said.code, said.out, said.err) == (0, "ann 1 []\n", "")
    assert (shell.folder / "stepwell.db").exists()


def test_a_result_that_is_no_text_is_printed_as_json(shell: Shell) -> None:
    said = shell("run", f"{SHOP}:sum_up", '{"a": 1, "b": 2}', "--id", "s-1")
    assert said.json == {"total": 3}


@pytest.mark.parametrize("place", ["before", "after"])
def test_json_is_asked_for_before_or_after_the_command(shell: Shell, place: str) -> None:
    words = ["run", f"{SHOP}:sum_up", '{"a": 1}', "--id", "s-1"]
    said = shell("--json", *words) if place == "before" else shell(*words, "--json")
    assert said.json == {"id": "s-1", "workflow": "sum_up", "state": "completed", "result": {"total": 1}}


def test_without_an_id_a_new_one_is_told_beside_the_result(shell: Shell) -> None:
    said = shell("run", f"{SHOP}:greet", "ann")
    assert said.out == "ann 1 []\n"
    (run_id,) = [run["id"] for run in shell("runs", "--json").json["runs"]]
    assert said.err == f"run {run_id}\n"


def test_the_database_is_named_by_option_or_environment_and_the_option_counts_for_more(shell: Shell) -> None:
    shell("--db", "one.db", "run", f"{SHOP}:greet", "ann")
    shell("run", f"{SHOP}:greet", "ann", "--db", "two.db")
    assert shell.run("run", f"{SHOP}:greet", "ann", STEPWELL_DB="three.db").code == 0
    assert shell.run("--db", "four.db", "run", f"{SHOP}:greet", "ann", STEPWELL_DB="five.db").code == 0
    assert {file.name for file in shell.folder.glob("*.db")} == {"one.db", "two.db", "three.db", "four.db"}


def test_a_module_is_found_by_its_dotted_name_in_the_current_folder(shell: Shell) -> None:
    (shell.folder / "bakery").mkdir()
    text = "@workflow\nasync def bake(run: Run, loaves: int) -> int:\n    return loaves"
    write_module(shell.folder / "bakery", "bread.py", text)
    assert shell.run("run", "bakery.bread:bake", "3").out == "3\n"
    assert shell.run("run", "bakery/bread.py:bake", "4").out == "4\n"


# --- arguments ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["42"], "42 1 []"),  # a str wants text, and gets it
        (['"42"'], "42 1 []"),
        (["null"], "null 1 []"),
        (["[1]"], "[1] 1 []"),
        ([""], " 1 []"),
        (["two words"], "two words 1 []"),
        (["ann", "2"], "ann 2 []"),
        (["ann", "2", "0.5", "3"], "ann 2 [0.5, 3.0]"),
    ],
)
def test_words_are_typed_by_the_parameters(shell: Shell, words: list[str], result: str) -> None:
    assert shell("run", f"{SHOP}:greet", "--id", "g", "--", *words).out == f"{result}\n"


@pytest.mark.parametrize(
    ("word", "value"),
    [("1", 1), ("1.0", 1.0), ("true", True), ("ann", "ann"), ('"1"', "1"), ("NaN", "NaN"), ("[", "[")],
)
def test_without_an_annotation_a_word_is_json_or_text(shell: Shell, word: str, value: object) -> None:
    result = shell("run", f"{SHOP}:untyped", word, "--json").json["result"]
    assert (result, type(result)) == (value, type(value))


def test_what_looks_like_an_option_goes_after_two_dashes(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:greet", "--id", "g", "--", "--json", "-3").out == "--json -3 []\n"


@pytest.mark.parametrize(
    ("target", "words", "said"),
    [
        ("greet", [], "greet also needs 'name'"),
        ("greet", ["ann", "many"], "greet: argument 'times' does not fit its type"),
        ("fails", ["1"], "fails takes 0 arguments, and 1 were given"),
        ("sum_up", ["ann"], "sum_up: argument 'amounts'"),
    ],
)
def test_arguments_that_do_not_fit_are_wrong_usage(shell: Shell, target: str, words: list[str], said: str) -> None:
    answer = shell("run", f"{SHOP}:{target}", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert shell("runs", "--json").json == {"runs": []}


def test_a_parameter_that_is_no_json_is_told(shell: Shell) -> None:
    write_module(shell.folder, "flows.py", "class Odd: ...\n\n@workflow\nasync def odd(run: Run, a: Odd) -> None: ...")
    answer = shell("run", "flows.py:odd", "1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert "Odd" in answer.err


def test_a_run_that_was_not_begun_is_not_told(shell: Shell) -> None:
    answer = shell("run", f"{SHOP}:greet")
    assert answer.code == 2
    assert answer.err.startswith("error: ")


def test_an_id_that_cannot_be_one_is_wrong_usage(shell: Shell) -> None:
    answer = shell("run", f"{SHOP}:fails", "--id", "x" * 513)
    assert answer.code == 2
    assert "512 bytes" in answer.err


# --- a run that exists ------------------------------------------------------------


def test_s128_s139_a_finished_run_prints_its_recorded_outcome_and_runs_no_more(shell: Shell) -> None:
    for words in (["ann"], [], ["ann", "1"]):
        assert shell("run", f"{SHOP}:greet", *words, "--id", "g").out == "ann 1 []\n"
    assert shell.marks() == ["ann"]


def test_s131_s139_a_failed_run_exits_1_with_its_recorded_error_each_time(shell: Shell) -> None:
    for _ in range(2):
        said = shell("run", f"{SHOP}:fails", "--id", "f")
        assert (said.code, said.out) == (1, "")
        assert said.err == "error: run 'f' failed: RuntimeError: no more paper\n"
    error = shell("run", f"{SHOP}:fails", "--id", "f", "--json").error
    assert (error["code"], error["type"], error["message"]) == ("run_failed", "RuntimeError", "no more paper")
    assert "RuntimeError: no more paper" in error["traceback"]


def test_a_failure_that_the_workflow_returned_is_reported_and_a_success_is_its_value(shell: Shell) -> None:
    said = shell("run", f"{SHOP}:declines", "true", "--id", "d", "--json")
    assert (said.code, said.error["code"], said.error["failure"]) == (1, "failure", "not today")
    assert shell("run", f"{SHOP}:declines", "false").out == "3\n"
    assert "not today" in shell("run", f"{SHOP}:declines", "true").err


def test_s140_an_id_with_other_arguments_exits_1_and_shows_both(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    said = shell("run", f"{SHOP}:greet", "bob", "--id", "g")
    assert (said.code, said.out) == (1, "")
    assert 'greet("ann",1)' in said.err
    assert 'greet("bob",1)' in said.err
    error = shell("run", f"{SHOP}:greet", "bob", "--id", "g", "--json").error
    assert error["code"] == "run_mismatch"
    assert (error["recorded"], error["requested"]) == ('greet("ann",1)', 'greet("bob",1)')
    assert shell.marks() == ["ann"]


def test_s140_an_id_of_another_workflow_exits_1_and_shows_both(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    for words in ([], ['{"a": 1}']):
        said = shell("run", f"{SHOP}:sum_up", *words, "--id", "g")
        assert said.code == 1
        assert "greet" in said.err
        assert "sum_up" in said.err


def test_a_recorded_result_that_no_longer_fits_the_code_is_told(shell: Shell) -> None:
    text = "@workflow\nasync def count(run: Run) -> {}:\n    return {}"
    write_module(shell.folder, "changed.py", text.format("str", "'many'"))
    assert shell.run("run", "changed:count", "--id", "c").out == "many\n"
    write_module(shell.folder, "changed.py", text.format("int", "3"))
    said = shell.run("run", "changed:count", "--id", "c")
    assert (said.code, said.out) == (1, "")
    assert "does not fit its type" in said.err
    assert "`stepwell show c`" in said.err
    assert shell("show", "c", "--json").json["result"] == "many"


def test_a_cancelled_run_is_reported(shell: Shell) -> None:
    with shell.begin("run", f"{SHOP}:waits", "--id", "w") as process:
        interrupt_when_waiting(shell, process.pid, "w")
        process.communicate(timeout=60)
    assert shell("cancel", "w").code == 0
    assert shell("run", f"{SHOP}:waits", "--id", "w").err == "error: run 'w' was cancelled\n"


# --- stuck, killed, interrupted -----------------------------------------------------


def interrupt_when_waiting(shell: Shell, pid: int, run_id: str) -> None:
    """SIGINT for the process, once its run stands at its long sleep."""
    while True:
        found = shell("show", run_id, "--json")
        if found.code == 0 and found.json["state"] == "waiting":
            break
    os.kill(pid, signal.SIGINT)


def test_ctrl_c_sets_the_run_aside_and_says_how_to_go_on(shell: Shell) -> None:
    with shell.begin("run", f"{SHOP}:waits", "--id", "w") as process:
        interrupt_when_waiting(shell, process.pid, "w")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert f"stepwell --db stepwell.db run {shlex.quote(f'{SHOP}:waits')} --id w" in err
    assert "Traceback" not in err
    shown = shell("show", "w", "--json").json
    assert (shown["state"], shown["owner"]) == ("waiting", None)
    assert str(shown["waiting_on"]).startswith("sleep 'long', until ")
    assert shell.marks() == ["waits"]


def test_ctrl_c_with_json_is_json(shell: Shell) -> None:
    with shell.begin("run", f"{SHOP}:waits", "--id", "w", "--json") as process:
        interrupt_when_waiting(shell, process.pid, "w")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (json.loads(err)["code"], json.loads(err)["id"]) == ("interrupted", "w")


def test_a_killed_run_goes_on_where_it_was_without_its_arguments(shell: Shell) -> None:
    killed = shell.run("run", f"{SHOP}:killed", "--id", "k")
    assert killed.code == -signal.SIGKILL
    (shell.folder / "mended").touch()
    said = shell.run("run", f"{SHOP}:killed", "--id", "k")
    assert (said.code, said.out) == (0, "survived\n")
    assert shell.marks() == ["before"]


def test_a_stuck_run_is_reported_and_goes_on_when_it_is_asked_for_again(shell: Shell) -> None:
    assert shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c").code == -signal.SIGKILL
    stuck = shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c")
    assert (stuck.code, stuck.out) == (1, "")
    assert "step 'first' was recorded as step note, and the code now asks for sleep" in stuck.err
    assert shell("show", "c", "--json").json["state"] == "stuck"
    assert shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c", "--json").error["code"] == "run_stuck"
    (shell.folder / "mended").touch()
    assert shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c").out == "mended\n"
    assert shell.marks() == ["one"]


# --- worker -----------------------------------------------------------------------


def test_a_worker_with_once_drives_what_is_due_tells_it_and_ends(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:killed", "--id", "k")
    (shell.folder / "mended").touch()
    said = shell.run("worker", SHOP, "--once")
    assert said.code == 0
    assert "killed  k  completed" in said.out
    assert shell("show", "k", "--json").json["result"] == "survived"
    assert shell.marks() == ["before"]


def test_a_worker_with_once_and_json_tells_one_object_a_line(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:killed", "--id", "k")
    (shell.folder / "mended").touch()
    said = shell.run("--json", "worker", SHOP, "--once")
    told = [json.loads(line) for line in said.out.splitlines()]
    assert (told[-1]["id"], told[-1]["state"]) == ("k", "completed")
    assert said.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_drains_when_it_is_told_to_stop(shell: Shell, number: signal.Signals) -> None:
    pipe = shell.folder / "door"
    os.mkfifo(pipe)
    shell.start("waits", str(pipe), id="w")
    with shell.begin("worker", SHOP) as worker:
        assert worker.stderr is not None
        assert "worker of" in worker.stderr.readline()
        assert pipe.read_text() == "here\n"
        worker.send_signal(number)
        _, err = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert err == "stopping: what runs is set aside\nstopped\n"
    shown = shell("show", "w", "--json").json
    assert shown["owner"] is None
    assert shell.marks() == ["waits"]


def test_a_worker_goes_on_telling_what_is_started_while_it_runs(shell: Shell) -> None:
    with shell.begin("worker", SHOP) as worker:
        assert worker.stderr is not None
        assert worker.stdout is not None
        assert "worker of" in worker.stderr.readline()
        shell.start("greet", "ann", id="g")
        told = worker.stdout.readline()
        while "completed" not in told:
            told = worker.stdout.readline()
        worker.terminate()
        worker.communicate(timeout=60)
    assert "greet  g  completed" in told


def test_a_worker_with_once_drives_what_a_dead_process_left_waiting_and_is_overdue(shell: Shell) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    place, _, nonce = name_owner("n").rsplit("/", 2)
    owner = "/".join((place.rpartition("/")[0], str(gone.pid), "-", nonce))

    async def leave() -> None:
        async with stepwell.open(shell.folder / "stepwell.db") as app:
            now_ms = get(app.env, Clock).now_ms()
            left = RunRow(
                id="g",
                workflow="greet",
                arguments=b'["ann",1]',
                state="waiting",
                created_at_ms=now_ms,
                updated_at_ms=now_ms,
                owner=owner,
                fence=1,
                lease_until_ms=now_ms + 60_000,
                wake_at_ms=now_ms - 1,
            )
            assert isinstance(await get(app.env, Ledger).commit(Batch((NoRun("g"),), (InsertRun(left),))), Success)

    asyncio.run(leave())
    assert shell.run("worker", SHOP, "--once").code == 0
    assert shell("show", "g", "--json").json["state"] == "completed"


def test_a_worker_with_once_does_not_wait_for_what_is_due_later(shell: Shell) -> None:
    shell.start("waits", id="w")
    said = shell.run("worker", SHOP, "--once")
    assert said.code == 0
    assert "waits  w  waiting: sleep 'long'" in said.out
    assert shell("show", "w", "--json").json["owner"] is None
    assert shell.run("worker", SHOP, "--once").code == 0
    assert shell.marks() == ["waits"]


async def test_a_worker_outlasts_a_database_that_cannot_answer(capsys: pytest.CaptureFixture[str]) -> None:
    clock, stop = ManualClock(), asyncio.Event()
    async with open_layer(apps.layer_noop().override(clocks.layer_test(clock))) as app:
        following = asyncio.create_task(Follower(app, ["greet"], Output(False), 0).follow(stop, once=False))
        await clock.advance(3 * LOOK_MS)
        assert not following.done()
        stop.set()
        await following
        with pytest.raises(Problem, match="the database cannot answer"):
            await Follower(app, ["greet"], Output(False), 0).follow(asyncio.Event(), once=True)
    assert capsys.readouterr().err.count("the database cannot answer") == 4


def test_a_worker_makes_its_database_and_goes_on_without_runs(shell: Shell) -> None:
    assert shell.run("worker", SHOP, "--once", "--db", "new.db").code == 0
    assert (shell.folder / "new.db").exists()


# --- what cannot be run -------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "code", "exit_code", "said"),
    [
        (f"{SHOP}:nobody", "unknown_workflow", 1, "its workflows are 'changes_its_mind', 'decides', 'declines'"),
        ("no_such_module:greet", "module_not_found", 1, "no module 'no_such_module'"),
        ("./nothing.py:greet", "module_not_found", 1, "there is no file ./nothing.py"),
        ("some/folder:greet", "module_not_found", 1, "neither a module"),
        ("json:greet", "unknown_workflow", 1, "it has no workflows"),
        ("shop", "usage", 2, "MODULE:WORKFLOW"),
        ("shop:", "usage", 2, "MODULE:WORKFLOW"),
    ],
)
def test_s126_what_is_not_there_is_named(shell: Shell, target: str, code: str, exit_code: int, said: str) -> None:
    answer = shell("run", target, "--json")
    assert (answer.code, answer.error["code"]) == (exit_code, code)
    assert said in answer.error["error"]
    assert list(shell.folder.iterdir()) == []


def test_s126_a_run_whose_workflow_no_worker_knows_stays_as_it_was(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:killed", "--id", "k")
    before = shell("show", "k", "--json").json
    write_module(shell.folder, "other.py", "@workflow\nasync def other(run: Run) -> None: ...")
    assert shell.run("worker", "other", "--once").code == 0
    said = shell.run("run", "other:killed", "--id", "k")
    assert said.code == 1
    assert "other has no workflow 'killed'; its workflows are 'other'" in said.err
    assert shell("show", "k", "--json").json == before


def test_a_name_that_means_two_workflows_is_refused(shell: Shell) -> None:
    twins = "@workflow(name='{}')\nasync def {}(run: Run) -> None: ...\n"
    write_module(shell.folder, "twins_of_names.py", twins.format("a", "b") + twins.format("b", "a"))
    said = shell("run", "twins_of_names.py:a", "--json")
    assert (said.code, said.error["code"]) == (1, "ambiguous_workflow")
    assert "'b', 'a'" in said.error["error"]


def test_two_modules_with_workflows_of_one_name_are_refused(shell: Shell) -> None:
    for name in ("first_twin", "second_twin"):
        write_module(shell.folder, f"{name}.py", "@workflow\nasync def twin(run: Run) -> None: ...")
    said = shell("worker", "first_twin.py", "second_twin.py", "--once")
    assert said.code == 1
    assert "two workflows are named 'twin', in first_twin.py and in second_twin.py" in said.err


def test_a_module_without_workflows_gives_a_worker_nothing_to_do(shell: Shell) -> None:
    said = shell("worker", "json", "--once")
    assert (said.code, "json has no workflows" in said.err) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(7)", "SystemExit: 7"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_with_the_place(shell: Shell, text: str, said: str) -> None:
    (shell.folder / "broken.py").write_text(f"\n{text}\n")
    for target in ("broken:x", "broken.py:x"):
        answer = shell("run", target)
        assert answer.code == 1
        assert answer.err.startswith("error: cannot import broken")
        assert said in answer.err
        assert "broken.py, line 2)" in answer.err
