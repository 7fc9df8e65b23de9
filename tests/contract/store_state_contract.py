"""What every store must do: what updaters may be, and what states may be and stay."""

from __future__ import annotations

import asyncio
import copy
import math
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NotRequired, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, field_validator, model_validator
from typing_extensions import TypedDict

from stepwell import (
    InvalidState,
    Issue,
    Replace,
    StepId,
    Store,
    StoreDefinition,
    StoreKey,
    StoreNotFound,
    TooLarge,
    define_store,
)
from stepwell.core.draft import DraftEnded
from stepwell.core.operation import STATE_BYTES
from stepwell.layers.store import Limits

from .store_contract import made, messages
from .store_world import Chat, Message, World, append, chats, empty, failure, success

_T = TypeVar("_T")

STEP = StepId("run", "key")
KEY = StoreKey("chat", "c")


class Wide(TypedDict):
    messages: list[Message]
    n: NotRequired[int]
    extra: NotRequired[dict[str, list[dict[str, Message]]]]
    free: NotRequired[dict[str, int]]


class Order(BaseModel):
    status: Literal["new", "approved"] = "new"
    items: list[str] = []
    total: float = 0

    @cached_property
    def longest(self) -> str:
        return max(self.items, key=len, default="")


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    status: str = "new"


class Strict(BaseModel):
    first: int = 0
    second: int = 0

    @field_validator("first")
    @classmethod
    def check_first(cls, value: int) -> int:
        if value < 0:
            raise ValueError("m1")
        return value

    @field_validator("second")
    @classmethod
    def check_second(cls, value: int) -> int:
        if value < 0:
            raise ValueError("m2")
        return value


class Buggy(BaseModel):
    n: int = 0

    @field_validator("n")
    @classmethod
    def check_n(cls, value: int) -> int:
        if value == 13:
            raise RuntimeError("a bug in the validator")
        return value


class Normal(BaseModel):
    """A coercing field, a default, and a validator of the whole that changes another field."""

    count: int = 0
    label: str = "none"
    tags: list[str] = Field(default_factory=lambda: ["fresh"])

    @model_validator(mode="after")
    def set_label(self) -> Normal:
        label = "many" if self.count > 1 else "few"
        if self.label != label:
            self.label = label
        return self


@dataclass
class Basket:
    owner: str
    skus: list[str] = field(default_factory=list[str])


wides = define_store("states.wide", Wide)
orders = define_store("states.order", Order)
frozens = define_store("states.frozen", Frozen)
stricts = define_store("states.strict", Strict)
buggies = define_store("states.buggy", Buggy)
normals = define_store("states.normal", Normal)
baskets = define_store("states.basket", Basket)
maybes = define_store("states.maybe", int | None)
values = define_store("states.values", dict[str, int | float | bool | list[int] | dict[str, int] | None])


async def assert_unchanged(world: World, store: Store) -> None:
    """Version 0, no messages, no receipt; and the next update works."""
    assert await messages(store) == (0, [])
    client = await world.client()
    assert success(await client.ledger.receipt(KEY, STEP)) is None
    assert success(await store.update(chats, "c", append("next"))).version == 1


def untyped(updater: Callable[..., object]) -> Callable[[Any], None]:
    """An updater that no checker would let through."""
    return updater  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


class StoreStateContract:
    # --- what updaters may be ------------------------------------------------

    async def test_s48_an_async_updater_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)

        async def updater(chat: Chat) -> None:
            chat["messages"].append({"id": "x"})

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(TypeError, match="async"):
                await store.update(chats, "c", untyped(updater), step=STEP)
        await assert_unchanged(world, store)

    async def test_s49_generators_and_awaitables_are_refused(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)

        def generator(chat: Chat) -> Iterator[None]:
            chat["messages"].append({"id": "x"})
            yield

        async def async_generator(chat: Chat) -> AsyncIterator[None]:
            chat["messages"].append({"id": "x"})
            yield

        def returns_awaitable(chat: Chat) -> Awaitable[None]:
            chat["messages"].append({"id": "x"})
            return asyncio.sleep(0)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for updater in (generator, async_generator, returns_awaitable):
                with pytest.raises(TypeError):
                    await store.update(chats, "c", untyped(updater), step=STEP)
                with pytest.raises(TypeError):
                    await store.update_from(chats, "c", success(await store.get(chats, "c")), untyped(updater))
        await assert_unchanged(world, store)

    async def test_s52_returning_the_draft_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)

        def updater(chat: Chat) -> Chat:
            chat["messages"].append({"id": "x"})
            return chat

        with pytest.raises(TypeError, match="draft"):
            await store.update(chats, "c", untyped(updater), step=STEP)
        await assert_unchanged(world, store)

    async def test_s53_returning_anything_else_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(wides, "c", {"messages": [{"id": "one"}]}))

        def pop(wide: Wide) -> Message:
            return wide["messages"].pop()

        def set_default(wide: Wide) -> int:
            return wide.setdefault("n", 1)

        for updater in (pop, set_default):
            with pytest.raises(TypeError, match="returned"):
                await store.update(wides, "c", untyped(updater), step=STEP)
        snapshot = success(await store.get(wides, "c"))
        assert snapshot.version == 0
        assert snapshot.state == {"messages": [{"id": "one"}]}

    async def test_s56_replacing_by_none_is_for_types_that_admit_it(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)

        def by_none(chat: Chat) -> Replace[None]:
            return Replace(None)

        invalid = failure(await store.update(chats, "c", untyped(by_none), step=STEP))
        assert isinstance(invalid, InvalidState)
        await assert_unchanged(world, store)
        success(await store.get_or_create(maybes, "m", 1))
        updated = success(await store.update(maybes, "m", lambda _: Replace(None)))
        assert (updated.version, updated.state) == (1, None)
        assert success(await store.get(maybes, "m")).state is None

    async def test_s57_an_updater_that_does_nothing_raises_the_version(self, world: World) -> None:
        store = (await world.client()).store
        await made(store)
        updated = success(await store.update(chats, "c", lambda _: None))
        assert (updated.previous_version, updated.version, updated.state) == (0, 1, empty())
        assert await messages(store) == (1, [])

    async def test_s59_a_draft_is_dead_when_its_updater_has_ended(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(chats, "c", {"messages": [{"id": "one"}]}))
        kept: list[Chat] = []
        success(await store.update(chats, "c", kept.append))
        (draft,) = kept
        with pytest.raises(DraftEnded):
            _ = draft["messages"]
        with pytest.raises(DraftEnded):
            draft["unrelated"] = 1
        parts: list[list[Message]] = []

        def keep(chat: Chat) -> None:
            parts.append(chat["messages"])
            raise KeyError("after keeping")

        with pytest.raises(KeyError):
            await store.update(chats, "c", keep)
        with pytest.raises(DraftEnded):
            parts[0].append({"id": "x"})
        assert await messages(store) == (1, ["one"])

    async def test_s85_no_draft_remains_in_what_is_committed(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(wides, "c", {"messages": [{"id": "one", "processed": True}]}))

        def updater(wide: Wide) -> None:
            wide["extra"] = {"deep": [{"x": wide["messages"][0]}]}

        updated = success(await store.update(wides, "c", updater))
        read = success(await (await world.client()).store.get(wides, "c"))
        for state in (updated.state, read.state):
            assert repr(state) == repr(
                {
                    "messages": [{"id": "one", "processed": True}],
                    "extra": {"deep": [{"x": {"id": "one", "processed": True}}]},
                }
            )
            extra = state.get("extra", {})
            part = extra["deep"][0]["x"]
            kinds = [type(value) for value in (state, extra, extra["deep"], part, part["id"])]
            assert kinds == [dict, dict, list, dict, str]

    @pytest.mark.parametrize("key", [1, True, None])
    async def test_s86_a_key_is_never_turned_into_text(self, world: World, key: object) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(wides, "c", {"messages": [], "free": {"1": 1}}))

        def updater(wide: Any) -> None:
            wide["free"][key] = 2

        def replace(wide: Any) -> Replace[Any]:
            return Replace({"messages": [], "free": {key: 2}})

        for change in (updater, untyped(replace)):
            try:
                outcome = await store.update(wides, "c", change, step=STEP)
            except TypeError:
                continue
            assert isinstance(failure(outcome), InvalidState)
        snapshot = success(await store.get(wides, "c"))
        assert snapshot.version == 0
        assert repr(snapshot.state) == "{'messages': [], 'free': {'1': 1}}"
        client = await world.client()
        assert success(await client.ledger.receipt(StoreKey("states.wide", "c"), STEP)) is None

    async def test_s145_only_the_draft_reaches_the_state(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(orders, "o", Order(items=["a", "bb"])))
        success(await store.get_or_create(frozens, "f", Frozen()))

        def through_vars(order: Order) -> None:
            vars(order)["status"] = "approved"

        def through_object(order: Order) -> None:
            object.__setattr__(order, "status", "approved")

        def through_copy(order: Order) -> None:
            order.model_copy().items.append("copied")

        def through_deepcopy(order: Order) -> None:
            copied = copy.deepcopy(order)
            copied.items.append("copied")
            copied.status = "approved"

        def through_cache(order: Order) -> None:
            assert order.longest == "bb"

        kept = success(await store.get(orders, "o"))
        for updater in (through_copy, through_deepcopy, through_cache, through_vars, through_object):
            before = success(await store.get(orders, "o"))
            try:
                updated = success(await store.update(orders, "o", updater))
            except Exception:  # it raises ...
                assert success(await store.get(orders, "o")).revision == before.revision
            else:  # ... or it works on the draft alone, and what it did to the draft is what is committed
                after = success(await store.get(orders, "o"))
                assert (after.revision, after.state) == (updated.revision, updated.state)
                if updater not in (through_vars, through_object):
                    assert after.state == Order(items=["a", "bb"])
            assert before.state.items == ["a", "bb"]
        assert kept.state == Order(items=["a", "bb"])

        def assign(frozen: Any) -> None:
            frozen.status = "approved"

        with pytest.raises(Exception, match="frozen"):
            await store.update(frozens, "f", assign)
        assert success(await store.get(frozens, "f")).state == Frozen()
        assert success(await store.get(frozens, "f")).version == 0

    # --- what states are -----------------------------------------------------

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            pytest.param([], {}, id="S96-list-dict"),
            pytest.param({}, [], id="S96-dict-list"),
            pytest.param(True, 1, id="S98-bool-int"),
            pytest.param(1, 1.0, id="S98-int-float"),
            pytest.param(0, False, id="S98-int-bool"),
            pytest.param(0.0, -0.0, id="S95-sign"),
            pytest.param(1, 1.5, id="S95-value"),
        ],
    )
    async def test_values_keep_their_kind(self, world: World, before: object, after: object) -> None:
        anys: StoreDefinition[Any] = values
        store = (await world.client()).store
        success(await store.get_or_create(anys, "v", {"k": before}))
        updated = success(await store.update(anys, "v", lambda _: Replace({"k": after})))
        for state in (updated.state, success(await (await world.client()).store.get(anys, "v")).state):
            assert repr(state) == repr({"k": after})

    async def test_s97_a_missing_key_and_none_are_two_things(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(values, "v", {}))

        def add(state: dict[str, Any]) -> None:
            state["k"] = None

        def remove(state: dict[str, Any]) -> None:
            del state["k"]

        assert success(await store.update(values, "v", add)).state == {"k": None}
        assert success(await (await world.client()).store.get(values, "v")).state == {"k": None}
        assert success(await store.update(values, "v", remove)).state == {}
        assert success(await (await world.client()).store.get(values, "v")).state == {}

    async def test_s95_what_is_not_a_number_stays_that_or_is_refused(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(values, "v", {"k": 1.5}))
        outcome = await store.update(values, "v", lambda s: s.update(k=math.nan))
        state = success(await store.get(values, "v")).state
        if isinstance(outcome.value_or(None), type(None)):
            assert isinstance(failure(outcome), InvalidState)
            assert state == {"k": 1.5}
        else:
            assert repr(state) == "{'k': nan}"

    async def test_s99_all_issues_come_in_order_with_their_paths(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(stricts, "s", Strict()))

        def both(strict: Strict) -> None:
            strict.first = strict.second = -1

        invalid = failure(await store.update(stricts, "s", both, step=STEP))
        assert isinstance(invalid, InvalidState)
        assert invalid.key == StoreKey("states.strict", "s")
        assert [issue.path for issue in invalid.issues] == [("first",), ("second",)]
        assert ["m1" in invalid.issues[0].message, "m2" in invalid.issues[1].message] == [True, True]
        snapshot = success(await store.get(stricts, "s"))
        assert (snapshot.version, snapshot.state) == (0, Strict())
        invalid = failure(await store.get_or_create(stricts, "new", Strict.model_construct(first=-1, second=-1)))
        assert isinstance(invalid, InvalidState)
        assert [issue.path for issue in invalid.issues] == [("first",), ("second",)]
        assert success(await store.list_ids(stricts)) == ("s",)

    async def test_s100_a_bug_in_a_validator_reaches_the_caller(self, world: World) -> None:
        store = (await world.client()).store
        with pytest.raises(RuntimeError, match="a bug in the validator"):
            await store.get_or_create(buggies, "b", Buggy.model_construct(n=13))
        assert isinstance(failure(await store.get(buggies, "b")), StoreNotFound)
        success(await store.get_or_create(buggies, "b", Buggy()))

        def thirteen(buggy: Buggy) -> None:
            buggy.n = 13

        def one(buggy: Buggy) -> None:
            buggy.n = 1

        snapshot = success(await store.get(buggies, "b"))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="a bug in the validator"):
                await store.update(buggies, "b", thirteen, step=STEP)
            with pytest.raises(RuntimeError, match="a bug in the validator"):
                await store.update_from(buggies, "b", snapshot, thirteen)
        updated = success(await store.update(buggies, "b", one, step=STEP))
        assert (updated.version, updated.state) == (1, Buggy(n=1))

    async def test_s148_a_type_that_cannot_be_kept_is_refused_by_name(self, world: World) -> None:
        class WithSecret(BaseModel):
            password: SecretStr

        class WithExcluded(BaseModel):
            hidden: str = Field(default="", exclude=True)

        class WithPrivate(BaseModel):
            _cached: list[int] = PrivateAttr(default_factory=list[int])

        class WithAny(BaseModel):
            anything: Any

        class Unknown:
            pass

        class WithUnknown(BaseModel):
            model_config = ConfigDict(arbitrary_types_allowed=True)
            thing: Unknown

        for type_, name in (
            (WithSecret, "password"),
            (WithExcluded, "hidden"),
            (WithPrivate, "_cached"),
            (WithAny, "anything"),
            (WithUnknown, "thing"),
        ):
            with pytest.raises(TypeError, match=name):
                define_store(f"refused.{name}", type_)

    async def test_s149_a_state_that_fits_no_more_stays_as_it_is(self, world: World) -> None:
        class Before(BaseModel):
            n: int | str = 0

        class Today(BaseModel):
            n: int = 0

        before = StoreDefinition("changed", Before)
        today = StoreDefinition("changed", Today)
        store = (await world.client()).store
        for id in ("bad", "good"):
            success(await store.get_or_create(before, id, Before()))

        def text(state: Before) -> None:
            state.n = "text"

        success(await store.update(before, "bad", text))
        store = (await world.client()).store

        def one(state: Today) -> None:
            state.n = 1

        snapshot = success(await store.get(before, "bad"))
        for outcome in (
            await store.get(today, "bad"),
            await store.get_or_create(today, "bad", Today()),
            await store.update(today, "bad", one, step=STEP),
            await store.update_from(today, "bad", snapshot.revision, one),
        ):
            invalid = failure(outcome)
            assert isinstance(invalid, InvalidState)
            assert invalid.key == StoreKey("changed", "bad")
            assert [issue.path for issue in invalid.issues][:2] == [(), ("n",)]  # what to do, and what is wrong
        assert success(await store.get(before, "bad")) == snapshot
        assert snapshot.state == Before(n="text")
        assert success(await store.update(today, "good", one)).state == Today(n=1)
        success(await store.delete_from(today, "bad", snapshot.revision))
        assert success(await store.list_ids(today)) == ("good",)

    async def test_s150_the_validated_state_is_the_stored_one(self, world: World) -> None:
        store = (await world.client()).store
        unchecked: Any = "1"
        created = success(await store.get_or_create(normals, "n", Normal.model_construct(count=unchecked)))
        assert created.state == Normal(count=1, label="few", tags=["fresh"])

        def coerce(normal: Any) -> None:
            normal.count = "2"

        updated = success(await store.update(normals, "n", coerce))
        assert (updated.state.count, updated.state.label, updated.state.tags) == (2, "many", ["fresh"])
        assert type(updated.state.count) is int
        again = success(await (await world.client()).store.get(normals, "n"))
        assert (again.state, again.version) == (updated.state, 1)

    async def test_s151_a_state_over_the_limit_is_refused(self, world: World) -> None:
        assert Limits().state_bytes == STATE_BYTES == 16 * 1024 * 1024
        store = (await world.client(limits=Limits(state_bytes=100))).store
        success(await store.get_or_create(baskets, "b", Basket("ann")))

        def fill(basket: Basket) -> None:
            basket.skus = ["x" * 100]

        too_large = failure(await store.update(baskets, "b", fill, step=STEP))
        assert isinstance(too_large, TooLarge)
        assert "states.basket/b" in too_large.what
        assert (too_large.limit_bytes, 100 < too_large.size_bytes < 200) == (100, True)
        snapshot = success(await store.get(baskets, "b"))
        assert (snapshot.version, snapshot.state) == (0, Basket("ann"))
        too_large = failure(await store.get_or_create(baskets, "new", Basket("x" * 100)))
        assert isinstance(too_large, TooLarge)
        assert success(await store.list_ids(baskets)) == ("b",)

        def little(basket: Basket) -> None:
            basket.skus.append("y")

        assert success(await store.update(baskets, "b", little, step=STEP)).state == Basket("ann", ["y"])

    async def test_what_is_over_the_limit_already_can_be_read_and_deleted(self, world: World) -> None:
        store = (await world.client()).store
        success(await store.get_or_create(baskets, "b", Basket("x" * 1_000)))
        store = (await world.client(limits=Limits(state_bytes=100))).store
        assert success(await store.get(baskets, "b")).state == Basket("x" * 1_000)
        assert success(await store.get_or_create(baskets, "b", Basket(""))).state == Basket("x" * 1_000)
        success(await store.delete(baskets, "b"))

    async def test_an_issue_is_a_path_and_a_message(self, world: World) -> None:
        store = (await world.client()).store
        initial: Any = {"messages": [{"id": "one"}, {"id": 2}]}
        invalid = failure(await store.get_or_create(chats, "c", initial))
        assert isinstance(invalid, InvalidState)
        (issue,) = invalid.issues
        assert isinstance(issue, Issue)
        assert issue.path == ("messages", 1, "id")
        assert issue.message
