"""`make demo` on a small tree: the kill, the proofs, what is found, and that each of them can fail."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from ..layers.workspace.command.world import needs_bwrap

ROOT = Path(__file__).resolve().parents[2]

TREE = {
    "README.md": "# A tree\n\nSee [the guide](docs/guide.md) and [what is missing](docs/missing.md).\n",
    "docs/guide.md": "# Guide\n\nBack to [the start](../README.md#a-tree), or [elsewhere](https://example.org/nowhere).\n",
    "docs/spelling.md": "# Spelling\n\nYou will re" + "cieve a letter.\n",
    "docs/many.md": "te" + "h quick\nte" + "h brown\nte" + "h fox\n",
    "src/app.py": "def answer() -> int:\n    return 42\n",
    "src/wide.py": f"WIDE = '{'x' * 130}'\n",
    "src/trailing.txt": "one \ntwo\t\nthree\n",
    "src/deep/note.txt": "nothing to say\n",
    ".git/config": "not to be read\n",
    "__pycache__/app.pyc": "not to be read\n",
    "poetry.lock": "not to be read\n",
}
REVIEWED = [path for path in TREE if not path.startswith((".git", "__pycache__", "poetry"))]


class Played(NamedTuple):
    """A demo that has ended: the tree, where the results are, how it ended and what it printed."""

    tree: Path
    out: Path
    code: int
    text: str


def play(tree: Path, out: Path, *options: str, **environment: str) -> Played:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(tree), "--out", str(out), *options]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **environment}
    )
    return Played(tree, out, ended.returncode, ended.stdout + ended.stderr)


def make_tree(folder: Path) -> Path:
    tree = folder / "tree"
    for path, text in TREE.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    return tree


def executions(out: Path) -> dict[tuple[str, str], list[str]]:
    """From each step to the processes that executed it, in order."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in (out / "executions.log").read_text().splitlines():
        run_id, key, _, pid = line.rsplit(" ", 3)
        found[run_id, key].append(pid)
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    return play(make_tree(folder), folder / "out")


def test_the_demo_ends_well_and_has_killed_a_worker_in_the_middle(played: Played) -> None:
    assert played.code == 0, played.text
    killed = re.search(r"killed the worker, process (\d+), with SIGKILL: (\d+)%", played.text)
    assert killed is not None, played.text
    assert 30 <= int(killed[2]) <= 70
    started = re.findall(r"started (?:the|another) worker, process (\d+)", played.text)
    assert started[0] == killed[1]
    assert len(set(started)) == 2


def test_no_process_has_executed_a_step_twice_and_both_have_worked(played: Played) -> None:
    steps = executions(played.out)
    assert len(steps) == len(REVIEWED) * 6
    assert all(len(pids) == len(set(pids)) for pids in steps.values())
    assert len({pid for pids in steps.values() for pid in pids}) == 2
    again = sum(len(pids) > 1 for pids in steps.values())
    assert re.search(rf"executed again  {again}, in flight", played.text)
    assert re.search(r"finished steps that ran twice  0\n", played.text)


def looks(out: Path) -> list[tuple[str, str, str]]:
    """Run, process and what was found, of each time that a run looked for its verdict."""
    lines = (out / "looks.log").read_text().splitlines()
    return [(run_id, pid, found) for run_id, pid, found in (line.rsplit(" ", 2) for line in lines)]


def test_the_writes_of_others_have_woken_no_run(played: Played) -> None:
    found = looks(played.out)
    assert {run_id for run_id, _, is_found in found if is_found == "1"} == {
        run_id for run_id, _ in executions(played.out)
    }
    missed = [(run_id, pid) for run_id, pid, is_found in found if is_found == "0"]
    assert len(missed) == len(set(missed))
    assert re.search(rf"waits for a verdict  {len(found)} looks by 8 runs, ", played.text), played.text
    meanwhile = re.search(r"writes of others meanwhile  (\d+), ", played.text)
    assert meanwhile is not None, played.text
    assert int(meanwhile[1]) > 0
    assert re.search(r"runs woken for nothing  0\n", played.text)


def test_a_selector_that_reads_too_much_is_found(tmp_path: Path) -> None:
    ended = play(make_tree(tmp_path), tmp_path / "out", "--plant", "greedy")
    assert ended.code == 1
    woken = re.findall(r"wrong: the run \S+ was woken (\d+) times for nothing", ended.text)
    assert woken, ended.text
    assert re.search(rf"runs woken for nothing  {sum(map(int, woken))}\n", ended.text)
    missed = [(run_id, pid) for run_id, pid, is_found in looks(tmp_path / "out") if is_found == "0"]
    assert len(missed) - len(set(missed)) == sum(map(int, woken))
    assert "ran twice  0" in ended.text


JUDGE = """
from director.looks import Look, judge
log = [Look("a", 1, False), Look("a", 1, True), Look("b", 2, False), Look("b", 2, False), Look("b", 2, True)]
waited = judge(log, 2, {"a": 3, "b": 4, "c": 5}, {"a"})
print(waited.runs, waited.passed, waited.looks, waited.found, waited.idle, waited.unseen)
"""


def test_looks_of_an_earlier_demo_show_what_was_found_and_nothing_else() -> None:
    judged = subprocess.run(
        [sys.executable, "-c", JUDGE], cwd=ROOT / "examples", capture_output=True, text=True, check=True
    )
    assert judged.stdout == "3 9 3 1 ('b',) ('c',)\n"


def test_cached_steps_are_executed_where_something_has_changed_and_nowhere_else(played: Played) -> None:
    steps = len(REVIEWED) + 1
    assert f"cached steps executed  {steps}, each in a workspace of its own\n" in played.text
    assert f"the same once more  {steps} of {steps} found in the cache, 0 executed\n" in played.text
    assert re.search(rf"with \S+ changed  2 executed, {steps - 2} found in the cache\n", played.text)


def test_a_cached_step_that_was_executed_for_nothing_is_reported(tmp_path: Path) -> None:
    ended = play(make_tree(tmp_path), tmp_path / "out", "--plant", "recount")
    assert ended.code == 1
    assert "wrong: the second run over counted files executed 2 steps" in ended.text


@needs_bwrap
def test_a_command_counts_the_files_in_a_sandbox_and_another_one_is_refused(played: Played) -> None:
    assert f"sandboxed command read  {len(REVIEWED)} files, " in played.text
    assert "and wrote  review-sandbox/sizes.txt\n" in played.text
    assert f"another one was refused  {played.out / 'review.db'}; " in played.text
    counted = (line.split() for line in (played.out / "review-sandbox/sizes.txt").read_text().splitlines())
    sizes = {path.removeprefix("files/"): int(size) for size, path in counted if path != "total"}
    assert sizes == {path: len(TREE[path].encode()) for path in REVIEWED}
    assert sorted(path.name for path in played.tree.iterdir()) == sorted({path.split("/")[0] for path in TREE})


def test_the_reports_tell_what_is_in_the_tree(played: Played) -> None:
    markdown = (played.out / "report.md").read_text()
    rows = {row.split("`")[1]: row.split(" | ")[1] for row in markdown.splitlines() if row.startswith("| `")}
    wanted = dict.fromkeys(REVIEWED, "approved") | dict.fromkeys(["README.md", "docs/many.md"], "changes requested")
    assert rows == wanted
    for remark in (
        "line 3: docs/missing.md leads nowhere",
        "line 3: re" + "cieve, meant was receive",
        "line 1 has 139 characters",
        "2 lines end in white space",
    ):
        assert remark in markdown
        assert remark in (played.out / "report.html").read_text()
    assert "docs/guide.md leads nowhere" not in markdown
    assert "nowhere)" not in markdown


def test_another_demo_finds_the_finished_runs_and_a_changed_file_gets_a_new_one(played: Played) -> None:
    before = (played.out / "executions.log").read_text()
    (played.out / "report.html").unlink()
    again = play(played.tree, played.out)
    assert again.code == 0, again.text
    assert "found 8 of 8 runs finished by an earlier demo" in again.text
    assert "started" not in again.text
    assert (played.out / "executions.log").read_text() == before
    assert "docs/missing.md leads nowhere" in (played.out / "report.html").read_text()

    (played.tree / "docs" / "missing.md").write_text("# Here it is\n")
    (played.tree / "src" / "app.py").write_text("def answer() -> int:\n    return 43\n")
    third = play(played.tree, played.out)
    assert third.code == 0, third.text
    assert "found 7 of 9 runs" in third.text
    assert "with SIGKILL" in third.text
    assert len((played.out / "executions.log").read_text().splitlines()) >= len(before.splitlines()) + 12


def test_without_bubblewrap_the_demo_ends_well_and_says_what_is_not_shown(tmp_path: Path) -> None:
    ended = play(make_tree(tmp_path), tmp_path / "out", PATH="/nowhere")
    assert ended.code == 0, ended.text
    assert "sandboxed command  not shown: there is no bwrap in PATH: install the package bubblewrap" in ended.text


def test_a_finished_step_that_ran_twice_is_found(tmp_path: Path) -> None:
    ended = play(make_tree(tmp_path), tmp_path / "out", "--plant", "run-twice")
    assert ended.code == 1
    assert re.search(r"wrong: the finished step '\w+' of \S+ ran twice", ended.text), ended.text


def test_a_kill_that_does_not_land_is_told(tmp_path: Path) -> None:
    ended = play(make_tree(tmp_path), tmp_path / "out", "--plant", "no-kill")
    assert ended.code == 1
    assert "wrong: the worker was not killed in the middle of the work" in ended.text
    assert "with SIGKILL" not in ended.text


def test_a_folder_without_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = play(tmp_path / "empty", tmp_path / "out")
    assert ended.code == 1
    assert "there is no text file to review" in ended.text
    assert not (tmp_path / "out").exists()


def test_results_that_cannot_be_kept_are_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    refused = play(make_tree(tmp_path), tmp_path / "out")
    assert refused.code == 1
    assert refused.text.startswith("the demo failed: the results cannot be kept in")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_director_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "examples" / "demo.py"),
        str(make_tree(tmp_path)),
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as director:
        assert director.stdout is not None
        found = dict[str, str]()
        while len(found) < 2:
            line = director.stdout.readline()
            assert line
            found |= re.findall(r"started the (worker|reviewer), process (\d+)", line)
        watched = [os.pidfd_open(int(pid)) for pid in found.values()]
        director.send_signal(signal.SIGKILL)
    for process in watched:
        assert select.select([process], [], [], 30)[0] == [process]
        os.close(process)
