"""`doctor`: what this stepwell and its database are made of, and what is wrong with them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import Final

import click

from ....services.ledger import CannotOpen
from ... import app as apps
from .finding import Finding
from .journal import verified_journals
from .options import Settings, run_blocking, shared
from .output import Output, size
from .problem import Problem
from .version import stepwell_version

__all__ = ["doctor"]

LEAST_FREE_BYTES: Final = 64 * 2**20
"""Free space below which the next large commit may fail."""

LARGE_WAL_BYTES: Final = 256 * 2**20
"""A log that is longer has not been moved to the file for long: somebody keeps an old snapshot open."""

FULL: Final = 2
"""`pragma synchronous` where each commit is synced."""


@click.command()
@click.option("--root", metavar="DIR", help="The folder to try a sandbox in; a new one, removed, if left out.")
@shared()
@click.pass_obj
def doctor(settings: Settings, root: str | None) -> None:
    """Look at the database, what it stands on, and what a sandbox can do here. Exit code 1: something is wrong.

    That there is no database yet is wrong only where one was named.
    """
    from .sandbox_findings import sandbox_findings  # here: no other command needs what it loads

    output = settings.output
    findings = list(_versions())
    with output.progress(f"checking {settings.db}"):
        findings += _none_yet(settings) or _database(settings)
    with output.progress("trying the sandbox"):
        findings += run_blocking(sandbox_findings(folder=root))
    wrong = [finding for finding in findings if finding.wrong is not None]
    if output.as_json:
        output.json({"ok": not wrong, "findings": [finding.as_json() for finding in findings]})
    else:
        _print(output, findings)
    if wrong:
        text = "; ".join(f"{finding.label}: {finding.wrong}" for finding in wrong)
        raise Problem("unhealthy", text, details={"wrong": [finding.name for finding in wrong]})


def _print(output: Output, findings: list[Finding]) -> None:
    pairs: list[tuple[str, object]] = []
    for finding in findings:
        shown = str(finding.value) if finding.shown is None else finding.shown
        if finding.wrong is not None:
            shown = f"{shown}  WRONG: {finding.wrong}"
        elif finding.remark is not None:
            shown = f"{shown}  ({finding.remark})"
        pairs.append((finding.label, shown))
    output.pairs(pairs)


def _versions() -> Iterator[Finding]:
    yield Finding("stepwell", stepwell_version())
    yield Finding("python", platform.python_version())
    sqlite = apps.sqlite_version()
    fault = f"{sqlite} has a fault with several connections in WAL mode: install apsw 3.51.3 or newer"
    yield Finding("sqlite", sqlite, wrong=None if apps.has_wal_fix(sqlite) else fault)


def _none_yet(settings: Settings) -> list[Finding]:
    """What there is to say where nobody named a database, and none was made."""
    if settings.is_db_named or os.path.lexists(settings.db):
        return []
    remark = "`stepwell run` and `worker` make it; another one is named by --db or STEPWELL_DB"
    return [Finding("database", None, f"there is no {settings.db} here yet", remark=remark)]


def _database(settings: Settings) -> Iterator[Finding]:
    try:
        found = apps.inspect(settings.db)
    except CannotOpen as error:
        yield Finding("database", settings.db, wrong=f"{error.reason}. {error.remedy}")
        return
    yield Finding(
        "database", found.path, wrong=None if found.writable else "it can only be read: make it and its folder writable"
    )
    yield from _file(found)
    yield Finding("stores", found.stores)
    yield _forms(found)
    yield from _runs(found)
    yield Finding("steps", found.steps)
    yield Finding("receipts", found.receipts)
    if found.writable:  # to read the journals it is opened, which leaves nothing beside it only then
        yield _journals(settings)
    yield from _disk(found.disk)


def _file(found: apps.Inspection) -> Iterator[Finding]:
    yield Finding("size_bytes", found.size_bytes, size(found.size_bytes))
    long = "a program keeps an old snapshot open, so it cannot shrink" if found.wal_bytes > LARGE_WAL_BYTES else None
    yield Finding("wal_bytes", found.wal_bytes, size(found.wal_bytes), remark=long)
    yield Finding("journal_mode", found.journal_mode, wrong=None if found.journal_mode == "wal" else "it must be wal")
    unsafe = None if found.synchronous >= FULL else f"it must be {FULL}, or the loss of power undoes commits"
    yield Finding("synchronous", found.synchronous, wrong=unsafe)
    yield Finding("schema_version", found.schema_version)
    yield Finding("application_id", found.application_id, f"{found.application_id:#010x}")
    damaged = None if found.integrity == "ok" else "the file is damaged: put back a copy"
    yield Finding("quick_check", found.integrity, wrong=damaged)


def _journals(settings: Settings) -> Finding:
    """Whether every hash of every journal is right."""
    try:
        found = run_blocking(verified_journals(settings))
    except (Problem, CannotOpen) as error:
        return Finding("journals", None, "not whole", wrong=str(error))
    value = {"runs": found.runs, "entries": found.entries}
    return Finding("journals", value, f"{found.entries} entries of {found.runs} runs")


def _forms(found: apps.Inspection) -> Finding:
    """In which versions of their types states are stored, as far as a database tells: it knows no definitions."""
    value = [
        {"name": form.name, "version": form.version, "stores": form.stores, "is_older": form.is_older}
        for form in found.forms
    ]
    lines = [f"{form.name} version {form.version}: {form.stores}" for form in found.forms if form.newest > 1]
    older = sum(form.stores for form in found.forms if form.is_older)
    remark = f"{older} in an older version than others of their name; the next change of each brings it up"
    return Finding("forms", value, "\n".join(lines) or "version 1 of each", remark=remark if older else None)


def _runs(found: apps.Inspection) -> Iterator[Finding]:
    stuck = "`stepwell runs --state stuck` tells why" if found.runs.get("stuck") else None
    shown = ", ".join(f"{state} {count}" for state, count in found.runs.items()) or "none"
    yield Finding("runs", dict(found.runs), shown, remark=stuck)
    owners = [{"name": owner.name, "runs": owner.runs, "dead": owner.dead} for owner in found.owners]
    lines = [f"{o.name} ({o.runs} runs, {'its process has ended' if o.dead else 'alive'})" for o in found.owners]
    left = "what dead ones drove goes on with the next worker" if any(o.dead for o in found.owners) else None
    yield Finding("owners", owners, "\n".join(lines) or "none", remark=left)


def _disk(disk: apps.Disk) -> Iterator[Finding]:
    yield Finding("file_system", disk.file_system, disk.file_system or "not known", remark=disk.warning)
    full = None if disk.free_bytes >= LEAST_FREE_BYTES else "make room: commits fail when the disk is full"
    yield Finding("free_space_bytes", disk.free_bytes, size(disk.free_bytes), wrong=full)
    shown = "not measured: the folder cannot be written" if disk.sync_us is None else f"{disk.sync_us / 1000:.2f} ms"
    yield Finding("sync_us", disk.sync_us, shown)
