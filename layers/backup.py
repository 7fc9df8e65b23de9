"""Backup and restore: a database with its artifacts, copied while it is used, checked byte for byte, and fenced.

A restored database belongs to nobody: whoever owned its runs can write nothing there, and they can be claimed at once.
The functions block on files, so each works on a thread; a failure leaves nothing of what was begun.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

from msgspec.json import encode

from ..core.backup import (
    ARTIFACTS,
    DATABASE,
    FORMAT_VERSION,
    MANIFEST,
    BackupCode,
    BackupError,
    BackupFile,
    Fencing,
    Manifest,
    Restored,
    read_manifest,
    write_manifest,
)
from ..core.batch import Batch, ChangeRun, RunFence
from ..core.model import Unavailable
from ..core.node import is_digest
from ..core.outcome import Failure, Outcome, Success
from ..core.run import WANTS_OWNER, RunColumns, RunRow, RunState, next_state
from ..services.clock import Clock
from ..services.ledger import CannotOpen, Ledger
from .sql.backup import SCHEMA_VERSION, check_database, copy_database
from .sql.sqlite import open_sqlite

__all__ = ["backup", "fence", "restore", "verify"]

_T = TypeVar("_T")

PIECE: Final = 1024 * 1024
OBJECTS: Final = "objects"
"""Where a folder of artifacts has them (`layers/files/folder.py`)."""

RUNS_AT_ONCE: Final = 1_000


class _Refused(Exception):
    def __init__(self, code: BackupCode, message: str) -> None:
        super().__init__(message)
        self.error = BackupError(code, message)


async def backup(
    db: str | PathLike[str], into: str | PathLike[str], clock: Clock, *, artifacts: str | PathLike[str] | None = None
) -> Outcome[Manifest, BackupError]:
    """Copy a database, and the artifacts of a folder, to a folder that is new or empty; others may go on using both.

    The artifacts are copied after the database: whatever it names is among them. Each is checked against its digest.
    """
    folder = Path(into)
    kept = None if artifacts is None else Path(artifacts)
    return await _on_thread(lambda: _back_up(os.fspath(db), folder, kept, clock.now_ms()))


async def verify(folder: str | PathLike[str]) -> Outcome[Manifest, BackupError]:
    """Check that a backup is whole: every file is there, and is what the manifest says."""
    return await _on_thread(lambda: _verify(Path(folder)))


async def restore(
    folder: str | PathLike[str],
    db: str | PathLike[str],
    clock: Clock,
    *,
    artifacts: str | PathLike[str] | None = None,
) -> Outcome[Restored, BackupError]:
    """Make a database, and a folder of artifacts, from a backup that is whole; neither may be there before.

    Its runs belong to nobody then. The database appears last and complete, with a file beside it that says where it
    is from.
    """
    begun = await _on_thread(lambda: _begin(Path(folder), db, artifacts))
    if isinstance(begun, Failure):
        return begun
    restoring = begun.unwrap()
    try:
        fenced = await _fence_file(restoring.file, clock)
        if isinstance(fenced, Failure):
            return fenced
        return await _on_thread(lambda: restoring.end(fenced.unwrap()))
    finally:
        await asyncio.to_thread(restoring.drop)


async def fence(ledger: Ledger, clock: Clock) -> Outcome[Fencing, Unavailable]:
    """Take every run from its owner, who can write nothing there from then on; runs that executed wait for another."""
    claims = suspended = 0
    states: tuple[RunState, ...] = ("pending", "running", "waiting", "stuck")
    for state in states:
        after: int | None = None
        while True:
            read = await ledger.runs(state=state, limit=RUNS_AT_ONCE, after=after)
            if isinstance(read, Failure):
                return read
            rows = read.unwrap()
            if not rows:
                break
            after = rows[-1].no
            owned = [row for row in rows if row.owner is not None or row.state == "running"]
            verdicts = await ledger.commit_all([_disown(row, clock.now_ms()) for row in owned])
            for row, verdict in zip(owned, verdicts, strict=True):
                if isinstance(verdict, Failure):
                    failure = verdict.failure()
                    if isinstance(failure, Unavailable):
                        return Failure(failure)
                    continue  # it has another owner, or has ended, since it was read
                suspended += row.state == "running"
                claims += row.state != "running"
    return Success(Fencing(claims, suspended))


def _disown(row: RunRow, now_ms: int) -> Batch:
    columns: RunColumns = {"owner": None, "lease_until_ms": 0, "fence": row.fence + 1, "updated_at_ms": now_ms}
    if row.state == "running":
        set_aside: RunColumns = {
            "state": next_state(row.state, "release"),
            "wake_at_ms": None,
            "waiting_on": WANTS_OWNER,
        }
        columns.update(set_aside)
    return Batch((RunFence(row.id, row.fence),), (ChangeRun(row.id, columns),))


async def _fence_file(path: Path, clock: Clock) -> Outcome[Fencing, BackupError]:
    try:
        ledger = await open_sqlite(path, clock, create=False)
    except CannotOpen as error:
        return Failure(BackupError("database_damaged", str(error)))
    try:
        fenced = await fence(ledger, clock)
        settled = await ledger.settle()
    finally:
        await ledger.close()
    for answer in (fenced, settled):
        if isinstance(answer, Failure):
            return Failure(BackupError("io", f"the runs of the backup could not be fenced: {answer.failure().reason}"))
    return Success(fenced.unwrap())


# --- making one ---------------------------------------------------------------


def _back_up(db: str, folder: Path, artifacts: Path | None, now_ms: int) -> Manifest:
    made = _empty(folder)
    try:
        version = copy_database(db, str(folder / DATABASE))
        _ = check_database(str(folder / DATABASE))
        database = _digest(folder / DATABASE)
        copied = tuple(_copy_artifacts(artifacts, folder / ARTIFACTS)) if artifacts is not None else ()
        manifest = Manifest(FORMAT_VERSION, now_ms, version, database, copied)
        _write(folder / MANIFEST, write_manifest(manifest))
        _sync(folder)
        return manifest
    except BaseException:
        _clear(folder, itself=made)
        raise


def _empty(folder: Path) -> bool:
    """See that the folder is there and empty; whether it was made."""
    if not folder.exists():
        folder.mkdir(parents=True)
        return True
    if not folder.is_dir() or any(folder.iterdir()):
        raise _Refused("not_empty", f"{folder} is not an empty folder: a backup goes to one that is new or empty")
    return False


def _clear(folder: Path, *, itself: bool) -> None:
    with suppress(OSError):
        shutil.rmtree(folder / ARTIFACTS, ignore_errors=True)
        for name in (DATABASE, f"{DATABASE}-journal", MANIFEST):
            (folder / name).unlink(missing_ok=True)
        if itself:
            folder.rmdir()


def _copy_artifacts(source: Path, target: Path) -> Iterator[BackupFile]:
    """Copy the artifacts of a folder in the order of their digests; one that is gone by then was not needed."""
    target.mkdir()
    for digest, path in _listed(source):
        try:
            copied = _copy(path, target / digest)
        except FileNotFoundError:
            continue
        if copied.digest != digest:
            text = f"the artifact {path} is damaged: its bytes have the digest {copied.digest}; remove or heal it first"
            raise _Refused("artifact_corruption", text)
        yield copied
    _sync(target)


def _listed(root: Path) -> list[tuple[str, Path]]:
    objects = root / OBJECTS
    if not objects.is_dir():
        return []
    found = ((path.name, path) for prefix in objects.iterdir() if prefix.is_dir() for path in prefix.iterdir())
    return sorted((name, path) for name, path in found if is_digest(name) and path.is_file())


# --- checking one -------------------------------------------------------------


def _verify(folder: Path) -> Manifest:
    try:
        data = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise _Refused(
            "missing_file", f"{folder} has no {MANIFEST}: it is no backup, or one that did not end"
        ) from None
    read = read_manifest(data)
    if isinstance(read, Failure):
        error = read.failure()
        raise _Refused(error.code, f"{folder}: {error.message}")
    manifest = read.unwrap()
    _check(folder / DATABASE, manifest.database)
    for artifact in manifest.artifacts:
        _check(folder / ARTIFACTS / artifact.digest, artifact)
    if manifest.schema_version > SCHEMA_VERSION:
        text = (
            f"its schema has version {manifest.schema_version}, and this stepwell knows versions up to {SCHEMA_VERSION}"
        )
        raise _Refused("schema_mismatch", f"{folder}: {text}; upgrade stepwell")
    if check_database(str(folder / DATABASE)) != manifest.schema_version:
        text = f"the schema of {folder / DATABASE} is not of version {manifest.schema_version}, as {MANIFEST} says"
        raise _Refused("schema_mismatch", text)
    return manifest


def _check(path: Path, expected: BackupFile) -> None:
    try:
        found = _digest(path)
    except FileNotFoundError:
        raise _Refused("missing_file", f"{path} is missing: the backup is not whole") from None
    if found != expected:
        raise _Refused("digest_mismatch", f"{path} is not what {MANIFEST} says: the backup is damaged")


# --- restoring one ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Restoring:
    """A backup on its way back: the database in a file of its own, the artifacts in a folder of their own."""

    manifest: Manifest
    target: Path
    file: Path
    artifacts: Path | None
    kept: Path | None

    def end(self, fencing: Fencing) -> Restored:
        """Give both their places, the artifacts first; nothing that is there by now is replaced."""
        manifest = self.manifest
        restored = Restored(manifest.created_at_ms, manifest.database.digest, len(manifest.artifacts), fencing)
        with open(self.file, "rb") as file:
            os.fsync(file.fileno())
        if self.kept is not None and self.artifacts is not None:
            if self.kept.exists():
                self.kept.rmdir()  # it is empty, or this is refused
            os.rename(self.artifacts, self.kept)
            _sync(self.kept.parent)
        _marker(self.target).unlink(missing_ok=True)  # of a restore that did not come to its end
        _write(_marker(self.target), encode(restored) + b"\n")
        try:
            os.link(self.file, self.target)
        except FileExistsError:
            raise _Refused("not_empty", f"{self.target} came to be meanwhile, and stays as it is") from None
        _sync(self.target.parent)
        return restored

    def drop(self) -> None:
        """Remove what has no place, or has got another."""
        with suppress(OSError):
            for path in (self.file, Path(f"{self.file}-wal"), Path(f"{self.file}-shm")):
                path.unlink(missing_ok=True)
            if self.artifacts is not None:
                shutil.rmtree(self.artifacts, ignore_errors=True)


def _begin(source: Path, db: str | PathLike[str], artifacts: str | PathLike[str] | None) -> _Restoring:
    target = Path(db).absolute()
    kept = None if artifacts is None else Path(artifacts).absolute()
    for path in (target, Path(f"{target}-wal")):
        if path.exists():
            raise _Refused("not_empty", f"{path} is there: a backup is restored to a new database; name another one")
    if kept is not None and kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
        raise _Refused("not_empty", f"{kept} is not empty: artifacts are restored to a folder that is new or empty")
    manifest = _verify(source)
    if manifest.artifacts and kept is None:
        text = f"the backup has {len(manifest.artifacts)} artifacts: say to which folder they go"
        raise _Refused("invalid_options", text)
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target.with_name(f".{target.name}.restoring-{os.getpid()}")
    beside = None if kept is None else kept.with_name(f".{kept.name}.restoring-{os.getpid()}")
    restoring = _Restoring(manifest, target, file, beside, kept)
    try:
        _copied(source / DATABASE, file, manifest.database)
        if beside is not None:
            for artifact in manifest.artifacts:
                place = beside / OBJECTS / artifact.digest[:2]
                place.mkdir(parents=True, exist_ok=True)
                _copied(source / ARTIFACTS / artifact.digest, place / artifact.digest, artifact, mode=0o444)
            beside.mkdir(parents=True, exist_ok=True)
            for folder in (*beside.glob(f"{OBJECTS}/*"), *beside.glob(OBJECTS), beside):
                _sync(folder)
        return restoring
    except BaseException:
        restoring.drop()
        raise


def _marker(target: Path) -> Path:
    return target.with_name(f"{target.name}.restored.json")


def _copied(source: Path, target: Path, expected: BackupFile, mode: int = 0o644) -> None:
    if _copy(source, target) != expected:
        raise _Refused("digest_mismatch", f"{source} was changed while it was restored")
    target.chmod(mode)


# --- files --------------------------------------------------------------------


def _digest(path: Path) -> BackupFile:
    hashed, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            hashed.update(piece)
            size += len(piece)
    return BackupFile(hashed.hexdigest(), size)


def _copy(source: Path, target: Path) -> BackupFile:
    """Copy a file durably, and tell what was copied."""
    hashed, size = hashlib.sha256(), 0
    with open(source, "rb") as file, open(target, "xb") as copy:
        while piece := file.read(PIECE):
            hashed.update(piece)
            size += len(piece)
            _ = copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return BackupFile(hashed.hexdigest(), size)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        _ = file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _on_thread(work: Callable[[], _T]) -> Outcome[_T, BackupError]:
    """What the work gives, or why it could not be done."""
    try:
        return Success(await asyncio.to_thread(work))
    except _Refused as refused:
        return Failure(refused.error)
    except CannotOpen as error:
        return Failure(BackupError("database_damaged" if "damaged" in error.reason else "io", str(error)))
    except OSError as error:
        return Failure(BackupError("io", f"{error.filename or 'a file'}: {error.strerror or error}"))
