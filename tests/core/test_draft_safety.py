"""Drafts are safe: nothing that Python can do with one reaches the committed state, and readers see the draft."""

# pyright: standard
# Values of many shapes go through one test here, so that a checker cannot know their types.

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    TypeAdapter,
    ValidationError,
    computed_field,
    field_validator,
)

from stepwell.core.draft import apply, track_reads
from stepwell.core.patch import replay
from stepwell.core.paths import SHAPE, diff
from stepwell.core.value import same

T: dict[str, Any] = {
    "messages": [{"id": f"msg-{n}"} for n in (1, 2, 3, 4)],
    "status": "idle",
    "profile": {"name": "dan", "tags": {}},
}


class Item(BaseModel):
    id: int = 0
    tags: list[str] = []


class Doc(BaseModel):
    n: int = 0
    items: list[Item] = [Item()]
    by: dict[str, Item] = {"a": Item()}
    numbers: set[int] = {1}
    pair: tuple[Item, int] = (Item(), 1)


# --- nothing reaches the committed state -------------------------------------------


class Rich(BaseModel):
    model_config = ConfigDict(validate_assignment=True)
    n: int = 0
    items: list[Item] = [Item(id=1)]

    @functools.cached_property
    def total(self) -> int:
        return self.n + len(self.items)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.n * 2

    @property
    def first(self) -> Item:
        return self.items[0]

    def bump(self) -> None:
        self.n += 1
        self.items.append(Item(id=self.n))

    @field_validator("n")
    @classmethod
    def _small(cls, value: int) -> int:
        if value > 99:
            raise ValueError("too large")
        return value


class Ice(BaseModel, frozen=True):
    n: int = 0
    items: list[Item] = [Item(id=1)]


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Listed(RootModel[list[Item]]):
    pass


@dataclasses.dataclass(slots=True)
class Slim:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Solid:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


class Spot(NamedTuple):
    name: str
    seen: list[int]


def untouched(state: Any, updater: Callable[[Any], object]) -> Any:
    """The state that `updater` makes of `state`, which must stay as it was, whatever it did."""
    before = copy.deepcopy(state)

    def quietly(draft: Any) -> None:
        updater(draft)

    made = apply(state, quietly)
    assert same(state, before)
    assert vars(state).keys() == vars(before).keys() if hasattr(state, "__dict__") else True
    return made.state


def test_s145_vars_and_object_setattr_work_on_the_draft() -> None:
    def updater(draft: Any) -> None:
        object.__setattr__(draft, "n", 5)
        vars(draft)["n"] += 1
        draft.__dict__.update(items=[*draft.items, Item(id=9)])
        with pytest.raises(TypeError, match="no field"):
            vars(draft)["other"] = 1
        with pytest.raises(AttributeError):
            object.__setattr__(draft, "__dict__", {})
        with pytest.raises(AttributeError):
            object.__setattr__(draft, "__class__", Item)

    assert untouched(Rich(), updater) == Rich(n=6, items=[Item(id=1), Item(id=9)])


def test_s145_copies_of_a_draft_are_plain_and_apart() -> None:
    def updater(draft: Any) -> None:
        draft.n = 3
        for made in (copy.copy(draft), copy.deepcopy(draft), draft.model_copy(), draft.model_copy(deep=True)):
            assert type(made) is Rich
            assert made.n == 3
            made.items.append(Item())
            made.items[0].tags.append("lost")
        assert draft.model_copy(update={"n": 8}).n == 8
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(draft)

    assert same(untouched(Rich(), updater), Rich(n=3))


def test_s145_methods_properties_and_cached_properties_see_the_draft() -> None:
    def updater(draft: Any) -> None:
        assert (draft.total, draft.double, draft.first.id) == (1, 0, 1)
        draft.bump()
        assert (draft.total, draft.double) == (3, 2)
        draft.first.tags.append("t")
        assert isinstance(draft, Rich)
        assert isinstance(draft.items, list)
        assert draft.model_dump()["n"] == 1
        assert json.loads(draft.model_dump_json())["n"] == 1

    made = untouched(Rich(), updater)
    assert made == Rich(n=1, items=[Item(id=1, tags=["t"]), Item(id=1)])
    assert "total" not in vars(made)


def test_s145_a_validated_assignment_validates() -> None:
    def updater(draft: Any) -> None:
        draft.n = "7"
        assert draft.n == 7
        with pytest.raises(ValidationError, match="too large"):
            draft.n = 100

    assert untouched(Rich(), updater).n == 7


@pytest.mark.parametrize(("state", "error"), [(Ice(), ValidationError), (Solid(), dataclasses.FrozenInstanceError)])
def test_s145_a_frozen_record_stays_frozen_but_its_lists_do_not(state: Any, error: type[Exception]) -> None:
    def updater(draft: Any) -> None:
        with pytest.raises(error):
            draft.n = 1
        draft.items.append(draft.items[0] if draft.items else 5)
        object.__setattr__(draft, "n", 2)

    made = untouched(state, updater)
    assert made.n == 2
    assert len(made.items) == len(state.items) + 1


def test_s145_a_frozen_dataclass_takes_no_name_that_is_no_field() -> None:
    def updater(draft: Any) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError, match="more"):
            draft.more = 1

    assert untouched(Solid(), updater) == Solid()


class WideChecked(BaseModel):
    model_config = ConfigDict(extra="allow", validate_assignment=True)
    __pydantic_extra__: dict[str, int]  # pyright: ignore[reportIncompatibleVariableOverride]  # as pydantic says
    n: int = 0


def test_s145_an_assignment_to_an_undeclared_field_is_validated_too() -> None:
    def updater(draft: Any) -> None:
        draft.old = "2"
        draft.new = "3"
        with pytest.raises(ValidationError, match="integer"):
            draft.new = "x"

    made = untouched(WideChecked.model_validate({"old": 1}), updater)
    assert made == WideChecked.model_validate({"old": 2, "new": 3})


def test_s145_an_assignment_to_what_is_no_field_of_a_model_that_validates_it_is_its_own_error() -> None:
    def updater(draft: Any) -> None:
        with pytest.raises(ValidationError, match="no attribute 'more'"):
            draft.more = 1

    assert untouched(Rich(), updater) == Rich()


class Counted(BaseModel):
    """It counts what is assigned, in an assignment of its own."""

    model_config = ConfigDict(validate_assignment=True)
    n: int = 0
    assigned: int = 0

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        super().__setattr__("assigned", self.assigned + 1)


def test_s145_an_assignment_of_a_class_of_its_own_is_made_once_and_validates() -> None:
    def updater(draft: Any) -> None:
        draft.n = "7"
        with pytest.raises(ValidationError, match="integer"):
            draft.n = "x"
        assert type(draft).model_validate({"n": "5"}) == Counted(n=5)

    assert untouched(Counted(), updater) == Counted(n=7, assigned=1)


def test_undeclared_fields_are_tracked() -> None:
    state = Wide.model_validate({"n": 1, "more": [1], "gone": 2})

    def updater(draft: Any) -> None:
        draft.more.append(2)
        draft.new = {"a": 1}
        del draft.gone
        draft.model_extra["late"] = 3
        with pytest.raises(TypeError, match="cannot be deleted"):
            del draft.n

    applied = apply(state, updater)
    assert applied.state == Wide.model_validate({"n": 1, "more": [1, 2], "new": {"a": 1}, "late": 3})
    assert set(applied.changed_paths) == {("more", 1), ("more", SHAPE), ("new",), ("gone",), ("late",), (SHAPE,)}
    assert state == Wide.model_validate({"n": 1, "more": [1], "gone": 2})


def test_what_is_no_field_cannot_be_assigned() -> None:
    with pytest.raises(ValueError, match="no field"):
        apply(Doc(), lambda d: setattr(d, "absent", 1))
    with pytest.raises(TypeError, match="no field"):
        apply(Shape(), lambda d: setattr(d, "absent", 1))


@dataclasses.dataclass
class Shape:
    n: int = 0


def test_helpers_of_the_standard_library_see_a_draft() -> None:
    def updater(draft: Any) -> None:
        draft.n = 7
        draft.items += [1]
        assert dataclasses.asdict(draft) == {"n": 7, "items": [1]}
        assert dataclasses.replace(draft, n=50) == Listing(50, [1])
        assert draft == Listing(7, [1])
        assert Listing(7, [1]) == draft
        assert type(draft.items)((1, 2)) == [1, 2]

    assert untouched(Listing(), updater) == Listing(7, [1])


@dataclasses.dataclass
class Listing:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


class Own(BaseModel):
    """A model with ways of its own."""

    x: int = 0
    log: list[str] = []

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "x":
            self.log.append(f"x={value}")

    def __getattr__(self, name: str) -> Any:
        return 42 if name == "magic" else getattr(super(), "__getattr__")(name)  # noqa: B009

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.x == other.x

    def __hash__(self) -> int:
        return hash(self.x)

    def __len__(self) -> int:
        return len(self.log)

    def __contains__(self, entry: str) -> bool:
        return entry in self.log


def test_a_models_own_ways_work_on_its_draft() -> None:
    def updater(draft: Any) -> None:
        draft.x = 3
        assert draft.magic == 42
        assert (len(draft), "x=3" in draft, hash(draft)) == (1, True, hash(3))
        assert draft == Own(x=3)
        assert Own(x=3) == draft
        with pytest.raises(AttributeError):
            draft.absent  # noqa: B018

    made = untouched(Own(), updater)
    assert (made.x, made.log) == (3, ["x=3"])


def test_slotted_dataclasses_named_tuples_and_root_models_are_tracked() -> None:
    def updater(draft: Slim) -> None:
        draft.n = 1
        draft.items.append(1)

    slim = apply(Slim(), updater)
    assert (slim.state, set(slim.changed_paths)) == (Slim(1, [1]), {("n",), ("items", 0), ("items", SHAPE)})
    spot = apply(Spot("a", [1]), lambda d: d.seen.append(2))
    assert (spot.state, set(spot.changed_paths)) == (Spot("a", [1, 2]), {(1, 1), (1, SHAPE)})
    listed = apply(Listed([Item()]), lambda d: setattr(d.root[0], "id", 4))
    assert (listed.state, listed.changed_paths) == (Listed([Item(id=4)]), ((0, "id"),))


def test_hooks_of_the_users_class_do_not_run_for_drafts() -> None:
    made: list[type] = []

    class Watched(BaseModel):
        n: int = 0

        def __init_subclass__(cls, **options: Any) -> None:
            made.append(cls)

        @classmethod
        def __pydantic_init_subclass__(cls, **options: Any) -> None:
            made.append(cls)

    apply(Watched(), lambda d: setattr(d, "n", 1))
    assert made == []


# --- C code and other readers -------------------------------------------------------


def test_readers_see_the_draft_or_raise() -> None:
    def updater(draft: dict[str, Any]) -> None:
        draft["status"] = "changed"
        messages, profile = draft["messages"], draft["profile"]
        messages.append({"id": "msg-5"})
        assert [message["id"] for message in [*messages]] == [f"msg-{n}" for n in range(1, 6)]
        assert list(messages) == sorted(messages, key=lambda m: m["id"]) == [*tuple(messages)]
        assert {**draft}["status"] == dict(draft)["status"] == "changed"
        assert dict(profile) == profile == {"name": "dan", "tags": {}}
        assert (lambda **named: named)(**profile) == profile
        match draft:
            case {"status": status, "messages": [{"id": first}, *rest], **others}:
                assert (status, first, len(rest), list(others)) == ("changed", "msg-1", 4, ["profile"])
            case _:
                pytest.fail("the draft does not match as a mapping")
        match messages:
            case list():
                assert isinstance(messages, list)
            case _:
                pytest.fail("the draft does not match as a list")
        for bypass in (
            lambda: list.append(messages, 1),
            lambda: list.__setitem__(messages, 0, 1),
            lambda: dict.__setitem__(profile, "name", "eve"),
            lambda: dict.update(profile, name="eve"),
            lambda: json.dumps(messages),
            lambda: json.dumps(profile),
            lambda: TypeAdapter(list[dict[str, str]]).dump_json(messages, warnings="error"),
            lambda: pickle.dumps(messages),
        ):
            with pytest.raises((TypeError, ValueError)):
                bypass()

    state = apply(T, updater).state
    assert state["profile"]["name"] == "dan"


def test_pydantic_takes_a_draft_of_a_model_for_what_it_shows_or_raises() -> None:
    def updater(draft: Any) -> None:
        draft.items[0].id = 77
        taken = Doc(items=draft.items[:])
        draft.by["taken"] = taken.items[0]
        taken.items[0].tags.append("through the other model")
        with pytest.raises((TypeError, ValueError)):
            TypeAdapter(Doc).dump_json(draft)

    state = untouched(Doc(), updater)
    assert state.by["taken"].id == 77


def test_a_discriminated_field_may_change_its_class() -> None:
    class A(BaseModel):
        kind: str = "a"

    class B(BaseModel):
        kind: str = "b"
        x: int = 0

    class Both(BaseModel):
        value: A | B = Field(default_factory=A)

    def updater(draft: Both) -> None:
        draft.value = B()
        draft.value.x = 3

    applied = apply(Both(), updater)
    assert same(applied.state.value, B(x=3))
    assert applied.changed_paths == (("value",),)


def test_undeclared_fields_that_are_removed_and_set_again_are_in_another_order() -> None:
    def again(value: int, draft: Any) -> None:
        del draft.x
        draft.x = value

    state = Wide.model_validate({"x": 1, "y": 2})
    same_value = apply(state, partial(again, 1))
    assert list(same_value.state.model_extra or {}) == ["y", "x"]
    assert set(same_value.changed_paths) == set(diff(state, same_value.state)) == {(SHAPE,)}
    other_value = apply(state, partial(again, 9))
    assert set(other_value.changed_paths) == set(diff(state, other_value.state)) == {("x",), (SHAPE,)}
    for applied in (same_value, other_value):
        assert same(replay(state, applied.patch), applied.state)
    assert apply(state, lambda d: setattr(d, "x", 3)).changed_paths == (("x",),)


def test_an_undeclared_field_that_is_not_there_cannot_be_removed() -> None:
    def by_name(draft: Any) -> None:
        del draft.absent

    def by_key(draft: Any) -> None:
        del draft.model_extra["absent"]

    with pytest.raises(AttributeError):
        apply(Wide.model_validate({"x": 1}), by_name)
    with pytest.raises(KeyError):
        apply(Wide.model_validate({"x": 1}), by_key)


class Money(BaseModel):
    n: int = 0
    parts: list[int] = []

    def __add__(self, other: Any) -> Any:
        return type(self)(n=self.n + other.n)

    def blank(self) -> Any:
        return type(self)()

    def built(self) -> Any:
        return type(self).model_construct(n=self.n)

    def checked(self) -> Any:
        return type(self).model_validate({"n": self.n})

    @classmethod
    def of(cls, n: int) -> Any:
        return cls(n=n)


@dataclasses.dataclass
class Pt:
    x: int = 0

    def moved(self) -> Any:
        return type(self)(self.x + 1)

    def blank(self) -> Any:
        return type(self)()


@dataclasses.dataclass(frozen=True, slots=True)
class Stone:
    x: int = 0

    def moved(self) -> Any:
        return type(self)(x=self.x + 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s["a"] + s["a"],
        lambda s: s["a"].blank(),
        lambda s: s["a"].built(),
        lambda s: s["a"].checked(),
        lambda s: type(s["a"]).of(5),
        lambda s: s["p"].moved(),
        lambda s: s["p"].blank(),
        lambda s: s["s"].moved(),
        lambda s: sum(s["l"], start=Money()),
    ],
)
def test_a_method_that_makes_another_of_its_own_class_makes_a_plain_one(make: Callable[[Any], Any]) -> None:
    state: Any = {"a": Money(n=1), "p": Pt(1), "s": Stone(1), "l": [Money(n=2)], "made": None}
    expected = make(state)

    def look(view: Any) -> Any:
        made = make(view)
        assert type(made) is type(expected)
        return made

    def store(draft: Any) -> None:
        draft["made"] = look(draft)

    assert track_reads(state, look)[0] == expected
    assert same(apply(state, store).state["made"], expected)
