"""Patterns of paths: `*` stands for any text within a name, `**` as a whole part for any number of directories.

All else stands for itself, `?`, `[`, `{` and `!` too, and upper case is never lower case. A pattern begins at the top
of the workspace, and names that begin with a dot are names like others. `a/**` is everything below `a`, without `a`.
No wildcard stands for `.git` or `.stepwell` at the top: `**` is not meant to read them, and `.git/**` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from .workspace_path import is_protected

__all__ = ["Glob", "is_glob", "tree_root"]

_Part: TypeAlias = tuple[str, ...]
"""The texts between the wildcards of one part of a pattern, one text if it has none; `_ANY_DEPTH` for `**`."""

_ANY_DEPTH: Final[_Part] = ()


def is_glob(text: str) -> bool:
    """Whether a text has a wildcard."""
    return "*" in text


def tree_root(text: str) -> str | None:
    """The directory whose whole tree a pattern stands for: `out` of `out/**`, whose only wildcard that is."""
    root = text.removesuffix("/**")
    return root if root and root != text and not is_glob(root) else None


@final
@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern. A text without wildcards matches itself alone."""

    pattern: str
    _parts: tuple[_Part, ...] = field(init=False, repr=False, compare=False)
    _head: str = field(init=False, repr=False, compare=False)
    """What every path that matches begins with; a pattern that has no more to say is found without a search."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_head", f"{self.base}/" if self.base else "")
        texts = self.pattern.split("/")
        if texts[-1] == "**":
            texts.append("*")  # all below, whatever its depth, but not the directory itself
        parts = (_ANY_DEPTH if text == "**" else tuple(text.split("*")) for text in texts)
        object.__setattr__(self, "_parts", tuple(parts))

    @property
    def base(self) -> str:
        """The directory in which a search has to begin: the parts before the first wildcard, without the last name."""
        texts = self.pattern.split("/")
        wild = next((at for at, text in enumerate(texts) if is_glob(text)), len(texts) - 1)
        return "/".join(texts[:wild])

    def matches(self, path: str) -> bool:
        """Whether the pattern stands for the path."""
        if not path.startswith(self._head):
            return False
        if self._head and self.pattern == f"{self._head}**":
            return len(path) > len(self._head)
        return len(self._parts) in self._reached(path.split("/"))

    def may_hold(self, directory: str) -> bool:
        """Whether the pattern stands for anything below a directory; "" is the top of the workspace."""
        reached = self._reached(directory.split("/") if directory else ())
        return any(at < len(self._parts) for at in reached)

    def may_touch(self, place: str) -> bool:
        """Whether the pattern stands for a path or for anything below it."""
        if not place.startswith(self._head) and not self._head.startswith(f"{place}/"):
            return False
        return self.matches(place) or self.may_hold(place)

    def may_meet(self, other: Glob) -> bool:
        """Whether there can be a path that both match. It may be one that no wildcard stands for, as `.git`."""
        if not self._head.startswith(other._head) and not other._head.startswith(self._head):
            return False
        ours, theirs = self._parts, other._parts
        waiting = [(0, 0)]
        seen = set(waiting)
        while waiting:
            one, two = waiting.pop()
            if (one, two) == (len(ours), len(theirs)):
                return True
            for step in _steps(ours, one, theirs, two):
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
        return False

    def _reached(self, names: Sequence[str]) -> set[int]:
        """How many parts of the pattern may be used up by these names, all of them."""
        reached = self._with_skipped({0})
        for depth, name in enumerate(names):
            guarded = depth == 0 and is_protected(name)
            reached = self._with_skipped(self._next(reached, name, guarded))
            if not reached:
                break
        return reached

    def _next(self, reached: Iterable[int], name: str, guarded: bool) -> set[int]:
        found: set[int] = set()
        for at in reached:
            if at == len(self._parts):
                continue
            part = self._parts[at]
            if guarded and len(part) != 1:
                continue
            if part == _ANY_DEPTH:
                found.add(at)
            elif _fits(part, name):
                found.add(at + 1)
        return found

    def _with_skipped(self, reached: set[int]) -> set[int]:
        """With what is reached because `**` may stand for no directory at all."""
        for at in sorted(reached):
            while at < len(self._parts) and self._parts[at] == _ANY_DEPTH:
                at += 1
                reached.add(at)
        return reached


def _steps(ours: Sequence[_Part], one: int, theirs: Sequence[_Part], two: int) -> Iterator[tuple[int, int]]:
    """Where both patterns can be after one more name, or after leaving out a `**`."""
    our = ours[one] if one < len(ours) else None
    their = theirs[two] if two < len(theirs) else None
    if our == _ANY_DEPTH:
        yield one + 1, two
    if their == _ANY_DEPTH:
        yield one, two + 1
    if our is not None and their is not None and _share_a_name(our, their):
        yield one + (our != _ANY_DEPTH), two + (their != _ANY_DEPTH)


def _share_a_name(our: _Part, their: _Part) -> bool:
    if _ANY_DEPTH in (our, their):
        return True
    if len(our) == 1:
        return _fits(their, our[0])
    if len(their) == 1:
        return _fits(our, their[0])
    # Beginnings and ends that agree are enough: the wildcards of each have room for all that the other one asks for.
    return _agree(our[0], their[0], str.startswith) and _agree(our[-1], their[-1], str.endswith)


def _agree(one: str, two: str, leads: Callable[[str, str], bool]) -> bool:
    return leads(one, two) or leads(two, one)


def _fits(part: _Part, name: str) -> bool:
    """Whether a part of a pattern stands for a name, which is never empty where there is a wildcard."""
    first, last = part[0], part[-1]
    if len(part) == 1:
        return name == first
    at, end = len(first), len(name) - len(last)
    if not name or at > end or not name.startswith(first) or not name.endswith(last):
        return False
    for text in part[1:-1]:
        found = name.find(text, at, end)
        if found < 0:
            return False
        at = found + len(text)
    return True
