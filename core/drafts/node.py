"""Nodes: one place in a state, copied when it is first written, dead when its callback has ended."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar, Final, Generic, NoReturn, TypeAlias, TypeVar

from ..kind import ATOMS
from ..model import Path, Paths
from ..value import clone
from .faces import AnyNode
from .intake import plain
from .moves import come_home, settle

__all__ = ["Context", "DraftEnded", "Node", "Report", "Root", "refuse_ended"]

_R_co = TypeVar("_R_co", covariant=True)

Report: TypeAlias = Callable[[Path], None]


class DraftEnded(RuntimeError):
    """A draft was used after its callback had ended: it is a view of a change that is over. Nothing was changed."""


def refuse_ended(says: str) -> NoReturn:
    raise DraftEnded(says)


def _refuse(*_: object) -> NoReturn:
    refuse_ended("this draft was kept after its callback ended; copy what you need before the callback returns")


class _Ended:
    """What a dead node holds in place of its value: every use of it raises."""

    __slots__ = ()
    __getattr__ = __getitem__ = __setitem__ = __delitem__ = __contains__ = __len__ = __iter__ = __reversed__ = _refuse
    __or__ = __and__ = __sub__ = __xor__ = __ror__ = __rand__ = __rsub__ = __rxor__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


ENDED: Final = _Ended()


class Context:
    """What the nodes of one draft share: the types of keys that may be written, and all nodes made.

    `taken` are the drafts in the value that is being stored; `copies`, by the id of a node, the nodes of the places
    where its value was stored as a copy, with None for a place that has no node.
    """

    __slots__ = ("copies", "key_types", "nodes", "taken")

    def __init__(self, key_types: frozenset[type[object]]) -> None:
        self.key_types = key_types
        self.nodes: list[AnyNode] = []
        self.taken: list[AnyNode] = []
        self.copies: dict[int, list[AnyNode | None]] = {}

    def end(self) -> None:
        """Make every node dead, and let go of what it held."""
        for node in self.nodes:
            node._end()
        self.nodes.clear()
        self.taken.clear()
        self.copies.clear()


class Node(Generic[_R_co]):
    """One place in a state: `_raw` is its present value, `_base` the value it had when the node was made."""

    __slots__ = ("_base", "_children", "_context", "_face", "_key", "_owned", "_parent", "_raw")

    _passes_for: ClassVar[type[object]] = object
    _is_root: ClassVar[bool] = False

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` is told."""
        return self._passes_for

    def __init__(self, raw: _R_co, parent: AnyNode | None, key: Hashable, context: Context) -> None:
        self._raw: _R_co = raw
        self._base: _R_co = raw
        self._parent = parent
        self._context = context
        self._key = key
        self._children: dict[Hashable, AnyNode] | None = None
        self._owned = False
        self._face: object = self
        context.nodes.append(self)

    # --- what each kind says ---

    def _copied(self) -> _R_co:
        """A shallow copy of `_raw`."""
        raise NotImplementedError

    def _at(self, key: Hashable) -> object:
        """The present value at `key`."""
        raise NotImplementedError

    def _put(self, key: Hashable, value: object) -> None:
        """Store `value`, a copy of the child at `key`, without a mark: the child has marked what changed in it."""
        raise NotImplementedError

    def _report(self, path: Path, report: Report) -> None:
        """Report the changed paths at and beneath this node, which lies at `path`."""
        raise NotImplementedError

    def _segments(self, key: Hashable) -> Path:
        """What the child at `key` adds to this node's path."""
        assert isinstance(key, str | int)
        return (key,)

    # --- writing ---

    def _own(self) -> _R_co:
        """`_raw`, copied before its first write; the copy is put into the parent, and so on up to the root."""
        if not self._owned:
            if self._context.copies:
                come_home(self)
            self._raw = self._copied()
            self._owned = True
            if self._parent is not None:
                self._parent._put(self._key, self._raw)
        return self._raw

    def _drop(self, key: Hashable) -> None:
        """Forget the child at `key`, whose value is no longer there; a draft of it lives on, outside the state."""
        if self._children and (child := self._children.pop(key, None)) is not None:
            child._cut()

    def _cut(self) -> None:
        """Leave the state. Its next write asks where it belongs, if there are copies of anything."""
        self._parent = None
        if self._context.copies:
            self._release()

    def _is_child_at(self, key: Hashable, value: object) -> bool:
        """Whether `value` is the draft of that very place, as after `draft[key] += ...`."""
        child = self._children.get(key) if self._children else None
        return child is not None and child._face is value

    def _plain(self, value: object) -> object:
        """The plain value to store for `value`."""
        return value if type(value) in ATOMS else plain(value, self)

    def _settle(self, *keys: Hashable) -> None:
        """Drafts that were stored just now, at `keys` or beneath, live on there if they are outside the state."""
        if self._context.taken:
            settle(self, keys)

    def _renew_face(self) -> None:
        """Another draft has become the one of a place in this node."""

    # --- moving and sharing ---

    def _leave_for(self, place: AnyNode) -> object:
        """The present value, to be stored beneath `place`: as it is if this node can move there, otherwise shared."""
        raw = self._live()
        if not self._is_loose_in(place._context) or place._is_beneath(self):
            self._release()
        if self._context is place._context:
            self._context.taken.append(self)
        return raw

    def _release(self) -> None:
        """Let the present value be shared: the next write copies it again."""
        if self._owned:
            self._owned = False
            for child in (self._children or {}).values():
                child._release()

    def _is_loose_in(self, context: Context) -> bool:
        return self._parent is None and self._context is context

    def _is_beneath(self, other: AnyNode) -> bool:
        node: AnyNode | None = self
        while node is not None and node is not other:
            node = node._parent
        return node is not None

    # --- the end ---

    def _live(self) -> object:
        """The present value; DraftEnded if there is none any more."""
        if self._raw is ENDED:
            _refuse()
        return self._raw

    def _present(self) -> object:
        """A private plain copy of the present value."""
        return clone(self._live())

    def _end(self) -> None:
        self._raw = self._base = ENDED  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # every use of it raises
        self._owned = True
        self._parent = self._children = self._face = None


class Root(Node[object]):
    """What holds the state itself: its only child lies at the root."""

    __slots__ = ()
    _is_root = True

    def _copied(self) -> object:
        return self._raw

    def _at(self, key: Hashable) -> object:
        return self._raw

    def _put(self, key: Hashable, value: object) -> None:
        self._raw = value

    def value(self) -> object:
        """The state as it is now."""
        return self._raw

    def changed_paths(self) -> Paths:
        """Where it was written."""
        found: list[Path] = []
        for child in (self._children or {}).values():
            if child._raw is not child._base:
                child._report((), found.append)
        return tuple(found)
