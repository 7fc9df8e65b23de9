"""The harness of the budgets and the soak: that a missed bound is told, in words and by how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"

CHECK = """
import sys
from budget import Budget, Pair
from check import main

def giving(*ratios):
    async def measure(world):
        return [Pair(ratio * 2, 2.0) for ratio in ratios]
    return measure

def worse_each_time():
    calls = []
    async def measure(world):
        calls.append(world)
        return [Pair(float(len(calls)))] * 5
    return measure

budgets = [
    Budget("at-most", "-", "floor", 2.0, giving(1, 1, 2, 9, 9)),
    Budget("over-most", "-", "floor", 2.0, giving(2.01, 2.01, 2.01, 1, 1)),
    Budget("at-least", "-", "floor", 8.0, giving(8, 8, 8, 1, 1), at_least=True),
    Budget("under-least", "-", "floor", 8.0, giving(7.99, 7.99, 7.99, 20, 20), at_least=True),
    Budget("third-time", "-", "floor", 2.0, worse_each_time()),
    Budget("no-bound", "-", "floor", None, giving(99, 99, 99, 99, 99)),
    Budget("few-pairs", "-", "floor", 2.0, giving(1, 1, 1, 1)),
]
sys.exit(main(sys.argv[1:], budgets))
"""

LEVELS = """
import json
from flat import Half, Sizes, levels

def half(size, late_s, bare_s, run=True):
    made = Half([Sizes(size, 1_000_000, 1_000_000)] * 10)
    for _ in range(100):
        made.updates.add(late_s)
        made.bare.add(bare_s)
        if run:
            made.runs.add(0.1)
    return made

def missed(first, second):
    return [level.what for level in levels(first, second) if not level.met]

first = half(1_000_000, 0.010, 0.001)
print(json.dumps([
    missed(first, half(1_140_000, 0.0145, 0.001)),
    missed(first, half(1_160_000, 0.010, 0.001)),
    missed(first, half(1_000_000, 0.016, 0.001)),
    missed(first, half(1_000_000, 0.016, 0.002)),
    missed(first, half(1_000_000, 0.010, 0.001, run=False)),
    round(first.updates.percentile_ms(0.99) / 10, 1),
]))
"""


def python(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


def test_a_budget_is_met_if_its_median_meets_the_bound_in_every_run(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", CHECK, "--only", "at,over,under,third", "--json")
    assert done.returncode == 1, done.stderr
    met = {each["name"]: [run["met"] for run in each["runs"]] for each in json.loads(done.stdout)}
    assert met == {
        "at-most": [True] * 3,
        "over-most": [False] * 3,
        "at-least": [True] * 3,
        "under-least": [False] * 3,
        "third-time": [True, True, False],
    }


def test_the_table_has_the_worst_run_and_the_check_fails_for_it(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", CHECK, "--only", "third-time")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[1].split() == (
        ["-", "floor", "3.00", "3.00", "to", "3.00", "≤", "2", "x", "MISSED", "1.00", "2.00", "3.00"]
    )


def test_the_check_passes_where_every_budget_is_met(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", CHECK, "--only", "at-,no-bound", "--runs", "1")
    assert done.returncode == 0, done.stderr
    assert "shown" in done.stdout
    assert "MISSED" not in done.stdout


def test_too_few_pairs_are_no_measurement(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", CHECK, "--only", "few-pairs")
    assert done.returncode == 1
    assert "few-pairs: 4 pairs" in done.stderr


def test_a_budget_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", CHECK, "--only", "nothing")
    assert done.returncode == 2
    assert "no budget begins with nothing" in done.stderr
    assert "at-most" in done.stderr


def test_a_budget_is_measured_and_told_as_json(tmp_path: Path) -> None:
    done = python(tmp_path, str(BENCHMARKS / "check.py"), "--only", "kept-root", "--runs", "1", "--json")
    (found,) = json.loads(done.stdout)
    assert found["name"] == "kept-root"
    assert found["runs"][0]["pairs"] >= 5
    assert done.returncode == (0 if found["met"] else 1)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("asked", [("bench", "--check"), ("bench", "CHECK=1"), ("bench-check",)])
def test_make_takes_each_way_to_ask_for_the_check(asked: tuple[str, ...]) -> None:
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CHECK")  # these tests may run under make themselves
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(["make", "-n", *asked], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("benchmarks/") == 1
    assert done.stdout.splitlines()[-1].rstrip().endswith("benchmarks/check.py")


def test_what_grew_in_the_second_half_is_told(tmp_path: Path) -> None:
    done = python(tmp_path, "-c", LEVELS)
    assert done.returncode == 0, done.stderr
    little, file_grew, later, later_like_the_disk, no_runs, late = json.loads(done.stdout)
    assert little == []
    assert file_grew == ["file"]
    assert later == ["update, p99"]
    assert later_like_the_disk == []
    assert no_runs == ["run, p99"]
    assert late == 1.0


def test_twenty_seconds_of_the_soak_do_all_that_it_does(tmp_path: Path) -> None:
    done = python(tmp_path, str(BENCHMARKS / "soak.py"), "--minutes", "0.3333", "--every", "5")
    assert done.returncode == 0, done.stderr
    last = next(line for line in reversed(done.stdout.splitlines()) if "MB: file" in line)
    done_often = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z]+)(?:,|$)", last)}
    for what in ("hot", "random", "large", "reads", "runs", "collections", "bare"):
        assert done_often.get(what, 0) > 0, f"no {what} in: {last}"
    assert "resident memory" in done.stdout
    assert "not judged" in done.stdout
