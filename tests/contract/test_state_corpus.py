"""What earlier code has written, kept in `tests/histories`, is read by today's code: states, and whole databases."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import apsw
import pytest
from pydantic import BaseModel, Field, JsonValue

import stepwell
from stepwell import Revision, Run, StepId, StoreDefinition, define_store, workflow
from stepwell.core.batch import Batch, CreateStore, Form, StoreAbsent
from stepwell.core.outcome import Success

from .store_world import open_world, success

HISTORIES = Path(__file__).parents[1] / "histories"

# --- the types as they are today ------------------------------------------------


class OrderLine(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)


class Order(BaseModel):
    """Its first form had a list of items and a total in euros, the second had lines."""

    lines: list[OrderLine] = []
    cents: int = 0
    status: Literal["new", "paid"] = "new"
    note: str | None = None


def to_lines(old: dict[str, Any]) -> object:
    items: list[str] = old.pop("items")
    return {**old, "lines": [{"sku": sku, "count": count} for sku, count in Counter(items).items()]}


def to_cents(old: dict[str, Any]) -> object:
    return {**old, "cents": round(100 * old.pop("total"))}


def to_dict(old: list[tuple[str, int]]) -> object:
    return dict(old)


class Cat(BaseModel):
    sort: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    sort: Literal["dog"] = "dog"
    name: str


def to_sort(old: list[dict[str, Any]]) -> object:
    return [{**pet, "sort": pet.pop("type").lower()} for pet in old]


class Tree(BaseModel):
    value: int = 0
    children: list[Tree] = []
    colour: str | None = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Everything:
    """One field of each kind. There is one form of it: this is how each is written, for good."""

    text: str
    whole: int
    fraction: float
    flag: bool
    data: bytes
    number: decimal.Decimal
    id: uuid.UUID
    day: datetime.date
    instant: datetime.datetime
    time: datetime.time
    span: datetime.timedelta
    colour: Colour
    point: Point
    numbers: set[int]
    pair: tuple[int, str]
    by_day: dict[datetime.date, list[bytes]]
    by_number: dict[int, Colour | None]
    anything: JsonValue
    nothing: None = None
    more: list[Everything] = field(default_factory=list["Everything"])


DEFINITIONS: dict[str, StoreDefinition[Any]] = {
    definition.name: definition
    for definition in (
        define_store("corpus.orders", Order, version=3, upcasters={1: to_lines, 2: to_cents}),
        define_store("corpus.tables", dict[str, int], version=2, upcasters={1: to_dict}),
        define_store(
            "corpus.pets",
            list[Annotated[Cat | Dog, Field(discriminator="sort")]],
            version=2,
            upcasters={1: to_sort},
        ),
        define_store("corpus.trees", Tree),
        define_store("corpus.everything", Everything),
    )
}


def change(state: Any) -> None:
    """One thing, as each of the types allows."""
    match state:
        case Order():
            state.note = "changed"
        case list():
            cast(list[object], state).append(Cat(lives=1))
        case dict():
            state["z"] = 26
        case Tree():
            state.colour = "red"
        case _:
            state.whole = 0


FILES = sorted((HISTORIES / "states").glob("*.json"))


class Stored(BaseModel):
    """What a file of the corpus holds."""

    name: str
    form: tuple[int, str] | None
    document: JsonValue
    expected: JsonValue

    @property
    def definition(self) -> StoreDefinition[Any]:
        return DEFINITIONS[self.name]

    @property
    def written_in(self) -> Form | None:
        return None if self.form is None else Form(*self.form)


def stored_in(file: Path) -> Stored:
    return Stored.model_validate_json(file.read_bytes())


def written(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_state_that_earlier_code_wrote_is_read_and_changed(file: Path, tmp_path: Path) -> None:
    """By way of a file of SQLite; what is written then is what today's code writes of the same state."""
    stored = stored_in(file)
    definition, document = stored.definition, written(stored.document)
    key, revision = definition.key("s"), Revision("i-1", 0)
    async with open_world("sqlite", tmp_path) as world:
        ledger = (await world.client()).ledger
        batch = Batch((StoreAbsent(key, revision),), (CreateStore(key, revision, document, stored.written_in),))
        success(await ledger.commit(batch))
        client = await world.restart()
        read = success(await client.store.get(definition, "s"))
        assert definition.schema.encode(read.state) == written(stored.expected)
        again = success(await client.ledger.document(key))
        assert again is not None
        assert (again.base, again.patches, again.form) == (document, (), stored.written_in)
        success(await client.store.update(definition, "s", change))
        client = await world.restart()
        after = success(await client.store.get(definition, "s"))
        assert after.version == 1
        expected: object = definition.schema.decode(written(stored.expected)).unwrap()
        change(expected)
        assert definition.schema.encode(after.state) == definition.schema.encode(expected)
        found = success(await client.ledger.document(key))
        assert found is not None
        assert found.form == definition.form
        assert success(await client.store.get(definition, "s", version=0)) == read


def test_the_corpus_holds_todays_form_of_each_type() -> None:
    """If this fails since a type above was changed: add a file with a state of the new form, and change none."""
    forms = [(stored.name, stored.written_in) for stored in map(stored_in, FILES)]
    for definition in DEFINITIONS.values():
        assert (definition.name, definition.form) in forms
    assert {form and form.version for name, form in forms if name == "corpus.orders"} == {None, 1, 2, 3}


# --- databases --------------------------------------------------------------------


class BasketLine(BaseModel):
    sku: str
    count: int = 1


class Basket(BaseModel):
    """Its first form had a total in euros."""

    lines: list[BasketLine] = []
    cents: int = 0


baskets = define_store("baskets", Basket, version=2, upcasters={1: to_cents})
counters = define_store("counters", dict[str, int])


@workflow
async def shopping(run: Run) -> int:
    basket = run.store(baskets, "b-1")
    read = (await basket.get("read")).unwrap()
    updated = (await basket.update("add", add)).unwrap()
    await run.sleep("pause", 60)
    return len(read.state.lines) * 100 + len(updated.state.lines)


def add(basket: Basket) -> None:
    basket.lines.append(BasketLine(sku="cup"))


def never(basket: Basket) -> None:
    raise AssertionError(f"nothing may run on {basket!r}")


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_database_that_earlier_code_wrote_is_opened_and_goes_on(version: int, tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = apsw.Connection(str(path))
    connection.execute((HISTORIES / "databases" / f"version_{version}.sql").read_text()).fetchall()
    assert connection.execute("pragma user_version").fetchall() == [(version,)]
    connection.close()
    tea = [BasketLine(sku="tea", count=count) for count in (1, 2, 3)]
    for opening in (1, 2):
        async with stepwell.open(path, workflows=[shopping]) as app:
            first = app.store(baskets, "b-1")
            assert success(await first.get()).version == 2 + opening
            for at in range(4):
                assert success(await first.get(version=at)).state == Basket(lines=tea[:at], cents=125 * at)
            again = success(await first.update(never, step=StepId("import", "2")))
            assert (again.version, again.state.lines) == (2, tea[:2])
            assert success(await app.store(baskets, "b-2").get()).state == Basket(cents=250)
            assert success(await app.store(counters, "c").get()).state == {"n": 104 + opening}
            assert success(await app.store(counters, "c").get(version=86)).state == {"n": 86}
            assert await app.result("r-1") == Success(203)
            success(await first.update(add))
            success(await app.store(counters, "c").update(lambda counter: counter.update(n=counter["n"] + 1)))
            assert success(await first.get()).version == 3 + opening
