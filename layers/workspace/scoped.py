"""The workspace that a body is given: the contract's calls over a session."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final, Literal, final, get_args

from typing_extensions import Buffer

from ...core.node import FileNode
from ...services.step_sandbox import OpenMode
from .session import Session
from .tripwire import unwatched

__all__ = ["ScopedWorkspace"]

_MODES: Final[Mapping[str, OpenMode]] = {mode: mode for mode in get_args(OpenMode)}


@final
class ScopedWorkspace:
    """A `Workspace` over the private copies of one step. What its calls do is not the body's own doing."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @unwatched()
    def read_bytes(self, path: str) -> bytes:
        return self._session.read(_text(path))

    def read_text(self, path: str) -> str:
        return self.read_bytes(path).decode()

    @unwatched()
    def write_bytes(self, path: str, data: bytes) -> None:
        self._session.write(_text(path), _bytes(path, data))

    @unwatched()
    def write_text(self, path: str, text: str) -> None:
        self._session.write(_text(path), _encoded(path, text))

    @unwatched()
    def exists(self, path: str) -> bool:
        return self._session.exists(_text(path))

    @unwatched()
    def list_dir(self, path: str) -> list[str]:
        return self._session.names(_text(path))

    @unwatched()
    def remove(self, path: str) -> None:
        self._session.remove(_text(path))

    @unwatched()
    def make_dir(self, path: str) -> None:
        self._session.make_dir(_text(path))

    @unwatched()
    def queue_effect(self, effect: object) -> None:
        self._session.queue(effect)

    @unwatched()
    def open_binary(self, path: str, mode: OpenMode = "r") -> io.BufferedIOBase:
        return self._session.open(_text(path), _mode(mode, "b"))

    @unwatched()
    def open_text(self, path: str, mode: OpenMode = "r") -> io.TextIOWrapper:
        handle = self._session.open(_text(path), _mode(mode, "t"))
        # What a wrapper holds back would be lost where the body leaves it open.
        return io.TextIOWrapper(handle, encoding="utf-8", newline="", write_through=True)

    @unwatched()
    def is_dir(self, path: str) -> bool:
        return self._session.is_dir(_text(path))

    @unwatched()
    def is_executable(self, path: str) -> bool:
        node = self._session.node(_text(path))
        return isinstance(node, FileNode) and node.executable

    @unwatched()
    def set_executable(self, path: str, executable: bool) -> None:
        self._session.set_executable(_text(path), executable)

    @unwatched()
    def glob(self, pattern: str) -> list[str]:
        return self._session.matching(_text(pattern))

    @unwatched()
    def rename(self, old: str, new: str) -> None:
        self._session.rename(_text(old), _text(new))

    @unwatched()
    def make_link(self, path: str, target: str) -> None:
        self._session.make_link(_text(path), _text(target))

    @unwatched()
    def read_link(self, path: str) -> str:
        return self._session.link(_text(path))


def _text(path: object) -> str:
    if not isinstance(path, str):
        raise TypeError(f"a path in a workspace is text, not {type(path).__name__}")
    return path


def _mode(mode: str, kind: Literal["b", "t"]) -> OpenMode:
    """The mode without the letter that the call says already: "rb" of a binary handle is "r"."""
    known = _MODES.get(mode.replace(kind, "", 1))
    if known is None:
        raise ValueError(f"a file is not opened with mode {mode!r}, but with one of {', '.join(_MODES)}")
    return known


def _encoded(path: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"the text for {path} is {type(text).__name__}; write_bytes takes bytes")
    return text.encode()


def _bytes(path: str, data: object) -> bytes:
    if not isinstance(data, Buffer):
        raise TypeError(f"the bytes for {path} are {type(data).__name__}; write_text takes text")
    return bytes(data)
