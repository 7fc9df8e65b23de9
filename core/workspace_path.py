"""Which texts name something in a workspace: one set of rules for declarations, operations and what is copied back.

A path is relative, and its parts are separated by "/". `..` is refused and never folded, because `a/../b` is not `b`
where `a` is a link. An operation may be spelled freely (`./a//b`, or below the workspace's absolute path); a
declaration is spelled in one way only, since it becomes part of a key. Nothing here raises, whatever the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from .step_sandbox import LimitExceeded, WorkspaceError
from .workspace_limits import LIMITS, WorkspaceLimits

__all__ = [
    "PROTECTED",
    "WORKSPACE_ROOT",
    "PathCode",
    "PathProblem",
    "ancestors",
    "collision",
    "collision_key",
    "declared_path",
    "file_path",
    "is_protected",
    "operation_path",
    "parent_of",
    "portable_problem",
    "protected_problem",
    "shown",
    "spelling_problem",
]

WORKSPACE_ROOT: Final = "/stepwell/ws"
"""The absolute path of the workspace as a body sees it, on every host."""

STATE: Final = ".stepwell"
"""The directory at the top of a workspace in which stepwell keeps its own files."""

PROTECTED: Final = frozenset({STATE, ".git"})
"""Names at the top of a workspace that no wildcard stands for, in upper or lower case: some file systems fold it."""

PathCode: TypeAlias = Literal[
    "invalid_path",
    "path_escapes_workspace",
    "protected_path",
    "name_collision",
    "unsupported_file_type",
    "path_bytes",
    "path_depth",
    "name_bytes",
]


@final
@dataclass(frozen=True, slots=True)
class PathProblem:
    """Why a path cannot be used. If `code` is the name of a limit, `actual` and `limit` are its figures, else 0."""

    code: PathCode
    message: str
    actual: int = 0
    limit: int = 0

    def as_failure(self) -> WorkspaceError | LimitExceeded:
        """The failure that a call answers with."""
        if self.actual > self.limit:
            return LimitExceeded(self.code, self.actual, self.limit)
        return WorkspaceError(self.code, self.message)


# --- paths ------------------------------------------------------------------


def operation_path(
    text: str, roots: Sequence[str] = (WORKSPACE_ROOT,), limits: WorkspaceLimits = LIMITS
) -> str | PathProblem:
    """The path that an operation names, without empty parts and `.`; "" is the top of the workspace.

    An absolute path is made relative if it lies below one of `roots`. A backslash is a character like any other.
    """
    if problem := _character_problem(text):
        return problem
    parts = _parts(text)
    if ".." in parts:
        return _upward(text)
    if text.startswith("/"):
        below = next((found for root in roots if (found := _below(parts, root)) is not None), None)
        if below is None:
            return _outside(text)
        parts = below
    path = "/".join(parts)
    return _size_problem(path, limits) or path


def file_path(
    text: str, roots: Sequence[str] = (WORKSPACE_ROOT,), limits: WorkspaceLimits = LIMITS
) -> str | PathProblem:
    """As `operation_path`, for operations that the top of the workspace is no object of."""
    path = operation_path(text, roots, limits)
    if path == "":
        return PathProblem("invalid_path", f"{shown(text)} is the top of the workspace, and no file in it")
    return path


def declared_path(text: str, limits: WorkspaceLimits = LIMITS) -> str | PathProblem:
    """`text`, if it is a path or a glob as a declaration spells it."""
    if problem := _character_problem(text):
        return problem
    if reason := spelling_problem(text):
        return PathProblem("invalid_path", f"the path {reason}")
    parts = text.split("/")
    if ".." in parts:
        return _upward(text)
    if text.startswith("/"):
        return _outside(text)
    if "" in parts or "." in parts:
        return PathProblem("invalid_path", _respelled(text))
    if is_protected(text) and collision_key(parts[0]) == STATE:
        return PathProblem("protected_path", f"{shown(text)} lies in {STATE}, where stepwell keeps its own files")
    return _size_problem(text, limits) or text


def spelling_problem(text: str) -> str | None:
    """Why one text may be read as two different names, so that no declaration can hold it."""
    if "\\" in text:
        return f'{shown(text)} has a backslash; write "/" between the parts of a path'
    if not unicodedata.is_normalized("NFC", text):
        return f"{_cut(text)!a} is not in the Unicode form NFC; write it as {_cut(_nfc(text))!a}"
    return None


def ancestors(path: str) -> Iterator[str]:
    """The directories above a path, the nearest first, without the top of the workspace."""
    end = path.rfind("/")
    while end > 0:
        yield path[:end]
        end = path.rfind("/", 0, end)


def parent_of(path: str) -> str:
    """The directory that holds a path; "" is the top of the workspace."""
    return path.rpartition("/")[0]


def is_protected(path: str) -> bool:
    """Whether a path is that of stepwell's own files or of git's, or lies below."""
    return collision_key(path.partition("/")[0]) in PROTECTED


def protected_problem(path: str) -> PathProblem | None:
    """Why no step changes what is at a path, whatever it declared."""
    if not is_protected(path):
        return None
    return PathProblem("protected_path", f"{shown(path)} belongs to stepwell or to git, and no step writes there")


def _character_problem(text: str) -> PathProblem | None:
    if found := _UNUSABLE.search(text):
        return PathProblem("invalid_path", f"the path {shown(text)} has the character {found.group()!a}")
    return None


_UNUSABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def _parts(text: str) -> list[str]:
    return [part for part in text.split("/") if part not in ("", ".")]


def _below(parts: list[str], root: str) -> list[str] | None:
    above = _parts(root)
    return parts[len(above) :] if parts[: len(above)] == above else None


def _size_problem(path: str, limits: WorkspaceLimits) -> PathProblem | None:
    parts = path.split("/")
    longest = max(len(part.encode()) for part in parts)
    sizes: tuple[tuple[PathCode, str, int, int], ...] = (
        ("path_bytes", "bytes long", len(path.encode()), limits.path_bytes),
        ("path_depth", "directories and names deep", len(parts), limits.path_depth),
        ("name_bytes", "bytes long in one of its names", longest, limits.name_bytes),
    )
    for code, what, actual, limit in sizes:
        if actual > limit:
            return PathProblem(code, f"{shown(path)} is {actual} {what}; at most {limit} are possible", actual, limit)
    return None


def _upward(text: str) -> PathProblem:
    return PathProblem("invalid_path", f'the path {shown(text)} goes up by ".."; name it from the top of the workspace')


def _outside(text: str) -> PathProblem:
    return PathProblem(
        "path_escapes_workspace", f"{shown(text)} is absolute; name what is in the workspace by its path from the top"
    )


def _respelled(text: str) -> str:
    plain = "/".join(_parts(text))
    if not plain:
        return f"{shown(text)} names no file; name one, or all of them by '**'"
    hint = f", or {shown(plain + '/**')} for all below it" if text.endswith("/") else ""
    return f"{shown(text)} has an empty part or one that is '.'; write {shown(plain)}{hint}"


# --- names that other file systems take for others ----------------------------


def collision_key(text: str) -> str:
    """What two names or paths have in common that are one on a file system that folds case or Unicode forms."""
    return _nfc(_nfc(text).casefold())


def collision(paths: Iterable[str]) -> PathProblem | None:
    """Two of these paths, or of the directories above them, that some file systems would make one."""
    spelled: dict[str, str] = {}
    seen: set[str] = set()
    for path in sorted(paths):
        for name in (path, *ancestors(path)):
            if name in seen:
                break
            seen.add(name)
            other = spelled.setdefault(collision_key(name), name)
            if other != name:
                both = f"{_told_apart(other)} and {_told_apart(name)}"
                return PathProblem("name_collision", f"{both} would be one file on some systems; rename one of them")
    return None


def portable_problem(path: str) -> PathProblem | None:
    """Why Windows would silently take a name in this path for another, or for no file at all.

    Parts with a wildcard are let through: what they match has to be asked about.
    """
    for part in path.split("/"):
        if "*" not in part and (reason := _reserved(part)):
            return PathProblem("invalid_path", f"the name {shown(part)} in {shown(path)} {reason}; choose another")
    return None


def _reserved(name: str) -> str | None:
    if ":" in name:
        return "has a colon, which means something else on Windows"
    if name.endswith((".", " ")):
        return "ends in a dot or a space, which Windows drops"
    if name.partition(".")[0].rstrip(" ").casefold() in _DEVICES:
        return "is that of a device on Windows"
    return None


_DEVICES: Final = frozenset(
    {"aux", "con", "conin$", "conout$", "nul", "prn"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in "123456789\u00b9\u00b2\u00b3"}
)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


# --- texts in messages --------------------------------------------------------

_SHOWN: Final = 200
"""How many characters of a path a message shows."""


def shown(text: str) -> str:
    """A path in quotes for a message: what cannot be printed is escaped, and what is very long is cut."""
    return repr(_cut(text))


def _told_apart(path: str) -> str:
    """A path as `shown`, with the escapes that tell it from one that looks the same."""
    return shown(path) if unicodedata.is_normalized("NFC", path) else ascii(_cut(path))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
