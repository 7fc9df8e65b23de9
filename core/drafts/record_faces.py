"""Faces of records: for each class of models or dataclasses one generated subclass, which stands for its drafts.

The subclass keeps nothing but its node. Each field is a property, `__dict__` a live view, pydantic's own slots are
properties, and what pydantic does in C with an instance (dump, copy, validate on assignment) is done on a plain copy.
So methods and properties of the class work, also `object.__setattr__` and `vars`, and none of them gets at the
committed value. The class of users is subclassed without running any hook of theirs.
"""

# pyright: reportPrivateUsage=false
# The nodes of this package share their parts; the underscore keeps these from users, to whom some nodes are shown.

from __future__ import annotations

import copy
import dataclasses
import functools
from abc import ABCMeta
from collections.abc import Callable, Hashable
from types import MappingProxyType
from typing import Final

from pydantic import BaseModel

from ..kind import ATOMS, Kind
from ..record import RecordType, blank, record_type
from ..value import same
from .dumping import SERIALIZER, writes_as
from .faces import FACES, FIND_MAKER, AnyNode, Maker, child_of
from .records import ExtrasView, FieldsView, RecordNode

__all__ = ["MODEL_CALLS", "cached_of", "subclass_of"]

_NODE: Final = "__stepwell_node__"
_SETATTR: Final = "__setattr__"
_NEW: Final = "__new__"

_ABSENT: Final = object()


class RecordFace:
    """What the faces of all records share."""

    __slots__ = ()

    __stepwell_node__: RecordNode

    def __init_subclass__(cls) -> None:
        """Stops here: a hook of the user's class is for the user's classes."""

    def __copy__(self) -> object:
        return self.__stepwell_node__._present()

    def __deepcopy__(self, memo: object) -> object:
        return self.__stepwell_node__._present()

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError("a draft cannot be pickled; copy.deepcopy(draft) is a plain value")

    def __delattr__(self, name: str) -> None:
        self.__stepwell_node__.remove(name)


class ModelFace(RecordFace):
    """What the faces of pydantic models share beyond that."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        node = self.__stepwell_node__
        model = node.type.type
        if name in (_FREE.get(model) or _freely_set(model)):
            node.write(name, value)
        elif issubclass(model, BaseModel) and name in model.__private_attributes__:
            raise TypeError(f"{model.__name__}.{name} is private, no part of the state: a draft cannot keep it")
        else:
            _setattr_of(model)(self, name, value)  # pydantic's answer: it validates, or there is no such field


def _freely_set(model: type[object]) -> frozenset[str]:
    """Names of the fields that can be assigned without asking pydantic or the user's own `__setattr__`."""
    found = _FREE.get(model)
    if found is None:
        assert issubclass(model, BaseModel)
        config = model.model_config
        own_way = (
            _setattr_of(model) is not _setattr_of(BaseModel) or config.get("frozen") or _validates_assignment(model)
        )
        free = {name for name, field in model.model_fields.items() if not field.frozen}
        found = _FREE[model] = frozenset() if own_way else frozenset(free)
    return found


_FREE: Final[dict[type[object], frozenset[str]]] = {}


def _setattr_of(type_: type[object]) -> Callable[[object, str, object], None]:
    found: Callable[[object, str, object], None] = getattr(type_, _SETATTR)
    return found  # unbound: it takes the object


def _validates_assignment(model: type[object]) -> bool:
    return issubclass(model, BaseModel) and bool(model.model_config.get("validate_assignment"))


def _assign_validated(node: RecordNode, name: str, value: object) -> None:
    """Assign as pydantic does, on a copy: it validates, and may change other fields. Then take over what changed."""
    changed = node._present()
    plain = node._plain(value)
    try:
        _setattr_of(BaseModel)(changed, name, plain)  # the class's own, if there is one, runs on the draft
    except BaseException:
        node._context.taken.clear()  # nothing was stored
        raise
    node._settle()
    known = node.type
    for field, new in (known.fields(changed) | (known.extras(changed) or {})).items():
        if not same(new, known.get(node._raw, field, _ABSENT)):
            node.write(field, new)


class _Assignment:
    """What pydantic asks to validate an assignment to a draft; of the class of drafts it is the validator."""

    __slots__ = ("_model",)

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get__(self, face: object, _: type[object] | None = None) -> object:
        return self._model.__pydantic_validator__ if face is None else self

    def validate_assignment(self, face: object, name: str, value: object) -> None:
        assert isinstance(face, RecordFace)
        _assign_validated(face.__stepwell_node__, name, value)


def _plain(face: object) -> object:
    assert isinstance(face, RecordFace)
    return face.__stepwell_node__._present()


_WRITES_PLAIN: Final = writes_as(_plain)


# --- making a face --------------------------------------------------------------


def _find_maker(type_: type[object]) -> Maker:
    """How nodes for records of this class are made, each with its face."""
    known = record_type(type_)
    face_type = _make_face_type(known)
    node_of_face: Callable[[object], AnyNode] = face_type.__dict__[_NODE].__get__
    set_node = face_type.__dict__[_NODE].__set__
    FACES[face_type] = node_of_face

    def make(raw: object, parent: AnyNode, key: Hashable) -> AnyNode:
        node = RecordNode(raw, parent, key, known)
        node._face = face = blank(face_type)
        set_node(face, node)
        return node

    return make


FIND_MAKER[Kind.RECORD] = _find_maker


def _make_face_type(known: RecordType) -> type[object]:
    user_type = known.type
    space: dict[str, object] = {SERIALIZER: _WRITES_PLAIN}
    if user_type.__dictoffset__:
        space["__dict__"] = property(_fields_view)
    if known.is_model:
        space.update(_MODEL_SLOTS)
        space.update({name: _on_copy(name) for name in MODEL_CALLS})
    if known.is_model and _setattr_of(user_type) is not _setattr_of(BaseModel):
        space[_SETATTR] = _setattr_of(user_type)
    if issubclass(user_type, BaseModel) and _validates_assignment(user_type):
        space["__pydantic_validator__"] = _Assignment(user_type)
    if not known.is_model and _setattr_of(user_type) is _setattr_of(object):
        space[_SETATTR] = _set_field
    elif not known.is_model and getattr(getattr(user_type, "__dataclass_params__", None), "frozen", False):
        space[_SETATTR] = _set_frozen
    for name in known.names:
        space[name] = property(_getter(name), _setter(name))
    return subclass_of(user_type, ModelFace if known.is_model else RecordFace, _NODE, space)


def subclass_of(user_type: type[object], base: type[object], slot: str, space: dict[str, object]) -> type[object]:
    """A subclass of the user's class that keeps nothing but `slot`, made without running any hook of that class.

    To call it, as `type(self)(...)` in a method does, makes a plain object of the user's class.
    """
    full: dict[str, object] = {
        "__slots__": (slot,),
        "__module__": user_type.__module__,
        "__qualname__": user_type.__qualname__,
        "__doc__": user_type.__doc__,
        "__class__": property(lambda _: user_type),
        _NEW: _maker_of_plain(user_type),
        **_uncached(user_type),
        **space,
    }
    if issubclass(user_type, BaseModel):
        full["model_construct"] = user_type.model_construct
    metaclass = type(user_type)
    maker = ABCMeta if issubclass(metaclass, ABCMeta) else type  # not the metaclass's own: it would set up a new class
    make: Callable[[object, str, tuple[type[object], ...], dict[str, object]], type[object]] = getattr(maker, _NEW)
    return make(metaclass, user_type.__name__, (base, user_type), full)


def _maker_of_plain(user_type: type[object]) -> Callable[..., object]:
    def new(_: type[object], /, *args: object, **named: object) -> object:
        return user_type(*args, **named)

    return new


def _getter(name: str) -> Callable[[RecordFace], object]:
    def get(face: RecordFace) -> object:
        node = face.__stepwell_node__
        try:
            value = node.fields[name]
        except KeyError:
            return node.read(name)
        return value if type(value) in ATOMS else child_of(node, name, value)

    return get


def _setter(name: str) -> Callable[[RecordFace, object], None]:
    def set_(face: RecordFace, value: object) -> None:
        face.__stepwell_node__.write(name, value)

    return set_


def _set_field(face: RecordFace, name: str, value: object) -> None:
    """Assignment to a draft of a dataclass: to a field, or to a property that has a setter."""
    if hasattr(getattr(type(face), name, None), "__set__"):
        object.__setattr__(face, name, value)
        return
    raise TypeError(f"{name!r} is no field of {face.__class__.__name__}: a draft would lose it")


def _set_frozen(face: RecordFace, name: str, value: object) -> None:
    """What a frozen dataclass says to objects of its very class; to others it refuses its fields alone."""
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _uncached(user_type: type[object]) -> dict[str, object]:
    """Cached properties as ordinary ones: a draft may change, so it keeps nothing that was computed from it."""
    return {name: property(func) for name, func in cached_of(user_type).items()}


def cached_of(user_type: type[object]) -> dict[str, Callable[[object], object]]:
    """What the cached properties of a class compute."""
    found: dict[str, Callable[[object], object]] = {}
    for base in reversed(user_type.__mro__):
        for name, attribute in vars(base).items():
            if isinstance(attribute, functools.cached_property):
                found[name] = attribute.func
            else:
                found.pop(name, None)
    return found


def _on_copy(name: str) -> Callable[..., object]:
    """A method of a model that runs on a plain copy of the draft."""

    def call(face: RecordFace, /, *args: object, **options: object) -> object:
        return getattr(face.__stepwell_node__._present(), name)(*args, **options)

    call.__name__ = name
    return call


MODEL_CALLS: Final = ("model_dump", "model_dump_json", "dict", "json", "copy", "model_copy", "__getstate__")


def _fields_view(face: RecordFace) -> FieldsView:
    return FieldsView(face.__stepwell_node__)


def _model_of(face: RecordFace) -> BaseModel:
    raw = face.__stepwell_node__._live()
    assert isinstance(raw, BaseModel)
    return raw


def _fields_set(face: RecordFace) -> object:
    return set(_model_of(face).__pydantic_fields_set__)


def _private(face: RecordFace) -> object:
    private = _model_of(face).__pydantic_private__
    return None if private is None else MappingProxyType(copy.deepcopy(private))


def _extras(face: RecordFace) -> object:
    node = face.__stepwell_node__
    return None if node.extras is None else ExtrasView(node)


_MODEL_SLOTS: Final[dict[str, object]] = {
    "__pydantic_fields_set__": property(_fields_set),
    "__pydantic_extra__": property(_extras),
    "__pydantic_private__": property(_private),
}
