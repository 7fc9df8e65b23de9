"""A new file that is written beside the host's own, until its copy-back is decided."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from typing import final

from ...core.copy_back import Op
from ...core.node import FileNode
from ...core.step_sandbox import WorkspaceError
from ...core.workspace_path import shown
from .folder import TransactionFolder
from .points import CopyBackPoint
from .site import Site, refusal_of

__all__ = ["StagedFile"]


@final
class StagedFile:
    """Writes one new file. What goes wrong is told to `fail`, and what comes after it is dropped."""

    def __init__(
        self, site: Site, op: Op, folder: TransactionFolder | None, fail: Callable[[WorkspaceError], None]
    ) -> None:
        assert isinstance(op.after, FileNode)
        self.is_open = True
        self._site = site
        self._path = op.path
        self._node = op.after
        self._fail = fail
        self._hashed = hashlib.sha256()
        self._descriptor: int | None = None
        if folder is not None:
            try:
                self._descriptor = self._make(folder, op.slot)
            except OSError as error:
                self._refuse(error)

    def _make(self, folder: TransactionFolder, slot: int) -> int:
        calls, mode = self._site.calls, 0o777 if self._node.executable else 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = calls.open(folder.slot(slot), flags, mode, at=folder.descriptor)
        try:
            made = stat.S_IMODE(calls.stat(descriptor).st_mode)
            needed = made | (0o500 if self._node.executable else 0o400)  # whatever the umask says
            if needed != made:
                calls.chmod(descriptor, needed)
        except OSError:
            calls.close(descriptor)
            raise
        return descriptor

    def write(self, data: bytes | bytearray | memoryview, /) -> None:
        if self._descriptor is not None:
            try:
                self._site.calls.write(self._descriptor, data)
                self._hashed.update(data)
            except OSError as error:
                self._refuse(error)

    def close(self) -> None:
        """The file is whole. Bytes that are not those of its digest are refused."""
        if self._descriptor is not None:
            self.drop()
            if self._hashed.hexdigest() != self._node.digest:
                message = f"the bytes written for {shown(self._path)} are not those of its digest {self._node.digest}"
                self._fail(WorkspaceError("host_unavailable", message))
            self._site.reach(CopyBackPoint.STAGED)
        self.is_open = False

    def drop(self) -> None:
        """Give the descriptor back, whatever was written."""
        self.is_open = False
        if self._descriptor is not None:
            self._site.calls.close(self._descriptor)
            self._descriptor = None

    def _refuse(self, error: OSError) -> None:
        self._fail(refusal_of(error, f"the new bytes of {shown(self._path)} cannot be kept"))
        if self._descriptor is not None:
            self._site.calls.close(self._descriptor)
            self._descriptor = None
