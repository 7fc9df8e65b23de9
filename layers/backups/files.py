"""The files of a backup, by absolute paths: each call is durable when it returns, and ends soon after `check` raises.

Every system call that changes something, or may wait, is announced to `on_call` with its name and the path.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from ...core.backup import BackupFile
from ..files.beside import Check
from ..sql.backup import names_no_file
from ..workspace.calls import OnCall, SystemCalls
from .refused import Refused

__all__ = ["PRIVATE", "Files", "absolute", "is_there", "nothing"]

PIECE: Final = 1024 * 1024

PRIVATE: Final = 0o700
"""The mode of every folder that is made: what is in it is as confidential as the database."""

_HERE: Final = -100  # AT_FDCWD: the paths are absolute

_NO_RENAME: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""How a file system says that it cannot rename without replacing."""

_NO_LINK: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


def nothing(call: str, name: str, /) -> None:
    """Lets every call be made."""


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from where the process is now; `Refused` if nothing can have this name."""
    name = os.fspath(path)
    try:
        _ = name.encode()
    except UnicodeEncodeError:
        raise Refused("invalid_options", f"{name!r} is not valid Unicode, as SQLite wants names to be") from None
    if "\0" in name or names_no_file(name):
        raise Refused("invalid_options", f"{name!r} is not the path of a file or folder here")
    return Path(name).absolute()


def is_there(path: Path) -> bool:
    """Whether anything has this name, be it a link to nothing."""
    return os.path.lexists(path)


@final
class Files:
    def __init__(self, on_call: OnCall, check: Check) -> None:
        self._on_call = on_call
        self._calls = SystemCalls(on_call)
        self.check = check

    # --- reading --------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        data = bytearray()
        with self._opened(path) as file:
            while piece := self._piece(file):
                data += piece
        return bytes(data)

    def digest(self, path: Path) -> BackupFile:
        hashed, size = hashlib.sha256(), 0
        with self._opened(path) as file:
            while piece := self._piece(file):
                hashed.update(piece)
                size += len(piece)
        return BackupFile(hashed.hexdigest(), size)

    def _piece(self, file: int) -> bytes:
        self.check()
        return self._calls.read(file, PIECE)

    @contextmanager
    def _opened(self, path: Path) -> Generator[int]:
        """A regular file; FileNotFoundError where something else stands. A pipe is not waited for."""
        file = self._calls.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, at=_HERE)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError(errno.ENOENT, "it is no file", str(path))
            yield file
        finally:
            self._calls.close(file)

    # --- writing --------------------------------------------------------------

    def copy(self, source: Path, target: Path, mode: int) -> BackupFile:
        """Copy a file to a new one, and tell what was copied. FileNotFoundError is of the source alone."""
        hashed, size = hashlib.sha256(), 0
        with self._opened(source) as file, self._created(target, mode) as copy:
            while piece := self._piece(file):
                hashed.update(piece)
                size += len(piece)
                self._calls.write(copy, piece)
            self._calls.sync(copy)
        return BackupFile(hashed.hexdigest(), size)

    def create(self, path: Path, data: bytes = b"", mode: int = 0o600) -> None:
        """Write a new file; FileExistsError if the name is taken."""
        with self._created(path, mode) as file:
            self._calls.write(file, data)
            self._calls.sync(file)

    def fill(self, path: Path, data: bytes) -> None:
        """Write a file that is there and empty."""
        file = self._calls.open(str(path), os.O_WRONLY, at=_HERE)
        try:
            self._calls.write(file, data)
            self._calls.sync(file)
        finally:
            self._calls.close(file)

    @contextmanager
    def _created(self, path: Path, mode: int) -> Generator[int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            file = self._calls.open(str(path), flags, mode, at=_HERE)
        except FileNotFoundError as error:
            raise OSError(errno.EIO, "its folder was removed meanwhile", str(path)) from error
        try:
            yield file
        except BaseException:
            self.remove(path)
            raise
        finally:
            self._calls.close(file)

    def sync(self, path: Path) -> None:
        """Make a file or a folder durable."""
        file = self._calls.open(str(path), os.O_RDONLY, at=_HERE)
        try:
            self._calls.sync(file)
        finally:
            self._calls.close(file)

    # --- folders --------------------------------------------------------------

    def make(self, folder: Path) -> list[Path]:
        """Make a folder, and those above it, where they are not there yet; the ones that were made, outermost first."""
        missing: list[Path] = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        made: list[Path] = []
        try:
            for each in reversed(missing):
                with suppress(FileExistsError):  # somebody else was faster, or a file is in the way of what follows
                    self._calls.make_directory(str(each), PRIVATE, at=_HERE)
                    made.append(each)
                self.sync(each.parent)
        except BaseException:
            self.forget(made)
            raise
        return made

    def forget(self, made: list[Path]) -> None:
        """Remove folders that were made and are empty; whoever cannot, leaves them."""
        for folder in reversed(made):
            with suppress(OSError):
                os.rmdir(folder)

    def names(self, folder: Path) -> list[str]:
        self.check()
        return os.listdir(folder)

    def new_folder(self, path: Callable[[int], Path]) -> Path:
        """Make the first of these folders that is not there yet."""
        number = 0
        while True:
            folder = path(number)
            try:
                self._calls.make_directory(str(folder), PRIVATE, at=_HERE)
            except FileExistsError:
                number += 1
            else:
                return folder

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it, as far as that is possible."""
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    # --- names ----------------------------------------------------------------

    def replace(self, old: Path, new: Path) -> None:
        self._calls.replace(_HERE, str(old), _HERE, str(new))

    def place(self, old: Path, new: Path) -> None:
        """Give a file, or a folder, a name that nothing has: FileExistsError otherwise, and both stay as they are."""
        try:
            self._calls.move(_HERE, str(old), _HERE, str(new))
        except OSError as error:
            if error.errno not in _NO_RENAME:
                raise
            self._place_by_link(old, new)

    def _place_by_link(self, old: Path, new: Path) -> None:
        """Where the system knows no renaming that replaces nothing. The old name stays, for a moment or after a crash.

        A folder cannot be linked, and need not: renaming one replaces at most an empty one.
        """
        if old.is_dir():
            if is_there(new):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
            self.replace(old, new)
            return
        try:
            self._on_call("linkat", str(new))
            os.link(old, new, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            text = f"the file system of {new} can neither rename without replacing nor link: use another one"
            raise Refused("io", text) from error

    @contextmanager
    def alone(self, folder: Path) -> Generator[None]:
        """Alone in a folder among those who ask for it in this way; where it cannot be locked, with the others."""
        at = self._calls.open(str(folder), os.O_RDONLY | os.O_DIRECTORY, at=_HERE)
        try:
            with suppress(OSError):
                fcntl.flock(at, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(at, fcntl.LOCK_UN)
            self._calls.close(at)
