"""`store --history` and `--diff`, `gc` and `purge`: looking back at stores, and ending what is kept of them."""

from __future__ import annotations

import json

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


# --- earlier instances ----------------------------------------------------------


@pytest.fixture
def again(shop: Shell) -> str:
    """The id of the first instance of o-1, which was deleted, and made again; the new one is at version 0."""
    module = vars(load_module(SHOP))
    with stepwell.open_blocking(shop.folder / "stepwell.db", drive=False) as portal:
        order = portal.app.store(module["orders"], "o-1")
        first = portal.call(order.get).unwrap()
        portal.call(order.delete).unwrap()
        portal.call(order.get_or_create, module["Order"](notes={"made": "again"})).unwrap()
    return first.instance_id


def test_a_version_of_an_earlier_instance_is_shown_and_compared(shop: Shell, again: str) -> None:
    changes = shop("store", "shop.orders", "o-1", "--history", "--json").json["changes"]
    assert changes[0]["instance_id"] != again == changes[-1]["instance_id"]
    assert shop("store", "shop.orders", "o-1", "--at", "1", "--json").error["code"] == "unknown_version"
    said = shop("store", "shop.orders", "o-1", "--at", "1", "--of", again)
    assert (said.code, said.err) == (0, f"shop.orders/o-1 at version 1 of {again}\n")
    assert json.loads(said.out)["status"] == "approved"
    shown = shop("store", "shop.orders", "o-1", "--at", "1", "--of", again, "--module", SHOP, "--json").json
    assert (shown["instance_id"], shown["version"], shown["state"]["status"]) == (again, 1, "approved")
    assert shop("store", "shop.orders", "o-1", "--at", "0", "--of", again, "--raw").json["status"] == "new"
    found = shop("store", "shop.orders", "o-1", "--diff", "0", "1", "--of", again)
    assert (found.code, found.out) == (0, 'status: "new" -> "approved"\n')


def test_a_version_of_a_store_that_is_gone_is_shown(shop: Shell, again: str) -> None:
    orders = vars(load_module(SHOP))["orders"]
    with stepwell.open_blocking(shop.folder / "stepwell.db", drive=False) as portal:
        portal.call(portal.app.store(orders, "o-1").delete).unwrap()
    assert shop("store", "shop.orders", "o-1", "--at", "0", "--json").error["code"] == "store_not_found"
    assert shop("store", "shop.orders", "o-1", "--at", "1", "--of", again, "--raw").json["status"] == "approved"


@pytest.mark.parametrize("option", ["--at", "--diff"])
@pytest.mark.parametrize(("version", "instance"), [("99", None), ("0", "nobody"), ("0", "01a2")])
def test_what_an_instance_never_was_is_told(
    shop: Shell, again: str, option: str, version: str, instance: str | None
) -> None:
    words = ("store", "shop.orders", "o-1", option, *([version] * (2 if option == "--diff" else 1)))
    said = shop(*words, "--of", instance or again, "--json")
    assert (said.code, said.error["code"]) == (1, "unknown_version")
    assert said.error["error"] == (
        f"version {version} of instance {instance or again} of shop.orders/o-1 is not there, or not kept any more; "
        "`stepwell store shop.orders o-1 --history` lists those that are"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--of", "i"), "--of goes with --at or --diff"),
        (("--history", "--of", "i"), "--of goes with --at or --diff"),
        (("--at", "1", "--of", ""), "--of needs the id of an instance"),
        (("--limit", "3"), "--limit goes with --history"),
        (("--at", "1", "--limit", "100"), "--limit goes with --history"),
        (("--diff", "0", "1", "--limit", "1"), "--limit goes with --history"),
        (("--module", SHOP, "--set", 'status="new"', "--limit", "1"), "--limit goes with --history"),
    ],
    ids=["of", "of and history", "of nothing", "limit", "limit and at", "limit and diff", "limit and set"],
)
def test_an_option_that_would_be_passed_over_is_refused(shop: Shell, words: tuple[str, ...], told: str) -> None:
    before = versions(shop)
    said = shop("store", "shop.orders", "o-1", *words)
    assert (said.code, told in said.err) == (2, True)
    assert versions(shop) == before


# --- what goes ------------------------------------------------------------------


def test_gc_tells_what_it_removed(shop: Shell) -> None:
    before = versions(shop)
    said = shop("gc", "--keep-revisions", "1", "--json").json
    assert said == {"runs": 0, "revisions": 0, "size_bytes": 0, "dry_run": False}  # all was in force a moment ago
    assert versions(shop) == before
    said = shop("gc", "--keep", "30d", "--keep-runs", "7d", "--dry-run")
    assert (said.code, said.out) == (0, "would remove 0 runs and 0 revisions of 0 bytes\n")
    (line,) = said.err.splitlines()
    assert line.startswith("what is there is too young, and would go later: the first run at 20")
    for status in ("new", "approved"):  # of which no run knows
        assert shop("store", "shop.orders", "o-1", "--module", SHOP, f'--set=status="{status}"').code == 0
    assert ", the first revision at 20" in shop("gc", "--keep", "30d", "--keep-runs", "7d").err
    said = shop("gc", "--keep-revisions", "1000")
    assert said.err == "nothing that it does not keep is there, whatever its age\n"


def test_gc_says_that_ids_become_free(shop: Shell) -> None:
    assert "starting such an id again runs it again" in " ".join(shop("gc", "--help").out.split())


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
