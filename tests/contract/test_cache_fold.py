"""The fold of the step cache on each host, and its absence."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from stepwell import Failure, Layer, Ledger, ManualClock, Success, Unavailable, build, get
from stepwell.core.cache_fold import PROJECTION, State, candidates
from stepwell.core.cache_verdict import Explanation
from stepwell.core.journal import Checkpoint
from stepwell.layers import cache_fold, clock, journal, step_cache
from stepwell.layers import ledger as ledgers
from stepwell.layers.cache_fold import LedgerCacheFold
from stepwell.layers.journal import Compaction
from stepwell.services.cache_fold import CacheFold
from stepwell.services.journal import Journal
from stepwell.services.step_cache import StepCache

from .cache_fold_contract import CacheFoldContract
from .cache_world import HOSTS, Host, World, counts, entry_of, good, opened, row
from .ledger_double import LedgerDouble


@pytest.fixture(params=HOSTS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    host: Host = "sqlite" if request.param == "sqlite" else "memory"
    async with opened(host, tmp_path / "app.db") as made:
        yield made


class TestCacheFold(CacheFoldContract):
    pass


# --- with the journal ---------------------------------------------------------------


async def test_f16_a_run_that_is_projected_is_what_its_entries_are_reduced_to(world: World) -> None:
    first = await world.put("k", seq=1)
    _ = await world.cache.evict("k")
    await world.say("a", "expired", first)
    second = await world.put("k", seq=2)
    projected = good(await world.journal.project("a", PROJECTION))
    by_hand = PROJECTION.initial()
    for entry in good(await world.journal.entries("a")).entries:
        by_hand = PROJECTION.reduce(by_hand, entry)
    assert projected == by_hand == State([first, second], [first])
    assert candidates(projected) == (second,)


async def test_j47_what_is_carried_is_no_part_of_a_checkpoints_state(world: World) -> None:
    ref = await world.put("k")
    _ = good(await world.journal.append("a", "another", {}))
    state = {"mine": [1, 2.5, None]}
    _ = good(await world.journal.checkpoint("a", 2, state))
    before = good(await world.journal.latest_checkpoint("a"))
    assert before == Checkpoint("a", 2, state, None)
    assert good(await world.journal.compact("a")) == 2
    after = good(await world.journal.latest_checkpoint("a"))
    assert after is not None
    assert after.state == state
    assert (await world.rebuilt()).keys == (Explanation("k", "restored", ref),)


@pytest.mark.parametrize("host", HOSTS)
async def test_f34_an_automatic_compaction_loses_no_head(host: Host, tmp_path: Path) -> None:
    async def capture(run_id: str, seq: int) -> object:
        return f"{run_id} up to {seq}"

    async with opened(host, tmp_path / "app.db", Compaction(5, capture)) as world:
        ref = await world.put("k")
        for number in range(4):
            _ = good(await world.journal.append("a", "another", {"n": number}))
        assert [entry.event_type for entry in await world.entries("a")] == ["another", "another"]
        assert counts(await world.rebuilt()) == {"runs": 1, "compacted": 1, "admitted": 1, "heads": 1}
        assert await world.heads() == {"k": ref}


@pytest.mark.parametrize("layer", [cache_fold.layer, cache_fold.layer_test])
@pytest.mark.parametrize("host", HOSTS)
async def test_the_layer_folds_the_journals_of_the_ledger_beside_it(
    host: Host, layer: Callable[[], Layer[CacheFold, Journal | Ledger | StepCache]], tmp_path: Path
) -> None:
    kept = ledgers.layer_test() if host == "memory" else ledgers.layer(tmp_path / "app.db")
    app = layer() | step_cache.layer() | journal.layer() | kept | clock.layer_test(ManualClock())
    async with build(app) as built:
        env = built.unwrap()
        _ = good(await get(env, StepCache).put(entry_of(row("k"))))
        assert good(await get(env, CacheFold).rebuild()).keys == (Explanation("k", "restored", row("k")),)


# --- with another process -----------------------------------------------------------


async def test_a_rebuild_beside_other_processes_loses_nothing(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        lost = await world.put("lost")
        await world.set_head("lost")
        _ = await world.cache.write_back(entry_of(row("foreign", "elsewhere", 1)))
        others = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, str(Path(__file__).with_name("cache_process.py"))),
                *(str(world.path), run, "60"),
                stdout=asyncio.subprocess.PIPE,
            )
            for run in ("b", "c")
        ]
        running = asyncio.gather(*(other.communicate() for other in others))
        rebuilds = 0
        while not running.done():
            if isinstance(await world.fold.rebuild(), Success):
                rebuilds += 1
            _ = await world.fold.verify()
            await asyncio.sleep(0)
        assert [other.returncode for other in others] == [0, 0]
        wanted = {"lost": lost}
        for (said, _), run in zip(await running, ("b", "c"), strict=True):
            for line in said.decode().splitlines():
                key, seq = line.split()
                wanted[key] = row(key, run, int(seq))
        assert len(wanted) == 81
        assert rebuilds > 0
        before = {key: ref for key, ref in (await world.heads()).items() if key != "lost"}
        assert before == {key: ref for key, ref in wanted.items() if key != "lost"}
        assert (await world.rebuilt()).heads == 81
        assert await world.heads() == wanted


# --- absence ------------------------------------------------------------------------


async def absent(fold: CacheFold) -> None:
    for refused in (await fold.rebuild(), await fold.verify(), await fold.explain("k")):
        assert isinstance(refused, Failure)
        failure = refused.failure()
        assert isinstance(failure, Unavailable)
        assert failure.applied == "no"


async def test_no_cache_fold_says_so_whatever_it_is_asked() -> None:
    async with build(cache_fold.layer_noop()) as built:
        await absent(get(built.unwrap(), CacheFold))


async def test_a_ledger_that_keeps_no_journals_says_so() -> None:
    async with build(ledgers.layer_test() | clock.layer_test(ManualClock())) as built:
        await absent(LedgerCacheFold(LedgerDouble(get(built.unwrap(), Ledger))))


async def test_f38_heads_that_were_changed_by_raw_sql_are_told(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        refs = {key: await world.put(key, "a", 1) for key in ("deleted", "altered", "same")}
        other = await world.put("altered", "b", 2, "another")
        world.execute("delete from cache_head where key = 'deleted'")
        world.execute("update cache_head set run_id = 'b', seq = 2 where key = 'altered'")
        world.execute("insert into cache_head (key, run_id, seq, created_at_ms) values ('inserted', 'c', 0, 0)")
        assert (await world.heads())["altered"] == other
        verification = good(await world.fold.verify())
        assert {each.key_digest: each.difference for each in verification.keys} == {
            "altered": "different",
            "deleted": "missing",
            "inserted": "extra",
            "same": "matching",
        }
        _ = await world.rebuilt()
        assert await world.heads() == refs


@pytest.mark.parametrize("damage", ["update journal set carried = null", "update journal set carried = x'00'"])
async def test_f35_a_carried_part_that_was_damaged_proves_nothing(tmp_path: Path, damage: str) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        _ = await world.put("k", "a")
        await world.tell("a", {}, "another")
        await world.compact("a", 2)
        world.execute(damage)
        assert await world.verdicts() == {"k": "unproven"}
        assert await world.heads() == {}


async def test_a_row_that_was_damaged_on_the_disk_is_told_by_a_comparison(tmp_path: Path) -> None:
    async with opened("sqlite", tmp_path / "app.db") as world:
        _ = await world.put("k")
        world.execute("update recorded set result = x'7b'")
        (told,) = good(await world.fold.verify()).keys
        assert (told.verdict, told.difference, told.reason) == ("restored", "matching", "damaged")
