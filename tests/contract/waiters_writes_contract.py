"""Who is woken by what an updater has written, on every host."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typing_extensions import TypedDict

from stepwell import Revision, StoreKey, define_store
from stepwell.core import draft
from stepwell.core.model import Path, Paths
from stepwell.core.paths import SHAPE

from .store_world import success
from .waiters_world import Client, World, turns


class Note(TypedDict):
    id: str


class Profile(TypedDict):
    name: str
    tags: dict[str, int]


class Desk(TypedDict):
    messages: list[Note]
    status: str
    profile: Profile


desks = define_store("desk", Desk)

DESK = StoreKey("desk", "d")
MESSAGES: Path = ("messages",)
TAGS: Path = ("profile", "tags")


def base(tags: dict[str, int] | None = None) -> Desk:
    notes: list[Note] = [{"id": f"msg-{number}"} for number in range(1, 5)]
    return {"messages": notes, "status": "idle", "profile": {"name": "dan", "tags": tags or {}}}


def ids_of(state: Desk) -> list[str]:
    return [note["id"] for note in state["messages"]]


async def begin(client: Client, state: Desk, **readers: Paths) -> None:
    """The desk is there, and the runs of these names have read these paths of it."""
    created = success(await client.store.get_or_create(desks, "d", state))
    for run_id, read_paths in readers.items():
        _ = await client.register(run_id, created.revision, read_paths, key=DESK)


async def write(client: Client, updater: Callable[[Desk], None], *woken: str) -> tuple[Desk, Revision]:
    """The state after an update, which woke exactly these runs, once each."""
    updated = success(await client.store.update(desks, "d", updater))
    await client.wakes.until(delivered=len(woken))
    assert sorted(client.wakes.attempts) == sorted(woken)
    return updated.state, updated.revision


def set_slice(desk: Desk) -> None:
    desk["messages"][1:3] = [{"id": "new"}]


def add_in_place(desk: Desk) -> None:
    more: list[Note] = [{"id": "new"}]
    desk["messages"] += more


def repeat_in_place(desk: Desk) -> None:
    desk["messages"] *= 2


def merge_in_place(desk: Desk) -> None:
    desk["profile"]["tags"] |= {"a": 5, "c": 3}


WRITES: dict[str, tuple[Path, Callable[[Desk], object]]] = {
    "setdefault": (TAGS, lambda desk: desk["profile"]["tags"].setdefault("c", 3)),
    "merge": (TAGS, merge_in_place),
    "popitem": (TAGS, lambda desk: desk["profile"]["tags"].popitem()),
    "dict-clear": (TAGS, lambda desk: desk["profile"]["tags"].clear()),
    "slice": (MESSAGES, set_slice),
    "insert": (MESSAGES, lambda desk: desk["messages"].insert(1, {"id": "new"})),
    "remove": (MESSAGES, lambda desk: desk["messages"].remove({"id": "msg-2"})),
    "sort": (MESSAGES, lambda desk: desk["messages"].sort(key=lambda note: note["id"], reverse=True)),
    "reverse": (MESSAGES, lambda desk: desk["messages"].reverse()),
    "clear": (MESSAGES, lambda desk: desk["messages"].clear()),
    "add": (MESSAGES, add_in_place),
    "repeat": (MESSAGES, repeat_in_place),
}


class WritesContract:
    """The wake is as precise as what was read, and never missed."""

    async def test_s78_an_append_is_the_new_element_and_the_shape(self, world: World) -> None:
        def append(desk: Desk) -> None:
            desk["messages"].append({"id": "msg-5"})

        changed = draft.apply(base(), append).changed_paths
        assert set(changed) == {("messages", 4), ("messages", SHAPE)}
        client = await world.client()
        await begin(client, base(), whole=(MESSAGES,), length=(("messages", SHAPE),), first=(("messages", 0),))
        state, _ = await write(client, append, "whole", "length")
        assert len(state["messages"]) == 5

    async def test_s79_a_pop_changes_all_elements_behind_it(self, world: World) -> None:
        def pop(desk: Desk) -> None:
            _ = desk["messages"].pop(1)

        client = await world.client()
        readers: dict[str, Paths] = {f"reads-{at}": (("messages", at),) for at in (1, 2, 3)}
        await begin(client, base(), before=(("messages", 0, "id"),), **readers)
        state, _ = await write(client, pop, *readers)
        assert ids_of(state) == ["msg-1", "msg-3", "msg-4"]

    async def test_s80_a_pop_of_the_first_changes_every_element(self, world: World) -> None:
        def pop(desk: Desk) -> None:
            _ = desk["messages"].pop(0)

        client = await world.client()
        await begin(client, base(), first=(("messages", 0),), third=(("messages", 2),), status=(("status",),))
        _ = await write(client, pop, "first", "third")

    async def test_s81_an_update_of_a_dict_is_each_of_its_keys(self, world: World) -> None:
        def update(desk: Desk) -> None:
            desk["profile"]["tags"].update(a=1, b=2)

        assert {(*TAGS, "a"), (*TAGS, "b")} <= set(draft.apply(base(), update).changed_paths)
        client = await world.client()
        await begin(
            client, base(), a=((*TAGS, "a"),), b=((*TAGS, "b"),), c=((*TAGS, "c"),), name=(("profile", "name"),)
        )
        _ = await write(client, update, "a", "b")

    @pytest.mark.parametrize("name", WRITES)
    async def test_s82_every_way_to_write_is_recorded(self, world: World, name: str) -> None:
        where, change = WRITES[name]

        def updater(desk: Desk) -> None:
            _ = change(desk)

        plain = base({"a": 1, "b": 2})
        _ = change(plain)
        client = await world.client()
        await begin(client, base({"a": 1, "b": 2}), whole=(where,), status=(("status",),))
        state, _ = await write(client, updater, "whole")
        assert state == plain
        assert state != base({"a": 1, "b": 2})

    async def test_s83_three_writes_of_one_field_are_one_changed_path(self, world: World) -> None:
        def thrice(desk: Desk) -> None:
            for status in ("one", "two", "three"):
                desk["status"] = status

        assert draft.apply(base(), thrice).changed_paths == (("status",),)
        client = await world.client()
        await begin(client, base(), status=(("status",),), whole=(MESSAGES,))
        state, _ = await write(client, thrice, "status")
        assert state["status"] == "three"

    async def test_s84_the_same_value_again_is_a_new_version_of_an_equal_state(self, world: World) -> None:
        def same(desk: Desk) -> None:
            desk["status"] = "idle"

        client = await world.client()
        await begin(client, base(), whole=(MESSAGES,))
        updated = success(await client.store.update(desks, "d", same))
        assert (updated.state, updated.previous_version, updated.version) == (base(), 0, 1)
        await turns()
        assert client.wakes.attempts == []
