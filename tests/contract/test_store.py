"""The store over each ledger keeps its contract."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from stepwell import ManualClock, StoreKey
from stepwell.core.patch import replay_json

from .store_apply_contract import StoreApplyContract
from .store_contract import StoreContract, messages, run_process
from .store_form_contract import StoreFormContract
from .store_state_contract import StoreStateContract
from .store_take_contract import StoreTakeContract, claim_by, first_unclaimed
from .store_when_contract import LATE_S, StoreWhenContract
from .store_world import Chat, Host, World, append, chats, empty, open_world, success


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = request.param
    async with open_world(host, tmp_path) as opened:
        yield opened


class TestStore(StoreContract):
    """Identity, updates, receipts, conditional changes."""


class TestStoreStates(StoreStateContract):
    """What updaters may do, and what states may be."""


class TestStoreForms(StoreFormContract):
    """States of earlier forms of their type, and earlier revisions."""


class TestStoreTake(StoreTakeContract):
    """What is taken, by whom, and what a selector and a claim may be."""


class TestStoreWhen(StoreWhenContract):
    """Waiting in memory until a selector finds something."""


class TestStoreApply(StoreApplyContract):
    """What the engine joins."""


@pytest.mark.parametrize("host", ["S12-sqlite"])
async def test_a_new_file_in_new_folders_and_a_second_writer(tmp_path: Path, host: str) -> None:
    """The folders are made, the journal is a write-ahead log, and a writer waits for another instead of failing."""
    path = tmp_path / "some" / "new" / "folders"
    async with open_world("sqlite", path) as world:
        store = (await world.client()).store
        assert success(await store.get_or_create(chats, "c", empty())).version == 0
        other = apsw.Connection(str(world.path))
        assert other.execute("pragma journal_mode").fetchall() == [("wal",)]
        other.execute("begin immediate").fetchall()
        update = asyncio.create_task(store.update(chats, "c", append("x")))
        done, _ = await asyncio.wait({update}, timeout=0.2)
        assert not done
        other.execute("rollback").fetchall()
        other.close()
        assert success(await update).version == 1


@pytest.mark.parametrize("host", ["S14-sqlite"])
async def test_two_processes_that_update_one_store_lose_nothing(tmp_path: Path, host: str) -> None:
    async with open_world("sqlite", tmp_path) as world:
        store = (await world.client()).store
        success(await store.get_or_create(chats, "c", empty()))
        await asyncio.gather(*(run_process("update", world.path, name) for name in ("one", "two")))
        version, ids = await messages(store)
        assert version == 200
        for name in ("one", "two"):
            for number in range(5):
                own = [id for id in ids if id.startswith(f"{name}-{number}-")]
                assert own == [f"{name}-{number}-{turn}" for turn in range(20)]


async def test_a_commit_of_another_process_ends_a_wait_and_is_taken_once(tmp_path: Path) -> None:
    """Time stands still here, so that no poll can find it."""
    async with open_world("sqlite", tmp_path) as world:
        handle = (await world.client(clock=ManualClock())).store.handle(chats, "c")
        success(await handle.get_or_create(empty()))
        wait = asyncio.create_task(handle.when(first_unclaimed))
        await run_process("update_from", world.path, "x")
        assert success(await asyncio.wait_for(wait, LATE_S)) == {"id": "x"}
        assert success(await handle.take(first_unclaimed, claim_by("me"))).selected["id"] == "x"


async def test_two_processes_that_take_from_one_store_get_each_item_once(tmp_path: Path) -> None:
    async with open_world("sqlite", tmp_path) as world:
        store = (await world.client()).store
        chat: Chat = {"messages": [{"id": str(number)} for number in range(60)]}
        success(await store.get_or_create(chats, "c", chat))
        await asyncio.gather(*(run_process("take", world.path, name) for name in ("one", "two")))
        snapshot = success(await store.get(chats, "c"))
        assert snapshot.version == 60
        workers = [message.get("claimed_by", "") for message in snapshot.state["messages"]]
        for name in ("one", "two"):
            assert sorted(worker for worker in workers if worker.startswith(name)) == sorted(
                f"{name}-{number}" for number in range(30)
            )


async def test_two_processes_of_two_versions_lose_nothing(tmp_path: Path) -> None:
    """The older program goes on until the newer one has changed the state, and not one change longer."""
    script = Path(__file__).with_name("form_process.py")
    command = (sys.executable, str(script))
    old = await asyncio.create_subprocess_exec(*command, "old", str(tmp_path / "app.db"), stdout=subprocess.PIPE)
    assert old.stdout is not None
    assert await old.stdout.readline() == b"begun\n"
    new = await asyncio.create_subprocess_exec(*command, "new", str(tmp_path / "app.db"), stdout=subprocess.PIPE)
    (by_old, _), (by_new, _) = await asyncio.gather(old.communicate(), new.communicate())
    assert (old.returncode, new.returncode) == (0, 0)
    async with open_world("sqlite", tmp_path) as world:
        ledger = (await world.client()).ledger
        document = success(await ledger.document(StoreKey("counters", "c")))
        assert document is not None
        state = json.loads(replay_json(document.base, document.patches))
        assert state == {"count": int(by_old) + int(by_new), "program": "new"}
        assert document.revision.version == state["count"]
        assert document.form is not None
        assert document.form.version == 2
