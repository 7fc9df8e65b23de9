"""A layer between SQLite and its files, which counts syncs and fails where a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import apsw

__all__ = ["Shim"]


class Shim(apsw.VFS):
    """Registered under `name` while it is referred to. `syncs` counts by the end of a file's name: "db", "db-wal"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs: Counter[str] = Counter()
        self.on_write: Callable[[str], None] = lambda _: None
        self.on_sync: Callable[[str], None] = lambda _: None
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, shim: Shim, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._shim = shim
        self._kind = path.rpartition(".")[2]
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        self._shim.on_sync(self._kind)
        self._shim.syncs[self._kind] += 1
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._shim.on_write(self._kind)
        super().xWrite(data, offset)
