"""What a step may declare, what is refused as a declaration, and which declarations get into each other's way."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.boundary import (
    Boundary,
    Declaration,
    DeclaredRead,
    Touched,
    declare,
    directory_problem,
    overlaps,
)
from stepwell.core.glob import Glob, is_glob
from stepwell.core.node import digest_of
from stepwell.core.step_sandbox import LimitExceeded
from stepwell.core.workspace_limits import WorkspaceLimits
from stepwell.core.workspace_path import PathProblem

from .workspace_texts import PATHS, TEXTS

ALPHA, BETA = digest_of(b"alpha\n"), digest_of(b"beta\n")


def declared(boundary: Boundary, *, portable: bool = True) -> Declaration:
    declaration = declare(boundary, portable)
    assert isinstance(declaration, Declaration), declaration
    return declaration


def refused(boundary: Boundary, *, portable: bool = True) -> PathProblem:
    problem = declare(boundary, portable)
    assert isinstance(problem, PathProblem)
    return problem


def misuse(make: Callable[..., object], **fields: object) -> None:
    """A call that no type checker would let pass."""
    make(**fields)


# --- what is refused at once ------------------------------------------------


@pytest.mark.parametrize("removal", ["out/old", "out", "out/a/b"])
def test_d_05_what_a_declared_tree_holds_needs_no_removal_and_may_have_none(removal: str) -> None:
    with pytest.raises(ValueError, match=f"'{removal}' is a removal and a write"):
        Boundary(writes=["out/**"], removes=[removal])


@pytest.mark.parametrize("write", ["old", "o*", "**", "*d"])
def test_d_05_no_file_is_both_written_and_removed(write: str) -> None:
    with pytest.raises(ValueError, match="'old' is a removal and a write"):
        Boundary(writes=["a", write], removes=["old"])


def test_d_05_a_file_may_give_way_to_a_directory_and_a_directory_to_a_file() -> None:
    assert declared(Boundary(writes=["out/x"], removes=["out"])).removals == ("out",)
    assert declared(Boundary(writes=["out"], removes=["out/x"])).removals == ("out/x",)


def test_a_removal_names_one_file() -> None:
    with pytest.raises(ValueError, match=r"'tmp/\*' is a glob; name each file"):
        Boundary(removes=["tmp/*"])


def test_d_08_one_file_with_two_digests_is_refused() -> None:
    with pytest.raises(ValueError, match=rf"'in\.txt' is declared with two digests, {ALPHA} and {BETA}"):
        Boundary(reads=[DeclaredRead("in.txt", ALPHA), DeclaredRead("in.txt", BETA)])
    with pytest.raises(ValueError, match="two digests"):
        Boundary(reads=[DeclaredRead("in.txt", "absent"), DeclaredRead("in.txt", BETA)])


def test_d_08_one_file_may_be_named_again_with_what_is_known_of_it() -> None:
    boundary = Boundary(reads=["in.txt", DeclaredRead("in.txt", ALPHA), DeclaredRead("in.txt"), "a"])
    assert declared(boundary).read_files == (DeclaredRead("a"), DeclaredRead("in.txt", ALPHA))


@pytest.mark.parametrize(
    ("path", "digest", "message"),
    [("src/*", ALPHA, "is a glob"), ("a", "beef", "64 lower-case hex"), ("a", ALPHA.upper(), "64 lower-case hex")],
)
def test_d_08_a_digest_is_one_of_a_single_file(path: str, digest: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeclaredRead(path, digest)


def test_u_01_a_name_that_is_not_nfc_is_refused_with_the_name_that_is() -> None:
    with pytest.raises(ValueError, match=r"'cafe\\u0301' is not in the Unicode form NFC; write it as 'caf\\xe9'"):
        Boundary(reads=["caf\u00e9", "cafe\u0301"])
    assert declared(Boundary(reads=["caf\u00e9"])).reads("caf\u00e9")


def test_sb13_a_backslash_is_refused_in_any_declaration() -> None:
    path, refusal = "src\\a.txt", 'has a backslash; write "/"'
    with pytest.raises(ValueError, match=refusal):
        Boundary(reads=[path])
    with pytest.raises(ValueError, match=refusal):
        Boundary(reads=[DeclaredRead(path)])
    with pytest.raises(ValueError, match=refusal):
        Boundary(writes=[path])
    with pytest.raises(ValueError, match=refusal):
        Boundary(removes=[path])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"reads": "src/**"}, r"reads is a sequence of paths, and 'src/\*\*' is one; write reads=\('src/\*\*',\)"),
        ({"writes": b"out"}, "writes is a sequence of paths"),
        ({"removes": None}, "not NoneType"),
        ({"writes": {"out"}}, "as a tuple or a list, not set"),
        ({"reads": [b"a"]}, "a read is text, not b'a'"),
        ({"writes": [DeclaredRead("a")]}, "a write is text"),
        ({"removes": [1]}, "a removal is text, not 1"),
    ],
)
def test_what_is_no_sequence_of_texts_is_a_mistake_of_the_program(fields: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        misuse(Boundary, **fields)


@pytest.mark.parametrize("mode", ["soft", "", None, ["hard"]])
def test_a_mode_is_one_of_two(mode: object) -> None:
    with pytest.raises(ValueError, match="the mode of a boundary is 'hard' or 'expected', not"):
        misuse(Boundary, mode=mode)


# --- what is refused when the step is executed --------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../x", "invalid_path"),
        ("..", "invalid_path"),
        ("a/../b", "invalid_path"),
        ("/abs", "path_escapes_workspace"),
        ("", "invalid_path"),
        ("a\0b", "invalid_path"),
        ("a\udc80", "invalid_path"),
        ("./a", "invalid_path"),
        ("a//b", "invalid_path"),
        ("a/", "invalid_path"),
        (".stepwell/lock", "protected_path"),
    ],
)
def test_sb12_and_sb17_what_names_nothing_in_a_workspace_is_told_by_a_value(path: str, code: str) -> None:
    for boundary in (Boundary(reads=[path]), Boundary(writes=["ok", path]), Boundary(removes=[path])):
        assert refused(boundary).code == code


def test_p_10_a_declaration_has_the_limits_of_its_workspace() -> None:
    problem = declare(Boundary(writes=["a/b/c"]), limits=WorkspaceLimits(path_depth=2))
    assert isinstance(problem, PathProblem)
    assert problem.as_failure() == LimitExceeded("path_depth", 3, 2)


@pytest.mark.parametrize("path", ["con", "out/nul.txt", "x.", "a:b", "sp "])
def test_u_07_names_that_are_not_portable_are_refused_unless_that_is_wanted(path: str) -> None:
    for boundary in (Boundary(reads=[path]), Boundary(writes=[path]), Boundary(removes=[path])):
        assert refused(boundary).code == "invalid_path"
        declared(boundary, portable=False)


@pytest.mark.parametrize(
    "boundary",
    [
        Boundary(writes=["A.txt", "a.txt"]),
        Boundary(reads=["A.txt"], writes=["a.txt"]),
        Boundary(writes=["Out/**", "out/r"]),
    ],
)
def test_u_03_names_that_may_become_one_are_refused_before_the_body_runs(boundary: Boundary) -> None:
    assert refused(boundary).code == "name_collision"
    declared(boundary, portable=False)


def test_u_03_a_file_may_be_renamed_to_another_case() -> None:
    assert declared(Boundary(writes=["README"], removes=["Readme"])).outputs == ("README",)


def test_d_09_a_directory_that_is_read_as_a_file_is_refused_with_what_to_declare() -> None:
    problem = directory_problem("src")
    assert problem.code == "unsupported_file_type"
    assert problem.message == "'src' is a directory; to read all below it declare 'src/**'"


@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=2), st.booleans())
def test_no_text_is_too_odd_for_a_boundary(
    reads: list[str], writes: list[str], removes: list[str], portable: bool
) -> None:
    try:
        boundary = Boundary(reads, writes, removes)
    except ValueError:
        return
    answer = declare(boundary, portable)
    assert isinstance(answer, Declaration | PathProblem)
    assert overlaps([boundary, boundary]) == (((0, 1),) if writes or removes else ())


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        (Boundary(reads=("a",)), Boundary(reads=("a",)), False),
        (Boundary(writes=("a",)), Boundary(reads=("a",)), True),
        (Boundary(writes=("a",)), Boundary(reads=(DeclaredRead("a", "absent"),)), True),
        (Boundary(writes=("out/a",)), Boundary(reads=("out/**",)), True),
        (Boundary(writes=("out/**",)), Boundary(reads=("out/deep/a",)), True),
        (Boundary(removes=("a",)), Boundary(reads=("*",)), True),
        (Boundary(writes=("out/a",)), Boundary(reads=("src/**",), writes=("out/b",)), False),
        (Boundary(writes=("out/*.o",)), Boundary(reads=("out/*.o",)), True),
        (Boundary(writes=("a",)), Boundary(writes=("a",)), True),
        (Boundary(), Boundary(reads=("**",)), False),
    ],
    ids=str,
)
def test_steps_touch_one_another_where_one_changes_what_the_other_changes_or_reads(
    one: Boundary, other: Boundary, meet: bool
) -> None:
    assert Touched.by(one).meets(Touched.by(other)) is meet
    assert Touched.by(other).meets(Touched.by(one)) is meet


# --- what is declared ---------------------------------------------------------


def test_a_declaration_tells_files_globs_and_trees_apart() -> None:
    declaration = declared(
        Boundary(
            reads=["src/**", "in.txt", "in.txt"],
            writes=["out/r", "gen/**", "*.log", "gen/deep/**", "**/x"],
            removes=["old"],
            mode="expected",
        )
    )
    assert declaration == Declaration(
        mode="expected",
        read_files=(DeclaredRead("in.txt"),),
        read_globs=(Glob("src/**"),),
        outputs=("out/r",),
        write_globs=(Glob("**/x"), Glob("*.log")),
        trees=("gen", "gen/deep"),
        removals=("old",),
    )
    assert not declaration.hard
    assert declared(Boundary()).hard


def test_a_tree_has_its_own_directory_and_all_below_it() -> None:
    declaration = declared(Boundary(writes=["out/**", "out/in/**", "lib/a"]))
    assert [declaration.tree_of(path) for path in ("out", "out/a/b", "out/in", "out/in/x", "outer", "lib/a", "")] == [
        "out",
        "out",
        "out/in",
        "out/in",
        None,
        None,
        None,
    ]
    assert declaration.writes("out")
    assert declaration.writes("out/.hid/x")
    assert not declaration.writes("outer")
    assert declaration.may_remove("out/a/b")
    assert declaration.may_remove("out/in")
    assert not declaration.may_remove("out")
    assert not declaration.may_remove("lib/a")
    assert not declaration.removes("out/a/b")


def test_a_removal_is_neither_a_read_nor_a_write() -> None:
    declaration = declared(Boundary(removes=["old"]))
    assert (declaration.reads("old"), declaration.writes("old")) == (False, False)
    assert (declaration.removes("old"), declaration.may_remove("old")) == (True, True)


def test_protected_files_are_read_and_written_only_by_their_names() -> None:
    whole = declared(Boundary(reads=["**"], writes=["**/config"]))
    assert not whole.reads(".git/config")
    assert not whole.writes(".git/config")
    assert not whole.writes(".stepwell/config")
    named = declared(Boundary(reads=[".git/HEAD"], writes=[".git/hooks/**"]))
    assert named.reads(".git/HEAD")
    assert named.writes(".git/hooks/post-commit")


@given(st.lists(PATHS, max_size=4), st.lists(PATHS, max_size=4), PATHS)
def test_what_is_declared_is_what_one_of_its_patterns_matches(reads: list[str], writes: list[str], path: str) -> None:
    try:
        declaration = declare(Boundary(reads, writes), portable=False)
    except ValueError:
        return
    if isinstance(declaration, Declaration):
        below = [f"{text}/x" for text in writes if text == f"{path}/**" and not is_glob(path)]
        assert declaration.reads(path) == any(Glob(text).matches(path) for text in reads)
        written = any(Glob(text).matches(path) for text in writes) or bool(below)
        assert declaration.writes(path) == written


@given(st.lists(PATHS, max_size=6), st.lists(PATHS, max_size=6), st.randoms(use_true_random=False))
def test_q_07_the_order_and_repetition_of_what_is_declared_do_not_count(
    reads: list[str], writes: list[str], chance: random.Random
) -> None:
    def shuffled(paths: list[str]) -> list[str]:
        mixed = paths + paths[:2]
        chance.shuffle(mixed)
        return mixed

    try:
        declaration = declare(Boundary(reads, writes), portable=False)
    except ValueError:
        return
    if isinstance(declaration, Declaration):
        assert declare(Boundary(shuffled(reads), shuffled(writes)), portable=False) == declaration


def test_a_boundary_is_not_changed_by_the_list_that_it_was_made_of() -> None:
    reads: list[str | DeclaredRead] = ["a"]
    boundary = Boundary(reads=reads)
    reads.append("b")
    assert boundary == Boundary(reads=("a",))
    assert hash(boundary) == hash(Boundary(reads=["a"]))
    assert replace(boundary, writes=["w"]) == Boundary(("a",), ("w",))


# --- overlaps -----------------------------------------------------------------


def test_d_06_steps_that_write_to_one_place_are_found_before_they_run() -> None:
    steps = [
        Boundary(writes=["out/**"]),
        Boundary(writes=["out/sub/**"]),
        Boundary(writes=["out*/x"]),
        Boundary(writes=["outer/**"]),
    ]
    assert overlaps(steps) == ((0, 1), (0, 2), (2, 3))


@pytest.mark.parametrize(
    ("one", "two", "met"),
    [
        (Boundary(writes=["a"]), Boundary(writes=["a"]), True),
        (Boundary(writes=["a"]), Boundary(writes=["b"]), False),
        (Boundary(writes=["a"]), Boundary(writes=["a/b"]), True),
        (Boundary(writes=["a"]), Boundary(writes=["ab"]), False),
        (Boundary(writes=["a"]), Boundary(removes=["a"]), True),
        (Boundary(removes=["a"]), Boundary(removes=["a"]), True),
        (Boundary(removes=["out/x"]), Boundary(writes=["out/**"]), True),
        (Boundary(writes=["src"]), Boundary(writes=["src/*.o"]), True),
        (Boundary(writes=["src/*.o"]), Boundary(writes=["src/a.o"]), True),
        (Boundary(writes=["src/*.o"]), Boundary(writes=["src/*.d"]), False),
        (Boundary(writes=["src/*.o"]), Boundary(writes=["src/a*"]), True),
        (Boundary(writes=["o*"]), Boundary(writes=["out/**"]), True),
        (Boundary(reads=["a"]), Boundary(writes=["a"]), False),
        (Boundary(), Boundary(), False),
    ],
)
def test_d_06_which_boundaries_get_into_each_others_way(one: Boundary, two: Boundary, met: bool) -> None:
    assert overlaps([one, two]) == overlaps([two, one]) == (((0, 1),) if met else ())


WRITES = st.lists(st.sampled_from(["a", "b", "a/b", "a/**", "*", "a/*", "*/b", "**/a", "b*/**"]), max_size=3)


@given(WRITES, WRITES)
def test_d_06_no_two_boundaries_that_can_write_one_path_are_missed(one: list[str], two: list[str]) -> None:
    first, second = Boundary(writes=one), Boundary(writes=two)
    paths = ["a", "b", "c", "a/b", "a/a", "b/a", "b/b", "a/b/a", "bc/a", "c/b"]
    if any(declared(first).writes(path) and declared(second).writes(path) for path in paths):
        assert overlaps([first, second]) == ((0, 1),)
