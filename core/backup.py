"""A backup: what is in it, as its manifest says, and the failures of making, checking and restoring one.

store.sqlite3      the database, copied at one moment
artifacts/         the artifacts, each under its digest
manifest.json      all of these with their digests, written last: a folder without it is no backup
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode
from msgspec.json import format as laid_out

from .node import is_digest
from .outcome import Failure, Outcome, Success

__all__ = [
    "ARTIFACTS",
    "DATABASE",
    "FORMAT_VERSION",
    "MANIFEST",
    "BackupCode",
    "BackupError",
    "BackupFile",
    "Fencing",
    "Manifest",
    "Restored",
    "read_manifest",
    "write_manifest",
]

FORMAT_VERSION: Final = 1

DATABASE: Final = "store.sqlite3"
ARTIFACTS: Final = "artifacts"
MANIFEST: Final = "manifest.json"

LAST_MS: Final = 2**53 - 1
"""The latest instant that a manifest may name: the largest whole number that every reader of JSON keeps exactly."""

BackupCode: TypeAlias = Literal[
    "not_empty",
    "invalid_manifest",
    "missing_file",
    "digest_mismatch",
    "artifact_corruption",
    "schema_mismatch",
    "database_damaged",
    "invalid_options",
    "io",
]


@dataclass(frozen=True, slots=True)
class BackupError:
    """It could not be done: `code` for programs, `message` for people. Nothing is left of what was begun."""

    code: BackupCode
    message: str


class BackupFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup; the digest is the SHA-256 of its bytes, in hex."""

    digest: str
    size_bytes: int


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a backup holds. `schema_version` is that of the database, `artifacts` are sorted by their digests."""

    format_version: int
    created_at_ms: int
    schema_version: int
    database: BackupFile
    artifacts: tuple[BackupFile, ...] = ()


class Fencing(Struct, frozen=True):
    """Runs that nobody owns any more: claims on runs that were not executing, and runs that were set aside."""

    cleared_claims: int
    suspended_runs: int


class Restored(Struct, frozen=True):
    """What was restored; it is also what the marker beside the database says."""

    created_at_ms: int
    database_digest: str
    artifacts: int
    fencing: Fencing


_decode: Final = Decoder(Manifest).decode


def write_manifest(manifest: Manifest) -> bytes:
    return laid_out(encode(manifest), indent=2) + b"\n"


def read_manifest(data: bytes) -> Outcome[Manifest, BackupError]:
    """The manifest, or what is wrong with it."""
    try:
        manifest = _decode(data)
    except DecodeError as error:
        return Failure(_invalid(str(error)))
    if manifest.format_version != FORMAT_VERSION:
        text = f"it has the format {manifest.format_version}, and this stepwell reads format {FORMAT_VERSION}"
        return Failure(_invalid(text))
    files = (manifest.database, *manifest.artifacts)
    if not all(is_digest(file.digest) and file.size_bytes >= 0 for file in files):
        return Failure(_invalid("a digest in it is none, or a size is below 0"))
    if not 0 <= manifest.created_at_ms <= LAST_MS:
        return Failure(_invalid("it was made at no instant that a clock shows"))
    digests = [artifact.digest for artifact in manifest.artifacts]
    if digests != sorted(set(digests)):
        return Failure(_invalid("its artifacts are not in order, or one is named twice"))
    return Success(manifest)


def _invalid(reason: str) -> BackupError:
    return BackupError("invalid_manifest", f"{MANIFEST} cannot be read: {reason}")
