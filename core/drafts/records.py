"""Nodes of records: models and dataclasses. What user code gets for them is made in `record_faces`."""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

from collections.abc import Hashable, Iterator, MutableMapping
from typing import Final

from ..kind import ATOMS
from ..model import Path
from ..paths import SHAPE
from ..record import RecordType
from .dumping import named_for_errors
from .faces import AnyNode, child_of
from .node import ENDED, Node, Report

__all__ = ["RecordNode"]


_ABSENT: Final = object()


class RecordNode(Node[object]):
    """One place that holds a record: `fields` are those its class declares, `extras` the others of an open model.

    `_changed` holds the names that were written; True for those that were removed at some time, so that they may stand
    in another place now.
    """

    __slots__ = ("_changed", "extras", "fields", "type")

    def __init__(self, raw: object, parent: AnyNode, key: Hashable, known: RecordType) -> None:
        super().__init__(raw, parent, key, parent._context)
        self.type = known
        self.fields: dict[str, object] = known.held(raw)  # to be read: they are copied before the first write
        self.extras: dict[str, object] | None = known.extras(raw) if known.extras_allowed else None
        self._changed: dict[str, bool] = {}

    # --- as a node ---

    def _copied(self) -> object:
        return self.type.make(self.fields, self.extras, self._raw)

    def _own(self) -> object:
        if not self._owned:
            known = self.type
            self.fields = known.fields(self._raw)  # that of another, which shares it, or which it was copied from
            if known.extras_allowed:
                self.extras = known.extras(self._raw)
            return super()._own()
        return self._raw

    def _at(self, key: Hashable) -> object:
        assert isinstance(key, str)
        return self.fields[key] if key in self.fields or self.extras is None else self.extras[key]

    def _put(self, key: Hashable, value: object) -> None:
        assert isinstance(key, str)
        raw = self._raw if self._owned else self._own()
        if self.extras is not None and key not in self.type.names:
            self.extras[key] = value
            return
        self.fields[key] = value
        if not self.type.is_model:
            object.__setattr__(raw, key, value)

    def _segments(self, key: Hashable) -> Path:
        assert isinstance(key, str)
        return () if self.type.transparent else (key,)

    def _report(self, path: Path, report: Report) -> None:
        if self._changed:
            self._report_fields(path, report)
        for key, child in (self._children or {}).items():
            if child._raw is not child._base and key not in self._changed:
                child._report((*path, *self._segments(key)), report)

    def _report_fields(self, path: Path, report: Report) -> None:
        shape = False
        for name, removed in self._changed.items():
            before = self.type.get(self._base, name, _ABSENT)
            after = self.type.get(self._raw, name, _ABSENT)
            if before is not after:
                report((*path, *self._segments(name)))
            shape = shape or (before is _ABSENT) is not (after is _ABSENT) or (removed and after is not _ABSENT)
        if shape:
            report((*path, SHAPE))

    def _end(self) -> None:
        self._raw = self._base = ENDED
        self._owned = True
        self._parent = self._children = self._face = None
        self.fields = self.extras = ENDED  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # every use of it raises

    # --- for the face ---

    def read(self, name: str) -> object:
        """The value of a field, or the draft of it; AttributeError if there is none."""
        fields = self.fields
        if name in fields:
            value = fields[name]
        elif self.extras is not None and name in self.extras:
            value = self.extras[name]
        else:
            raise AttributeError(f"{self.type.type.__name__!r} object has no attribute {name!r}")
        return value if type(value) in ATOMS else child_of(self, name, value)

    def write(self, name: str, value: object) -> None:
        """Store a field."""
        if type(value) in ATOMS:
            self._put(name, value)
            if self._children:
                self._drop(name)
        elif self._is_child_at(name, value):
            return
        else:
            self._put(name, self._plain(value))
            self._drop(name)
            self._settle(name)
        self._changed.setdefault(name, False)

    def remove(self, name: str) -> None:
        """Remove an undeclared field; a declared one cannot be removed."""
        if self.extras is None or name not in self.extras:
            if name not in self.fields:
                raise AttributeError(f"{self.type.type.__name__!r} object has no attribute {name!r}")
            raise TypeError(f"the field {name!r} of {self.type.type.__name__} cannot be deleted from a draft")
        self._own()
        del self.extras[name]
        self._drop(name)
        self._changed[name] = True


class FieldsView(MutableMapping[str, object]):
    """The `__dict__` of a draft: its declared fields, live. To write one is to write the field, without validation."""

    __slots__ = ("_node",)

    def __init__(self, node: RecordNode) -> None:
        self._node = node

    def _names(self) -> dict[str, object]:
        return self._node.fields

    def __getitem__(self, name: str) -> object:
        if name not in self._names():
            raise KeyError(name)
        return self._node.read(name)

    def __setitem__(self, name: str, value: object) -> None:
        if name not in self._node.type.names:
            raise TypeError(f"{name!r} is no field of {self._node.type.type.__name__}: a draft holds nothing else")
        self._node.write(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._names():
            raise KeyError(name)
        self._node.remove(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._names()))

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._names()))

    def __len__(self) -> int:
        return len(self._names())

    def copy(self) -> dict[str, object]:
        return dict(self)

    def __or__(self, other: dict[str, object]) -> dict[str, object]:
        return dict(self) | dict(other)

    def __ror__(self, other: dict[str, object]) -> dict[str, object]:
        return dict(other) | dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))


named_for_errors(FieldsView)


class ExtrasView(FieldsView):
    """The undeclared fields of a draft of a model that allows them, live."""

    __slots__ = ()

    def _names(self) -> dict[str, object]:
        return self._node.extras or {}

    def __setitem__(self, name: str, value: object) -> None:
        self._node.write(name, value)
