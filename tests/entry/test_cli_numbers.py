"""Numbers on the command line: digits, and nothing else, wherever one is asked for."""

from __future__ import annotations

import pytest

from .shell import SHOP, Shell

STORE = ("store", "shop.orders", "o-1")
LONG = "9" * 5000

OPTIONS = [
    pytest.param((*STORE, "--at", "{}"), id="at"),
    pytest.param((*STORE, "--diff", "{}", "0"), id="diff from"),
    pytest.param((*STORE, "--diff", "0", "{}"), id="diff to"),
    pytest.param((*STORE, "--history", "--limit", "{}"), id="limit of a history"),
    pytest.param(("stores", "--limit", "{}"), id="limit of stores"),
    pytest.param(("runs", "--limit", "{}"), id="limit of runs"),
    pytest.param(("gc", "--keep-revisions", "{}"), id="keep revisions"),
    pytest.param(("gc", "--keep", "{}d"), id="keep"),
    pytest.param(("gc", "--keep-runs", "{}d"), id="keep runs"),
]


@pytest.fixture
def shop(shell: Shell) -> Shell:
    """With the order o-1 at version 1."""
    assert shell("run", f"{SHOP}:opens", "o-1", "--id", "o").code == 0
    return shell


@pytest.mark.parametrize("words", OPTIONS)
def test_what_is_no_number_is_wrong_usage(shop: Shell, words: tuple[str, ...]) -> None:
    for number in ("", "many", "-1", "+1", " 1", "1.0", "1e3", "0x1", "1_0", "\u0663", "\uff11", "\u00b2", LONG):
        said = shop(*(word.format(number) for word in words))
        assert said.code == 2, number
        assert "a number" in said.err
        assert len(said.err) < 400
    said = shop(*(word.format(LONG) for word in words), "--json")
    assert (said.code, said.error["code"]) == (2, "usage")


@pytest.mark.parametrize("words", OPTIONS)
def test_a_number_is_digits(shop: Shell, words: tuple[str, ...]) -> None:
    for number in ("1", "01"):
        assert shop(*(word.format(number) for word in words)).code == 0


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**25])
def test_a_version_beyond_every_other_is_not_there(shop: Shell, number: int) -> None:
    for words in (("--at", f"{number}"), ("--diff", "0", f"{number}"), ("--diff", f"{number}", "0")):
        said = shop(*STORE, *words, "--json")
        assert (said.code, said.error["code"]) == (1, "unknown_version")
        assert said.error["error"] == f"shop.orders/o-1 has no version {number}: it is at version 1"


@pytest.mark.parametrize("number", ["\u0660", "\uff11", LONG, "2"], ids=["arabic", "wide", "long", "beyond"])
@pytest.mark.parametrize("path", ["items[{}].count", "items.{}.count"])
def test_an_index_is_a_number_too(shop: Shell, path: str, number: str) -> None:
    said = shop(*STORE, "--module", SHOP, "--set", f"{path.format(number)}=7", "--json")
    assert said.code in (1, 2)
    assert said.error["code"] in ("unknown_path", "usage")
    assert shop(*STORE, "--json").json["version"] == 1
