"""`stores` and `store`: what is stored, and changes of it by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepwell
from stepwell.layers.entry.cli.modules import load_module
from stepwell.layers.entry.cli.paths import path_text
from stepwell.layers.entry.cli.problem import Problem
from stepwell.layers.entry.cli.words import UnknownPath, assign, look, read_assignment

from .shell import SHOP, Said, Shell

AT_0: Mapping[str, object] = {
    "status": "new",
    "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": 2}],
    "notes": {},
}
AT_1: Mapping[str, object] = {**AT_0, "status": "approved"}


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """With the order o-1 at version 1."""
    assert shell("run", f"{SHOP}:opens", "o-1", "--id", "o").code == 0
    return shell


def change(shop: Shell, *changes: str) -> Said:
    return shop("store", "shop.orders", "o-1", "--module", SHOP, "--json", *(f"--set={word}" for word in changes))


def state(shop: Shell) -> object:
    return shop("store", "shop.orders", "o-1", "--json").json["state"]


# --- stores -------------------------------------------------------------------------


def test_stores_are_listed_by_name_and_id(shop: Shell) -> None:
    counters = vars(load_module(SHOP))["counters"]
    with stepwell.open_blocking(shop.folder / "stepwell.db") as portal:
        portal.call(portal.app.store(counters, "c-1").get_or_create, {"a": 1})
    found = shop("stores", "--json").json
    assert [(tip["name"], tip["id"], tip["version"]) for tip in found["stores"]] == [
        ("shop.counters", "c-1", 0),
        ("shop.orders", "o-1", 1),
    ]
    assert found["stores"][0]["form"] == {"version": 1, "fingerprint": counters.form.fingerprint}
    assert found["count"] == 2
    assert [tip["id"] for tip in shop("stores", "--name", "shop.orders", "--json").json["stores"]] == ["o-1"]
    lines = [line.split() for line in shop("stores").out.splitlines()]
    assert lines[0] == ["name", "id", "version", "form", "changed"]
    assert lines[3][:4] == ["shop.orders", "o-1", "1", "1"]
    said = shop("stores", "--limit", "1")
    assert ("o-1" in said.out, said.err) == (False, "1 more: --limit 2\n")


# --- looking ------------------------------------------------------------------------


def test_a_store_is_shown_as_json_with_its_revision(shop: Shell) -> None:
    said = shop("store", "shop.orders", "o-1")
    assert said.json == AT_1
    assert said.err.startswith("shop.orders/o-1 at version 1 of ")
    shown = shop("store", "shop.orders", "o-1", "--json").json
    assert (shown["name"], shown["id"], shown["version"], shown["state"]) == ("shop.orders", "o-1", 1, AT_1)
    assert shown["form"]["version"] == 1
    assert re.fullmatch("[0-9a-f]{16}", shown["form"]["fingerprint"])
    assert change(shop, 'status="approved"').json["form"] == shown["form"]


def test_an_earlier_version_is_shown(shop: Shell) -> None:
    assert shop("store", "shop.orders", "o-1", "--at", "0").json == AT_0
    assert shop("store", "shop.orders", "o-1", "--at", "1", "--module", SHOP).json == AT_1
    said = shop("store", "shop.orders", "o-1", "--at", "2")
    assert (said.code, said.err) == (1, "error: shop.orders/o-1 has no version 2: it is at version 1\n")


def test_raw_is_the_document_and_nothing_else(shop: Shell) -> None:
    said = shop("store", "shop.orders", "o-1", "--raw")
    assert (json.loads(said.out), said.out.count("\n"), said.err) == (AT_1, 1, "")


def test_a_store_that_is_not_there(shop: Shell) -> None:
    said = shop("store", "shop.orders", "o-2")
    assert (said.code, said.out) == (1, "")
    assert said.err == "error: there is no store shop.orders/o-2; `stepwell stores` lists those that there are\n"
    assert shop("store", "shop.orders", "o-2", "--json").error["code"] == "store_not_found"
    assert shop("store", "shop.orders", "o-2", "--module", SHOP, "--set", 'status="new"', "--json").code == 1


def test_a_module_without_that_store_names_those_that_it_has(shop: Shell) -> None:
    said = shop("store", "orders", "o-1", "--module", SHOP, "--json")
    assert (said.code, said.error["code"]) == (1, "unknown_store")
    assert "it defines 'shop.counters', 'shop.orders'" in said.error["error"]


def test_a_state_that_no_longer_fits_its_type_is_told_with_all_that_is_wrong(shop: Shell, tmp_path: Path) -> None:
    loosely = tmp_path / "loosely.py"
    loosely.write_text("from stepwell import define_store\n\ncounters = define_store('shop.loose', dict[str, str])\n")
    strictly = tmp_path / "strictly.py"
    strictly.write_text("from stepwell import define_store\n\ncounters = define_store('shop.loose', dict[str, int])\n")
    (tmp_path / "make.py").write_text(
        "import stepwell\nfrom loosely import counters\nwith stepwell.open_blocking('stepwell.db') as portal:\n"
        "    portal.call(portal.app.store(counters, 'c').get_or_create, {'a': 'many'})\n"
    )
    assert shop.python("make.py").code == 0
    said = shop.run("store", "shop.loose", "c", "--module", "strictly.py", "--json")
    assert (said.code, said.error["code"]) == (1, "invalid_state")
    assert [issue["path"] for issue in said.error["issues"]] == [[], ["a"]]
    assert "let define_store have version=2 and upcasters={1: ...}" in said.error["issues"][0]["message"]
    assert shop.run("store", "shop.loose", "c").json == {"a": "many"}

    (tmp_path / "later.py").write_text(
        "from stepwell import define_store\n\ndef lengths(old):\n    return {key: len(old[key]) for key in old}\n\n"
        "counters = define_store('shop.loose', dict[str, int], version=2, upcasters={1: lengths})\n"
    )
    checked = shop.run("store", "shop.loose", "c", "--module", "later.py", "--json").json
    assert (checked["form"]["version"], checked["state"]) == (1, {"a": "many"}), "it is shown as it is stored"
    changed = shop.run("store", "shop.loose", "c", "--module", "later.py", "--json", "--set", "a=5").json
    assert (changed["form"]["version"], changed["state"]) == (2, {"a": 5})
    shown = shop.run("store", "shop.loose", "c", "--json").json
    assert (shown["form"]["version"], shown["state"]) == (2, {"a": 5})
    refused = shop.run("store", "shop.loose", "c", "--module", "strictly.py", "--json").error["issues"]
    assert "in version 2 of its type, and this one knows versions up to 1" in refused[0]["message"]


# --- changing -----------------------------------------------------------------------


def test_several_changes_are_one_update(shop: Shell) -> None:
    said = change(shop, "items[0].count=5", 'items.1.sku="c"', 'notes.by="me"', 'status="new"')
    items = [{"sku": "a", "count": 5}, {"sku": "c", "count": 2}]
    assert (said.code, said.json["version"]) == (0, 2)
    assert said.json["state"] == state(shop) == {"status": "new", "items": items, "notes": {"by": "me"}}
    assert shop("store", "shop.orders", "o-1", "--at", "1").json == AT_1


@pytest.mark.parametrize(
    ("word", "after"),
    [
        ("notes={}", AT_1),
        ('notes["a.b"]="c"', {**AT_1, "notes": {"a.b": "c"}}),
        ('notes["a=\\"b\\""]="c"', {**AT_1, "notes": {'a="b"': "c"}}),
        ('notes.0="zero"', {**AT_1, "notes": {"0": "zero"}}),
        ('items=[{"sku": "x"}]', {**AT_1, "items": [{"sku": "x", "count": 1}]}),
        ('={"status": "approved"}', {**AT_1, "items": []}),
    ],
)
def test_what_a_path_can_name(shop: Shell, word: str, after: object) -> None:
    assert change(shop, word).code == 0
    assert state(shop) == after


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        (["status=approved"], "invalid_json", 'for text write status="..."'),
        (["status="], "invalid_json", "no JSON"),
        (["items[0].count=NaN"], "invalid_json", "NaN is no JSON"),
        (['status="lost"'], "invalid_state", "status: "),
        (['items[1].count="many"'], "invalid_state", "items[1].count: "),
        (["colour=1"], "unknown_path", "has no 'colour'; it has 'status', 'items', 'notes'"),
        (["items[0].colour=1"], "unknown_path", "items[0] has no 'colour'; it has 'sku', 'count'"),
        (["items[2]={}"], "unknown_path", "items has no 2; it is a list of 2 elements"),
        (["items.first=1"], "unknown_path", "items has no 'first'"),
        (["status.x=1"], "unknown_path", 'status is "approved" and has nothing inside it'),
        (["status.x.y=1"], "unknown_path", 'status is "approved" and has nothing inside it'),
        (["notes.a.b=1"], "unknown_path", "notes has no 'a'; it has nothing"),
        (["items[0].count=5", "colour=1"], "unknown_path", "nothing was changed"),
    ],
)
def test_what_cannot_be_changed_changes_nothing(shop: Shell, changes: list[str], code: str, said: str) -> None:
    answer = change(shop, *changes)
    assert (answer.code, answer.out, answer.error["code"]) == (1, "", code)
    assert said in answer.error["error"]
    assert shop("store", "shop.orders", "o-1", "--json").json["version"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "status=1"], "--set needs --module"),
        (["--set", "status=1", "--module", SHOP, "--at", "0"], "leave --at out"),
        (["--set", "status", "--module", SHOP], "there is no ="),
        (["--set", "items[=1", "--module", SHOP], "cannot be read at '[=1'"),
        (["--set", "items..0=1", "--module", SHOP], "cannot be read at '..0=1'"),
        (["--at", "-1"], "-1"),
    ],
)
def test_wrong_usage_of_store(shop: Shell, words: list[str], said: str) -> None:
    answer = shop("store", "shop.orders", "o-1", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_a_change_meets_a_faster_writer_and_is_made_again(shop: Shell) -> None:
    """The change is planned on what was read, so it is planned anew on what somebody else has made of it since."""
    for count in range(3):
        assert change(shop, f"items[0].count={count}").json["version"] == count + 2


# --- paths, without a store -----------------------------------------------------------


def test_assignments_are_read_and_carried_out() -> None:
    read = read_assignment('a.b[0]["c d"].1=[1, {"x": null}]')
    assert (read.path, read.value) == (("a", "b", 0, "c d", "1"), [1, {"x": None}])
    document: object = {"a": [1, {"b": 2}]}
    for word in ("a[0]=5", "a.1.b=6", "a[1].new=7"):
        document = assign(document, [read_assignment(word)])
    assert document == {"a": [5, {"b": 6, "new": 7}]}
    assert assign(3, [read_assignment("=4")]) == 4
    assert look(document, ("a", 1, "new")) == 7
    with pytest.raises(UnknownPath, match="the state is 4 and has nothing inside it"):
        assign(4, [read_assignment("a=1")])
    with pytest.raises(Problem, match="PATH=JSON"):
        read_assignment("a")
    with pytest.raises(Problem, match="nested too deeply"):
        read_assignment(f"a={'[' * 100_000}")


NAMES = st.one_of(st.text(min_size=1), st.integers(min_value=0), st.sampled_from(["a.b", "a=b", "0", '"', "[0]", "\\"]))


@given(st.lists(NAMES, min_size=1).map(tuple))
def test_every_path_can_be_written_and_is_read_back(path: tuple[str | int, ...]) -> None:
    assert read_assignment(f"{path_text(path)}=1").path == path
