"""An explanation tells people what a change costs, and what to do where that is much."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, RootModel, ValidationInfo, field_validator, model_validator

from stepwell.core.checks import WholeCheck
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


class Entry(BaseModel):
    count: int = 0
    most: int | str = 9
    pair: tuple[int, int] = (0, 0)

    @model_validator(mode="after")
    def few(self) -> Entry:
        assert self.count <= 99
        return self


class Page(BaseModel):
    entries: list[Entry] = []
    words: set[str] = set()


class Book(BaseModel):
    page: Page = Page()
    pages: dict[str, Page] = {}
    total: int = 0

    @model_validator(mode="after")
    def sum_up(self) -> Book:
        self.total = sum(entry.count for entry in self.page.entries)
        return self


class Shelf(RootModel[dict[str, Book]]):
    @model_validator(mode="after")
    def any_book(self) -> Shelf:
        return self


SHELF = """\
Shelf: a change is validated where it was made, but for these parts, each as a whole:
  [*].page.words: it is a set
      use a dict whose keys are the members, or keep it small
  [*].page.entries[*].most: which member it is may change with any part of it
      keep it small
  [*].page.entries[*].pair: it is a tuple
      use a model or a list, or keep it small
Each change beneath these costs, too, what a validator reads there, and twice that if it writes:
  the whole state: Shelf.any_book may read all of it
      let it read little, validate elements or fields instead, or keep these parts small
  [*]: Book.sum_up may read all of pages, page.entries, page.words
      let it read little, validate elements or fields instead, or keep these parts small"""


def test_an_explanation_names_every_validator_that_may_read_much_and_no_other() -> None:
    explanation = define_store("explained-shelves", Shelf).explain()
    assert str(explanation) == SHELF
    assert explanation.checks == (
        WholeCheck((), "Shelf.any_book", ((),)),
        WholeCheck((EACH,), "Book.sum_up", (("pages",), ("page", "entries"), ("page", "words"))),
    )


def test_a_type_without_barriers_is_explained_with_its_validators() -> None:
    class Counted(BaseModel):
        values: list[int] = []

        @model_validator(mode="after")
        def look(self) -> Counted:
            return self

    lines = str(define_store("explained-counted", Counted).explain()).splitlines()
    assert lines[0] == "Counted: a change is validated where it was made, whatever it is."
    assert lines[2] == "  the whole state: Counted.look may read all of values"


def test_a_way_to_validate_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="validation='quick' is not"):
        admit_validation("quick")
