"""Views of records: for each class of models or dataclasses one generated subclass, whose objects are its views.

A view keeps nothing but its place. Each field is a property that records the read, `__dict__` is a mapping that does
the same, and what pydantic does in C with an instance is done on a plain copy, which counts as a read of the whole. So
methods and properties of the class work, and none of them changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from copy import deepcopy
from functools import partial
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel

from ..kind import ATOMS, Kind
from ..record import RecordType, record_type
from .dumping import SERIALIZER, named_for_errors, writes_as
from .reads import (
    FIND_VIEW,
    PLACES,
    Form,
    Place,
    inner_view,
    made_view,
    part,
    place_of,
    read_whole,
    refuse_change,
    same_place,
)
from .record_faces import MODEL_CALLS, cached_of, subclass_of
from .results import present

__all__: list[str] = []

_PLACE: Final = "__stepwell_place__"
_GETATTR: Final = "__getattr__"
_EQ: Final = "__eq__"
_HASH: Final = "__hash__"
_get_other: Final[Callable[[object, str], object]] = getattr(BaseModel, _GETATTR)


class RecordView:
    """What the views of all records share."""

    __slots__ = ()

    __stepwell_place__: Place

    def __init_subclass__(cls) -> None:
        """Stops here: a hook of the user's class is for the user's classes."""

    def __copy__(self) -> object:
        return read_whole(self.__stepwell_place__)

    def __deepcopy__(self, memo: object) -> object:
        return present(self.__stepwell_place__, memo)

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a selector's view cannot be pickled; copy.deepcopy(view) is a plain value")

    __setattr__ = __delattr__ = refuse_change


def _plain(view: object) -> object:
    assert isinstance(view, RecordView)
    return read_whole(view.__stepwell_place__)


_WRITES_PLAIN: Final = writes_as(_plain)


# --- making a view --------------------------------------------------------------


def _find_view(type_: type[object]) -> Form:
    view_type = _make_view_type(record_type(type_))
    PLACES[view_type] = view_type.__dict__[_PLACE].__get__
    return view_type, partial(object.__new__, view_type), view_type.__dict__[_PLACE].__set__


FIND_VIEW[Kind.RECORD] = _find_view


def _make_view_type(known: RecordType) -> type[object]:
    user_type = known.type
    space: dict[str, object] = {SERIALIZER: _WRITES_PLAIN}
    if user_type.__dictoffset__:
        space["__dict__"] = property(_fields)
    if known.is_model:
        space.update(_MODEL_SLOTS)
        space.update({name: _on_copy(name) for name in MODEL_CALLS})
        if known.extras_allowed and getattr(user_type, _GETATTR) is _get_other:
            space[_GETATTR] = _extra
    elif not hasattr(user_type, _GETATTR):
        space[_GETATTR] = _beside
    if getattr(user_type, _EQ) is getattr(object, _EQ):
        space[_EQ] = _is_same
        space[_HASH] = _hash_of_place if user_type.__hash__ is object.__hash__ else user_type.__hash__
    space.update({name: property(_cached(name, func)) for name, func in cached_of(user_type).items()})
    for name in known.names:
        get = _root_getter() if known.transparent else _getter(name) if known.is_model else _slot_getter(name)
        space[name] = property(get, refuse_change, refuse_change)
    return subclass_of(user_type, RecordView, _PLACE, space)


def _cached(name: str, func: Callable[[object], object]) -> Callable[[RecordView], object]:
    """A cached property, computed once for a view: what it sees cannot change. What it reads was read then."""

    def get(view: RecordView) -> object:
        raw, reads, *_ = view.__stepwell_place__
        if reads.shared:  # which is that of other views as well
            return func(view)
        extent = reads.extent
        cached = extent.cached
        if cached is None:
            cached = extent.cached = {}
        key = (id(reads), id(raw), name)  # a RootModel and the model in it have one record
        if key not in cached:
            cached[key] = func(view)
        return cached[key]

    return get


def _is_same(view: RecordView, other: object) -> bool:
    """Equality where the class defines none, and so means identity: of one part of a state there may be many views.

    It is no read of its own: what tells two parts apart are their places, and both were reached already.
    """
    place, its = _alive(view), place_of(other)
    return NotImplemented if its is None else same_place(place, its)


def _hash_of_place(view: RecordView) -> int:
    return id(_alive(view)[0])


def _alive(view: RecordView) -> Place:
    place = view.__stepwell_place__
    place[1].inner()  # DraftEnded if the selector has ended
    return place


def _getter(name: str) -> Callable[[RecordView], object]:
    """How a view of a model reads a field."""

    def get(view: RecordView) -> object:
        place = view.__stepwell_place__
        reads = place[1]
        try:
            value: object = place[0].__dict__[name]
        except KeyError:
            reads.add(name)
            raise AttributeError(f"{type(place[0]).__name__!r} object has no attribute {name!r}") from None
        if reads.first is name and reads.atom is type(value):  # as in each step of a scan
            return value
        if type(value) in ATOMS:
            first, parts = reads.first, reads.parts
            if first is None:
                reads.first, reads.atom = name, type(value)
            elif first == name:
                if reads.kid is not None:
                    reads.add(name)
            elif parts is None:
                reads.parts = {name: None}
            elif name not in parts:
                parts[name] = None
            elif parts[name] is not None:
                reads.add(name)
            return value
        return inner_view(place, name, name, value)

    return get


def _slot_getter(name: str) -> Callable[[RecordView], object]:
    """How a view of a dataclass reads a field, which may be in a slot."""

    def get(view: RecordView) -> object:
        place = view.__stepwell_place__
        if not hasattr(place[0], name):
            place[1].add(name)
        return part(place, name, name, getattr(place[0], name))

    return get


def _root_getter() -> Callable[[RecordView], object]:
    """How a view of a RootModel reads its value, which has the path of the model."""

    def get(view: RecordView) -> object:
        place = view.__stepwell_place__
        return _root(place, place[0].__dict__["root"])

    return get


def _root(place: Place, value: object) -> object:
    if type(value) in ATOMS:
        place[1].whole = True
        return value
    return made_view(value, place[1], place, "root")


def _beside(view: RecordView, name: str) -> object:
    """What a dataclass keeps beside its fields: a copy, since no path leads to it."""
    raw, reads, *_ = view.__stepwell_place__
    held: dict[str, object] = getattr(raw, "__dict__", {})
    if name not in held:
        raise AttributeError(f"{type(raw).__name__!r} object has no attribute {name!r}")
    reads.whole = True
    return deepcopy(held[name])


def _extra(view: RecordView, name: str) -> object:
    """An undeclared field. Pydantic would ask first whether there is any, which is a read of its own."""
    place = view.__stepwell_place__
    if name in type(_model_at(view)).__private_attributes__:
        return _get_other(view, name)
    try:
        return ExtrasRead(place)[name]
    except KeyError:
        raise AttributeError(f"{type(place[0]).__name__!r} object has no attribute {name!r}") from None


def _on_copy(name: str) -> Callable[..., object]:
    """A method of a model that runs on a plain copy, which reads the whole."""

    def call(view: RecordView, /, *args: object, **options: object) -> object:
        return getattr(read_whole(view.__stepwell_place__), name)(*args, **options)

    call.__name__ = name
    return call


# --- what a record keeps its fields in --------------------------------------------


class FieldsRead(MutableMapping[str, object]):
    """The `__dict__` of a view: its declared fields. It passes for a dict, and takes no change."""

    __slots__ = ("_place",)

    @property  # type: ignore[misc]
    def __class__(self) -> type[object]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` is told."""
        return dict

    def __init__(self, place: Place) -> None:
        self._place = place

    def _held(self) -> dict[str, object]:
        raw = self._place[0]
        return record_type(type(raw)).fields(raw)

    def __getitem__(self, name: str) -> object:
        place, held = self._place, self._held()
        if name not in held:
            place[1].add(name)
            raise KeyError(name)
        if record_type(type(place[0])).transparent:
            return _root(place, held[name])
        return part(place, name, name, held[name])

    def __iter__(self) -> Iterator[str]:
        return self._names(list(self._held()))

    def _names(self, names: list[str]) -> Iterator[str]:
        reads = self._place[1]
        reads.shape = True
        for name in names:
            reads.inner()  # DraftEnded if the selector has ended
            yield name

    def __len__(self) -> int:
        self._place[1].shape = True
        return len(self._held())

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reversed__(self) -> Iterator[str]:
        return self._names([*self._held()][::-1])

    def copy(self) -> dict[str, object]:
        return dict(self)

    def __or__(self, other: dict[str, object]) -> dict[str, object]:
        return dict(self) | dict(other)

    def __ror__(self, other: dict[str, object]) -> dict[str, object]:
        return dict(other) | dict(self)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> dict[str, object]:
        return {name: deepcopy(value) for name, value in self.items()}

    __setitem__ = __delitem__ = __ior__ = refuse_change


named_for_errors(FieldsRead)


class ExtrasRead(FieldsRead):
    """The undeclared fields of a view of a model that allows them."""

    __slots__ = ()

    def _held(self) -> dict[str, object]:
        raw = self._place[0]
        return record_type(type(raw)).extras(raw) or {}


def _fields(view: RecordView) -> FieldsRead:
    return FieldsRead(view.__stepwell_place__)


def _model_at(view: RecordView) -> BaseModel:
    raw = view.__stepwell_place__[0]
    assert isinstance(raw, BaseModel)
    return raw


def _fields_set(view: RecordView) -> object:
    view.__stepwell_place__[1].whole = True
    return set(_model_at(view).__pydantic_fields_set__)


def _private(view: RecordView) -> object:
    private = _model_at(view).__pydantic_private__
    if private is None:
        return None
    view.__stepwell_place__[1].whole = True
    return MappingProxyType(deepcopy(private))


def _extras(view: RecordView) -> object:
    place = view.__stepwell_place__
    return ExtrasRead(place) if record_type(type(place[0])).extras_allowed else None


_MODEL_SLOTS: Final[dict[str, object]] = {
    "__pydantic_fields_set__": property(_fields_set, refuse_change),
    "__pydantic_extra__": property(_extras, refuse_change),
    "__pydantic_private__": property(_private, refuse_change),
}
