"""What every command says of a database that it cannot use, and what `doctor` finds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import stepwell
from stepwell.layers.app import has_wal_fix, sqlite_version
from stepwell.layers.sql.connection import Connection
from stepwell.layers.sql.inspect import Disk, inspect
from stepwell.services.definition import StoreDefinition

from .shell import SHOP, Shell

READING = [
    ["runs"],
    ["show", "x"],
    ["cancel", "x"],
    ["resume", "x"],
    ["stores"],
    ["store", "shop.orders", "o-1"],
    ["store", "shop.orders", "o-1", "--module", SHOP, "--set", 'status="new"'],
]
ALL = [*READING, ["run", f"{SHOP}:greet", "ann"], ["worker", SHOP, "--once"]]


def names(commands: list[list[str]]) -> list[str]:
    return [" ".join(word for word in command if word != SHOP) for command in commands]


# --- databases that cannot be used ------------------------------------------------------


@pytest.mark.parametrize("command", READING, ids=names(READING))
def test_only_run_and_worker_make_a_database(shell: Shell, command: list[str]) -> None:
    said = shell(*command, "--db", "none.db")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("error: cannot open none.db: there is no such file. ")
    assert shell(*command, "--db", "none.db", "--json").error["code"] == "cannot_open"
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("command", ALL, ids=names(ALL))
def test_a_file_that_is_no_database_is_left_alone(shell: Shell, command: list[str]) -> None:
    file = shell.folder / "letter.txt"
    file.write_text("Dear reader, " * 100)
    said = shell(*command, "--db", "letter.txt")
    assert (said.code, said.out) == (1, "")
    assert "letter.txt: it is not an SQLite database" in said.err
    assert "Traceback" not in said.err
    assert file.read_text() == "Dear reader, " * 100


@pytest.mark.parametrize("command", ALL, ids=names(ALL))
def test_a_newer_schema_is_refused(shell: Shell, command: list[str]) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    execute(shell.folder / "stepwell.db", "pragma user_version = 99")
    said = shell(*command, "--json")
    assert (said.code, said.error["code"]) == (1, "cannot_open")
    assert "its schema has version 99" in said.error["error"]
    assert "Upgrade stepwell." in said.error["error"]


@pytest.mark.parametrize("command", ALL, ids=names(ALL))
def test_a_database_of_another_application_is_left_alone(shell: Shell, command: list[str]) -> None:
    execute(shell.folder / "stepwell.db", "create table theirs (a)", create=True)
    before = (shell.folder / "stepwell.db").read_bytes()
    said = shell(*command)
    assert said.code == 1
    assert "it belongs to another application" in said.err
    assert (shell.folder / "stepwell.db").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0 and which("setpriv") is None, reason="root may write everything")
@pytest.mark.parametrize("command", ALL, ids=names(ALL))
def test_a_file_that_can_only_be_read_is_told(shell: Shell, command: list[str]) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    (shell.folder / "stepwell.db").chmod(0o444)
    said = shell.run_unprivileged(*command)
    assert (said.code, said.out) == (1, "")
    assert "stepwell.db: it can only be read. Make the file writable" in said.err


@pytest.mark.skipif(os.geteuid() == 0 and which("setpriv") is None, reason="root may write everything")
@pytest.mark.parametrize("closed", ["file", "folder", "both"])
def test_doctor_looks_at_what_can_only_be_read_and_leaves_nothing_beside_it(shell: Shell, closed: str) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    before = sorted(os.listdir(shell.folder))
    (shell.folder / "stepwell.db").chmod(0o644 if closed == "folder" else 0o444)
    shell.folder.chmod(0o755 if closed == "file" else 0o555)
    try:
        said = shell.run_unprivileged("doctor", "--json")
    finally:
        shell.folder.chmod(0o755)
    findings = {finding["name"]: finding for finding in said.json["findings"]}
    assert said.error["wrong"] == ["database"]
    assert findings["database"]["wrong"] == "it can only be read: make it and its folder writable"
    assert (findings["runs"]["value"], findings["journal_mode"]["value"]) == ({"completed": 1}, "wal")
    assert sorted(os.listdir(shell.folder)) == before


@pytest.mark.parametrize("command", READING, ids=names(READING))
def test_there_is_nothing_to_look_at_in_memory(shell: Shell, command: list[str]) -> None:
    said = shell(*command, "--db", "memory:")
    assert (said.code, "ends with its process" in said.err) == (2, True)


def test_a_run_in_memory_leaves_nothing(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:sum_up", '{"a": 1}', "--db", "memory:").json == {"total": 1}
    assert list(shell.folder.iterdir()) == []


def test_there_is_no_postgresql_host(shell: Shell) -> None:
    said = shell("run", f"{SHOP}:greet", "ann", "--db", "postgresql://localhost/x")
    assert said.code == 2
    assert "no PostgreSQL host" in said.err


def execute(file: Path, sql: str, *, create: bool = False) -> None:
    connection = Connection(str(file), create=create)
    connection.run(sql)
    connection.close()


# --- the command itself -------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["show", "\udcff"], ["runs", "--after", "\udcff"], ["cancel", "\udcff"], ["--db", "\udcff.db", "runs"]]
)
def test_words_that_are_no_text_are_wrong_usage(shell: Shell, words: list[str]) -> None:
    said = shell(*words)
    assert (said.code, said.out) == (2, "")
    assert "is not valid Unicode" in said.err
    assert shell("--json", *words).error["code"] == "usage"


def test_a_database_that_the_environment_names_in_no_text_is_wrong_usage(shell: Shell) -> None:
    said = shell.run("runs", STEPWELL_DB="\udcff.db")
    assert (said.code, said.out) == (2, "")
    assert "valid Unicode" in said.err


@pytest.mark.parametrize("words", [[], ["nonsense"], ["--nonsense", "runs"], ["show"], ["worker"], ["store", "a"]])
def test_wrong_usage_exits_2(shell: Shell, words: list[str]) -> None:
    said = shell(*words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: stepwell" in said.err
    assert shell("--json", *words).error["code"] == "usage"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["store", "-h"]])
def test_help_is_no_failure(shell: Shell, words: list[str]) -> None:
    said = shell(*words)
    assert (said.code, said.err) == (0, "")
    assert "Usage: stepwell" in said.out


def test_the_version_is_told(shell: Shell) -> None:
    said = shell("--version")
    assert (said.code, said.out.split()[0], said.out.count(".")) == (0, "stepwell", 2)


def test_a_reader_that_has_seen_enough_is_told_nothing(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    with shell.begin("runs", "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("statement", ["import stepwell", "from stepwell import *", "import stepwell; stepwell.open"])
def test_import_stepwell_loads_no_part_of_the_command_line(shell: Shell, statement: str) -> None:
    check = "import sys; print(sorted({'click', 'rich'} & {name.partition('.')[0] for name in sys.modules}))"
    assert shell.python("-c", f"{statement}\n{check}").out == "[]\n"


# --- doctor ---------------------------------------------------------------------------------


def findings(shell: Shell, code: int = 0) -> dict[str, Any]:
    said = shell("doctor", "--json")
    assert said.code == code
    assert said.json["ok"] is (code == 0)
    return {finding["name"]: finding for finding in said.json["findings"]}


def test_doctor_tells_what_all_is_made_of(shell: Shell) -> None:
    shell("run", f"{SHOP}:opens", "o-1", "--id", "o")
    shell("run", f"{SHOP}:fails", "--id", "f")
    found = findings(shell)
    value = {name: finding["value"] for name, finding in found.items()}
    assert value["sqlite"] == sqlite_version()
    assert value["python"] == sys.version.split()[0]
    assert value["database"] == str(shell.folder / "stepwell.db")
    assert (value["journal_mode"], value["synchronous"], value["quick_check"]) == ("wal", 2, "ok")
    assert (value["schema_version"], value["application_id"]) == (4, 0x53574C4C)
    assert (value["stores"], value["runs"], value["steps"]) == (1, {"completed": 1, "failed": 1}, 2)
    assert value["owners"] == []
    assert value["free_space_bytes"] > 0
    assert value["sync_us"] >= 0
    assert all(finding["wrong"] is None for finding in found.values())
    said = shell("doctor")
    assert (said.code, said.err) == (0, "")
    assert "completed 1, failed 1" in said.out


def change_nothing(_: dict[str, int]) -> None:
    pass


def as_it_was(state: object) -> object:
    return state


def test_doctor_tells_how_many_stores_are_in_an_older_version_of_their_type(shell: Shell) -> None:
    shell("run", f"{SHOP}:opens", "o-1", "--id", "o")
    first = StoreDefinition("notes", dict[str, int])
    second = StoreDefinition("notes", dict[str, int], version=2, upcasters={1: as_it_was})
    with stepwell.open_blocking(shell.folder / "stepwell.db") as portal:
        for id in ("n-1", "n-2", "n-3"):
            portal.call(portal.app.store(first, id).get_or_create, {"n": 1})
        portal.call(portal.app.store(second, "n-3").update, change_nothing)
    found = findings(shell)["forms"]
    assert [(form["name"], form["version"], form["stores"], form["is_older"]) for form in found["value"]] == [
        ("notes", 1, 2, True),
        ("notes", 2, 1, False),
        ("shop.orders", 1, 1, False),
    ]
    assert found["remark"].startswith("2 in an older version")
    assert "notes version 1: 2" in shell("doctor").out
    with stepwell.open_blocking(shell.folder / "stepwell.db") as portal:
        for id in ("n-1", "n-2"):
            portal.call(portal.app.store(second, id).update, change_nothing)
    assert findings(shell)["forms"]["remark"] is None


def test_doctor_tells_of_owners_that_have_ended_and_of_stuck_runs(shell: Shell) -> None:
    shell.run("run", f"{SHOP}:changes_its_mind", "--id", "c")
    (owner,) = findings(shell)["owners"]["value"]
    assert (owner["runs"], owner["dead"]) == (1, True)
    shell.run("worker", SHOP, "--once")
    assert "stepwell runs --state stuck" in findings(shell)["runs"]["remark"]


def test_doctor_where_no_database_was_made_yet_and_none_was_named_finds_nothing_wrong(shell: Shell) -> None:
    found = findings(shell)
    assert (found["database"]["value"], found["database"]["wrong"]) == (None, None)
    assert "--db" in found["database"]["remark"]
    assert found["sqlite"]["wrong"] is None
    said = shell("doctor")
    assert (said.code, said.err, "there is no stepwell.db here yet" in said.out) == (0, "", True)
    assert list(shell.folder.iterdir()) == []


@pytest.mark.parametrize("by", ["option", "environment"])
def test_doctor_of_a_database_that_was_named_and_is_missing_tells_the_rest_and_exits_1(shell: Shell, by: str) -> None:
    named = ("--db", "stepwell.db") if by == "option" else ()
    environment = {"STEPWELL_DB": "stepwell.db"} if by == "environment" else {}
    said = shell.run("doctor", "--json", *named, **environment)
    found = {finding["name"]: finding for finding in said.json["findings"]}
    assert (said.code, said.error["wrong"]) == (1, ["database"])
    assert "there is no such file" in found["database"]["wrong"]
    assert found["sqlite"]["wrong"] is None
    assert list(shell.folder.iterdir()) == []


def test_doctor_of_a_damaged_file_exits_1(shell: Shell) -> None:
    for number in range(30):
        shell.start("greet", f"name {number} " * 50, id=f"g-{number}")
    file = shell.folder / "stepwell.db"
    execute(file, "pragma wal_checkpoint(truncate)")
    pages = bytearray(file.read_bytes())
    pages[len(pages) // 2 :] = b"\x5a" * (len(pages) - len(pages) // 2)
    file.write_bytes(pages)
    said = shell("doctor", "--json")
    assert said.code == 1
    assert "damaged" in said.error["error"] or "Corrupt" in said.error["error"]
    assert "Traceback" not in said.err


def test_doctor_looks_at_a_database_without_changing_it(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    execute(shell.folder / "stepwell.db", "pragma user_version = 0")
    before = (shell.folder / "stepwell.db").read_bytes()
    assert "its schema has version 0" in findings(shell, code=1)["database"]["wrong"]
    assert (shell.folder / "stepwell.db").read_bytes() == before


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        ("3.40.1", False),
        ("3.44.5", False),
        ("3.44.6", True),
        ("3.45.0", False),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.51.0", False),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.54.1", True),
        ("4.0.0", True),
    ],
)
def test_which_sqlite_is_free_of_the_fault_in_wal_mode(version: str, sound: bool) -> None:
    assert has_wal_fix(version) is sound


def test_the_sqlite_that_is_used_is_sound() -> None:
    assert has_wal_fix(sqlite_version())


def test_file_systems_that_are_no_place_for_a_database() -> None:
    assert Disk("ext4", 0, None).warning is None
    assert Disk(None, 0, None).warning is None
    assert "power" in str(Disk("tmpfs", 0, None).warning)
    assert "another machine" in str(Disk("nfs4", 0, None).warning)


def test_a_sync_is_timed_by_the_clock_that_is_given(shell: Shell) -> None:
    shell("run", f"{SHOP}:greet", "ann", "--id", "g")
    times = iter((1_000, 1_025))
    assert inspect(shell.folder / "stepwell.db", lambda: next(times)).disk.sync_us == 500
