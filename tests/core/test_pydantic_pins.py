"""What incremental validation relies on in pydantic without a promise: a failure is an upgrade to look at."""

from __future__ import annotations

import inspect

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationInfo, field_validator, model_validator
from pydantic_core import SchemaSerializer, SchemaValidator

from stepwell.core.core_schema import is_node
from stepwell.core.kind import is_list, is_tuple

LOOK = "pydantic changed it: look at core/places.py and core/core_schema.py, and run tests/core/test_incremental.py"


class Informed(BaseModel):
    one: int = 1

    @field_validator("one")
    @classmethod
    def look(cls, value: int, info: ValidationInfo) -> int:
        assert info.field_name
        return value


class Checked(BaseModel):
    @model_validator(mode="after")
    def check(self) -> Checked:
        return self


class Posted(BaseModel):
    def model_post_init(self, context: object, /) -> None:
        assert context is None


class Inited(BaseModel):
    def __init__(self) -> None:
        super().__init__()


class Rooted(RootModel[int]):
    pass


def entries(node: object) -> set[tuple[str, object]]:
    """Every entry of a schema whose value is text or a flag, at any depth."""
    if is_list(node) or is_tuple(node):
        return {entry for part in node for entry in entries(part)}
    if not is_node(node):
        return set()
    flat = {(name, part) for name, part in node.items() if isinstance(part, str | bool)}
    return flat.union(*(entries(part) for part in node.values()))


def entries_of(type_: type[BaseModel]) -> set[tuple[str, object]]:
    return entries(TypeAdapter(type_).core_schema)


def test_validators_say_whether_they_ask_for_info() -> None:
    assert {("type", "with-info"), ("type", "function-after"), ("type", "model-field")} <= entries_of(Informed), LOOK
    assert {("type", "no-info"), ("type", "function-after"), ("type", "model")} <= entries_of(Checked), LOOK


def test_classes_say_what_they_do_when_an_object_is_made() -> None:
    assert ("post_init", "model_post_init") in entries_of(Posted), LOOK
    assert ("custom_init", True) in entries_of(Inited), LOOK
    assert ("root_model", True) in entries_of(Rooted), LOOK


def test_validators_that_were_built_already_can_be_passed_over() -> None:
    for made in (SchemaValidator, SchemaSerializer):
        assert "_use_prebuilt" in inspect.signature(made).parameters, LOOK
