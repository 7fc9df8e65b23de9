"""Which links a step may leave behind: such that mean the same in every copy of the workspace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.link_rules import link_problem, places
from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of

from .workspace_texts import TEXTS

FILE = FileNode(digest_of(b"f"), 1)
TREE: dict[str, Node] = {
    "in.txt": FILE,
    "out/f": FILE,
    "out/d/g": FILE,
    "out/empty": DirNode(),
    "out/ln": LinkNode("d"),
}


def problem_of(path: str, target: str, *, writes: tuple[str, ...] = ("out/r", "gen/**")) -> tuple[str, str] | None:
    declaration = declare(Boundary(writes=writes))
    assert isinstance(declaration, Declaration)
    tree = TREE | {path: LinkNode(target)}
    problem = link_problem(path, target, tree, declaration)
    assert link_problem(path, target, tree, declaration, places(tree)) == problem
    return None if problem is None else (problem.code, problem.message)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/etc/passwd", "path_escapes_workspace"),
        ("../../x", "path_escapes_workspace"),
        ("../nope", "unsupported_file_type"),
        ("l", "unsupported_file_type"),
    ],
)
def test_s_08_a_link_that_means_something_else_elsewhere_is_refused_by_both_its_names(target: str, code: str) -> None:
    found = problem_of("out/l", target)
    assert found is not None
    assert found[0] == code
    assert "'out/l'" in found[1]
    assert repr(target) in found[1]


@pytest.mark.parametrize("target", ["f", "./f", ".//f", "d", "d/g", "../in.txt", "../out/f", "empty", ".", "..", "d/"])
def test_s_09_a_link_to_what_is_in_the_workspace_may_stay(target: str) -> None:
    assert problem_of("out/l", target) is None


@pytest.mark.parametrize("target", ["r", "../gen", "../gen/any/thing"])
def test_a_link_to_nothing_may_stay_where_that_is_a_declared_output(target: str) -> None:
    assert problem_of("out/l", target) is None
    assert problem_of("out/l", target, writes=()) is not None


@pytest.mark.parametrize(
    ("target", "code", "reason"),
    [
        ("ln", "unsupported_file_type", "through the link 'out/ln'"),
        ("ln/g", "unsupported_file_type", "through the link 'out/ln'"),
        ("f/x", "unsupported_file_type", "'out/f', which is a file"),
        ("d/../f", "invalid_path", 'goes up by ".."'),
        ("../../workspace/in.txt", "path_escapes_workspace", "out of the workspace"),
        ("", "invalid_path", "not 1 to 4095 bytes"),
        ("./" * 2_048 + "f", "invalid_path", "not 1 to 4095 bytes"),
        ("f\0", "invalid_path", "character '\\x00'"),
        ("f\udc80", "invalid_path", "character '\\udc80'"),
        ("d/" * 70 + "g", "invalid_path", "at most 64"),
    ],
)
def test_other_links_are_refused_with_the_reason(target: str, code: str, reason: str) -> None:
    found = problem_of("out/l", target)
    assert found is not None
    assert found[0] == code
    assert reason in found[1]


def test_a_link_at_the_top_leads_to_its_neighbours_and_no_further() -> None:
    assert problem_of("l", "in.txt") is None
    assert problem_of("l", ".") is None
    found = problem_of("l", "..")
    assert found is not None
    assert found[0] == "path_escapes_workspace"


@given(st.sampled_from(["l", "out/l", "out/d/l"]), TEXTS)
def test_no_text_is_too_odd_for_a_link_and_none_that_may_stay_leads_out(path: str, target: str) -> None:
    found = problem_of(path, target)
    if found is not None:
        assert found[1].isprintable()
        return
    depth = path.count("/")
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        assert depth >= 0
    assert not target.startswith("/")
