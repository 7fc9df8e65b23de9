"""What differs between two trees, and the identities of a difference: fixed for ever, since they are recorded."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of, is_digest
from stepwell.core.tree import NodeChange, apply, bundle_identity, changes, diff_identity, node_form, path_order

BETA = FileNode(digest_of(b"beta\n"), 5)
OLD = FileNode(digest_of(b"old\n"), 4)

DIGESTS = st.sampled_from([digest_of(text) for text in (b"", b"a", b"b")])
NODES = (
    st.builds(FileNode, DIGESTS, st.integers(0, 9), st.booleans())
    | st.builds(LinkNode, st.sampled_from(["a", "b", "d"]))
    | st.just(DirNode())
)
PATHS = st.sampled_from(["a", "b", "a/b", "\u00e9", "\uffff", "\U00010000", 'q"', "z"])
TREES = st.dictionaries(PATHS, NODES)

EMPTY = "diff1_19d1b456d437132d53fe009ea19d70f9b6cb10a67855459e69ba9562f923d181"


@pytest.mark.parametrize(
    ("base", "current", "identity"),
    [
        pytest.param({}, {}, EMPTY, id="nothing"),
        pytest.param(
            {},
            {"out/r": BETA},
            "diff1_933e874ca86c8c09133b98afb63a457f0899dbbdd7b66ff94301491d3f13c7dd",
            id="a file",
        ),
        pytest.param(
            {},
            {"out/r": FileNode(BETA.digest, 5, executable=True)},
            "diff1_966ca8fa58fbb8235cb9be31a4c4e17d736a584b7457f824472e0034854273ea",
            id="the same, executable",
        ),
        pytest.param(
            {"old": OLD},
            {},
            "diff1_6a99d90fff27ccc08c57f87b2f60646619d1d3c4aa64448d2dde9f49b6563c6c",
            id="a removal",
        ),
        pytest.param(
            {"old": OLD},
            {"out/r": BETA, "ln": LinkNode("out/r"), "d/empty": DirNode()},
            "diff1_1fdd4462ae52a46db157402b2ca4c40bf28d10f10fd104db0544400a3a80da4c",
            id="one of each",
        ),
    ],
)
def test_the_identities_of_differences_are_those_of_all_versions(
    base: dict[str, Node], current: dict[str, Node], identity: str
) -> None:
    assert diff_identity(changes(base, current)) == identity


@given(TREES, TREES)
def test_q_02_a_difference_made_to_the_base_gives_what_is_there_now(
    base: dict[str, Node], current: dict[str, Node]
) -> None:
    made = changes(base, current)
    assert apply(base, made) == current
    assert all(before.path.encode() < after.path.encode() for before, after in pairwise(made))
    assert {change.path for change in made} <= base.keys() | current.keys()


@given(TREES)
def test_q_02_there_is_no_difference_to_oneself(tree: dict[str, Node]) -> None:
    assert changes(tree, dict(tree)) == ()
    assert diff_identity(changes(tree, tree)) == EMPTY


@given(TREES, TREES, st.randoms(use_true_random=False))
def test_q_02_an_identity_does_not_depend_on_the_order_of_what_was_done(
    base: dict[str, Node], current: dict[str, Node], chance: random.Random
) -> None:
    made = list(changes(base, current))
    mixed = made.copy()
    chance.shuffle(mixed)
    assert diff_identity(mixed) == diff_identity(made)
    assert bundle_identity(mixed) == bundle_identity(made)


@given(TREES, TREES, TREES, TREES)
def test_q_02_equal_identities_are_equal_outcomes(
    base: dict[str, Node], current: dict[str, Node], base2: dict[str, Node], current2: dict[str, Node]
) -> None:
    one, two = changes(base, current), changes(base2, current2)
    outcomes = [[(change.path, change.after) for change in made] for made in (one, two)]
    assert (diff_identity(one) == diff_identity(two)) == (outcomes[0] == outcomes[1])
    assert (bundle_identity(one) == bundle_identity(two)) == (one == two)


def test_what_is_replaced_is_part_of_a_bundle_and_not_of_a_difference() -> None:
    new, replaced = NodeChange("out/r", None, BETA), NodeChange("out/r", OLD, BETA)
    assert diff_identity([new]) == diff_identity([replaced])
    assert bundle_identity([new]) != bundle_identity([replaced])
    assert bundle_identity([new]) == "bundle1_" + digest_of(
        f'{{"entries":[["out/r",null,["f","{BETA.digest}",false]]],"kind":"workspace-diff","v":1}}'.encode()
    )


def test_the_size_of_a_file_is_no_difference_and_its_exec_bit_is_one() -> None:
    assert changes({"a": BETA}, {"a": FileNode(BETA.digest, 6)}) == ()
    assert len(changes({"a": BETA}, {"a": FileNode(BETA.digest, 5, executable=True)})) == 1


@given(NODES, NODES)
def test_two_nodes_have_one_form_just_if_they_are_equal(one: Node, two: Node) -> None:
    assert (json.dumps(node_form(one)) == json.dumps(node_form(two))) == (one == two)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_paths_are_ordered_as_their_texts_are(paths: list[str]) -> None:
    assert sorted(paths, key=path_order) == sorted(paths)


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", "\u0660" * 64])
def test_other_texts_are_no_digests(text: str) -> None:
    assert not is_digest(text)
    assert is_digest(digest_of(text.encode()))
