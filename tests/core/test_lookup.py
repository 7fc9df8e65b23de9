"""Which look-ups of a command were undeclared reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.lookup import Lookup, LookupKind, classify

KINDS: tuple[LookupKind, ...] = ("read", "create", "append", "update", "list", "readlink", "exec", "stat")

PATHS = ("a", "a/b", "c", "", "/usr/x", "/home/u/x", "/home", "/tmp/x")


def undeclared(
    *lookups: Lookup, host: Callable[[str], bool] = lambda path: True, strict: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undeclared reads and probes, where `declared` and `seeded` are declared and seeded, and all else is neither."""
    found = classify(
        lookups,
        declared=lambda path: path == "declared",
        seeded=lambda path: path == "seeded",
        host_has=host,
        shown=("/usr", "/opt/tool/bin"),
        private=("/tmp",),
        strict_probes=strict,
    )
    return found.undeclared, found.probes


@pytest.mark.parametrize("kind", ["read", "list", "readlink", "exec"])
def test_what_only_the_host_has_is_undeclared(kind: LookupKind) -> None:
    for path in ("secret", "/home/u/secret", "/tmp/secret"):
        assert undeclared(Lookup(kind, path, False)) == ((path,), ())


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_has_is_a_probe(kind: LookupKind) -> None:
    expected = () if kind in ("create", "append", "update") else ("nowhere",)
    assert undeclared(Lookup(kind, "nowhere", False), host=lambda path: False) == ((), expected)


def test_a_look_at_whether_it_exists_is_a_probe_also_if_the_host_has_it() -> None:
    assert undeclared(Lookup("stat", "secret", False)) == ((), ("secret",))
    assert undeclared(Lookup("stat", "/home/u/secret", False)) == ((), ("/home/u/secret",))


def test_strictly_a_probe_in_the_workspace_is_undeclared() -> None:
    looks = (Lookup("stat", "a", False), Lookup("read", "b", False), Lookup("stat", "/etc/x", False))
    assert undeclared(*looks, host=lambda path: False, strict=True) == (("a", "b"), ("/etc/x",))


def test_declared_and_seeded_paths_are_no_undeclared_reads() -> None:
    assert undeclared(Lookup("read", "declared", False), Lookup("read", "seeded", False)) == ((), ())


@pytest.mark.parametrize("path", ["/usr", "/usr/lib/x", "/opt/tool/bin/tool", "/opt", "/opt/tool", "/"])
def test_what_is_shown_and_the_way_to_it_are_no_reads(path: str) -> None:
    assert undeclared(Lookup("read", path, False)) == ((), ())
    assert undeclared(Lookup("read", "/opt/tool/lib", False)) == (("/opt/tool/lib",), ())
    assert undeclared(Lookup("read", "/usrlocal", False)) == (("/usrlocal",), ())


def test_what_is_hidden_in_a_shown_place_is_not_shown_but_for_what_is_shown_in_it() -> None:
    looks = [Lookup("read", f"/usr/{path}", False) for path in ("x", "src/x", "src", "src/venv/x", "src/venv")]
    found = classify(
        looks,
        declared=lambda path: False,
        seeded=lambda path: False,
        host_has=lambda path: True,
        shown=("/usr", "/usr/src/venv"),
        hidden=("/usr/src",),
    )
    assert found.undeclared == ("/usr/src/x",)


def test_what_the_command_made_is_its_own_from_then_on() -> None:
    for path in ("own", "/tmp/own"):
        made = Lookup("create", path, False)
        gone = Lookup("read", path, False)
        assert undeclared(made, gone) == ((), ())
        assert undeclared(gone, made) == ((path,), ())
        assert undeclared(Lookup("list", path, True), gone) == ((), ())


def test_what_is_opened_to_be_updated_would_have_been_there() -> None:
    """A program that appends would have found what the host has: what it made instead must not replace that."""
    update = Lookup("update", "log", False)
    assert undeclared(update) == (("log",), ())
    assert undeclared(update, host=lambda path: False) == ((), ())
    assert undeclared(Lookup("create", "log", False), update) == ((), ())
    assert undeclared(update, Lookup("create", "log", False), Lookup("read", "log", True)) == (("log",), ())


def test_what_is_opened_to_be_written_only_and_is_cut_to_nothing_was_not_read() -> None:
    cut = Lookup("truncate", "log", True)
    assert undeclared(Lookup("append", "log", False)) == (("log",), ())
    assert undeclared(Lookup("append", "log", False), cut) == ((), ())
    assert undeclared(Lookup("append", "log", False), Lookup("truncate", "other", True)) == (("log",), ())
    assert undeclared(Lookup("update", "log", False), cut) == (("log",), ())


def test_what_is_opened_to_be_updated_is_no_read_where_it_is_declared_or_private() -> None:
    assert undeclared(*(Lookup("update", path, False) for path in ("declared", "seeded", "/tmp/lock"))) == ((), ())


def test_what_was_made_by_an_update_is_the_commands_own() -> None:
    made = Lookup("update", "new", False)
    assert undeclared(made, Lookup("read", "new", False), host=lambda path: False) == ((), ())


def test_creating_elsewhere_asks_for_what_the_host_has() -> None:
    assert undeclared(Lookup("create", "/home/u/secret", False)) == (("/home/u/secret",), ())


def test_names_that_are_no_text_are_escaped() -> None:
    looks = (Lookup("read", "\udcff", False), Lookup("stat", "/tmp/\udcfe", False))
    assert undeclared(*looks, host=lambda path: path == "\udcff") == (("\\xff",), ("/tmp/\\xfe",))


def test_what_was_there_was_seen_in_order() -> None:
    looks = (Lookup("read", "b", True), Lookup("stat", "a", True), Lookup("list", "/tmp/x", True))
    found = classify(looks, declared=bool, seeded=bool, host_has=bool, shown=())
    assert found.seen == looks[:2]


looks = st.builds(Lookup, st.sampled_from(KINDS), st.sampled_from(PATHS), st.booleans())


@given(st.lists(looks), st.sets(st.sampled_from(PATHS)), st.booleans())
def test_every_path_is_at_most_one_thing_and_strictness_only_adds(
    made: list[Lookup], host: set[str], strict: bool
) -> None:
    found = classify(
        made,
        declared=lambda path: path == "c",
        seeded=lambda path: path == "a",
        host_has=host.__contains__,
        shown=("/usr",),
    )
    assert not set(found.undeclared) & set(found.probes)
    assert list(found.undeclared) == sorted(set(found.undeclared))
    assert set(found.undeclared) <= host
    absent = {look.path for look in made if not look.present}
    assert set(found.undeclared) | set(found.probes) <= absent
    stricter = classify(
        made,
        declared=lambda path: path == "c",
        seeded=lambda path: path == "a",
        host_has=host.__contains__,
        shown=("/usr",),
        strict_probes=strict,
    )
    assert set(found.undeclared) <= set(stricter.undeclared)
    assert set(stricter.undeclared) | set(stricter.probes) == set(found.undeclared) | set(found.probes)
