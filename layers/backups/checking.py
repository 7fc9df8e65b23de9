"""Checking that a backup is whole. What its manifest says is compared and never followed: it names no paths."""

from __future__ import annotations

from pathlib import Path

from ...core.backup import ARTIFACTS, DATABASE, MANIFEST, BackupFile, Manifest, read_manifest
from ...core.outcome import Failure
from ..sql.backup import SCHEMA_VERSION, check_database
from .files import Files
from .refused import Refused

__all__ = ["check_backup"]


def check_backup(files: Files, folder: Path) -> Manifest:
    try:
        data = files.read(folder / MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        text = f"{folder} has no {MANIFEST}: it is no backup, or one that did not come to its end"
        raise Refused("missing_file", text) from None
    read = read_manifest(data)
    if isinstance(read, Failure):
        error = read.failure()
        raise Refused(error.code, f"{folder}: {error.message}")
    manifest = read.unwrap()
    _check(files, folder / DATABASE, manifest.database)
    for artifact in manifest.artifacts:
        _check(files, folder / ARTIFACTS / artifact.digest, artifact)
    if manifest.schema_version > SCHEMA_VERSION:
        text = f"its schema has version {manifest.schema_version}, and this stepwell knows versions up to"
        raise Refused("schema_mismatch", f"{folder}: {text} {SCHEMA_VERSION}; upgrade stepwell")
    if check_database(str(folder / DATABASE)) != manifest.schema_version:
        text = f"the schema of {folder / DATABASE} is not of version {manifest.schema_version}, as {MANIFEST} says"
        raise Refused("schema_mismatch", text)
    return manifest


def _check(files: Files, path: Path, expected: BackupFile) -> None:
    try:
        found = files.digest(path)
    except FileNotFoundError:
        raise Refused("missing_file", f"{path} is missing: the backup is not whole") from None
    if found != expected:
        raise Refused("digest_mismatch", f"{path} is not what {MANIFEST} says: the backup is damaged")
