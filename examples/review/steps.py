"""The functions that a run calls as steps. The last act of each is a line in the log of executions.

That log is what the director holds against the ledger: it says what was executed, the ledger what was recorded.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from stepwell import Failure, Outcome, Success, current_step

from . import report, text
from .board import Board, Links, Measures, Misspelling

EXECUTIONS = "executions.log"
"""The log's name in the folder of the results; a line of it is `run key attempt pid`."""

LOOKS = "looks.log"
"""The name of another log, of how often runs looked for their verdicts; a line of it is `run pid found`."""


class Job(BaseModel, frozen=True):
    """One file to review: where it is, what it holds, which board it belongs to, and where the results go."""

    root: str
    path: str
    """Relative to `root`, with "/"."""
    digest: str
    """The SHA-256 of the content that was to be reviewed, in hexadecimal digits."""
    board: str
    out: str


class Changed(BaseModel, frozen=True):
    """The file is no longer what it was when its review was ordered."""

    path: str
    digest: str


def read(job: Job) -> Outcome[str, Changed]:
    """The text of the file, if it is still the one that was to be reviewed."""
    content = (Path(job.root) / job.path).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    _executed(job)
    if digest != job.digest:
        return Failure(Changed(path=job.path, digest=digest))
    return Success(content.decode())


def measure(job: Job, content: str) -> Measures:
    """How large the text is."""
    measures = text.measure(content)
    _executed(job)
    return measures


def check_links(job: Job, content: str) -> Links:
    """Which of a Markdown file's relative links lead nowhere; other files have no links."""
    here = (Path(job.root) / job.path).parent

    def exists(target: str) -> bool:
        return (Path(job.root, target[1:]) if target.startswith("/") else here / target).exists()

    links = text.check_links(content, exists) if job.path.endswith(".md") else Links(checked=0, broken=[])
    _executed(job)
    return links


def check_spelling(job: Job, content: str) -> list[Misspelling]:
    """Which words are misspelled."""
    misspellings = text.check_spelling(content)
    _executed(job)
    return misspellings


def publish_markdown(job: Job, version: int, board: Board) -> str:
    """Write the report as Markdown; its path."""
    path = publish(Path(job.out, "report.md"), job.board, version, board, report.markdown)
    _executed(job)
    return str(path)


def publish_html(job: Job, version: int, board: Board) -> str:
    """Write the report as HTML; its path."""
    path = publish(Path(job.out, "report.html"), job.board, version, board, report.html)
    _executed(job)
    return str(path)


# --- files ------------------------------------------------------------------


def publish(path: Path, name: str, version: int, board: Board, render: Callable[[str, Board], str]) -> Path:
    """Write a report, in one move, unless the file is the report of a later version of the same board.

    Each run publishes the board as it read it, and they end in any order: without the comparison an older report could
    take the place of a newer one.
    """
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _published(path, name) < version:
            fresh = path.with_suffix(".new")
            fresh.write_text(f"{_mark(name, version)}\n{render(name, board)}", encoding="utf-8")
            fresh.replace(path)
    return path


def _mark(name: str, version: int) -> str:
    return f"<!-- board {name.replace('--', '- -')}, version {version} -->"


def _published(path: Path, name: str) -> int:
    """The version of the board that is published, -1 if none of it is."""
    if not path.exists():
        return -1
    with path.open(encoding="utf-8") as published:
        first = published.readline().rstrip("\n")
    found = re.search(r"version (\d+) -->$", first)
    version = int(found[1]) if found else -1
    return version if first == _mark(name, version) else -1


def looked(job: Job, run_id: str, *, found: bool) -> None:
    """Log that a run looked for its verdict.

    A selector has no effects, since nobody promises how often it runs; this one is there to count just that.
    """
    _log(Path(job.out, LOOKS), f"{run_id} {os.getpid()} {found:d}\n")


def _executed(job: Job) -> None:
    step = current_step()
    _log(Path(job.out, EXECUTIONS), f"{step.run_id} {step.key} {step.attempt} {os.getpid()}\n")


def _log(path: Path, line: str) -> None:
    """Append one line. O_APPEND makes lines of several threads and processes stand one after another."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)
