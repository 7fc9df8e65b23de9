"""Making a backup: what there is of artifacts, the database at one moment, what came to be of artifacts, the manifest.

Artifacts are put before the database names them, and collected when it does not any more. What it names at the moment
of its copy was therefore there either when the backup began or came since; and what came since is too young to be
collected meanwhile (`GRACE_MS` in `services/artifacts.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from ...core.backup import ARTIFACTS, DATABASE, FORMAT_VERSION, MANIFEST, BackupFile, Manifest, write_manifest
from ...core.node import is_digest
from ..files.folder import OBJECTS
from ..sql.backup import admit_database, check_database, copy_database
from .files import Files
from .refused import Refused

__all__ = ["Making"]

UNFINISHED: Final = f"{MANIFEST}.unfinished"
"""The manifest until it is whole. Whoever makes it has the folder for himself."""


@final
class Making:
    """One backup on its way to a folder."""

    def __init__(self, files: Files, db: Path, folder: Path, artifacts: Path | None) -> None:
        self._files = files
        self._db = db
        self._folder = folder
        self._source = artifacts
        self._copied: dict[str, BackupFile] = {}

    def make(self, now_ms: Callable[[], int]) -> Manifest:
        admit_database(str(self._db))
        if self._source is not None:
            _admit_artifacts(self._source)
        if self._folder.exists():
            self._see_that_it_is_empty()
        made = self._files.make(self._folder)
        try:
            self._claim()
        except BaseException:
            self._files.forget(made)
            raise
        try:
            return self._fill(now_ms)
        except BaseException:  # the manifest first: what is left without one is no backup
            for name in (MANIFEST, DATABASE, f"{DATABASE}-journal", ARTIFACTS, UNFINISHED):
                self._files.remove(self._folder / name)
            self._files.forget(made)
            raise

    def _claim(self) -> None:
        """Have the folder alone, and empty."""
        claim = self._folder / UNFINISHED
        try:
            self._files.create(claim)
        except FileExistsError:
            raise self._not_empty() from None
        try:
            self._see_that_it_is_empty(but_for=UNFINISHED)
        except BaseException:
            self._files.remove(claim)
            raise

    def _see_that_it_is_empty(self, but_for: str | None = None) -> None:
        if not self._folder.is_dir() or any(name != but_for for name in self._files.names(self._folder)):
            raise self._not_empty()

    def _not_empty(self) -> Refused:
        if (self._folder / UNFINISHED).exists():
            text = "holds a backup that is being made, or that did not come to its end: remove it, or name another one"
        else:
            text = "is not an empty folder: a backup goes to one that is new or empty"
        return Refused("not_empty", f"{self._folder} {text}")

    def _fill(self, now_ms: Callable[[], int]) -> Manifest:
        folder, files = self._folder, self._files
        if self._source is not None:
            _ = files.make(folder / ARTIFACTS)
            self._copy_artifacts(self._source)
        at_ms = now_ms()
        database = folder / DATABASE
        files.create(database, mode=0o600)
        copy_database(str(self._db), str(database), files.check)
        version = check_database(str(database))  # of the copy: the database may have been migrated meanwhile
        files.sync(database)
        measured = files.digest(database)
        if self._source is not None:
            self._copy_artifacts(self._source)
            files.sync(folder / ARTIFACTS)
        artifacts = tuple(self._copied[digest] for digest in sorted(self._copied))
        manifest = Manifest(FORMAT_VERSION, at_ms, version, measured, artifacts)
        files.fill(folder / UNFINISHED, write_manifest(manifest))
        files.check()
        files.replace(folder / UNFINISHED, folder / MANIFEST)
        files.sync(folder)
        return manifest

    def _copy_artifacts(self, source: Path) -> None:
        """Copy those that are not copied yet; one that is gone by then was not needed."""
        for digest, path in _listed(source):
            if digest in self._copied:
                continue
            try:
                copied = self._files.copy(path, self._folder / ARTIFACTS / digest, 0o444)
            except FileNotFoundError:
                continue
            if copied.digest != digest:
                text = f"the artifact {path} is damaged: its bytes have the digest {copied.digest}"
                raise Refused("artifact_corruption", f"{text}; remove or heal it first")
            self._copied[digest] = copied


def _admit_artifacts(source: Path) -> None:
    """A wrong path must not make a backup without its artifacts."""
    if not source.is_dir():
        raise Refused("invalid_options", f"there is no folder {source}, in which the artifacts are said to be")
    if not (source / OBJECTS).is_dir() and any(source.iterdir()):
        raise Refused("invalid_options", f"{source} is no folder of artifacts: it has no {OBJECTS}/")


def _listed(root: Path) -> list[tuple[str, Path]]:
    """The digests and files of a folder of artifacts. Links are none: nobody reads an artifact through one."""
    if not (root / OBJECTS).is_dir():
        return []
    found: list[tuple[str, Path]] = []
    for prefix in os.scandir(root / OBJECTS):
        if prefix.is_dir(follow_symlinks=False):
            with os.scandir(prefix) as entries:
                found.extend((each.name, Path(each)) for each in entries if _is_artifact(each))
    return sorted(found)


def _is_artifact(entry: os.DirEntry[str]) -> bool:
    return is_digest(entry.name) and entry.is_file(follow_symlinks=False)
