"""`journal`, `journal verify`, `cache` and `store purge` in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import apsw
import pytest

import stepwell

from .shell import SHOP, Shell


@pytest.fixture
def ran(shell: Shell) -> Shell:
    assert shell("run", f"{SHOP}:greet", '"Ada"', "--id", "one").code == 0
    return shell


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_journal_is_shown_in_order(ran: Shell) -> None:
    shown = lines(ran("journal", "one", "--json").out)
    assert [each["seq"] for each in shown] == list(range(len(shown)))
    assert shown[0]["event_type"] == "stepwell.run-started"
    assert shown[-1]["event_type"] == "stepwell.run-completed"
    assert {each["run_id"] for each in shown} == {"one"}
    assert [line.split()[0] for line in ran("journal", "one").out.splitlines()] == [str(each["seq"]) for each in shown]


def test_a_part_of_it(ran: Shell) -> None:
    everything = lines(ran("journal", "one", "--json").out)
    assert lines(ran("journal", "one", "--json", "--after", "0").out) == everything[1:]
    first = ran("journal", "one", "--json", "--limit", "1")
    assert lines(first.out) == everything[:1]
    assert ran("journal", "one", "--limit", "1").err == "there are more: --after 0\n"
    only = lines(ran("journal", "one", "--json", "--type", "stepwell.run-completed").out)
    assert only == everything[-1:]
    assert ran("journal", "one", "--json", "--type", "nothing").out == ""


def test_followed_it_ends_with_its_run(ran: Shell) -> None:
    assert ran("journal", "one", "--follow", "--json").out == ran("journal", "one", "--json").out


def test_followed_it_goes_on_with_a_run_that_waits(shell: Shell) -> None:
    told: list[str] = []
    with shell.begin("run", f"{SHOP}:waits", "--id", "late") as running:
        while shell("journal", "late").code:
            pass
        with shell.begin("journal", "late", "--follow", "--json", "--db", "stepwell.db") as following:
            assert following.stdout is not None
            for line in following.stdout:
                told.append(json.loads(line)["event_type"])
                if told[-1] == "stepwell.run-waiting":
                    break
            following.kill()
        running.kill()
    assert (told[0], told[-1]) == ("stepwell.run-started", "stepwell.run-waiting")


def test_a_run_that_is_not_there_is_told(ran: Shell) -> None:
    said = ran("journal", "nobody", "--json")
    assert (said.code, said.error["code"]) == (1, "run_not_found")


def test_wrong_usage(ran: Shell) -> None:
    assert ran("journal").code == 2
    assert ran("journal", "one", "--limit", "0").code == 2
    assert ran("journal", "one", "--after", "x").code == 2
    assert ran("journal", "one", "--follow", "--limit", "1").code == 2
    assert ran("cache").code == 2
    assert ran("cache", "explain").code == 2


def test_help_names_the_commands_of_a_command(ran: Shell) -> None:
    for words in (("journal", "--help"), ("store", "--help")):
        said = ran(*words)
        assert said.code == 0
        assert f"Usage: stepwell {words[0]} [OPTIONS]" in said.out
    assert "stepwell journal verify --help" in ran("journal", "--help").out
    assert "Usage: stepwell journal verify [OPTIONS] [ID]" in ran("journal", "verify", "--help").out
    assert "Usage: stepwell store purge [OPTIONS] NAME" in ran("store", "purge", "--help").out


# --- verify -----------------------------------------------------------------


def test_a_whole_journal_is_verified(ran: Shell) -> None:
    entries = len(ran("journal", "one", "--json").out.splitlines())
    assert ran("journal", "verify", "--json").json == {"runs": 1, "entries": entries}
    assert ran("journal", "verify", "one").out == f"{entries} entries of 1 run are as they were written\n"


def test_what_was_changed_is_named(ran: Shell) -> None:
    connection = apsw.Connection(str(ran.folder / "stepwell.db"))
    connection.execute(
        "update entry set payload = cast(replace(cast(payload as text), 'greet', 'greed') as blob) where seq = 0"
    )
    connection.close()
    said = ran("journal", "verify", "--json")
    assert (said.code, said.error["code"], said.error["id"], said.error["seq"]) == (1, "tampered", "one", 0)
    assert ran("journal", "verify", "one").code == 1


def test_what_cannot_be_read_at_all_is_named_and_hinders_only_who_would_write(ran: Shell) -> None:
    connection = apsw.Connection(str(ran.folder / "stepwell.db"))
    connection.execute("update entry set payload = 'no bytes' where seq = 1")
    connection.close()
    said = ran("journal", "verify", "--json")
    assert (said.code, said.error["code"]) == (1, "tampered")
    assert said.error["seq"] == 1
    assert str(said.error["error"]).count("restore a backup") == 1
    assert ran("show", "one").code == 0
    said = ran("run", f"{SHOP}:greet", '"Ada"', "--id", "two", "--json")
    assert (said.code, said.error["code"]) == (1, "cannot_open")
    assert "damage in its journals: the entry 1 of the run 'one' cannot be read" in said.error["error"]
    said = ran("doctor", "--json")
    assert (said.code, said.error["wrong"]) == (1, ["journals"])


def test_a_run_that_is_not_there_is_not_verified(ran: Shell) -> None:
    said = ran("journal", "verify", "nobody", "--json")
    assert (said.code, said.error["code"]) == (1, "run_not_found")


def test_a_compacted_journal_begins_at_its_checkpoint(ran: Shell) -> None:
    async def compact() -> int:
        async with stepwell.open(ran.folder / "stepwell.db") as app:
            journal = stepwell.get(app.env, stepwell.Journal)
            _ = (await journal.checkpoint("one", 2, None)).unwrap()
            return (await journal.compact("one")).unwrap()

    assert asyncio.run(compact()) == 2
    for words in ((), ("--follow",)):
        said = ran("journal", "one", *words)
        assert said.out.split()[0] == "2"
        assert said.err == "the journal was compacted: it begins at its checkpoint, entry 2\n"
    assert ran("journal", "one", "--after", "0").code == 1


def test_a_run_named_like_a_command_is_meant_after_two_hyphens(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:greet", '"Ada"', "--id", "verify").code == 0
    assert lines(shell("journal", "--json", "--", "verify").out)[0]["run_id"] == "verify"


# --- store purge --------------------------------------------------------------


def test_a_store_is_purged_by_both_commands(ran: Shell) -> None:
    assert ran("run", f"{SHOP}:opens", "o-1", "--id", "o").code == 0
    assert ran("store", "purge", "shop.orders", "o-1").code == 2
    assert ran("store", "purge", "shop.orders", "o-1", "--yes").out == "shop.orders/o-1 is erased\n"
    assert ran("store", "shop.orders", "o-1").code == 1


# --- the cache ----------------------------------------------------------------

CACHED = """
from stepwell import Boundary, Run, Workspace, workflow


def double(workspace: Workspace, number: int) -> int:
    workspace.write_text(f"out/{number}", str(2 * number))
    return 2 * number


@workflow
async def doubled(run: Run, number: int) -> int:
    return await run.cached_step("double", double, number, boundary=Boundary(writes=(f"out/{number}",)))
"""


@pytest.fixture
def cached(shell: Shell) -> Shell:
    (shell.folder / "cached.py").write_text(CACHED)
    (shell.folder / "work").mkdir()
    for run_id in ("first", "second"):
        said = shell("run", "cached.py:doubled", "21", "--id", run_id, "--workspace", "work")
        assert (said.code, said.out) == (0, "42\n"), said
    return shell


def actions(shell: Shell, run_id: str) -> list[object]:
    told = lines(shell("journal", run_id, "--json", "--type", "stepwell.cache-provenance").out)
    return [payload["action"] for each in told if isinstance(payload := each["payload"], dict)]


def test_the_second_run_finds_what_the_first_one_made(cached: Shell) -> None:
    assert actions(cached, "first") == ["recorded", "admitted"]
    assert actions(cached, "second") == ["hit"]
    assert (cached.folder / "work" / "out" / "21").read_text() == "42"


def test_heads_agree_with_the_journal_until_somebody_removes_one(cached: Shell) -> None:
    whole: dict[str, object] = {
        "matching": 1,
        "missing": 0,
        "extra": 0,
        "different": 0,
        "keys": [],
        "damaged_artifacts": [],
        "missing_artifacts": [],
    }
    assert cached("cache", "verify", "--json").json == whole
    database(cached.folder).execute("delete from cache_head")
    said = cached("cache", "verify", "--json")
    assert (said.code, said.json["missing"]) == (1, 1)
    assert said.json["keys"][0]["difference"] == "missing"
    assert "cache rebuild" in cached("cache", "verify").err
    rebuilt = cached("cache", "rebuild", "--json").json
    assert (rebuilt["runs"], rebuilt["admitted"], rebuilt["heads"]) == (2, 1, 1)
    assert cached("cache", "verify", "--json").json == whole
    assert cached("cache", "rebuild").code == 0


def test_nothing_is_rebuilt_from_a_journal_that_is_not_as_it_was_written(cached: Shell) -> None:
    database(cached.folder).execute(
        "update entry set payload = cast(replace(cast(payload as text), 'admitted', 'removed') as blob)"
    )
    said = cached("cache", "rebuild", "--json")
    assert (said.code, said.error["code"], said.error["id"]) == (1, "tampered", "first")
    assert database(cached.folder).execute("select count(*) from cache_head").fetchall() == [(1,)]


def test_a_damaged_row_is_named(cached: Shell) -> None:
    database(cached.folder).execute("update recorded set result = cast('43' as blob)")
    said = cached("cache", "verify", "--json")
    assert said.code == 1
    assert [each["reason"] for each in said.json["keys"]] == ["damaged"]
    assert "never served" in cached("cache", "verify").err


def test_what_is_no_key_or_was_never_seen_is_told(cached: Shell) -> None:
    said = cached("cache", "explain", "double 21")
    assert said.code == 2
    assert "a cache key is 1 to 256 letters" in said.err
    assert cached("cache", "explain", "nokey").err == (
        "no row was ever recorded under this key, as far as the journal tells; a key is given whole\n"
    )


def test_a_damaged_artifact_is_named(cached: Shell) -> None:
    (cached.folder / "cached.py").write_text(CACHED.replace("str(2 * number)", "str(2 * number) * 1_000_000"))
    assert cached("run", "cached.py:doubled", "21", "--id", "third", "--workspace", "work").code == 0
    kept = cached.folder / "work/.stepwell/artifacts"
    words = ("cache", "verify", "--artifacts", str(kept), "--json")
    assert cached(*words).json["damaged_artifacts"] == []
    (blob,) = (path for path in kept.glob("objects/*/*"))
    blob.chmod(0o600)
    blob.write_bytes(b"43" + blob.read_bytes()[2:])
    said = cached(*words)
    assert (said.code, said.json["damaged_artifacts"]) == (1, [blob.name])
    blob.unlink()
    said = cached(*words)
    assert (said.code, said.json["damaged_artifacts"], said.json["missing_artifacts"]) == (1, [], [blob.name])
    assert f"the artifact {blob.name} is missing" in cached(*words[:-1]).out
    assert cached("cache", "verify", "--artifacts", "nowhere").code == 2


def test_a_key_is_explained(cached: Shell) -> None:
    key = cached("cache", "rebuild", "--json").json["keys"][0]["key_digest"]
    said = cached("cache", "explain", key, "--json").json
    assert (said["verdict"], said["ref"]["recorded_run_id"]) == ("restored", "first")
    assert "restored" in cached("cache", "explain", key).out


def database(folder: Path) -> apsw.Connection:
    return apsw.Connection(os.fspath(folder / "stepwell.db"))
