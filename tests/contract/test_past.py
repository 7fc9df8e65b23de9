"""Earlier revisions, one after another: each is what its document says, and few documents are read."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs
from pydantic import BaseModel, field_validator

from stepwell import ManualClock, Outcome, Revision, Store, StoreDefinition, StoreKey, Success, Unavailable, build, get
from stepwell.core.batch import Batch, CreateStore, CutLog, PatchStore, StoreAbsent, StoreAt, WriteBase
from stepwell.core.damage import Damaged, read_held
from stepwell.core.retention import StoredChange
from stepwell.layers import ids, wake_bus
from stepwell.layers import ledger as ledgers
from stepwell.layers import store as stores
from stepwell.layers.past import Past
from stepwell.layers.revisions import LedgerRevisions
from stepwell.services.ledger import Ledger

from .engine_reads_contract import Reading, Table, change, full, tables, validated
from .store_world import failure, given_clock, success

KEY = tables.key("t")
LAST = 12


class World:
    """A table at version `LAST`, and a ledger that counts what is read of it."""

    def __init__(self, ledger: Ledger, store: Store, clock: ManualClock) -> None:
        self.ledger = Reading(ledger)
        self.store = store
        self.clock = clock
        self.past = Past(self.ledger)
        self.instance_id = ""

    async def make(self, last: int = LAST) -> None:
        self.instance_id = success(await self.store.get_or_create(tables, "t", full)).instance_id
        for version in range(1, last + 1):
            success(await self.store.update(tables, "t", change(version)))

    def revision(self, version: int) -> Revision:
        return Revision(self.instance_id, version)

    async def read(self, version: int, past: Past | None = None) -> Table | None:
        """The state as it is remembered, which is the one in its document; None if it is not kept."""
        revision = self.revision(version)
        held = success(await (past or self.past).at(KEY, revision))
        document = success(await self.ledger.real.document(KEY, revision))
        if held is None or document is None:
            assert held is None
            assert document is None
            return None
        state = success(held.read(tables.schema))
        assert held.revision == revision
        assert state == success(success(read_held(KEY, document)).read(tables.schema))
        return state

    async def counts(self, versions: range) -> list[int]:
        """How often the document of each of these versions was read."""
        found: list[int] = []
        for version in versions:
            before = self.ledger.documents
            assert await self.read(version) is not None
            found.append(self.ledger.documents - before)
        return found


@asynccontextmanager
async def opened(host: str, path: Path) -> AsyncGenerator[World]:
    clock = ManualClock(1_700_000_000_000)
    ledger = ledgers.layer_test() if host == "memory" else ledgers.layer(path, durability="normal")
    services = ledger | given_clock(clock) | ids.layer_test() | wake_bus.layer_test() | stores.layer_test()
    async with build(services) as built:
        env = success(built)
        yield World(get(env, Ledger), get(env, Store), clock)


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    async with opened(str(request.param), tmp_path / "app.db") as made:
        await made.make()
        yield made


async def test_those_that_follow_are_read_by_their_patches(world: World) -> None:
    validated.clear()
    assert await world.counts(range(LAST + 1)) == [1] + [0] * LAST
    assert await world.counts(range(LAST, LAST + 1)) == [0]


async def test_what_lies_below_or_far_off_is_read_whole(world: World) -> None:
    assert await world.counts(range(LAST, -1, -1)) == [1] * (LAST + 1)
    for version in range(LAST + 1, 60):
        success(await world.store.update(tables, "t", change(version)))
    world.past = Past(world.ledger)
    near, far = 7, 50
    assert await world.counts(range(1)) == [1]
    assert await world.counts(range(near, near + 1)) == [0]
    assert await world.counts(range(far, far + 1)) == [1]


async def test_two_who_read_side_by_side_have_a_place_each(world: World) -> None:
    for version in range(LAST + 1, 60):
        success(await world.store.update(tables, "t", change(version)))
    held = success(await world.past.at(KEY, world.revision(0)))
    assert held is not None
    world.past = Past(world.ledger, max_bytes=held.size_bytes * 5 // 2)
    found: list[int] = []
    for first, second in zip(range(50, 58), range(8), strict=True):
        found += await world.counts(range(first, first + 1)) + await world.counts(range(second, second + 1))
    assert found == [1, 1] + [0] * 14


async def test_what_a_deleted_instance_left_is_followed_too(world: World) -> None:
    success(await world.store.delete(tables, "t"))
    success(await world.store.get_or_create(tables, "t", full))
    assert await world.counts(range(LAST + 1)) == [1] + [0] * LAST


async def test_what_was_erased_is_not_remembered(world: World) -> None:
    for version in (3, 4):
        assert await world.read(version) is not None
    success(await LedgerRevisions(world.ledger.real, world.clock).purge(tables, "t"))
    for version in (3, 4, 5):
        assert await world.read(version) is None


async def test_where_the_history_has_a_gap_the_document_is_read(world: World) -> None:
    assert await world.read(6) is not None
    above, *cut, below = [success(await world.ledger.document(KEY, world.revision(at))) for at in range(10, 5, -1)]
    assert above is not None
    assert below is not None
    base = success(success(read_held(KEY, above)).read(tables.schema))
    seqs = tuple(each.seq for each in cut if each is not None)
    writes = (
        WriteBase(above.seq, tables.schema.encode(base)),
        CutLog(KEY, above.seq, seqs, below.seq, world.instance_id),
    )
    success(await world.ledger.commit(Batch((), writes)))
    for version in (11, 6, 8, 10, 12):
        found = await world.read(version)
        assert (found is None) == (version == 8)


async def test_a_patch_that_leads_astray_is_damage(world: World) -> None:
    class Garbling(Reading):
        async def revisions(
            self,
            key: StoreKey,
            *,
            limit: int = 100,
            before: Revision | StoredChange | None = None,
            patches: bool = True,
        ) -> Outcome[tuple[StoredChange, ...], Unavailable]:
            rows = await super().revisions(key, limit=limit, before=before, patches=patches)
            return Success(tuple(structs.replace(row, patch=b'[["=",["rows",999],1]]') for row in success(rows)))

    past = Past(Garbling(world.ledger.real))
    held = success(await past.at(KEY, world.revision(0)))
    assert held is not None
    success(held.read(tables.schema))
    found = failure(await past.at(KEY, world.revision(1)))
    assert isinstance(found, Damaged)
    assert "the stored history of tables/t is damaged at version 1" in found.reason


@pytest.mark.parametrize(("states", "documents"), [(2.5, 0), (1.5, 1), (0, 1)])
async def test_only_so_much_is_remembered(world: World, states: float, documents: int) -> None:
    """Version 4 was read after version 8, and takes its place where there is room for one: one always is."""
    held = success(await world.past.at(KEY, world.revision(0)))
    assert held is not None
    world.past = Past(world.ledger, max_bytes=int(held.size_bytes * states))
    for version in (8, 4):
        assert await world.counts(range(version, version + 1)) == [1]
    assert await world.counts(range(5, 6)) == [0]
    world.ledger.documents = 0
    for version in (9, 6, 10):
        _ = await world.read(version)
    assert world.ledger.documents == documents


async def test_who_follows_one_store_takes_no_room_from_another(world: World) -> None:
    other = success(await world.store.get_or_create(tables, "other", full))
    key = tables.key("other")
    held = success(await world.past.at(key, other.revision))
    assert held is not None
    world.past = Past(world.ledger, max_bytes=held.size_bytes * 5 // 2)
    _ = success(await world.past.at(key, other.revision))
    assert await world.counts(range(LAST + 1)) == [1] + [0] * LAST
    world.ledger.documents = 0
    assert success(await world.past.at(key, other.revision)) is not None
    assert world.ledger.documents == 0


# --- what is not written as it is read ------------------------------------------------


class Sorted(BaseModel):
    names: list[str] = []

    @field_validator("names")
    @classmethod
    def in_order(cls, names: list[str]) -> list[str]:
        return sorted(names)


NAMES = [f"name {at:04d}" for at in range(500)]


async def test_a_document_that_is_read_as_something_else_is_not_followed(tmp_path: Path) -> None:
    """Its patches are of the document, whose names are in another order than those that are read."""
    lists = StoreDefinition("lists", Sorted)
    key, first, second = lists.key("l"), Revision("one", 0), Revision("one", 1)
    document = json.dumps({"names": NAMES[::-1]}, separators=(",", ":")).encode()
    patch = b'[["=",["names",0],"name 9999"]]'
    async with opened("memory", tmp_path) as world:
        made = CreateStore(key, first, document, lists.schema.form)
        success(await world.ledger.commit(Batch((StoreAbsent(key, first),), (made,))))
        changed = PatchStore(key, second, patch)
        success(await world.ledger.commit(Batch((StoreAt(key, first),), (changed,))))
        names: list[list[str]] = []
        for revision in (first, second):
            held = success(await world.past.at(key, revision))
            assert held is not None
            names.append(success(held.read(lists.schema)).names)
    assert names == [NAMES, [*NAMES[:-1], "name 9999"]]


def at_most_three(old: dict[str, int]) -> object:
    return {**old, "changes": min(old["changes"], 3)}


newer = StoreDefinition("tables", Table, version=2, upcasters={1: at_most_three})


async def test_what_an_older_form_left_is_not_followed_in_the_newer_one(world: World) -> None:
    """Its patches are of the older form."""
    for version in range(LAST + 1):
        held = success(await world.past.at(KEY, world.revision(version)))
        assert held is not None
        assert success(held.read(newer.schema)).changes == min(version, 3)


async def test_what_a_newer_form_left_is_not_followed_from_the_older_one(world: World) -> None:
    assert await world.read(LAST) is not None
    success(await world.store.update(newer, "t", change(0)))
    held = success(await world.past.at(KEY, world.revision(LAST + 1)))
    assert held is not None
    assert success(held.read(newer.schema)).changes == 4
    assert "written by a newer program" in failure(held.read(tables.schema))[0].message
