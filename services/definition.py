"""Definitions of stores: `define_store` gives a name to a type, and to every state under it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from ..core.batch import Form
from ..core.explanation import Explanation
from ..core.form import Upcaster, admit_upcasters, admit_version
from ..core.kind import is_a
from ..core.model import StoreKey, check_name
from ..core.schema import StateSchema, Validation, admit_validation

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["StoreDefinition", "admit_definition", "define_store"]

_T = TypeVar("_T")

KEPT_KEYS: Final = 1024
"""Of how many ids a definition keeps the keys: a key that is the same object is compared at no cost."""


@final
class StoreDefinition(Generic[_T]):
    """What `define_store` gives: a name, and the type of every value under it."""

    __slots__ = ("__weakref__", "_key", "_name", "_schema", "_type")

    def __init__(
        self,
        name: str,
        type_: TypeForm[_T],
        *,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        validation: Validation = "incremental",
    ) -> None:
        self._name = check_name("a store's name", name)
        self._type = type_
        ways = admit_upcasters(admit_version(version), upcasters)
        self._schema: StateSchema[_T] = StateSchema(
            type_, admit_validation(validation), version=version, upcasters=ways
        )
        self._key = lru_cache(KEPT_KEYS, typed=True)(partial(StoreKey, self._name))

    @property
    def name(self) -> str:
        return self._name

    @property
    def type_(self) -> TypeForm[_T]:
        return self._type

    @property
    def form(self) -> Form:
        """The form in which states are written: the version, and the fingerprint of the type."""
        return self._schema.form

    @property
    def schema(self) -> StateSchema[_T]:
        """How states of this type are checked, stored and read."""
        return self._schema

    def explain(self) -> Explanation:
        """What a change costs: which parts of a state are validated only together, and which validators read much."""
        named = self._type.__name__ if isinstance(self._type, type) else str(self._type)
        return Explanation(named, self._schema.barriers(), self._schema.checks())

    def key(self, id: str) -> StoreKey:
        """The key of the store with this id; a ValueError if it cannot be an id."""
        try:
            return self._key(id)
        except TypeError:  # it cannot be looked up; then the key says why it is no id
            return StoreKey(self._name, id)

    def __repr__(self) -> str:
        version = "" if self.form.version == 1 else f", version={self.form.version}"
        return f"define_store({self._name!r}, {self._type!r}{version})"


_defined: weakref.WeakValueDictionary[str, StoreDefinition[object]] = weakref.WeakValueDictionary()


def define_store(
    name: str,
    type_: TypeForm[_T],
    *,
    version: int = 1,
    upcasters: Mapping[int, Upcaster] | None = None,
    validation: Validation = "incremental",
) -> StoreDefinition[_T]:
    """A kind of store: `name` is 1 to 512 bytes of UTF-8, `type_` what its states are.

    A type is accepted if its round trip through JSON is the identity and a draft can track its values: models,
    dataclasses, TypedDicts, `dict[str, int]`, `int | None` and so on. A TypeError names the field that is not. A
    ValueError says that a definition of this name is in use already: one name has one type.

    `version` is that of the type: raise it when the type no longer accepts what was written, and let `upcasters[n]`
    make the JSON value of a state of version n into that of version n + 1. They are functions without side effects, and
    run whenever an older state is read; the next change writes it in the new form, even one that changes nothing, and
    nothing else does. `lambda state: state` says that there is nothing to change. A state from which no way leads, or
    that a newer version wrote, is `InvalidState`, and stays as it is.

    `validation` is how a changed state is validated: "incremental", where it was written; "full", as a whole; "both",
    which compares the two and raises AssertionError where they differ, in search of a validator that has two answers.
    """
    definition = StoreDefinition(name, type_, version=version, upcasters=upcasters, validation=validation)
    if name in _defined:
        gc.collect()  # a definition that nobody can reach any more does not count
    if (other := _defined.get(name)) is not None:
        raise ValueError(
            f"a store named {name!r} is defined already, as {other!r}; use that definition, or another name"
        )
    _defined[name] = definition  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    return definition


def admit_definition(definition: StoreDefinition[_T]) -> StoreDefinition[_T]:
    """The definition; a TypeError for what a caller without types may give in place of one."""
    if not is_a(definition, StoreDefinition):
        raise TypeError(f"{definition!r} is no definition of a store: give what define_store(name, type) gave")
    return definition
