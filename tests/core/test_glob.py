"""What a pattern matches, held to a matcher that tries everything."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.glob import Glob, is_glob, tree_root

from .workspace_texts import TEXTS

PARTS = st.sampled_from(["*", "**", "a", "b", "a*", "*b", "*a*", "a*b*", "*b*b", "*ab*a*", "?", "***"])
PATTERNS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
NAMES = ("a", "b", "ab")
PATHS = ["/".join(names) for depth in range(1, 6) for names in product(NAMES, repeat=depth)]
"""Every path of these names that is up to five deep: any two of the shorter patterns that meet, meet here."""

SOME_PATHS = st.lists(st.text("ab?", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


def fits(pattern: str, name: str) -> bool:
    """A name against one part of a pattern, character by character."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return fits(pattern[1:], name) or (bool(name) and fits(pattern, name[1:]))
    return bool(name) and name[0] == pattern[0] and fits(pattern[1:], name[1:])


def leads(pattern: list[str], path: list[str]) -> bool:
    """A path against a pattern, part by part; a last `**` needs something to stand for."""
    if not pattern:
        return not path
    if pattern == ["**"]:
        return bool(path)
    if pattern[0] == "**":
        return leads(pattern[1:], path) or (bool(path) and leads(pattern, path[1:]))
    return bool(path) and fits(pattern[0], path[0]) and leads(pattern[1:], path[1:])


def matched(pattern: str, paths: list[str]) -> list[str]:
    return sorted(path for path in paths if Glob(pattern).matches(path))


# --- cases ------------------------------------------------------------------


def test_d_01_any_depth_includes_none_and_names_with_a_dot() -> None:
    host = ["in.txt", "src/a.py", "src/.hid.py", "src/d/b.py", "src/d/b.txt", "a.py", "other/src/a.py", "src"]
    assert matched("src/**/*.py", host) == ["src/.hid.py", "src/a.py", "src/d/b.py"]


def test_d_02_a_pattern_begins_at_the_top() -> None:
    assert matched("*.txt", ["a.txt", "d/a.txt", "in.txt"]) == ["a.txt", "in.txt"]


SPECIAL = ["x[1].txt", "x1.txt", "q?", "qa", "!n", "n", "#h", "{a,b}", "a", "sp ", "A", ".", "x.txt"]


@pytest.mark.parametrize("name", SPECIAL)
def test_d_03_all_but_the_star_stands_for_itself(name: str) -> None:
    assert matched(name, SPECIAL) == [name]


def test_sb14_each_pattern_matches_its_own_set() -> None:
    host = ["deep/a", "deep/b/c.txt", "flat/a.txt", "flat/a.md", "flat/d/b.txt", "with space/a.txt", "withspace/a.txt"]
    assert matched("deep/**", host) == ["deep/a", "deep/b/c.txt"]
    assert matched("flat/*.txt", host) == ["flat/a.txt"]
    assert matched("with space/*.txt", host) == ["with space/a.txt"]


def test_sb16_names_with_a_dot_are_names_like_others() -> None:
    assert matched("**/*", [".env", "a/.env"]) == [".env", "a/.env"]


@pytest.mark.parametrize("name", [".git", ".stepwell", ".GIT"])
def test_no_wildcard_stands_for_what_is_protected(name: str) -> None:
    inside = [f"{name}/config", f"{name}/a/b"]
    for pattern in ("**", "**/config", "*/config", ".*/**", "*/**/b"):
        assert matched(pattern, inside) == []
        assert not Glob(pattern).may_hold(name)
    assert matched(f"{name}/**", inside) == sorted(inside)
    assert Glob(f"{name}/**").may_hold(name)
    assert matched("**/config", [f"sub/{name}/config"]) == [f"sub/{name}/config"]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("*aa*a*", "aa"), ("*b*b", "ab"), ("ab*ba", "aba"), ("a/*/b", "a//b"), ("out/**", "out/"), ("out/**", "out")],
)
def test_what_a_pattern_asks_for_twice_is_there_twice_and_no_wildcard_is_an_empty_name(pattern: str, path: str) -> None:
    assert not Glob(pattern).matches(path)


# --- properties -------------------------------------------------------------


@given(PATTERNS, SOME_PATHS)
def test_q_04_matching_agrees_with_trying_everything(pattern: str, path: str) -> None:
    assert Glob(pattern).matches(path) == leads(pattern.split("/"), path.split("/"))


@given(PATTERNS)
def test_q_04_it_agrees_on_every_short_path(pattern: str) -> None:
    assert matched(pattern, PATHS) == sorted(path for path in PATHS if leads(pattern.split("/"), path.split("/")))


@given(st.lists(PARTS, min_size=1, max_size=3).map("/".join), st.sampled_from(["", *PATHS[:12]]))
def test_a_directory_may_hold_something_just_if_a_path_below_it_matches(pattern: str, directory: str) -> None:
    top = f"{directory}/" if directory else ""
    names = (*NAMES, "?", "ba", "bb", "aba")
    below = ("/".join(each) for depth in range(1, 4) for each in product(names, repeat=depth))
    glob, holds = Glob(pattern), any(leads(pattern.split("/"), (top + it).split("/")) for it in below)
    assert glob.may_hold(directory) == holds
    if directory:
        assert glob.may_touch(directory) == (holds or leads(pattern.split("/"), directory.split("/")))


MEETING = st.lists(st.sampled_from(["*", "**", "a", "b", "a*", "*b"]), min_size=1, max_size=3).map("/".join)


@given(MEETING, MEETING)
def test_two_patterns_may_meet_just_if_they_share_a_path(one: str, two: str) -> None:
    shared = any(leads(one.split("/"), path.split("/")) and leads(two.split("/"), path.split("/")) for path in PATHS)
    assert Glob(one).may_meet(Glob(two)) == Glob(two).may_meet(Glob(one)) == shared


SHORT = ["".join(name) for size in range(1, 6) for name in product("ab", repeat=size)]


@given(st.text("ab*", min_size=1, max_size=3), st.text("ab*", min_size=1, max_size=3))
def test_two_names_with_wildcards_may_meet_just_if_they_share_a_name(one: str, two: str) -> None:
    if "**" not in (one, two):
        shared = any(fits(one, name) and fits(two, name) for name in SHORT)
        assert Glob(one).may_meet(Glob(two)) == shared


@given(PATTERNS, SOME_PATHS)
def test_a_search_from_the_base_finds_every_match(pattern: str, path: str) -> None:
    base = Glob(pattern).base
    assert not is_glob(base)
    if Glob(pattern).matches(path):
        assert not base or path.startswith(f"{base}/")


@pytest.mark.parametrize(
    ("pattern", "base"), [("src/**/*.py", "src"), ("*.txt", ""), ("in.txt", ""), ("a/b/c", "a/b"), ("**", "")]
)
def test_the_base_is_what_comes_before_the_first_wildcard(pattern: str, base: str) -> None:
    assert Glob(pattern).base == base


@pytest.mark.parametrize(
    ("text", "root"),
    [("out/**", "out"), ("a/b/**", "a/b"), ("**", None), ("/**", None), ("o*/**", None), ("out", None)],
)
def test_a_tree_is_a_pattern_whose_only_wildcard_is_its_end(text: str, root: str | None) -> None:
    assert tree_root(text) == root


@given(TEXTS, TEXTS)
def test_no_text_is_too_odd_for_a_pattern_or_a_path(pattern: str, path: str) -> None:
    glob = Glob(pattern)
    assert glob.may_meet(glob)
    if not is_glob(pattern):
        assert glob.matches(path) == (pattern == path)
    assert glob.may_hold("") or not glob.matches(path)


def test_many_wildcards_are_no_trouble() -> None:
    assert not Glob("*a" * 300).matches("a" * 299 + "b")
    assert Glob("*a" * 300).matches("a" * 300)
    assert not Glob("**/a/" * 30 + "b").matches("a/" * 60 + "c")
