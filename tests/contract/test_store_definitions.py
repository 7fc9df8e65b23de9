"""Definitions, keys and handles: what names a store, and the calls bound to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Conflict, Deleted, Revision, StepId, StoreHandle, StoreKey, StoreNotFound, define_store

from .store_world import append, chats, empty, failure, ids_of, open_world, success

LONGEST = "é" * 256
"""512 bytes of UTF-8."""


def test_two_definitions_of_one_name_are_refused() -> None:
    first = define_store("definitions.twice", dict[str, int])
    with pytest.raises(ValueError, match=r"definitions\.twice"):
        define_store("definitions.twice", dict[str, int])
    assert (first.name, first.type_) == ("definitions.twice", dict[str, int])
    assert "definitions.twice" in repr(first)


def test_a_definition_that_nobody_has_any_more_does_not_count() -> None:
    define_store("definitions.dropped", dict[str, int])
    again = define_store("definitions.dropped", list[int])
    assert again.type_ == list[int]


def split(old: str) -> object:
    return old.split()


def test_a_definition_has_a_version_and_a_fingerprint() -> None:
    plain = define_store("definitions.plain", dict[str, int])
    later = define_store("definitions.later", dict[str, int], version=3, upcasters={1: split, 2: split})
    assert (plain.form.version, later.form.version) == (1, 3)
    assert plain.form.fingerprint == later.form.fingerprint == plain.schema.form.fingerprint
    assert repr(plain) == "define_store('definitions.plain', dict[str, int])"
    assert repr(later) == "define_store('definitions.later', dict[str, int], version=3)"


@pytest.mark.parametrize(
    ("version", "upcasters", "error", "message"),
    [
        (0, None, ValueError, "version=0 is not positive: the first form of a type is version 1"),
        (True, None, TypeError, "version=True is no whole number"),
        (2, [split], TypeError, "is no dict: write upcasters="),
        (1, {1: split}, ValueError, "upcasters has the key 1, and version is 1: .* give version=2 or more"),
        (2, {1: "split"}, TypeError, r"upcasters\[1\] is a function, not 'split'"),
    ],
)
def test_versions_and_upcasters_that_cannot_be_leave_the_name_free(
    version: Any, upcasters: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        define_store("definitions.wrong", list[str], version=version, upcasters=upcasters)
    assert define_store("definitions.wrong", list[str], version=2, upcasters={1: split}).form.version == 2


def test_names_and_ids_have_1_to_512_bytes() -> None:
    longest = define_store(LONGEST, dict[str, int])
    assert longest.key(LONGEST) == StoreKey(LONGEST, LONGEST)


NAMERS: list[Callable[[str], object]] = [
    lambda name: define_store(name, dict[str, int]),
    chats.key,
    lambda name: StoreKey(name, "id"),
    lambda name: StepId(name, "key"),
    lambda name: StepId("run", name),
]


@pytest.mark.parametrize("name", ["", "x" * 513, "é" * 257, "a\0b", "\ud800"])
@pytest.mark.parametrize("namer", NAMERS)
def test_other_names_are_refused(name: str, namer: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"bytes|NUL|Unicode"):
        namer(name)


async def test_a_call_with_an_id_that_is_none_is_refused(tmp_path: Path) -> None:
    async with open_world("memory", tmp_path) as world:
        store = (await world.client()).store
        with pytest.raises(ValueError, match="a store's id"):
            store.handle(chats, "")
        with pytest.raises(ValueError, match="a store's id"):
            await store.get(chats, "")
        with pytest.raises(ValueError, match="a store's id"):
            await store.update(chats, "a\0b", append("x"))


async def test_a_handle_makes_the_same_calls(tmp_path: Path) -> None:
    async with open_world("memory", tmp_path) as world:
        store = (await world.client()).store
        chat = store.handle(chats, "c")
        assert isinstance(chat, StoreHandle)
        assert (chat.id, chat.definition, repr(chat)) == ("c", chats, "StoreHandle(chat/c)")
        assert isinstance(failure(await chat.get()), StoreNotFound)
        created = success(await chat.get_or_create(empty))
        step = StepId("run", "key")
        updated = success(await chat.update(append("x"), step=step))
        assert success(await chat.update(append("x"), step=step)) == updated
        assert isinstance(failure(await chat.update_from(created, append("y"))), Conflict)
        further = success(await chat.update_from(updated.revision, append("y"), step=StepId("run", "other")))
        assert ids_of(success(await chat.get()).state) == ["x", "y"]
        assert success(await store.get(chats, "c")).revision == further.revision
        assert success(await chat.delete_from(further.revision, step=StepId("run", "end"))) == Deleted()
        assert success(await chat.delete()) is None
        missing = failure(await chat.update_from(Revision("any", 0), append("z")))
        assert missing == StoreNotFound(StoreKey("chat", "c"), expected=Revision("any", 0))
