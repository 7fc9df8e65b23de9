"""`backup` and `restore`: a database with its artifacts, to a folder and back."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import click

from ....core.backup import BackupError, Manifest, Restored
from ....core.outcome import Failure, Outcome
from ...clock import SystemClock
from ..open import MEMORY
from .options import Settings, run_blocking, shared
from .output import instant
from .problem import WRONG_USAGE, Problem

__all__ = ["backup", "restore"]

_T = TypeVar("_T")


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--artifacts", metavar="DIR", help="The folder of artifacts that is copied too.")
@shared()
@click.pass_obj
def backup(settings: Settings, folder: str, artifacts: str | None) -> None:
    """Copy the database to the folder DIR, which is new or empty, while others go on using it.

    Artifacts lie in a folder of their own, by default in .stepwell/artifacts of the workspace: name it, so that they
    are copied too. Everything is checked on the way; a backup that fails leaves nothing behind.
    """
    from ... import backup as backups  # here: no other command needs what it loads

    path = _admit(settings)
    if artifacts is not None and not Path(artifacts).is_dir():
        raise Problem("usage", f"there is no folder {artifacts}", exit_code=WRONG_USAGE)
    made = _value_of(run_blocking(backups.backup(path, folder, SystemClock(), artifacts=artifacts)))
    if settings.as_json:
        settings.output.json({"folder": folder, **_shown(made)})
        return
    size = made.database.size_bytes + sum(artifact.size_bytes for artifact in made.artifacts)
    settings.output.text(f"{path} is in {folder}, with {len(made.artifacts)} artifacts, {size} bytes in all")


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--artifacts", metavar="DIR", help="Where its artifacts go: a folder that is new or empty.")
@click.option("--check", is_flag=True, help="Restore nothing; check that the backup is whole.")
@shared()
@click.pass_obj
def restore(settings: Settings, folder: str, artifacts: str | None, check: bool) -> None:
    """Make a new database from the backup in DIR, which is checked first, byte for byte.

    No run has an owner in it: workers take them up at once, and whoever drove them when the backup was made can write
    nothing there. A database that exists is never written over.
    """
    from ... import backup as backups  # here: no other command needs what it loads

    if check:
        manifest = _value_of(run_blocking(backups.verify(folder)))
        if settings.as_json:
            settings.output.json(_shown(manifest))
        else:
            settings.output.text(f"{folder} is whole")
        return
    path = _admit(settings)
    restored = _value_of(run_blocking(backups.restore(folder, path, SystemClock(), artifacts=artifacts)))
    if settings.as_json:
        settings.output.json({"path": path, **_restored(restored)})
        return
    made_at = instant(restored.created_at_ms, "seconds")
    settings.output.text(f"{path} is as it was at {made_at}, with {restored.artifacts} artifacts")
    if suspended := restored.fencing.suspended_runs:
        settings.output.note(f"{suspended} runs were executing; they go on when a worker takes them up")


def _admit(settings: Settings) -> str:
    if settings.db == MEMORY:
        raise Problem("usage", f"{MEMORY!r} ends with its process: name a file", exit_code=WRONG_USAGE)
    return settings.db


def _value_of(outcome: Outcome[_T, BackupError]) -> _T:
    if isinstance(outcome, Failure):
        error = outcome.failure()
        raise Problem(error.code, error.message)
    return outcome.unwrap()


def _shown(manifest: Manifest) -> dict[str, object]:
    return {
        "format_version": manifest.format_version,
        "created_at_ms": manifest.created_at_ms,
        "schema_version": manifest.schema_version,
        "database": {"digest": manifest.database.digest, "size_bytes": manifest.database.size_bytes},
        "artifacts": [artifact.digest for artifact in manifest.artifacts],
    }


def _restored(restored: Restored) -> dict[str, object]:
    return {
        "created_at_ms": restored.created_at_ms,
        "database_digest": restored.database_digest,
        "artifacts": restored.artifacts,
        "cleared_claims": restored.fencing.cleared_claims,
        "suspended_runs": restored.fencing.suspended_runs,
    }
