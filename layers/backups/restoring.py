"""Restoring a backup: made in folders of its own beside its places, fenced there, and then given its places.

The database comes last, by a rename that replaces nothing. What a crash leaves is in folders with `.restoring-` in
their names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, final

from msgspec.json import encode

from ...core.backup import ARTIFACTS, DATABASE, BackupFile, Fencing, Manifest, Restored
from ..files.folder import OBJECTS
from .checking import check_backup
from .files import Files, is_there
from .refused import Refused

__all__ = ["Restoring"]

_MARK: Final = ".restoring-"
_OF_SQLITE: Final = ("-wal", "-shm", "-journal")
"""What SQLite has beside a database, and would take for that of any database of this name."""

_DATABASE_MODE: Final = 0o644
_OBJECTS_MODE: Final = 0o444
"""As SQLite and the artifacts make their files; the umask takes from both."""


@final
class Restoring:
    """One backup on its way back. Its methods block, and are called in this order; `drop` always, as the last one."""

    def __init__(self, source: Path, target: Path, kept: Path | None) -> None:
        self._source = source
        self._target = target
        self._kept = kept
        self._marker = target.with_name(f"{target.name}.restored.json")
        self._manifest: Manifest | None = None
        self._folder: Path | None = None
        self._artifacts: Path | None = None
        self._made: list[Path] = []

    @property
    def file(self) -> Path:
        """The database on its way, from `begin` on."""
        assert self._folder is not None
        return self._folder / DATABASE

    # --- beginning --------------------------------------------------------------

    def begin(self, files: Files) -> None:
        """Check everything, and copy it to where it waits for its place."""
        self._admit_places()
        manifest = self._manifest = check_backup(files, self._source)
        if manifest.artifacts and self._kept is None:
            text = f"the backup has {len(manifest.artifacts)} artifacts: say to which folder they go"
            raise Refused("invalid_options", text)
        target, process = self._target, os.getpid()
        self._made += files.make(target.parent)
        self._folder = files.new_folder(lambda number: target.with_name(f".{target.name}{_MARK}{process}-{number}"))
        self._copy(files, self._source / DATABASE, self.file, manifest.database, _DATABASE_MODE)
        if self._kept is not None:
            kept = self._kept
            self._made += files.make(kept)
            self._artifacts = files.new_folder(lambda number: kept / f"{_MARK}{process}-{number}")
            self._copy_artifacts(files, manifest, self._artifacts)

    def _copy_artifacts(self, files: Files, manifest: Manifest, folder: Path) -> None:
        if not manifest.artifacts:
            return
        objects = folder / OBJECTS
        _ = files.make(objects)
        for artifact in manifest.artifacts:
            place = objects / artifact.digest[:2]
            _ = files.make(place)
            source = self._source / ARTIFACTS / artifact.digest
            self._copy(files, source, place / artifact.digest, artifact, _OBJECTS_MODE)
        for prefix in sorted({artifact.digest[:2] for artifact in manifest.artifacts}):
            files.sync(objects / prefix)
        files.sync(objects)

    def _copy(self, files: Files, source: Path, target: Path, expected: BackupFile, mode: int) -> None:
        try:
            copied = files.copy(source, target, mode)
        except FileNotFoundError:
            raise Refused("missing_file", f"{source} was removed while it was restored") from None
        if copied != expected:
            raise Refused("digest_mismatch", f"{source} was changed while it was restored")

    # --- the places ---------------------------------------------------------------

    def _admit_places(self) -> None:
        target, kept = self._target, self._kept
        self._see_that_target_is_free()
        if kept is None:
            return
        if target in (kept, *kept.parents):
            raise Refused("invalid_options", f"{kept} and the database cannot both be there: name another folder")
        if is_there(kept) and not kept.is_dir():
            raise Refused("not_empty", f"{kept} is no folder: artifacts are restored to one that is new or empty")
        names = os.listdir(kept) if kept.is_dir() else []
        in_the_way = [name for name in names if _MARK not in name]
        if not in_the_way:
            return
        if OBJECTS in in_the_way and len(in_the_way) < len(names):
            text = "is of a restore that goes on, or that did not come to its end: remove it, and restore again"
        else:
            text = "is not empty: artifacts are restored to a folder that is new or empty"
        raise Refused("not_empty", f"{kept} {text}")

    def _see_that_target_is_free(self) -> None:
        if is_there(self._target):
            text = f"{self._target} is there: a backup is restored to a new database; name another one"
            raise Refused("not_empty", text)
        for end in _OF_SQLITE:
            if is_there(beside := Path(f"{self._target}{end}")):
                text = "SQLite would take it for a part of the new database; remove it if its database is gone"
                raise Refused("not_empty", f"{beside} is there, and {text}")

    # --- ending -------------------------------------------------------------------

    def end(self, files: Files, fencing: Fencing) -> Restored:
        """Give everything its place; nothing that is there by now is replaced, and all or nothing is there after it."""
        assert self._manifest is not None
        assert self._folder is not None
        manifest, marker = self._manifest, self._folder / "marker"
        restored = Restored(manifest.created_at_ms, manifest.database.digest, len(manifest.artifacts), fencing)
        for end in _OF_SQLITE:
            if (log := Path(f"{self.file}{end}")).exists() and log.stat().st_size > 0:
                raise Refused("io", f"{log} still has a part of the database")
        files.sync(self.file)
        files.create(marker, encode(restored) + b"\n", _DATABASE_MODE)
        files.check()
        with files.alone(self._target.parent):
            self._see_that_target_is_free()
            self._take_places(files, marker)
        try:
            files.sync(self._target.parent)
        except OSError as error:
            text = f"{self._target} is there and whole, but it is not certain that it outlasts the loss of power"
            raise Refused("io", f"{text}: {error.strerror}") from error
        return restored

    def _take_places(self, files: Files, marker: Path) -> None:
        try:
            if self._artifacts is not None and (self._artifacts / OBJECTS).exists():
                assert self._kept is not None
                self._place(files, self._artifacts / OBJECTS, self._kept / OBJECTS)
                files.sync(self._kept)
            files.replace(marker, self._marker)  # one of a restore that did not come to its end may be there
            self._place(files, self.file, self._target)
        except BaseException:
            self._leave_places(files, marker)
            raise
        self._made.clear()

    def _place(self, files: Files, old: Path, new: Path) -> None:
        try:
            files.place(old, new)
        except FileExistsError:
            raise Refused("not_empty", f"{new} came to be meanwhile, and stays as it is") from None

    def _leave_places(self, files: Files, marker: Path) -> None:
        """Nobody else has changed them since: who restores to the same database waits, and knows no other name."""
        if not marker.exists():
            files.remove(self._marker)
        if self._artifacts is None or self._kept is None or self._manifest is None or not self._manifest.artifacts:
            return
        if not (self._artifacts / OBJECTS).exists():
            files.remove(self._kept / OBJECTS)

    def drop(self, files: Files) -> None:
        """Remove what has no place, or has got another."""
        for folder in (self._folder, self._artifacts):
            if folder is not None:
                files.remove(folder)
        files.forget(self._made)
