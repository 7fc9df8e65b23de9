"""Proves, before anything rests on it, that a folder can be copied back to: each call is tried, and its effect seen."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final, final

from ...core.node import LinkNode
from ...core.step_sandbox import WorkspaceError
from .calls import DIRECTORY, SystemCalls
from .pinned import Pinned, look

__all__ = ["prove"]

_FOLDER: Final = "probe"


def prove(calls: SystemCalls, state: Pinned, root: str) -> WorkspaceError | None:
    """The first call that the folder refuses, or that does not do what it says. The lock is held meanwhile."""
    try:
        with _folder(calls, state) as folder:
            failed = _Probes(calls, folder).failed()
    except OSError as error:
        failed = "descriptor-relative calls", error.strerror or str(error)
    if failed is None:
        return None
    message = (
        f"{root} cannot be copied back to safely: the probe of {failed[0]} failed ({failed[1]}); "
        "use a folder on a local file system such as ext4, xfs, btrfs or tmpfs"
    )
    return WorkspaceError("host_unavailable", message)


@contextmanager
def _folder(calls: SystemCalls, state: Pinned) -> Generator[Pinned]:
    """An empty folder for the length of the block, also if an earlier process left one."""
    with suppress(FileExistsError):
        calls.make_directory(_FOLDER, 0o700, at=state.descriptor)
    folder = Pinned(calls, calls.open(_FOLDER, os.O_RDONLY | DIRECTORY, at=state.descriptor))
    try:
        _empty(calls, folder)
        yield folder
    finally:
        with suppress(OSError):
            _empty(calls, folder)
            calls.remove_directory(_FOLDER, at=state.descriptor)
        folder.close()


def _empty(calls: SystemCalls, folder: Pinned) -> None:
    for name in calls.names(folder.descriptor):
        calls.unlink(name, at=folder.descriptor)


@final
class _Probes:
    """Links stand for files here: their text says which of them stands where, without opening it."""

    def __init__(self, calls: SystemCalls, folder: Pinned) -> None:
        self._calls = calls
        self._folder = folder
        self._at = folder.descriptor

    def failed(self) -> tuple[str, str] | None:
        """The name of the first probe that fails, with the reason."""
        probes = {
            "descriptor-relative resolution": self._stops_at_links,
            "RENAME_EXCHANGE": self._exchanges,
            "RENAME_NOREPLACE": self._does_not_replace,
            "directory fsync": self._syncs,
        }
        for name, probe in probes.items():
            try:
                worked = probe()
            except OSError as error:
                return name, error.strerror or str(error)
            if not worked:
                return name, "it has another effect than it should"
        return None

    def _stops_at_links(self) -> bool:
        self._calls.make_link(".", "here", at=self._at)
        try:
            self._calls.close(self._folder.open("here/here", os.O_PATH))
        except OSError as error:
            return error.errno == errno.ELOOP
        return False

    def _exchanges(self) -> bool:
        self._calls.make_link("one", "1", at=self._at)
        self._calls.make_link("two", "2", at=self._at)
        self._calls.exchange(self._at, "1", self._at, "2")
        return self._holds("1", "two") and self._holds("2", "one")

    def _does_not_replace(self) -> bool:
        try:
            self._calls.move(self._at, "1", self._at, "2")
        except FileExistsError:
            self._calls.move(self._at, "1", self._at, "3")
            return self._holds("2", "one") and self._holds("3", "two")
        return False

    def _syncs(self) -> bool:
        self._calls.sync(self._at)
        return True

    def _holds(self, name: str, text: str) -> bool:
        return look(self._calls, self._at, name) == LinkNode(text)
