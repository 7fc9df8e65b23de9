"""Records: how models and dataclasses are read and made without running any code of theirs."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Final, TypeAlias

from pydantic import BaseModel, RootModel

from .kind import ATOMS

__all__ = ["RecordType", "blank", "record_type"]

Clone: TypeAlias = Callable[[object], object]


class RecordType:
    """How records of one class are read and made without running any code of theirs.

    `transparent` marks a RootModel: its only field is the value itself, so that the field is no segment of a path.
    """

    __slots__ = ("extras_allowed", "is_model", "names", "transparent", "type")

    def __init__(self, type_: type[object]) -> None:
        self.type = type_
        self.is_model = issubclass(type_, BaseModel)
        self.transparent = issubclass(type_, RootModel)
        self.extras_allowed = False
        if issubclass(type_, BaseModel):
            self.names: tuple[str, ...] = tuple(type_.model_fields)
            self.extras_allowed = type_.model_config.get("extra") == "allow"
        else:
            self.names = tuple(field.name for field in _dataclass_fields(type_))

    def held(self, record: object) -> dict[str, object]:
        """The declared fields of `record`, perhaps in the very dict that it keeps them in: never to be written."""
        if self.is_model and len(record.__dict__) == len(self.names):
            return record.__dict__
        return self.fields(record)

    def fields(self, record: object) -> dict[str, object]:
        """A new dict of the declared fields of `record`, with the values themselves."""
        if self.is_model:
            held: dict[str, object] = record.__dict__
            if len(held) == len(self.names):
                return held.copy()
            return {name: held[name] for name in self.names if name in held}
        return {name: getattr(record, name) for name in self.names if hasattr(record, name)}

    def get(self, record: object, name: str, default: object) -> object:
        """The value of one field, declared or not, or `default`."""
        if not self.is_model:
            return getattr(record, name, default) if name in self.names else default
        held: dict[str, object] = record.__dict__
        if name in held:
            return held[name] if name in self.names else default
        extras = self.extras(record)
        return default if extras is None else extras.get(name, default)

    def extras(self, record: object) -> dict[str, object] | None:
        """A new dict of the undeclared fields that a model with `extra="allow"` holds; None if it may hold none."""
        if not self.extras_allowed:
            return None
        assert isinstance(record, BaseModel)
        return dict(record.__pydantic_extra__ or {})

    def make(self, fields: dict[str, object], extras: dict[str, object] | None, like: object) -> object:
        """A new record that holds exactly these fields: a model keeps both dicts as they are. `like` is an old one."""
        made = blank(self.type)
        if not self.is_model:
            for name, value in {**self._beside(like), **fields}.items():
                object.__setattr__(made, name, value)
            return made
        assert isinstance(like, BaseModel)
        _set_fields(made, fields)
        _set_given(made, like.__pydantic_fields_set__.copy())
        if self.transparent:  # its class holds the other two, for all of its models
            return made
        private = like.__pydantic_private__
        _set_extras(made, extras)
        _set_private(made, copy.deepcopy(private) if private else private)
        return made

    def _beside(self, record: object) -> dict[str, object]:
        """Copies of what a dataclass keeps beside its fields, set by `__post_init__`, but for cached properties."""
        held: dict[str, object] = getattr(record, "__dict__", {})
        if len(held) <= len(self.names):
            return {}
        return {
            name: copy.deepcopy(value)
            for name, value in held.items()
            if name not in self.names and not isinstance(getattr(self.type, name, None), functools.cached_property)
        }

    def clone(self, record: object, clone_value: Clone) -> object:
        """A copy of `record` whose fields went through `clone_value`."""
        fields = self.fields(record)
        for name, value in fields.items():
            if type(value) not in ATOMS:
                fields[name] = clone_value(value)
        extras = self.extras(record)
        if extras:
            extras = {name: clone_value(value) for name, value in extras.items()}
        return self.make(fields, extras, record)


def _setter(slot: str) -> Callable[[object, object], None]:
    """How a slot of pydantic's is set, past the `__setattr__` of the class and without a look for it."""
    found: Callable[[object, object], None] = BaseModel.__dict__[slot].__set__
    return found


_set_fields: Final = _setter("__dict__")
_set_given: Final = _setter("__pydantic_fields_set__")
_set_extras: Final = _setter("__pydantic_extra__")
_set_private: Final = _setter("__pydantic_private__")


def blank(type_: type[object]) -> object:
    """A new object of a class, without any of its code run."""
    made: object = object.__new__(type_)
    return made


def _dataclass_fields(type_: type[object]) -> tuple[dataclasses.Field[object], ...]:
    if not dataclasses.is_dataclass(type_):
        raise TypeError(f"{type_.__name__} is neither a pydantic model nor a dataclass")
    return dataclasses.fields(type_)


_RECORDS: Final[dict[type[object], RecordType]] = {}


def record_type(type_: type[object]) -> RecordType:
    """How records of this class are read and made."""
    found = _RECORDS.get(type_)
    if found is None:
        found = _RECORDS[type_] = RecordType(type_)
    return found
