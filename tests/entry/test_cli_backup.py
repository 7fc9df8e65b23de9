"""`stepwell backup` and `stepwell restore`."""

from __future__ import annotations

from .shell import SHOP, Shell


def test_a_database_goes_to_a_folder_and_back(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:greet", '"Ada"', "--id", "one").code == 0
    said = shell("backup", "copy", "--json")
    assert said.code == 0
    assert said.json["artifacts"] == []
    assert shell("restore", "copy", "--check").out == "copy is whole\n"
    restored = shell("restore", "copy", "--db", "new.db", "--json")
    assert restored.json["created_at_ms"] == said.json["created_at_ms"]
    assert (shell.folder / "new.db.restored.json").exists()
    before, after = (shell("show", "one", "--db", db, "--json").json for db in ("stepwell.db", "new.db"))
    assert before == after


def test_in_words(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:greet", '"Ada"', "--id", "one").code == 0
    assert shell("backup", "copy").out.startswith("stepwell.db is in copy, with 0 artifacts, ")
    assert shell("restore", "copy", "--db", "new.db").out.startswith("new.db is as it was at ")


def test_what_is_there_is_not_written_over(shell: Shell) -> None:
    assert shell("run", f"{SHOP}:greet", '"Ada"', "--id", "one").code == 0
    assert shell("backup", "copy").code == 0
    said = shell("backup", "copy", "--json")
    assert (said.code, said.error["code"]) == (1, "not_empty")
    said = shell("restore", "copy", "--json")
    assert (said.code, said.error["code"]) == (1, "not_empty")


def test_what_is_no_backup_is_told(shell: Shell) -> None:
    (shell.folder / "empty").mkdir()
    for words in (("restore", "empty"), ("restore", "missing"), ("restore", "empty", "--check")):
        said = shell(*words, "--db", "new.db", "--json")
        assert (said.code, said.error["code"]) == (1, "missing_file")
    assert not (shell.folder / "new.db").exists()


def test_a_database_that_is_not_there_is_not_made(shell: Shell) -> None:
    said = shell("backup", "copy", "--json")
    assert said.code == 1
    assert "no such file" in said.error["error"]
    assert not (shell.folder / "stepwell.db").exists()
    assert not (shell.folder / "copy").exists()


def test_wrong_usage(shell: Shell) -> None:
    assert shell("backup").code == 2
    assert shell("restore").code == 2
    assert shell("backup", "copy", "--db", "memory:").code == 2
    assert shell("backup", "copy", "--artifacts", "missing").code == 2
