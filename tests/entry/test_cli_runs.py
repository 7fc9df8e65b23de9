"""`runs`, `show`, `cancel`, `resume`: what there is, and how it stands."""

from __future__ import annotations

import pytest

from .shell import SHOP, Shell

# --- runs -------------------------------------------------------------------------


def test_runs_are_listed_in_the_order_of_their_start(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "z")
    shell("run", f"{SHOP}:fails", "--id", "a")
    shell.start("waits", id="m")
    said = shell("runs")
    lines = [line.split() for line in said.out.splitlines()]
    assert lines[0][:4] == ["run", "workflow", "state", "changed"]
    assert [line[:3] for line in lines[2:]] == [
        ["z", "greet", "completed"],
        ["a", "fails", "failed"],
        ["m", "waits", "pending"],
    ]
    assert "\x1b" not in said.out
    assert not any(line.endswith(" ") for line in said.out.splitlines())


def test_runs_are_chosen_by_state_workflow_and_place(shell: Shell) -> None:
    for run_id in ("g-1", "g-2", "g-3"):
        shell("run", f"{SHOP}:greet", "ann", "--id", run_id)
    shell("run", f"{SHOP}:fails", "--id", "f-1")

    def ids(*words: str) -> list[str]:
        return [run["id"] for run in shell("runs", "--json", *words).json["runs"]]

    assert ids("--state", "failed") == ["f-1"]
    assert ids("--state", "stuck") == []
    assert ids("--workflow", "greet") == ["g-1", "g-2", "g-3"]
    assert ids("--limit", "2") == ["g-1", "g-2"]
    assert ids("--after", "g-2") == ["g-3", "f-1"]
    assert ids("--newest", "--limit", "2") == ["f-1", "g-3"]
    assert ids("--newest", "--after", "g-3")[0] == "g-2"
    assert "--after g-2" in shell("runs", "--limit", "2").err


def test_json_tells_all_of_a_run_s_status(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    (run,) = shell("--json", "runs").json["runs"]
    assert run.keys() == {"id", "workflow", "state", "waiting_on", "problem", "created_at_ms", "updated_at_ms"}
    assert run["created_at_ms"] <= run["updated_at_ms"]


def test_colours_are_for_terminals_and_for_those_who_want_them(shell: Shell) -> None:
    shell.start("waits", id="w")
    assert "\x1b[1mrun" in shell.on_terminal("runs")
    assert shell.on_terminal("show", "w").count("\x1b[3") == 0
    shell("cancel", "w")
    assert shell.on_terminal("show", "w").count("\x1b[3") == 1
    assert shell.on_terminal("show", "w", NO_COLOR="1").count("\x1b[3") == 0


def test_a_narrow_terminal_keeps_states_and_times_whole(shell: Shell) -> None:
    shell.start("waits", id="a run with quite a long name, longer than a narrow terminal has room for")
    seen = shell.on_terminal("runs", COLUMNS="60").replace("\x1b[1m", "").replace("\x1b[0m", "")
    (line,) = [line for line in seen.splitlines() if "pending" in line]
    assert len(line.split("pending")[1].split()) >= 2
    assert max(map(len, seen.splitlines())) <= 60


def test_a_very_narrow_terminal_shows_something_of_everything(shell: Shell) -> None:
    shell.start("waits", id="w")
    seen = shell.on_terminal("runs", COLUMNS="40", NO_COLOR="1").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, seen.splitlines())) <= 40
    assert any(line.split()[:2] == ["w", "waits"] for line in seen.splitlines())


def test_progress_is_for_those_who_watch(shell: Shell) -> None:
    assert "run g" in shell.on_terminal("run", f"{SHOP}:greet", "ann", "--id", "g")
    assert shell.run("run", f"{SHOP}:greet", "ann", "--id", "g").err == ""


@pytest.mark.parametrize(
    "words",
    [["--state", "done"], ["--limit", "0"], ["--limit", "many"], ["--limit", str(2**63)], ["--nonsense"], ["more"]],
)
def test_wrong_usage_of_runs(shell: Shell, words: list[str]) -> None:
    said = shell("runs", *words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: stepwell runs" in said.err
    assert shell("runs", "--json", *words).error["code"] == "usage"


def test_runs_after_one_that_is_not_there(shell: Shell) -> None:
    shell.start("waits", id="w")
    assert shell("runs", "--after", "nobody", "--json").error["code"] == "run_not_found"


# --- show -------------------------------------------------------------------------


def test_show_tells_steps_with_their_attempts_and_values_and_the_result(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "2", "--id", "g")
    said = shell("show", "g")
    assert 'arguments  ["ann",2]' in said.out
    (step,) = [line.split() for line in said.out.splitlines() if line.startswith("1 ")]
    assert step[:6] == ["1", "note", "step", "note", "done", "1"]
    assert step[-1] == '"ann"'
    assert 'result  "ann 2 []"' in said.out


def test_show_tells_the_error_with_its_traceback(shell: Shell) -> None:
    shell("run", f"{SHOP}:fails", "--id", "f")
    said = shell("show", "f")
    assert "RuntimeError: no more paper" in said.out
    assert 'raise RuntimeError("no more paper")' in said.out
    error = shell("show", "f", "--json").json["error"]
    assert (error["type"], error["message"]) == ("RuntimeError", "no more paper")


def test_show_tells_what_a_run_waits_for_and_until_when(shell: Shell) -> None:
    shell("run", f"{SHOP}:opens", "o-1", "--id", "o")
    shown = shell("show", "o", "--json").json
    assert shown["result"] == 1
    assert [(step["key"], step["status"], step["position"]) for step in shown["steps"]] == [
        ("open", "done", 1),
        ("approve", "done", 2),
    ]
    assert shown["steps"][1]["store"] == {
        **shown["steps"][1]["store"],
        "name": "shop.orders",
        "id": "o-1",
        "version": 1,
    }
    assert "shop.orders/o-1" in shell("show", "o").out


def test_show_of_a_run_that_is_not_there(shell: Shell) -> None:
    shell.start("waits", id="w")
    said = shell("show", "nobody")
    assert (said.code, said.out) == (1, "")
    assert said.err == "error: there is no run 'nobody'; `stepwell runs` lists those that there are\n"
    assert shell("show", "nobody", "--json").error["code"] == "run_not_found"


def test_what_a_terminal_would_obey_is_shown_as_text(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "\x1b[31mred", "--id", "\x1b]0;mine\x07")
    said = shell("runs")
    assert "\x1b" not in said.out
    assert r"\x1b]0;mine\x07" in said.out


# --- cancel and resume --------------------------------------------------------------


def test_a_pending_run_is_cancelled_at_once(shell: Shell) -> None:
    shell.start("waits", id="w")
    assert shell("cancel", "w").out == "run w is cancelled\n"
    assert shell("cancel", "w").out == "run w had ended before: it is cancelled\n"
    assert shell("cancel", "w", "--json").json["state"] == "cancelled"
    assert shell.run("worker", SHOP, "--once").code == 0
    assert shell.marks() == []


def test_an_ended_run_stays_as_it_ended(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    assert shell("cancel", "g").out == "run g had ended before: it is completed\n"
    assert shell("resume", "g").out == "nothing to resume: run g is completed, and only a stuck one is resumed\n"


def test_a_stuck_run_is_resumed_and_goes_on_with_a_worker(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c")
    assert shell.run("worker", SHOP, "--once").code == 0
    (run,) = shell("runs", "--state", "stuck", "--json").json["runs"]
    assert "was recorded as step note" in run["problem"]
    (shell.folder / "mended").touch()
    assert shell("resume", "c").out == "run c is stuck no more, and goes on when a worker drives it\n"
    assert shell.run("worker", SHOP, "--once").code == 0
    assert shell("show", "c", "--json").json["result"] == "mended"


def test_a_recorded_call_is_dropped(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c")
    assert shell.run("worker", SHOP, "--once").code == 0
    said = shell("resume", "c", "--drop", "first", "--drop", "second")
    assert (said.code, said.out) == (1, "")
    assert "has recorded nothing under 'second'" in said.err
    assert "it has recorded 'first'" in said.err
    assert shell("--json", "resume", "c", "--drop", "second").error["code"] == "unknown_key"
    (shell.folder / "mended").touch()
    assert shell("resume", "c", "--drop", "first").out.startswith("run c is stuck no more")
    (step,) = shell("show", "c", "--json").json["steps"]
    assert (step["status"], step["position"], step["value"]) == ("dropped", None, "one")
    assert shell.run("worker", SHOP, "--once").code == 0
    assert shell("show", "c", "--json").json["result"] == "mended"
    assert shell.marks() == ["one", "one"]


def test_a_failed_run_is_reopened(shell: Shell) -> None:
    shell("run", f"{SHOP}:fails", "--id", "f")
    said = shell("resume", "f")
    assert (said.code, said.out) == (0, "nothing to resume: run f is failed, and only --reopen takes it up again\n")
    assert shell("resume", "f", "--drop", "x").code == 1
    assert shell("resume", "f", "--reopen").out == "run f is reopened, and goes on when a worker drives it\n"
    shown = shell("show", "f", "--json").json
    assert (shown["state"], "error" in shown) == ("waiting", False)


@pytest.mark.parametrize("words", [["--reopen"], ["--drop", "note"], ["--reopen", "--drop", "note"]])
def test_a_run_that_cannot_be_resumed_is_a_failure_for_who_asked_for_more(shell: Shell, words: list[str]) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    said = shell("resume", "g", *words)
    assert (said.code, said.out) == (1, "")
    assert said.err == "error: nothing to resume: run g is completed, and only a stuck one is resumed\n"
    assert shell("resume", "g", "--json", *words).error["code"] == "not_resumed"


@pytest.mark.parametrize("command", ["cancel", "resume"])
def test_a_run_that_is_not_there_cannot_be_asked(shell: Shell, command: str) -> None:
    shell.start("waits", id="w")
    assert shell(command, "nobody").code == 1
    assert shell("--json", command, "nobody").error["code"] == "run_not_found"
