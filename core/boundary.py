"""What a step declares to read, to write and to remove.

A path without a wildcard names one file; so does each removal. Other declarations are globs (`stepwell.core.glob`),
and a write whose only wildcard is a final `/**` is a *tree*: its directory is an output even if nothing is in it, empty
directories in it count, and what is in it may be removed. `Boundary` is what the step says, and refuses what
contradicts itself; `declare` gives the `Declaration`, in which every path names something in a workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Literal, TypeAlias, final

from typing_extensions import TypeIs

from .glob import Glob, is_glob, tree_root
from .node import is_digest
from .workspace_limits import LIMITS, WorkspaceLimits
from .workspace_path import (
    PathProblem,
    ancestors,
    collision,
    declared_path,
    portable_problem,
    shown,
    spelling_problem,
)

__all__ = [
    "Boundary",
    "BoundaryMode",
    "Declaration",
    "DeclaredRead",
    "Touched",
    "declare",
    "directory_problem",
    "overlaps",
]

BoundaryMode: TypeAlias = Literal["hard", "expected"]
"""Whether a step that departs from its boundary fails, or is accepted with a note, and not shared."""

_MODES: Final = ("hard", "expected")
_ABSENT: Final = "absent"


@final
@dataclass(frozen=True, slots=True)
class DeclaredRead:
    """One file that a step reads, with the digest that it was measured to have; "absent" if there was none.

    A digest that is none, or one of a glob, raises ValueError.
    """

    path: str
    digest: str | None = None

    def __post_init__(self) -> None:
        _check_text("the path of a declared read", self.path)
        if self.digest is None:
            return
        _check_text("the digest of a declared read", self.digest)
        if is_glob(self.path):
            raise ValueError(f"{shown(self.path)} is a glob, which has no digest; give those of the files one by one")
        if self.digest != _ABSENT and not is_digest(self.digest):
            raise ValueError(
                f"the digest of {shown(self.path)} is 64 lower-case hex digits or 'absent', not {shown(self.digest)}"
            )


@final
@dataclass(frozen=True, slots=True)
class Boundary:
    """What a step reads, writes and removes, as relative paths with "/" and globs.

    Building it raises TypeError for what is no sequence of texts, and ValueError for what contradicts itself or may be
    read in two ways: a removal that is also a write or is a glob, one file with two digests, a backslash, a name that
    is not NFC, an unknown mode. Whether a path names something in a workspace is told when the step is executed.
    """

    reads: Sequence[str | DeclaredRead] = ()
    writes: Sequence[str] = ()
    removes: Sequence[str] = ()
    mode: BoundaryMode = "hard"

    def __post_init__(self) -> None:
        reads = tuple(_read_of(each) for each in _items("reads", self.reads))
        writes = tuple(_check_text("a write", each) for each in _items("writes", self.writes))
        removes = tuple(_check_text("a removal", each) for each in _items("removes", self.removes))
        for path in (*map(_path_of, reads), *writes, *removes):
            if reason := spelling_problem(path):
                raise ValueError(f"a boundary cannot hold it: {reason}")
        _check_mode(self.mode)
        _check_removals(removes, _Writes.of(writes))
        _check_digests(reads)
        object.__setattr__(self, "reads", reads)  # a list that is changed afterwards changes no boundary
        object.__setattr__(self, "writes", writes)
        object.__setattr__(self, "removes", removes)


@final
@dataclass(frozen=True, slots=True)
class Declaration:
    """A boundary of which every path names something in a workspace: sorted, and nothing twice."""

    mode: BoundaryMode
    read_files: tuple[DeclaredRead, ...]
    read_globs: tuple[Glob, ...]
    outputs: tuple[str, ...]
    """The files that have to be there at the end."""
    write_globs: tuple[Glob, ...]
    """The writes that may come to nothing; trees are not among them."""
    trees: tuple[str, ...]
    """The directories whose whole trees are outputs."""
    removals: tuple[str, ...]
    """What must be gone at the end."""
    _read_paths: frozenset[str] = field(init=False, repr=False, compare=False)
    _removed: frozenset[str] = field(init=False, repr=False, compare=False)
    _writes: _Writes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_read_paths", frozenset(read.path for read in self.read_files))
        object.__setattr__(self, "_removed", frozenset(self.removals))
        object.__setattr__(self, "_writes", _Writes(frozenset(self.outputs), self.write_globs, frozenset(self.trees)))

    @property
    def hard(self) -> bool:
        """Whether a step that departs from its declaration fails."""
        return self.mode == "hard"

    def reads(self, path: str) -> bool:
        """Whether the step may read what is at a path. A removal alone is no read."""
        return path in self._read_paths or any(glob.matches(path) for glob in self.read_globs)

    def writes(self, path: str) -> bool:
        """Whether the step may make or change what is at a path: at the top of a tree, a directory only."""
        return self._writes.cover(path)

    def removes(self, path: str) -> bool:
        """Whether the step has to remove what is at a path."""
        return path in self._removed

    def may_remove(self, path: str) -> bool:
        """Whether the step may remove what is at a path: a removal, or something in a tree."""
        return self.removes(path) or any(above in self._writes.trees for above in ancestors(path))

    def above_targets(self) -> frozenset[str]:
        """The directories that files and trees lie in which the step names as outputs."""
        return frozenset(above for path in (*self.outputs, *self.trees) for above in ancestors(path))

    def tree_of(self, path: str) -> str | None:
        """The declared tree that a path lies in, or is the top of; the innermost, if there are several."""
        return self._writes.tree_of(path)


@final
@dataclass(frozen=True, slots=True)
class _Writes:
    """Where a step may write."""

    files: frozenset[str]
    globs: tuple[Glob, ...]
    trees: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> _Writes:
        kept = sorted(set(texts))
        trees = {text: root for text in kept if (root := tree_root(text)) is not None}
        globs = tuple(Glob(text) for text in kept if is_glob(text) and text not in trees)
        return cls(frozenset(text for text in kept if not is_glob(text)), globs, frozenset(trees.values()))

    def cover(self, path: str) -> bool:
        return path in self.files or self.tree_of(path) is not None or any(glob.matches(path) for glob in self.globs)

    def tree_of(self, path: str) -> str | None:
        return next((place for place in (path, *ancestors(path)) if place in self.trees), None)


def declare(boundary: Boundary, portable: bool = True, limits: WorkspaceLimits = LIMITS) -> Declaration | PathProblem:
    """The boundary as paths of a workspace, or the first of them that names nothing in one.

    If `portable`, names are refused that another system would take for something else, and any two of the reads and
    writes that it would take for one.
    """
    read_paths = [_path_of(read) for read in boundary.reads]
    for path in (*read_paths, *boundary.writes, *boundary.removes):
        checked = declared_path(path, limits)
        if isinstance(checked, PathProblem):
            return checked
        if portable and (problem := portable_problem(path)):
            return problem
    writes = _Writes.of(boundary.writes)
    named = {path for path in read_paths if not is_glob(path)} | writes.files | writes.trees
    if portable and (problem := collision(named)):
        return problem
    return Declaration(
        mode=boundary.mode,
        read_files=_files(boundary.reads),
        read_globs=tuple(Glob(path) for path in sorted(set(read_paths)) if is_glob(path)),
        outputs=tuple(sorted(writes.files)),
        write_globs=writes.globs,
        trees=tuple(sorted(writes.trees)),
        removals=tuple(sorted(set(boundary.removes))),
    )


def directory_problem(path: str) -> PathProblem:
    """The refusal of a declared read that turns out to be a directory."""
    tree = shown(path + "/**")
    return PathProblem("unsupported_file_type", f"{shown(path)} is a directory; to read all below it declare {tree}")


def overlaps(boundaries: Sequence[Boundary]) -> tuple[tuple[int, int], ...]:
    """The pairs of boundaries, by index, of which both may write or remove one path, or one below the other's.

    No such pair is missed; a pair may be named although its globs never meet on the files that there are.
    """
    targets = [_Targets.of(boundary) for boundary in boundaries]
    pairs = combinations(range(len(targets)), 2)
    return tuple((one, two) for one, two in pairs if targets[one].meet(targets[two]))


@final
@dataclass(frozen=True, slots=True)
class _Targets:
    """What a step changes, or reads: places, each with all below it, and globs."""

    places: frozenset[str]
    above: frozenset[str]
    """The directories that the places lie in."""
    globs: tuple[Glob, ...]

    @classmethod
    def of(cls, boundary: Boundary) -> _Targets:
        return cls._of(boundary.writes, boundary.removes)

    @classmethod
    def read_by(cls, boundary: Boundary) -> _Targets:
        """What a step reads, in the same form."""
        return cls._of(map(_path_of, boundary.reads), ())

    @classmethod
    def _of(cls, texts: Iterable[str], more: Iterable[str]) -> _Targets:
        writes = _Writes.of(texts)
        places = writes.files | writes.trees | frozenset(more)
        return cls(places, frozenset(above for place in places for above in ancestors(place)), writes.globs)

    def meet(self, other: _Targets) -> bool:
        return (
            not self.places.isdisjoint(other.places)
            or not self.places.isdisjoint(other.above)
            or not self.above.isdisjoint(other.places)
            or any(glob.may_touch(place) for glob in self.globs for place in other.places)
            or any(glob.may_touch(place) for glob in other.globs for place in self.places)
            or any(one.may_meet(two) for one in self.globs for two in other.globs)
        )


@final
@dataclass(frozen=True, slots=True)
class Touched:
    """What a step changes and what it reads, to be compared with many others."""

    _changes: _Targets
    _reads: _Targets

    @classmethod
    def by(cls, boundary: Boundary) -> Touched:
        return cls(_Targets.of(boundary), _Targets.read_by(boundary))

    def meets(self, other: Touched) -> bool:
        """Whether it may matter which comes first: both may change one path, or one what the other reads.

        As with `overlaps`, none of that is missed.
        """
        return (
            self._changes.meet(other._changes) or self._changes.meet(other._reads) or self._reads.meet(other._changes)
        )


# --- what makes a boundary ----------------------------------------------------


def _items(what: str, value: object) -> Sequence[object]:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"{what} is a sequence of paths, and {value!r} is one; write {what}=({value!r},)")
    if not _is_sequence(value):
        raise TypeError(f"{what} is a sequence of paths, as a tuple or a list, not {type(value).__name__}")
    return value


def _is_sequence(value: object) -> TypeIs[Sequence[object]]:
    return isinstance(value, Sequence)


def _check_text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} is text, not {value!r}")
    return value


def _check_mode(mode: object) -> None:
    if mode not in _MODES:
        raise ValueError(f"the mode of a boundary is 'hard' or 'expected', not {mode!r}")


def _read_of(value: object) -> str | DeclaredRead:
    return value if isinstance(value, DeclaredRead) else _check_text("a read", value)


def _path_of(read: str | DeclaredRead) -> str:
    return read.path if isinstance(read, DeclaredRead) else read


def _check_removals(removes: Iterable[str], writes: _Writes) -> None:
    for path in removes:
        if is_glob(path):
            raise ValueError(
                f"the removal {shown(path)} is a glob; name each file, or declare the directory's tree as a write"
            )
        if writes.cover(path):
            raise ValueError(
                f"{shown(path)} is a removal and a write; in a declared tree files may be removed without saying so"
            )


def _check_digests(reads: Iterable[str | DeclaredRead]) -> None:
    known: dict[str, str] = {}
    for path, digest in _digests(reads):
        if known.setdefault(path, digest) != digest:
            raise ValueError(f"{shown(path)} is declared with two digests, {known[path]} and {digest}; keep one")


def _digests(reads: Iterable[str | DeclaredRead]) -> Iterator[tuple[str, str]]:
    for read in reads:
        if isinstance(read, DeclaredRead) and read.digest is not None:
            yield read.path, read.digest


def _files(reads: Iterable[str | DeclaredRead]) -> tuple[DeclaredRead, ...]:
    """The reads of single files, each once, with its digest if any of its mentions has one."""
    digests = dict(_digests(reads))
    paths = {path for read in reads if not is_glob(path := _path_of(read))}
    return tuple(DeclaredRead(path, digests.get(path)) for path in sorted(paths))
