"""Which texts name something in a workspace, and which names two systems would understand differently."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepwell.core.codec import codec_of
from stepwell.core.step_sandbox import LimitExceeded, WorkspaceError
from stepwell.core.workspace_limits import LIMITS, WorkspaceLimits
from stepwell.core.workspace_path import (
    PathProblem,
    ancestors,
    collision,
    collision_key,
    declared_path,
    file_path,
    is_protected,
    operation_path,
    portable_problem,
)

from .workspace_texts import PATHS, TEXTS


def code(answer: str | PathProblem | None) -> str | None:
    return answer.code if isinstance(answer, PathProblem) else answer


# --- operations -------------------------------------------------------------


def test_p_04_a_path_that_goes_up_is_refused_and_spellings_of_one_path_are_one() -> None:
    assert code(operation_path("src/../in.txt")) == "invalid_path"
    assert code(operation_path("../x")) == "invalid_path"
    assert operation_path("./in.txt") == "in.txt"
    assert operation_path("src//a.py") == "src/a.py"


@pytest.mark.parametrize("text", ["..", "../x", "a/..", "/..", "/stepwell/ws/../x", "./..", "a/../../b"])
def test_sb12_no_spelling_of_an_upward_path_is_folded(text: str) -> None:
    assert code(operation_path(text)) == "invalid_path"
    assert code(declared_path(text)) == "invalid_path"


@pytest.mark.parametrize("text", ["/abs", "/", "/stepwell", "/stepwell/wsx/a", "//abs", "/etc/passwd"])
def test_sb12_an_absolute_path_outside_escapes(text: str) -> None:
    assert code(operation_path(text)) == "path_escapes_workspace"
    assert code(declared_path(text)) == "path_escapes_workspace"


def test_p_05_absolute_paths_below_a_root_are_made_relative() -> None:
    roots = ("/home/me/project", "/stepwell/ws")
    assert operation_path("/home/me/project/in.txt", roots) == "in.txt"
    assert operation_path("/stepwell/ws/./out//r", roots) == "out/r"
    assert operation_path("/home//me/project/", roots) == ""
    assert operation_path("/stepwell/ws/in.txt") == "in.txt"
    assert code(operation_path("/home/me/project/in.txt")) == "path_escapes_workspace"


def test_sb13_operations_may_be_spelled_freely_and_a_backslash_is_a_character() -> None:
    assert operation_path("./src/a.txt") == operation_path("src//a.txt") == "src/a.txt"
    assert operation_path("a\\b") == "a\\b"


@pytest.mark.parametrize("text", ["a\0b", "a\nb", "a\x7f", "a\udc80", ""])
def test_p_07_unusable_characters_and_no_path_at_all_are_refused(text: str) -> None:
    assert code(file_path(text)) == "invalid_path"
    assert code(declared_path(text)) == "invalid_path"


@pytest.mark.parametrize("text", ["\0", "a\0", "\0/..", "/\0"])
def test_sb17_a_path_with_nul_is_refused(text: str) -> None:
    assert code(operation_path(text)) == code(declared_path(text)) == "invalid_path"


@pytest.mark.parametrize("text", ["", ".", "./", "/stepwell/ws", "/stepwell/ws/."])
def test_the_top_can_be_listed_but_is_no_file(text: str) -> None:
    assert operation_path(text) == ""
    assert code(file_path(text)) == "invalid_path"


def sized(size: int) -> str:
    """A path of that many bytes."""
    whole, rest = divmod(size, 200)
    return "/".join(["x" * 199] * whole + ["y" * rest]) if rest else "/".join(["x" * 199] * whole) + "z"


@pytest.mark.parametrize("check", [operation_path, declared_path])
def test_p_10_depth_and_length_have_limits_that_are_met_exactly(check: Callable[[str], str | PathProblem]) -> None:
    deep, long = "/".join("d" * 64), sized(1_024)
    assert len(long.encode()) == 1_024
    assert (check(deep), check(long)) == (deep, long)
    too_deep, too_long = check(deep + "/d"), check(sized(1_025))
    assert isinstance(too_deep, PathProblem)
    assert isinstance(too_long, PathProblem)
    assert too_deep.as_failure() == LimitExceeded("path_depth", 65, 64)
    assert too_long.as_failure() == LimitExceeded("path_bytes", 1_025, 1_024)


def test_p_10_sizes_are_counted_in_bytes_and_names_have_a_limit_of_their_own() -> None:
    problem = operation_path("\u00e9" * 128)
    assert isinstance(problem, PathProblem)
    assert problem.as_failure() == LimitExceeded("name_bytes", 256, 255)
    assert operation_path("\u00e9" * 127) == "\u00e9" * 127
    long = operation_path("/".join(["\u00e9" * 100] * 6))
    assert isinstance(long, PathProblem)
    assert long.as_failure() == LimitExceeded("path_bytes", 1_205, 1_024)


def test_p_10_a_limit_of_nothing_is_a_limit() -> None:
    problem = operation_path("a", limits=WorkspaceLimits(path_depth=0))
    assert isinstance(problem, PathProblem)
    assert problem.as_failure() == LimitExceeded("path_depth", 1, 0)


@given(TEXTS)
def test_q_05_normalising_is_idempotent_and_never_leads_outside(text: str) -> None:
    path = operation_path(text)
    if not isinstance(path, PathProblem):
        assert operation_path(path) == path
        assert not {"", ".", ".."} & set(path.split("/") if path else ())
        assert len(path.encode()) <= LIMITS.path_bytes


@given(TEXTS)
def test_q_05_what_is_declared_names_what_an_operation_of_that_name_reaches(text: str) -> None:
    path = declared_path(text)
    if not isinstance(path, PathProblem):
        assert path == text == operation_path(text) == file_path(text)
        assert normalize("NFC", path) == path


@given(TEXTS)
def test_every_refusal_can_be_printed_is_short_and_becomes_a_failure(text: str) -> None:
    for answer in (operation_path(text), file_path(text), declared_path(text), portable_problem(text)):
        if isinstance(answer, PathProblem):
            assert len(answer.message.encode()) < 3_000
            assert answer.message.isprintable()
            failure = answer.as_failure()
            assert (failure.what if isinstance(failure, LimitExceeded) else failure.code) == answer.code


@pytest.mark.parametrize(
    "problem",
    [
        PathProblem("invalid_path", "no"),
        PathProblem("path_depth", "too deep", 65, 64),
    ],
)
def test_a_22_a_problem_and_its_failure_come_back_from_their_json_as_they_were(problem: PathProblem) -> None:
    for value in (problem, problem.as_failure()):
        codec = codec_of(type(value))
        assert codec.decode(codec.encode(value, "it"), "it") == value
    assert codec_of(WorkspaceError).decode(b'{"code": "invalid_path", "message": "no"}', "it") == WorkspaceError(
        "invalid_path", "no"
    )


# --- declarations -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("./a", "'a'"),
        ("a//b", "'a/b'"),
        ("out/", "'out/**'"),
        (".", "'**'"),
        ("a\\b", "/"),
        ("cafe\u0301", "'caf\\xe9'"),
        ("/abs", "from the top"),
        (".stepwell/sandbox", "own files"),
    ],
)
def test_a_declaration_is_spelled_in_one_way_and_the_refusal_says_in_which(text: str, hint: str) -> None:
    problem = declared_path(text)
    assert isinstance(problem, PathProblem)
    assert hint in problem.message


@pytest.mark.parametrize("text", [".stepwell", ".stepwell/x", ".StepWell/x"])
def test_cb10_nobody_declares_the_files_of_stepwell(text: str) -> None:
    assert code(declared_path(text)) == "protected_path"


def test_names_at_the_top_are_protected_in_any_case_and_only_there() -> None:
    assert all(map(is_protected, [".git", ".git/config", ".GIT/config", ".stepwell/lock"]))
    assert not any(map(is_protected, [".gitignore", "a/.git", "git", ""]))
    assert declared_path(".git/config") == ".git/config"


def test_ancestors_are_the_directories_above_the_nearest_first() -> None:
    assert list(ancestors("a/b/c")) == ["a/b", "a"]
    assert list(ancestors("a")) == list(ancestors("")) == list(ancestors("/a")) == []


# --- other systems ----------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["con", "CON", "nul.txt", "nul .txt", "com1", "Lpt9.x.y", "COM\u00b9", "x.", "x ", "a:b", "conin$"]
)
def test_u_07_names_that_windows_understands_differently_are_refused(name: str) -> None:
    for path in (name, f"out/{name}", f"{name}/x"):
        problem = portable_problem(path)
        assert isinstance(problem, PathProblem)
        assert problem.code == "invalid_path"
        assert repr(name) in problem.message
        assert declared_path(path) == path


@pytest.mark.parametrize("name", ["console", "con-1", ".con", "com0", "com10", "x.y", " x", "null", "aux*", "*.", "q?"])
def test_u_07_others_are_not(name: str) -> None:
    assert portable_problem(f"out/{name}") is None


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        pytest.param("out/A.txt", "out/a.txt", ("'out/A.txt'", "'out/a.txt'"), id="U-03"),
        pytest.param("out/caf\u00e9", "out/cafe\u0301", ("'out/caf\u00e9'", "'out/cafe\\u0301'"), id="U-05"),
        pytest.param("out/A/x", "out/a/y", ("'out/A'", "'out/a'"), id="two directories"),
        pytest.param("out/A", "out/a/y", ("'out/A'", "'out/a'"), id="a file and a directory"),
        pytest.param("stra\u00dfe", "STRASSE", ("'stra\u00dfe'", "'STRASSE'"), id="sharp s"),
    ],
)
def test_u_03_and_u_05_two_names_that_may_become_one_are_named_both(
    one: str, other: str, named: tuple[str, str]
) -> None:
    problem = collision(["z", one, "B", other])
    assert problem is not None
    assert problem.code == "name_collision"
    assert all(name in problem.message for name in named)


def test_one_name_in_two_directories_and_one_path_twice_are_no_collision() -> None:
    assert collision(["a/x", "b/x", "a/x", "a/y", "x", "X2"]) is None


@given(st.lists(PATHS, max_size=6))
def test_a_collision_is_two_entries_of_one_directory_with_one_key(paths: list[str]) -> None:
    entries = {entry for path in paths for entry in (path, *ancestors(path))}
    folded = any(
        one.rpartition("/")[0] == two.rpartition("/")[0] and collision_key(one) == collision_key(two)
        for one, two in combinations(sorted(entries), 2)
    )
    assert (collision(paths) is not None) == folded


@given(st.text(st.characters()))
@example("\u01f0")
def test_a_key_never_joins_or_parts_names(text: str) -> None:
    assert normalize("NFC", collision_key(text)) == collision_key(text)
    assert collision_key(text).count("/") == text.count("/")
    assert collision_key(text) == "/".join(map(collision_key, text.split("/")))


# --- limits -----------------------------------------------------------------


def test_a_limit_is_a_whole_number_that_is_not_negative() -> None:
    with pytest.raises(ValueError, match="the limit nodes is at least 0"):
        WorkspaceLimits(nodes=-1)
    with pytest.raises(TypeError, match="the limit wall is a whole number"):
        WorkspaceLimits(wall=True)
