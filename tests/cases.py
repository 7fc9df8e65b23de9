"""`make cases`: runs the tests that carry the id of a behaviour case, and says how each case stands on each host.

A test carries an id in its name (`test_s13_...`, or `test_p_04_...` for P-04) or in the id of a parameter
(`[S13-sqlite]`). A case of the stores is due on the memory and on the SQLite host, one of the artifacts in memory and
in files, one of the sandbox wherever it can be shown; one of the pure core, or of the wake bus alone, has no host. What
waits, and why, is in tests/later.md, and so is a host that a case does not apply to.
Exits 1 if a test failed, or if a case is neither tested nor listed.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent
HOSTS: Final = ("memory", "sqlite")
HOSTS_OF_ARTIFACTS: Final = ("memory", "files")
HOSTS_OF_SANDBOX: Final = ("memory", "folder")
PURE: Final = "core"
"""Stands for all hosts: a test of the pure core, or of the wake bus, which have none."""

HOSTLESS: Final = ("core", "test_wake_bus.py")
"""A folder, and a file, of such tests."""

ELSEWHERE: Final = "other"
"""A test that names no host, as one of the command line: it adds to a case, but does not stand for a host."""

GROUPS: Final = {
    "A": "01-04 06 08-14 16-17 19 21-23",
    "B": "01-06 08 10-11 13-15 17 19-20",
    "D": "01-03 05-06 08-09 11",
    "F": "01-05",
    "J": "02-06",
    "K": "01-02 04-05 07-08 10-12",
    "M": "01 03-04 06-09",
    "N": "01 03-06",
    "P": "01-05 07 10",
    "Q": "01-02 04-05 07",
    "R": "01-05 09",
    "S": "01-03 05 07-09 12-15 17-18 20-21",
    "T": "01-03 06-09",
    "U": "01-03 05-07",
    "W": "01-02 04-06 08-10 13-17 19-21",
    "X": "01-24 26 28-29",
    "Y": "01-02",
}
"""The cases that are written with a dash, by their letter."""


def _numbers(text: str) -> Iterator[int]:
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


SANDBOX: Final = (
    *(f"SB{number}" for number in range(1, 37)),
    *(f"CB{number}" for number in range(1, 22)),
    *(f"B{number}" for number in range(1, 25)),
    *(f"{letter}-{number:02}" for letter, text in GROUPS.items() for number in _numbers(text)),
)
"""The cases of the sandbox, of its copy-back and of a step's boundary."""

JOURNAL: Final = (
    *(f"J{number}" for number in (1, *range(13, 52))),
    *(f"P{number}" for number in range(1, 5)),
    *(f"SL{number}" for number in range(1, 5)),
    *(f"R{number}" for number in range(1, 13)),
)
"""The cases of the journal, its projections, its slots and its redaction."""

CACHE: Final = tuple(f"C{number}" for number in range(1, 49))
"""The cases of the step cache and of cached steps."""

BACKUP: Final = tuple(f"D{number}" for number in range(1, 9))
"""The cases of backup and restore."""

CASES: Final = (
    *(f"S{number}" for number in range(1, 153)),
    *(f"W{number}" for number in range(1, 30)),
    *(f"F{number}" for number in range(1, 40)),
    *(f"A{number}" for number in range(1, 10)),
    *(f"O{number}" for number in range(35, 50)),
    *JOURNAL,
    *CACHE,
    *BACKUP,
    *SANDBOX,
)
"""Every case of the stores, of workflows and their steps, of the wake bus, of the cache fold, of artifacts, of
restarts, of the journal, the step cache, backups and the sandbox."""

ANYWHERE: Final = frozenset((*SANDBOX, *CACHE, *BACKUP, *JOURNAL, "O46"))
"""Those of which one test is enough, wherever it is."""

_ID = re.compile(
    r"(?<![A-Z0-9])((?:SB|CB|SL|[SWFABOJPRCD])[1-9][0-9]*|[A-Z]_[0-9]{2}(?:_to_[A-Z]_[0-9]{2})?)(?![A-Z0-9])", re.I
)
_RANGE = re.compile(r"(SB|CB|SL|[A-Z])(-?)([0-9]+)(?: to [A-Z]*-?([0-9]+))?(?: on (\w+))?(?: in part)?$")


# --- reading --------------------------------------------------------------------


def case_ids(node_id: str) -> set[str]:
    """The case ids in the name and parameters of a test."""
    found: set[str] = set()
    for text in _ID.findall(node_id.partition("::")[2]):
        first, _, last = str(text).upper().replace("_TO_", " ").partition(" ")
        if "_" not in first:
            found.add(first)
            continue
        letter, number = first.split("_")
        upto = int(last.partition("_")[2] or number)
        found |= {f"{letter}-{each:02}" for each in range(int(number), upto + 1)}
    return found


def hosts_of(case: str) -> tuple[str, ...]:
    """The hosts on which a case is due; none, if one test of it is enough."""
    if case in ANYWHERE:
        return ()
    return HOSTS_OF_ARTIFACTS if case.startswith("A") else HOSTS


def host_of(node_id: str) -> str:
    """The host that a test's name, parameters or file name."""
    path, _, name = node_id.lower().partition("::")
    for text in (name, path):
        words = re.split(r"[^a-z0-9]+", text)
        if host := next((host for host in (*HOSTS, *HOSTS_OF_ARTIFACTS, *HOSTS_OF_SANDBOX) if host in words), None):
            return host
    return PURE if any(part in HOSTLESS for part in path.split("/")) else ELSEWHERE


def read_later(text: str) -> dict[tuple[str, str | None], str]:
    """From case and host, None for all of them, to the reason. A first column is `S38 to S47` or `S7 on sqlite`."""
    later: dict[tuple[str, str | None], str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        match = _RANGE.match(cells[0])
        if match and len(cells) == 2:
            letter, dash, first, last, host = match.groups()
            for number in range(int(first), int(last or first) + 1):
                later[f"{letter}-{number:02}" if dash else f"{letter}{number}", host] = cells[1]
    return later


# --- running --------------------------------------------------------------------


@dataclass(eq=False)
class Results:
    """A pytest plugin: runs the tests that carry a case id, and keeps what became of them."""

    rows: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list[str]))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        others = [item for item in items if not case_ids(item.nodeid)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if case_ids(item.nodeid)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for case in case_ids(report.nodeid):
                self.rows[case, host_of(report.nodeid)].append(report.outcome)

    def result(self, case: str, host: str) -> str | None:
        """The worst of what the tests of a case said on a host; None without any."""
        outcomes = self.rows.get((case, host), [])
        return next((worst for worst in ("failed", "skipped", "passed") if worst in outcomes), None)


def gaps(tested: Iterable[tuple[str, str]], later: Mapping[tuple[str, str | None], str]) -> list[str]:
    """The cases, or hosts of a case, that are neither tested nor listed, and what the list gets wrong."""
    done = set(tested)
    found: list[str] = []
    for case in CASES:
        if (case, PURE) in done or (case, None) in later:
            continue
        hosts = hosts_of(case)
        if not hosts and any(case == tested_case for tested_case, _ in done):
            continue
        missing = [host for host in hosts if (case, host) not in done and (case, host) not in later]
        if missing == list(hosts):
            found.append(f"{case} is neither tested nor listed in tests/later.md")
        elif missing:
            found.append(f"{case} is neither tested on {missing[0]} nor listed as `{case} on {missing[0]}`")
    for case, host in later:
        if case not in CASES:
            found.append(f"tests/later.md lists {case}, which is no case")
        if host and (case, host) in done:
            found.append(f"tests/later.md lists {case} on {host}, but it is tested there")
    return found


def main() -> int:
    results = Results()
    arguments = ["-q", "--no-header", "--continue-on-collection-errors", "-p", "no:cacheprovider", str(TESTS)]
    status = pytest.main(arguments, plugins=[results])
    later = read_later((TESTS / "later.md").read_text("utf-8"))
    print("\ncase   host     result")
    for case in CASES:
        for host in dict.fromkeys((*(hosts_of(case) or HOSTS_OF_SANDBOX), PURE, ELSEWHERE)):
            if result := results.result(case, host):
                print(f"{case:<6} {host:<8} {result} ({len(results.rows[case, host])} tests)")
    print("\nwaiting")
    for (case, where), reason in later.items():
        print(f"{case:<6} {where or 'all':<8} {reason}")
    tested, waiting = {case for case, _ in results.rows}, {case for case, _ in later}
    print(f"\n{len(tested)} cases tested, {len(waiting)} listed as waiting")
    wrong = gaps(results.rows, later)
    for line in wrong:
        print(f"wrong: {line}")
    return 1 if status or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
