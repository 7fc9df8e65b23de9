"""What the events that the interpreter audits tell of a body: what it did, and to what.

An event is raised before its call is made, whether or not that succeeds. What raises none cannot be told: `os.stat`,
`os.path.exists`, `os.readlink`, making a pipe or a device, and whatever native code does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from socket import AF_UNIX
from threading import Thread
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Final, Protocol, TypeAlias, final, runtime_checkable
from urllib.parse import unquote

from typing_extensions import TypeIs

from ...core.evidence import AmbientKind

__all__ = ["DETAIL_LENGTH", "THREAD_STARTS", "Act", "acts"]

THREAD_STARTS: Final = "_thread.start_new_thread"

DETAIL_LENGTH: Final = 4_096
"""How many characters of a detail are kept."""

_Arguments: TypeAlias = Sequence[object]


@final
@dataclass(frozen=True, slots=True)
class Act:
    """Something that was done or tried.

    `path` is absolute, and as it was spelled: no link was followed. It is None where the act is not about a path, and
    where that was relative to a directory that the event does not tell: then `detail` is relative too.
    """

    kind: AmbientKind
    detail: str
    path: str | None = None


def acts(event: str, arguments: _Arguments) -> Iterable[Act]:
    """What an event tells; nothing if it is about something else. Raises if the form of its arguments is not known."""
    told = _EVENTS.get(event)
    if told is not None:
        return told(arguments)
    if event.startswith("socket."):
        return _network(event.removeprefix("socket."), arguments)
    return ()


# --- files --------------------------------------------------------------------

_NAMELESS: Final = os.O_TMPFILE if sys.platform == "linux" else 0
_MAKES: Final = os.O_CREAT | os.O_EXCL
_PLACE_ONLY: Final = os.O_PATH if sys.platform == "linux" else 0


def _opened(arguments: _Arguments) -> Iterable[Act]:
    name, mode, flags = arguments
    assert isinstance(flags, int)
    if isinstance(mode, str):
        if flags == 0 and isinstance(name, str) and name[:1] == "<":
            return  # to quote a line of "<string>" in an error, the interpreter tries to open it
        reads, writes = "r" in mode or ("a" in mode and "+" in mode), not {"w", "a", "x", "+"}.isdisjoint(mode)
        yield from _at(name, None, reads=reads, writes=writes)
    elif not flags & _PLACE_ONLY:  # os.open, which may have been given a directory
        makes = flags & os.O_TRUNC or flags & _MAKES == _MAKES or (_NAMELESS and flags & _NAMELESS == _NAMELESS)
        access = flags & os.O_ACCMODE
        writes = bool(makes or access != os.O_RDONLY or flags & os.O_CREAT)
        yield from _at(name, _UNTOLD, reads=access != os.O_WRONLY and not makes, writes=writes)


def _looked_at(arguments: _Arguments) -> Iterable[Act]:
    return _at("." if arguments[0] is None else arguments[0], None, reads=True)


def _changed(*places: tuple[int, int | None]) -> Callable[[_Arguments], Iterable[Act]]:
    """What changes the paths at these positions, each beside that of its directory."""

    def told(arguments: _Arguments) -> Iterable[Act]:
        for path, directory in places:
            yield from _at(arguments[path], None if directory is None else arguments[directory], writes=True)

    return told


def _database(arguments: _Arguments) -> Iterable[Act]:
    name = _text(arguments[0])
    if name is not None and name.startswith("file:"):
        name, _, query = name.removeprefix("file:").partition("?")
        name = "" if "mode=memory" in query else unquote(name)
    return () if name in (None, "", ":memory:") else _at(name, None, reads=True, writes=True)


_UNTOLD: Final = object()
"""The directory of a relative path where an event does not say it."""


def _at(name: object, directory: object, *, reads: bool = False, writes: bool = False) -> Iterable[Act]:
    text = _text(name)
    if text is None:
        return  # a descriptor: it was told when that was opened
    path = _absolute(text) if directory in (None, -1) or os.path.isabs(text) else None
    if path == os.devnull:
        return
    if reads:
        yield Act("ambient_read", _shown(path or text), path)
    if writes:
        yield Act("ambient_write", _shown(path or text), path)


def _absolute(text: str) -> str | None:
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        return None  # the working directory is gone


# --- all else -----------------------------------------------------------------


def _process(at: int) -> Callable[[_Arguments], Iterable[Act]]:
    def told(arguments: _Arguments) -> Iterable[Act]:
        yield Act("ambient_process", _shown(_text(arguments[at]) or ""))

    return told


def _process_of(detail: str) -> Callable[[_Arguments], Iterable[Act]]:
    """Of a command nothing is kept: it may hold a secret."""
    return lambda _arguments: (Act("ambient_process", detail),)


def _native(arguments: _Arguments) -> Iterable[Act]:
    yield Act("ambient_native", _shown(_text(arguments[0]) or "the interpreter itself"))


def _thread(arguments: _Arguments) -> Iterable[Act]:
    match arguments[0] if arguments else None:
        case MethodType(__self__=Thread() as thread):
            detail = thread.name
        case FunctionType() | MethodType() | BuiltinFunctionType() as function:
            detail = function.__qualname__
        case other:
            detail = type(other).__qualname__
    yield Act("thread_started", _shown(detail))


def _network(what: str, arguments: _Arguments) -> Iterable[Act]:
    if what == "__new__":
        family = arguments[1]
        if family == AF_UNIX:
            return  # each event loop has a pair; to reach anybody it is connected, bound or sent to, which is told
        yield Act("ambient_socket", f"socket {family}")
    else:
        yield Act("ambient_socket", _shown(" ".join([what, *_words(arguments)])))


def _words(values: Iterable[object]) -> Iterable[str]:
    """Host, port and address, as words; no code of a body is called for them."""
    for value in values:
        if isinstance(value, str | bytes):
            yield os.fsdecode(value)
        elif isinstance(value, int):
            yield str(int(value))
        elif _is_address(value):
            yield from _words(value)


def _is_address(value: object) -> TypeIs[tuple[object, ...]]:
    return isinstance(value, tuple)


_EVENTS: Final[Mapping[str, Callable[[_Arguments], Iterable[Act]]]] = {
    "open": _opened,
    "os.listdir": _looked_at,
    "os.scandir": _looked_at,
    "os.getxattr": _looked_at,
    "os.listxattr": _looked_at,
    "sqlite3.connect": _database,
    "os.chflags": _changed((0, None)),
    "os.chmod": _changed((0, 2)),
    "os.chown": _changed((0, 3)),
    "os.link": _changed((0, 2), (1, 3)),
    "os.mkdir": _changed((0, 2)),
    "os.remove": _changed((0, 1)),
    "os.removexattr": _changed((0, None)),
    "os.rename": _changed((0, 2), (1, 3)),
    "os.rmdir": _changed((0, 1)),
    "os.setxattr": _changed((0, None)),
    "os.symlink": _changed((1, 2)),
    "os.truncate": _changed((0, None)),
    "os.utime": _changed((0, 3)),
    "shutil.rmtree": _changed((0, 1)),
    "os.exec": _process(0),
    "os.fork": _process_of("fork"),
    "os.forkpty": _process_of("fork"),
    "os.posix_spawn": _process(0),
    "os.system": _process_of("/bin/sh"),
    "subprocess.Popen": _process(0),
    "ctypes.dlopen": _native,
    THREAD_STARTS: _thread,
    "_thread.start_joinable_thread": _thread,
}


@runtime_checkable
class _PathLike(Protocol):
    def __fspath__(self) -> str | bytes: ...


def _text(name: object) -> str | None:
    match name:
        case str() | bytes():
            return os.fsdecode(name)
        case _PathLike():
            return os.fsdecode(name.__fspath__())
        case _:
            return None


def _shown(text: str) -> str:
    """As text that every encoding of the evidence can hold: a name on the host need not be UTF-8."""
    return text.encode(errors="backslashreplace").decode()[:DETAIL_LENGTH]
