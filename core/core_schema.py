"""The schema that pydantic compiles for a type, changed where its defaults do not keep a value as it is.

Pydantic's own validators trust instances, write NaN as null, sets in the order of their hashes, and bytes as the config
of each class says. States, arguments and results need one answer everywhere, so the schema is walked once: instances
are validated anew, sets are written in a fixed order, bytes as base64, and numbers are finite or written as constants.
The validators that pydantic has built for the classes already are passed over; the argument that does so is private,
and a test pins it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import CoreConfig, CoreSchema, SchemaError, SchemaSerializer, SchemaValidator, to_json
from pydantic_core.core_schema import SerializerFunctionWrapHandler, wrap_serializer_function_ser_schema

from .typed_dict import portable

__all__ = ["OPAQUE", "Compiled", "Node", "compile_part", "compile_schema", "is_node"]

Node: TypeAlias = Mapping[str, object]
"""A node of a schema: what is under \"type\" says which."""

_CONFIG: Final = CoreConfig(
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_timedelta="iso8601",
    ser_json_temporal="iso8601",
    ser_json_inf_nan="constants",
    revalidate_instances="always",
    polymorphic_serialization=False,
)
"""What holds everywhere, whatever the config of a class says."""

_FINITE: Final[CoreConfig] = {**_CONFIG, "allow_inf_nan": False, "ser_json_inf_nan": "null"}
"""The same where numbers must be finite: one that is not is written as what is not read back as it.

As a constant it would be, where JSON is read as `JsonValue`, whatever is said about numbers.
"""

OPAQUE: Final = frozenset({"cls", "default", "default_factory", "expected", "function", "members", "metadata"})
"""Entries of a schema that hold no schema."""


class Compiled(NamedTuple):
    """How values of a type are read from JSON, admitted from a caller, and written.

    What is admitted has no keys that its TypedDict does not declare, since they would be lost. What is read may have:
    an earlier form of the type declared more.
    """

    reader: SchemaValidator
    admitter: SchemaValidator
    writer: SchemaSerializer
    schema: Node
    finite: bool


def compile_schema(type_: object, *, finite: bool) -> Compiled:
    """What pydantic makes of a type; TypeError with its reason if it does not take it."""
    config = _FINITE if finite else _CONFIG
    try:
        adapter = _adapter_of(portable(type_))
        adapter.rebuild(raise_errors=True)  # nothing, unless its class has defer_build
        walk = _Walk(config, finite)
        schema = walk.copy(adapter.core_schema)
        assert _is_core_schema(schema)
        reader = admitter = SchemaValidator(schema, config, _use_prebuilt=False)
        if walk.open_dicts:
            for typed_dict in walk.open_dicts:
                typed_dict["extra_behavior"] = "forbid"
            admitter = SchemaValidator(schema, config, _use_prebuilt=False)
        writer = SchemaSerializer(schema, config, _use_prebuilt=False)
    except (PydanticUserError, SchemaError) as error:
        raise TypeError(f"{type_!r} cannot be kept as JSON: {error}") from error
    assert is_node(schema)
    return Compiled(reader, admitter, writer, schema, finite)


def compile_part(node: Node, config: Node | None, definitions: Sequence[Node], *, finite: bool) -> Compiled:
    """A node of a schema that was compiled, by itself: `config` is that of the record it lies in, if it lies in one.

    No key that a TypedDict does not declare is taken, nor read.
    """
    settings: CoreConfig = {**(_FINITE if finite else _CONFIG)}
    if config is not None:
        assert _is_config(config)
        settings = {**config, **settings}
    schema = {"type": "definitions", "schema": node, "definitions": list(definitions)} if definitions else node
    assert _is_core_schema(schema)
    validator = SchemaValidator(schema, settings, _use_prebuilt=False)
    return Compiled(validator, validator, SchemaSerializer(schema, settings, _use_prebuilt=False), node, finite)


def _adapter_of(type_: object) -> TypeAdapter[object]:
    return TypeAdapter(type_)  # type: ignore[arg-type]  # pyright: ignore  # it may be rebuilt: no checker knows it


def _is_core_schema(schema: object) -> TypeGuard[CoreSchema]:
    return isinstance(schema, dict)  # of dicts that came from a schema, and whose form was kept


def _is_config(config: Node) -> TypeGuard[CoreConfig]:
    return isinstance(config, dict)


def is_node(node: object) -> TypeGuard[Node]:
    """Whether this is a node of a schema, or another mapping in one."""
    return isinstance(node, dict)


def _is_sequence(node: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(node, list | tuple)


class _Walk:
    """Copies a schema with what a value needs, whatever the config of a class says."""

    def __init__(self, config: CoreConfig, finite: bool) -> None:
        self._config = config
        self._finite = finite
        self.open_dicts: list[dict[str, object]] = []
        """The copied schemas of TypedDicts that leave keys out that they do not declare."""

    def copy(self, node: object) -> object:
        """A copy of a schema, or of the dict or list of schemas in one."""
        if _is_sequence(node):
            return type(node)(map(self.copy, node))
        if not is_node(node):
            return node
        kind = node.get("type")
        if not isinstance(kind, str):  # fields by name, choices by tag
            return {name: self.copy(part) for name, part in node.items()}
        return self._changed(kind, {name: part if name in OPAQUE else self.copy(part) for name, part in node.items()})

    def _changed(self, kind: str, schema: dict[str, object]) -> dict[str, object]:
        if is_node(config := schema.get("config")):
            schema["config"] = {**config, **self._config}
        if kind in ("model", "dataclass"):
            schema["revalidate_instances"] = "always"
        elif kind == "typed-dict" and schema.get("extra_behavior") in (None, "ignore"):
            self.open_dicts.append(schema)
        elif kind in ("float", "decimal") and self._finite:
            schema["allow_inf_nan"] = False
        elif kind in ("set", "frozenset"):
            inner = {**schema}
            assert _is_core_schema(inner)
            schema["serialization"] = wrap_serializer_function_ser_schema(_in_order, schema=inner, when_used="json")
        return schema


def _in_order(value: object, write: SerializerFunctionWrapHandler) -> list[object]:
    """The elements of a set as JSON values, in the order of their JSON: equal sets are written alike."""
    written: list[object] = list(write(value))
    return sorted(written, key=to_json)
