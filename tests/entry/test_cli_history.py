"""`store --history` and `--diff`, `gc` and `purge`: looking back at stores, and ending what is kept of them."""

from __future__ import annotations

import pytest

import stepwell
from stepwell.layers.entry.cli.modules import load_module

from .shell import SHOP, Shell


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """With the order o-1 at version 3, made by a run that has ended."""
    assert shell("run", f"{SHOP}:opens", "o-1", "--id", "o").code == 0
    for word in ('status="paid"', "notes.a=1"):
        assert shell("store", "shop.orders", "o-1", "--module", SHOP, f"--set={word}").code in (0, 1)
    return shell


def versions(shop: Shell) -> list[tuple[int, str]]:
    found = shop("store", "shop.orders", "o-1", "--history", "--json").json["changes"]
    return [(change["version"], change["kind"]) for change in found]


def test_a_history_is_listed_newest_first(shop: Shell) -> None:
    said = shop("store", "shop.orders", "o-1", "--history", "--json").json
    assert (said["name"], said["id"]) == ("shop.orders", "o-1")
    last, *_, first = said["changes"]
    assert (first["version"], first["kind"], first["paths"]) == (0, "created", [])
    assert last["kind"] == "patched"
    assert last["version"] == len(said["changes"]) - 1
    assert last["patch_bytes"] > 0
    lines = [line.split() for line in shop("store", "shop.orders", "o-1", "--history").out.splitlines()]
    assert lines[0] == ["version", "change", "at", "bytes", "of", "instance"]
    assert lines[2][:2] == [str(last["version"]), "patched"]
    assert len(shop("store", "shop.orders", "o-1", "--history", "--limit", "1", "--json").json["changes"]) == 1
    missing = shop("store", "shop.orders", "nobody", "--history")
    assert (missing.code, missing.err[:40]) == (1, "error: there is no store shop.orders/nob")


def test_a_difference_shows_both_sides(shop: Shell) -> None:
    said = shop("store", "shop.orders", "o-1", "--diff", "0", "1")
    assert (said.code, said.out) == (0, 'status: "new" -> "approved"\n')
    found = shop("store", "shop.orders", "o-1", "--diff", "1", "0", "--json").json
    assert found["differences"] == [{"path": ["status"], "before": "approved", "after": "new"}]
    alike = shop("store", "shop.orders", "o-1", "--diff", "1", "1")
    assert (alike.out, alike.err) == ("", "shop.orders/o-1: versions 1 and 1 are alike\n")
    missing = shop("store", "shop.orders", "o-1", "--diff", "0", "99", "--json")
    assert (missing.code, missing.error["code"]) == (1, "unknown_version")
    assert shop("store", "shop.orders", "nobody", "--diff", "0", "1").code == 1


@pytest.mark.parametrize(
    "words",
    [("--history", "--at", "1"), ("--diff", "0", "1", "--raw"), ("--history", "--diff", "0", "1"), ("--diff", "0")],
    ids=["history and at", "diff and raw", "both", "one version"],
)
def test_a_history_goes_alone(shop: Shell, words: tuple[str, ...]) -> None:
    assert shop("store", "shop.orders", "o-1", *words).code == 2


def test_gc_tells_what_it_removed(shop: Shell) -> None:
    before = versions(shop)
    said = shop("gc", "--keep-revisions", "1", "--json").json
    assert said == {"runs": 0, "revisions": 0, "size_bytes": 0, "dry_run": False}  # all was in force a moment ago
    assert versions(shop) == before
    said = shop("gc", "--keep", "30d", "--keep-runs", "7d", "--dry-run")
    assert (said.code, said.out) == (0, "would remove 0 runs and 0 revisions of 0 bytes\n")


@pytest.mark.parametrize(
    "words", [(), ("--dry-run",), ("--keep", "30"), ("--keep", "1.5d"), ("--keep-revisions", "0")], ids=str
)
def test_gc_needs_to_know_what_may_go(shop: Shell, words: tuple[str, ...]) -> None:
    assert shop("gc", *words).code == 2


def test_purge_asks_first_and_then_erases(shop: Shell) -> None:
    asked = shop("purge", "shop.orders", "o-1")
    assert (asked.code, asked.err) == (
        2,
        "error: this erases shop.orders/o-1 with its whole history, for good; say --yes to do it\n",
    )
    assert versions(shop) != []
    said = shop("purge", "shop.orders", "o-1", "--yes")
    assert (said.code, said.out) == (0, "shop.orders/o-1 is erased\n")
    assert shop("store", "shop.orders", "o-1", "--history").code == 1
    again = shop("purge", "shop.orders", "o-1", "--yes", "--json")
    assert (again.code, again.error["code"]) == (1, "store_not_found")
    assert shop("purge", "", "o-1", "--yes").code == 2


def test_an_application_has_its_revisions(shop: Shell) -> None:
    orders = vars(load_module(SHOP))["orders"]
    with stepwell.open_blocking(shop.folder / "stepwell.db") as portal:
        history = portal.call(portal.app.revisions.history, orders, "o-1").unwrap()
    assert [(change.revision.version, change.kind) for change in history] == versions(shop)
