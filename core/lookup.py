"""What a command looked up, and which of it was an undeclared read.

Rules, for a path in the workspace: what is there is a read of what was seeded or produced. What is not there but is on
the host is an undeclared read, if its content, names or target were asked for; a look at whether it exists is a probe,
as is everything that the host does not have either. To open for writing what need not be there, and to keep what is, is
an undeclared read of what the host has: whoever appends would have found it. It is none if the file was opened to be
written only, and then cut to nothing. Outside the workspace, the same holds for what lies beneath none of the places
that the sandbox shows; these are covered by the identity of the environment, and are no reads.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

from .tree import path_order

__all__ = ["Lookup", "LookupKind", "Sightings", "classify", "is_beneath"]

LookupKind: TypeAlias = Literal["read", "create", "append", "update", "truncate", "list", "readlink", "exec", "stat"]


@final
@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up by a command: what it was for, of which path, whether that was there then, and how often.

    The path is relative in the workspace ("" is its root) and absolute elsewhere. `create` opens what need not be
    there, and keeps nothing of what is; `append`, which is to be written only, and `update` keep it. `truncate` cuts a
    file that was opened to be written only to nothing. Equal look-ups are one, with a count, where the first of them
    was.
    """

    kind: LookupKind
    path: str
    present: bool
    count: int = 1

    @property
    def in_workspace(self) -> bool:
        return not self.path.startswith("/")


@final
@dataclass(frozen=True, slots=True)
class Sightings:
    """What the look-ups come to.

    `seen`: what was there in the workspace, in order. `undeclared`: paths that would have been read, sorted by bytes.
    `probes`: paths that were asked for and are not there, sorted by bytes. Both are text: other bytes are escaped.
    """

    seen: tuple[Lookup, ...]
    undeclared: tuple[str, ...]
    probes: tuple[str, ...]


def classify(
    lookups: Sequence[Lookup],
    *,
    declared: Callable[[str], bool],
    seeded: Callable[[str], bool],
    host_has: Callable[[str], bool],
    shown: Sequence[str],
    private: Sequence[str] = (),
    hidden: Sequence[str] = (),
    strict_probes: bool = False,
) -> Sightings:
    """Which look-ups saw something, would have on the host, or would not.

    `declared` says whether a path in the workspace is a declared read, `seeded` whether it stood there at first,
    `host_has` whether the host has it, relative or absolute. `shown` are the absolute places that the sandbox shows of
    the host, `private` those that are the command's own besides the workspace, such as its /tmp. What is `hidden` is
    not shown although it lies in a shown place, but for shown places in it. With `strict_probes` a probe in the
    workspace is an undeclared read too.
    """
    seen: list[Lookup] = []
    own: set[str] = set()
    undeclared: set[str] = set()
    probes: set[str] = set()
    looks = [lookup for lookup in lookups if lookup.kind != "truncate"]
    cut = {lookup.path for lookup in lookups if lookup.kind == "truncate"}
    for lookup in looks:
        path = lookup.path
        if lookup.in_workspace and lookup.present:
            seen.append(lookup)
        if lookup.present or _makes(lookup, host_has, private, cut):
            own.add(path)  # from here on it is the body's own, also when it is removed
        if path in own or (seeded(path) or declared(path) if lookup.in_workspace else _is_shown(path, shown, hidden)):
            continue
        is_read = (lookup.kind != "stat" and host_has(path)) or (strict_probes and lookup.in_workspace)
        (undeclared if is_read else probes).add(path)
    return Sightings(tuple(seen), _in_order(undeclared), _in_order(probes - undeclared))


def _makes(lookup: Lookup, host_has: Callable[[str], bool], private: Sequence[str], cut: Container[str]) -> bool:
    """Whether it makes what is not there, and would have seen nothing on the host."""
    if lookup.kind not in ("create", "append", "update"):
        return False
    if not lookup.in_workspace:
        return _is_within(lookup.path, private)
    keeps_nothing = lookup.kind == "create" or (lookup.kind == "append" and lookup.path in cut)
    return keeps_nothing or not host_has(lookup.path)


def is_beneath(path: str, place: str) -> bool:
    """Whether an absolute path is a place or lies beneath it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _is_shown(path: str, shown: Sequence[str], hidden: Sequence[str]) -> bool:
    # A directory above a shown place has to be there too, with nothing in it but the way.
    if any(is_beneath(place, path) for place in shown):
        return True
    inmost = max((place for place in (*shown, *hidden) if is_beneath(path, place)), key=len, default=None)
    return inmost is not None and inmost not in hidden


def _is_within(path: str, places: Sequence[str]) -> bool:
    return any(is_beneath(path, place) for place in places)


def _in_order(paths: set[str]) -> tuple[str, ...]:
    return tuple(sorted((_as_text(path) for path in paths), key=path_order))


def _as_text(path: str) -> str:
    """A path as it can be told and recorded: bytes that are no UTF-8 are escaped, as \\xff."""
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
