"""Places: where in the states of a type a part can be validated, written and read by itself.

A schema is a tree of places. The part at a place is *free* if whether it is valid, and its JSON, rest on nothing but
the part: then a state of which only that part changed need not be looked at as a whole. Where the schema says more (a
validator of the user's around a container, a union, a serializer of its own), the place is a *barrier*: what lies
beneath is validated and written together with it. `barriers` names them, with the reason.

Validators of mode "after" of a whole record are no barrier: they are `checks`, and are called on the changed record.

The schemas are those that `core_schema.compile_schema` walked; what each kind of node means is described in the
documentation of pydantic-core. A kind that is not known here is a barrier, so a new one costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard, final

from .core_schema import OPAQUE, Compiled, Node, compile_part, is_node
from .kind import is_class, is_dict, is_list, is_tuple
from .model import Path, Paths
from .parts import root_of
from .paths import EACH

__all__ = ["Barrier", "Check", "Checks", "Place", "Places"]

Check: TypeAlias = Callable[[object], object]
"""A validator of a whole record, as the user wrote it: it takes the record and gives it back."""

Checks: TypeAlias = tuple[tuple[int, Check], ...]
"""Validators in their order, each with how many RootModels are around the record that it takes."""


@final
@dataclass(frozen=True, slots=True)
class Barrier:
    """Where a change costs as much as the whole part at `path`, in which `paths.EACH` is any element, and why."""

    path: Path
    reason: str


@final
class Place:
    """One place: how its part is read and written, and the places beneath it, which are made when they are asked for.

    `checks` are called on the records here; `keys` is where the keys of the dict here are validated, each as text.
    `exact` is the class of atoms that are all valid here as they are, if there is one. `why` says why there are no
    places beneath, if one would expect some.
    """

    __slots__ = (
        "_config",
        "_each",
        "_fields",
        "_places",
        "_roots",
        "_schemas",
        "_unit",
        "checks",
        "exact",
        "is_dict",
        "keys",
        "least",
        "most",
        "schema",
        "why",
    )

    def __init__(self, places: Places, schema: Node, config: Node | None) -> None:
        self._places = places
        self._config = config
        self._unit: Compiled | None = None
        self._schemas: dict[str, Node] | None = None  # of its fields, or of each element, by `EACH`
        self._fields: dict[str, Place] = {}
        self._each = False
        self._roots = 0  # how many RootModels have been opened
        self.schema = schema
        self.checks: Checks = ()
        self.exact: type[object] | None = None
        self.is_dict = False
        self.keys: Place | None = None
        self.least = 0
        self.most: int | None = None
        self.why: str = self._open(schema)

    @property
    def is_barrier(self) -> bool:
        """Whether no part beneath it has a place of its own."""
        return self._schemas is None

    @property
    def has_elements(self) -> bool:
        """Whether it is a list or a dict, in which elements or keys may come and go without a look at the others."""
        return self._each

    @property
    def unit(self) -> Compiled:
        """How the part here is read, admitted and written by itself."""
        if self._unit is None:
            self._unit = self._places.compiled(self.schema, self._config)
        return self._unit

    def beneath(self, value: object, segment: str | int) -> Place | None:
        """The place of the part of `value` at `segment`, or None if it has none of its own."""
        if not self._each:
            return self._field(segment) if isinstance(segment, str) else None
        inner = root_of(value)
        return self._field(EACH) if (is_dict(inner) if self.is_dict else is_list(inner)) else None

    def _field(self, name: str) -> Place | None:
        found = self._fields.get(name)
        if found is None and self._schemas is not None and name in self._schemas:
            found = self._fields[name] = self._places.place(self._schemas[name], self._config)
        return found

    def holds(self, length: int) -> bool:
        """Whether the list or dict here may be of that length."""
        return self.least <= length and (self.most is None or length <= self.most)

    def children(self) -> Iterator[tuple[str, Place]]:
        """The places beneath, by the names of fields, or by `EACH`."""
        for name in self._schemas or ():
            found = self._field(name)
            assert found is not None
            yield name, found

    # --- what the schema says -------------------------------------------------

    def _open(self, schema: Node) -> str:
        """Find the schemas of the places beneath; the answer is why there are none, or "" if none are expected."""
        schema = self._places.resolved(schema)
        kind = schema["type"]
        if "serialization" in schema:
            return "it has a serializer of its own" if kind in _CONTAINERS else _REASONS.get(str(kind), "")
        match kind:
            case "default" if schema.get("on_error", "raise") == "raise":
                return self._open(_inner(schema))
            case "nullable":
                return self._open(_inner(schema))
            case "function-after":
                return self._open_checked(schema)
            case "model" | "dataclass":
                return self._open_record(schema)
            case "typed-dict":
                if schema.get("extras_schema") is not None or schema.get("extra_behavior") == "allow":
                    return "it may hold keys that are not declared"
                return self._open_fields(schema, schema["fields"])
            case "list":
                return self._open_elements(schema, schema.get("items_schema"))
            case "dict" if self._places.is_text(schema.get("keys_schema")):
                self.is_dict = True
                self.keys = self._places.place(_part(schema, "keys_schema"), self._config)
                return self._open_elements(schema, schema.get("values_schema"))
            case "dict":
                return "its keys are more than plain text"
            case "int" | "bool" | "float" | "str" if schema.keys() <= _UNBOUND and not self._is_adjusting_text():
                self.exact = _EXACT[str(kind)]
                return ""
            case "function-before" | "function-wrap" if self._places.is_atom(_inner(schema)):
                return ""
            case _:
                return _REASONS.get(str(kind), "")

    def _is_adjusting_text(self) -> bool:
        return any(str(name).startswith("str_") for name in self._config or ())

    def _open_checked(self, schema: Node) -> str:
        inner = self._places.resolved(_inner(schema))
        function = schema["function"]
        if inner["type"] not in ("model", "dataclass", "function-after"):
            return "" if self._places.is_atom(inner) else "a validator takes all of it"
        if not is_node(function) or function["type"] != "no-info" or not _is_check(check := function["function"]):
            return "a validator of the whole asks for more than the whole"
        self.checks = ((self._roots, check), *self.checks)
        return self._open(inner)

    def _open_record(self, schema: Node) -> str:
        inner = self._places.resolved(_inner(schema))
        if schema.get("custom_init") or schema.get("post_init") or not is_class(schema["cls"]):
            return "its class does more when an object is made"
        if schema.get("root_model"):
            self._config = _config(schema, self._config)
            self._roots += 1
            why = self._open(inner)
            self.exact = None  # what is here is the model, and not the atom that it holds
            return why
        if inner["type"] not in ("model-fields", "dataclass-args") or "serialization" in inner:
            return "a validator takes all of it before it is read"
        return self._open_fields(schema, inner["fields"])

    def _open_fields(self, schema: Node, fields: object) -> str:
        found: dict[str, Node] = {}
        if is_dict(fields):
            found = {str(name): field for name, field in fields.items() if is_node(field)}
        elif is_list(fields):
            found = {str(field["name"]): field for field in fields if is_node(field)}
        free: dict[str, Node] = {}
        for name, field in found.items():
            if field.get("init_only") or field.get("init") is False:
                return "its class does more when an object is made"
            if "serialization" in field or self._places.needs_record(_inner(field)):
                return "a field is written with regard to the others"
            free[name] = _inner(field)
            if self._places.needs_fields(_inner(field)):
                free.clear()  # it sees the fields before it, and none of those after it
        self._config = _config(schema, self._config)
        self._schemas = free or None if len(free) < len(found) else free
        bound = [name for name in found if name not in free]
        if not bound:
            return ""
        return f"a validator of {bound[-1]} sees {_listed(bound[:-1])}"

    def _open_elements(self, schema: Node, elements: object) -> str:
        least, most = schema.get("min_length"), schema.get("max_length")
        self.least = least if isinstance(least, int) else 0
        self.most = most if isinstance(most, int) else None
        self._schemas = {EACH: elements if is_node(elements) else _ANY}
        self._each = True
        return ""


_EXACT: Final[dict[str, type[object]]] = {"int": int, "bool": bool, "float": float, "str": str}

_UNBOUND: Final = frozenset({"type", "metadata", "ref", "allow_inf_nan"})
"""What the schema of an atom may say and still accept each one; it is never infinite, nor is it a bound."""

_ANY: Final[Node] = {"type": "any"}

_AROUND: Final = frozenset({"default", "nullable", "function-before", "function-after", "function-wrap"})

_ATOMS: Final = frozenset(
    (
        *("none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta"),
        *("literal", "enum", "uuid", "url"),
    )
)

_CONTAINERS: Final = frozenset({"model", "dataclass", "typed-dict", "list", "dict"})

_REASONS: Final = {
    **dict.fromkeys(("function-before", "function-wrap", "function-plain"), "a validator takes all of it"),
    **dict.fromkeys(("union", "tagged-union"), "which member it is may change with any part of it"),
    **dict.fromkeys(("set", "frozenset"), "it is a set"),
    "tuple": "it is a tuple",
    "default": "what is not valid is replaced by a default",
}


def _listed(names: list[str]) -> str:
    if len(names) < 2:
        return names[0] if names else "the fields before it, of which there are none"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _inner(schema: Node) -> Node:
    return _part(schema, "schema")


def _part(schema: Node, name: str) -> Node:
    part = schema[name]
    assert is_node(part)
    return part


def _config(schema: Node, outer: Node | None) -> Node | None:
    own = schema.get("config")
    return own if is_node(own) else outer


def _is_check(function: object) -> TypeGuard[Check]:
    return callable(function)


@final
class Places:
    """The places of one type, from its root on."""

    def __init__(self, compiled: Compiled) -> None:
        schema = compiled.schema
        self._definitions: dict[str, Node] = {}
        while schema["type"] == "definitions":
            definitions = schema["definitions"]
            assert is_list(definitions)
            self._definitions |= {str(each["ref"]): each for each in definitions if is_node(each)}
            schema = _inner(schema)
        self._known: dict[tuple[int, int], Place] = {}
        self._finite = compiled.finite
        self.root = self.place(schema, None)

    def place(self, schema: Node, config: Node | None) -> Place:
        """The place of a node of the schema; one node has one place, wherever it is referred to."""
        schema = self.resolved(schema)
        name = (id(schema), id(config))
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Place(self, schema, config)
        return found

    def resolved(self, schema: Node) -> Node:
        while schema["type"] == "definition-ref":
            schema = self._definitions[str(schema["schema_ref"])]
        return schema

    def compiled(self, schema: Node, config: Node | None) -> Compiled:
        return compile_part(schema, config, tuple(self._definitions.values()), finite=self._finite)

    def is_text(self, schema: object) -> bool:
        """Whether keys of this schema are plain text."""
        return is_node(schema) and self.resolved(schema)["type"] == "str" and "serialization" not in schema

    def is_atom(self, schema: Node) -> bool:
        """Whether there are no parts in a value of this schema: that it is taken as a whole costs nothing."""
        schema = self.resolved(schema)
        if schema["type"] in _AROUND:
            return self.is_atom(_inner(schema))
        return schema["type"] in _ATOMS

    def needs_record(self, schema: Node) -> bool:
        """Whether the schema of a field asks for the record, which it cannot be given by itself."""
        return _asks(schema, self, _is_of_record, set())

    def needs_fields(self, schema: Node) -> bool:
        """Whether the schema of a field asks for the fields that were validated before it."""
        return _asks(schema, self, _is_informed, set())

    def barriers(self) -> tuple[Barrier, ...]:
        """Every barrier, once for each node of the schema, in the order of the fields."""
        return tuple(Barrier(path, place.why) for path, place in self.beneath(self.root) if place.why)

    def growing(self, place: Place) -> Paths:
        """Where beneath a place there are parts that may hold any number of others, none beneath another."""
        return tuple(path for path, each in self.beneath(place, into_growing=False) if self._can_grow(each))

    def beneath(self, place: Place, *, into_growing: bool = True) -> Iterator[tuple[Path, Place]]:
        """A place and those beneath it, once for each node of the schema, in the order of the fields."""
        seen: set[int] = set()
        open_places: list[tuple[Path, Place]] = [((), place)]
        while open_places:
            path, place = open_places.pop(0)
            if id(place) in seen:
                continue
            seen.add(id(place))
            yield path, place
            if into_growing or not self._can_grow(place):
                open_places += [((*path, name), child) for name, child in place.children()]

    def _can_grow(self, place: Place) -> bool:
        if not place.is_barrier:
            return place.has_elements
        return _asks(place.schema, self, _is_growing, set(), into_records=True)


def _is_growing(node: Node) -> bool:
    return node.get("type") in ("list", "set", "frozenset", "dict") or node.get("variadic_item_index") is not None


def _is_of_record(node: Node) -> bool:
    return bool(node.get("is_field_serializer"))


def _is_informed(node: Node) -> bool:
    function = node.get("function")
    return bool(node.get("default_factory_takes_data")) or (is_node(function) and function.get("type") == "with-info")


def _asks(
    node: object, places: Places, asks: Callable[[Node], bool], seen: set[int], *, into_records: bool = False
) -> bool:
    if is_list(node) or is_tuple(node):
        return any(_asks(part, places, asks, seen, into_records=into_records) for part in node)
    if not is_node(node) or id(node) in seen:
        return False
    seen.add(id(node))
    if asks(node):
        return True
    kind = node.get("type")
    if kind == "definition-ref":
        return _asks(places.resolved(node), places, asks, seen, into_records=into_records)
    if kind in ("model-fields", "dataclass-args", "typed-dict") and not into_records:
        return False  # the fields of another record, which they may ask for; what is around them asks for this one
    parts = [part for name, part in node.items() if name not in OPAQUE]
    return _asks(parts, places, asks, seen, into_records=into_records)
