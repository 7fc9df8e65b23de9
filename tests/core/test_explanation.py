"""An explanation tells people what a change costs, and what to do where that is much."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator

from stepwell.core.paths import EACH
from stepwell.core.places import Barrier
from stepwell.core.schema import admit_validation
from stepwell.services.store import define_store


class Line(BaseModel):
    low: int = 0
    high: int = 9
    tags: set[str] = set()

    @field_validator("high")
    @classmethod
    def above(cls, value: int, info: ValidationInfo) -> int:
        assert value >= info.data.get("low", 0)
        return value


class Bill(BaseModel):
    lines: list[Line] = []
    sizes: dict[int, int] = {}
    note: str = ""

    @field_validator("note", mode="before")
    @classmethod
    def strip(cls, value: str) -> str:
        return value.strip()


BILL = """\
Bill: a change is validated where it was made, but for these parts, each as a whole:
  sizes: its keys are more than plain text
      use plain text as keys, or keep it small
  lines[*]: a validator of high sees low
      declare fields that change often after these, or check both in a validator of mode after
  lines[*].tags: it is a set
      use a dict whose keys are the members, or keep it small"""


def test_an_explanation_names_every_barrier_with_its_reason_and_a_way_out() -> None:
    explanation = define_store("explained-bills", Bill, validation="both").explain()
    assert str(explanation) == BILL
    assert explanation.barriers == (
        Barrier(("sizes",), "its keys are more than plain text"),
        Barrier(("lines", EACH), "a validator of high sees low"),
        Barrier(("lines", EACH, "tags"), "it is a set"),
    )


def test_a_type_without_barriers_is_explained_in_a_sentence() -> None:
    explanation = define_store("explained-stock", dict[str, int]).explain()
    assert str(explanation) == "dict[str, int]: a change is validated where it was made, whatever it is."


def test_a_way_to_validate_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="validation='quick' is not"):
        admit_validation("quick")
