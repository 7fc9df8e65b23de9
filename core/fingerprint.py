"""The fingerprint of a type: what decides how its documents are read, as a short text.

Two types with one fingerprint read every document alike, as far as a schema can tell. It is taken from the structure
alone: names of classes, titles, descriptions, aliases, the order of fields and how values are written make no
difference. What a user's function does cannot be seen, so it stands for itself by its name, without the module and the
class that it lies in, which may move.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeGuard

from pydantic_core import to_json

from .core_schema import Node, is_node
from .kind import Kind, acts_as_set, is_class, is_dict, is_list, is_tuple, key_text, kind_of
from .record import record_type

__all__ = ["fingerprint"]

DIGITS: Final = 16
"""Hexadecimal digits of a fingerprint: enough that two forms of one type never share one by chance."""

_Plain: TypeAlias = "bool | int | float | str | list[_Plain] | dict[str, _Plain] | None"

_NAMES: Final = frozenset({"cls", "cls_name", "dataclass_name", "generic_origin", "metadata", "model_name", "ref"})
_WRITING: Final = frozenset(
    {"computed_fields", "serialization", "serialization_alias", "serialization_exclude", "serialization_exclude_if"}
)
_MAKING: Final = frozenset({"frozen", "init_only", "kw_only", "revalidate_instances", "slots", "validation_alias"})
_PASSED_OVER: Final = _NAMES | _WRITING | _MAKING
"""Entries of a node that do not decide how a document is read: fields are read by name, and objects are made later."""

_CONFIG: Final = frozenset(
    {
        "coerce_numbers_to_str",
        "extra_fields_behavior",
        "regex_engine",
        "str_max_length",
        "str_min_length",
        "str_strip_whitespace",
        "str_to_lower",
        "str_to_upper",
        "strict",
        "validate_default",
    }
)
"""Entries of a record's config that decide how it is read, and are not the same everywhere."""

_READ_AS: Final = {"json-or-python": "json_schema", "lax-or-strict": "lax_schema"}
"""Of these kinds a document is read by one of the alternatives."""


def fingerprint(schema: Node) -> str:
    """The fingerprint of the type that pydantic compiled to this schema; the same in every process."""
    text = json.dumps(_Walk().node(schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


class _Walk:
    """Writes down what of a schema counts. A definition is written where it is met first, and then by its number."""

    def __init__(self) -> None:
        self._definitions: dict[str, Node] = {}
        self._numbers: dict[str, int] = {}

    def node(self, node: Node) -> _Plain:
        kind = node.get("type")
        if not isinstance(kind, str):  # fields by name, choices by tag
            return {key_text(name): self._part(node[name]) for name in sorted(node, key=key_text)}
        if kind == "definitions":
            return self._defining(node)
        if kind == "definition-ref":
            return self._referred(str(node["schema_ref"]))
        if kind in ("no-info", "with-info"):
            return [kind, _name_of(node["function"])]
        if (chosen := _READ_AS.get(kind)) is not None and not node.get("strict"):
            return self._part(node[chosen])
        return self._entries(kind, node)

    def _entries(self, kind: str, node: Node) -> _Plain:
        written: dict[str, _Plain] = {"type": kind}
        for name in sorted(node):
            part = node[name]
            if name in ("default", "expected", "members"):
                written[name] = _value(part)
            elif name in _PASSED_OVER or name.startswith("custom_error") or part is None or part is False:
                continue
            elif name == "config":
                config = {key: part[key] for key in _CONFIG & {*part}} if is_node(part) else {}
                if config:
                    written[name] = _value(config)
            elif name == "fields" and kind.startswith("dataclass"):
                written |= self._fields_by_name(part)
            elif name == "choices" and is_list(part):  # a label beside a choice is for people
                written[name] = [self._part(each[0] if is_tuple(each) else each) for each in part]
            elif name != "type":
                written[name] = self._part(part)
        return written

    def _fields_by_name(self, fields: object) -> dict[str, _Plain]:
        """The fields of a dataclass, whose order tells nothing; beside them their names stand once more."""
        named = {str(each["name"]): self._part(each) for each in fields if is_node(each)} if is_list(fields) else {}
        return {"fields": named} if named else {}

    def _part(self, part: object) -> _Plain:
        if is_node(part):
            return self.node(part)
        if is_list(part) or is_tuple(part):
            return [self._part(each) for each in part]
        return _name_of(part) if callable(part) else _value(part)

    def _defining(self, node: Node) -> _Plain:
        definitions = node["definitions"]
        assert is_list(definitions)
        self._definitions |= {str(each["ref"]): each for each in definitions if is_node(each)}
        return self._part(node["schema"])

    def _referred(self, ref: str) -> _Plain:
        number = self._numbers.get(ref)
        if number is not None:
            return {"again": number}
        self._numbers[ref] = len(self._numbers)
        return self.node(self._definitions[ref])


def _name_of(function: object) -> str:
    """A function by its own name; a class stands for what it makes, which the schema beneath tells."""
    if isinstance(function, partial):
        inner: Callable[..., object] = function.func
        return _name_of(inner)
    if is_class(function):
        return "class"
    name: object = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def _value(value: object) -> _Plain:
    """A default or a constant, as JSON."""
    if isinstance(value, enum.Enum):
        return _value(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dict(value) or _is_mapping(value):
        return {key_text(key): _value(part) for key, part in value.items()}
    if is_list(value) or is_tuple(value):
        return [_value(part) for part in value]
    if acts_as_set(value):
        return sorted((_value(part) for part in value), key=json.dumps)
    if kind_of(type(value)) is Kind.RECORD:
        return {name: _value(part) for name, part in record_type(type(value)).fields(value).items()}
    written = to_json(value, bytes_mode="base64", timedelta_mode="iso8601", fallback=lambda other: type(other).__name__)
    return written.decode()


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)
