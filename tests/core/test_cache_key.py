"""The key of a step: another one whenever a part of its material is another, and the same whatever the order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Failure, Success
from stepwell.core.boundary import Boundary, BoundaryMode, Declaration, DeclaredRead, declare
from stepwell.core.cache_key import BoundReads, CacheMaterial, cache_key
from stepwell.core.canonical_json import NotCanonical, canonical_json
from stepwell.core.command import Command
from stepwell.core.measured import MeasuredReads, measured_reads
from stepwell.core.node import DirNode, FileNode, LinkNode, Node, digest_of
from stepwell.core.result_schema import result_schema, schema_of

A, B, C = (digest_of(text) for text in (b"a", b"b", b"c"))
FORM = re.compile(r"key1_[0-9a-f]{64}")


def declaration(
    reads: Iterable[str | DeclaredRead] = (),
    writes: Iterable[str] = (),
    removes: Iterable[str] = (),
    mode: BoundaryMode = "hard",
) -> Declaration:
    declared = declare(Boundary([*reads], [*writes], [*removes], mode))
    assert isinstance(declared, Declaration)
    return declared


def bound(
    tree: dict[str, Node],
    reads: Iterable[str | DeclaredRead] = ("in.txt",),
    writes: Iterable[str] = ("out/r",),
    removes: Iterable[str] = (),
    mode: BoundaryMode = "hard",
) -> BoundReads:
    """A step's reads as they would be measured over a tree."""
    declared = declaration(reads, writes, removes, mode)
    matches = {glob.pattern: tuple(path for path in sorted(tree) if glob.matches(path)) for glob in declared.read_globs}
    return BoundReads(declared, measured_reads(declared, tree, matches))


IN: dict[str, Node] = {"in.txt": FileNode(A, 1)}
BASE = CacheMaterial(
    kind="python",
    name="fetch",
    code=A,
    arguments=b"[[1],{}]",
    result=B,
    bound=bound(IN),
    environment=C,
    policy=A,
    floor="local",
    namespace="main",
)
COMMAND = replace(BASE, kind="command", code=None, command=Command(("sort", "in.txt"), {"MODE": "a"}, 30, b"x"), tool=B)


def run(
    argv: tuple[str, ...] = ("sort", "in.txt"),
    mode: str = "a",
    timeout: float | None = 30,
    stdin: bytes = b"x",
    ok: tuple[int, ...] = (0,),
) -> CacheMaterial:
    return replace(COMMAND, command=Command(argv, {"MODE": mode}, timeout, stdin, ok))


READS: dict[str, BoundReads] = {
    "a file's bytes": bound({"in.txt": FileNode(B, 1)}),
    "a file's exec bit": bound({"in.txt": FileNode(A, 1, executable=True)}),
    "a link": bound({"in.txt": LinkNode(A)}),
    "a directory": bound({"in.txt": DirNode()}),
    "an absent file": bound({}),
    "no read": bound(IN, reads=()),
    "another read": bound({**IN, "b": FileNode(A, 1)}, reads=("in.txt", "b")),
    "a declared digest": bound({"in.txt": FileNode(A, 1)}, reads=(DeclaredRead("in.txt", C),)),
    "declared to be absent": bound(IN, reads=(DeclaredRead("in.txt", "absent"), "b")),
    "a pattern without a match": bound(IN, reads=("in.txt", "src/*.py")),
    "a pattern that is spelled otherwise": bound(IN, reads=("in.txt", "src/**/*.py")),
    "a pattern with a match": bound({**IN, "src/a.py": FileNode(A, 1)}, reads=("in.txt", "src/*.py")),
    "a pattern of what is a read": bound({**IN, "src/a.py": FileNode(A, 1)}, reads=("in.txt", "src/a.py")),
    "another write": bound(IN, writes=("out/s",)),
    "one write more": bound(IN, writes=("out/r", "out/s")),
    "a glob": bound(IN, writes=("out/*",)),
    "a tree": bound(IN, writes=("out/**",)),
    "no write": bound(IN, writes=()),
    "a removal": bound(IN, removes=("old",)),
    "the mode": bound(IN, mode="expected"),
}

CHANGED: dict[str, CacheMaterial] = {
    "nothing": BASE,
    "the name": replace(BASE, name="load"),
    "the code": replace(BASE, code=B),
    "a version": replace(BASE, code=None, version="1"),
    "a version that is the code": replace(BASE, code=None, version=A),
    "the arguments": replace(BASE, arguments=b"[[2],{}]"),
    "no arguments": replace(BASE, arguments=None),
    "the types of parameters": replace(BASE, parameters=C),
    "the result": replace(BASE, result=C),
    "no result": replace(BASE, result=None),
    "no boundary": replace(BASE, bound=None),
    "the environment": replace(BASE, environment=B),
    "a run": replace(BASE, environment=None, run_scope="run-1"),
    "another run": replace(BASE, environment=None, run_scope="run-2"),
    "a run named as the environment": replace(BASE, environment=None, run_scope=C),
    "the policy": replace(BASE, policy=B),
    "no policy": replace(BASE, policy=None),
    "the floor": replace(BASE, floor="shared"),
    "no floor": replace(BASE, floor=None),
    "the namespace": replace(BASE, namespace="other"),
    "no namespace": replace(BASE, namespace=None),
    "a command": COMMAND,
    "a command with a version": replace(COMMAND, version="1"),
    "the tool": replace(COMMAND, tool=C),
    "no tool": replace(COMMAND, tool=None),
    "argv": run(("sort", "-r", "in.txt")),
    "argv that is joined": run(("sort in.txt",)),
    "a variable": run(mode="b"),
    "no timeout": run(timeout=None),
    "the timeout": run(timeout=31),
    "stdin": run(stdin=b"y"),
    "ok": run(ok=(0, 1)),
    **{f"reads: {what}": replace(BASE, bound=each) for what, each in READS.items()},
}


@pytest.mark.parametrize("what", CHANGED)
def test_c47_k_04_k_05_k_12_each_part_makes_another_key(what: str) -> None:
    key = cache_key(CHANGED[what])
    assert FORM.fullmatch(key)
    assert [other for other, material in CHANGED.items() if cache_key(material) == key] == [what]


def test_c47_k_11_without_an_environment_the_key_is_of_one_run() -> None:
    first, second = (replace(BASE, environment=None, run_scope=run_id) for run_id in ("run-1", "run-2"))
    assert cache_key(first) == cache_key(replace(first))
    assert cache_key(first) != cache_key(second)
    with pytest.raises(ValueError, match="environment, or else of one run"):
        replace(BASE, environment=None)
    with pytest.raises(ValueError, match="environment, or else of one run"):
        replace(BASE, run_scope="run-1")


def test_k_02_what_only_times_and_sizes_tell_makes_no_difference() -> None:
    """A touched file is measured as it was: its node has neither times nor inode, and the size is no part of it."""
    touched = replace(BASE, bound=bound({"in.txt": FileNode(A, 7)}))
    assert cache_key(touched) == cache_key(BASE)


def test_k_08_the_variables_that_are_named_count_and_no_others() -> None:
    assert cache_key(run(mode="b")) != cache_key(run(mode="a"))
    assert cache_key(run(mode="a")) == cache_key(COMMAND)  # and nothing else of the environment is in the material


def test_c33_a_declared_digest_counts_and_not_what_was_measured() -> None:
    reads = (DeclaredRead("in.txt", A),)
    true, stale = (replace(BASE, bound=bound({"in.txt": FileNode(each, 1)}, reads)) for each in (A, B))
    assert cache_key(true) == cache_key(stale) == cache_key(BASE)
    absent = (DeclaredRead("in.txt", "absent"),)
    gone, there = (replace(BASE, bound=bound(tree, absent)) for tree in (dict[str, Node](), IN))
    assert cache_key(gone) == cache_key(there) == cache_key(CHANGED["reads: an absent file"])


def test_the_order_of_what_has_none_makes_no_difference() -> None:
    tree: dict[str, Node] = {path: FileNode(digest_of(path.encode()), 1) for path in ("b", "a", "é", "z", "\U0001f600")}
    one, two = (bound(tree, reads, writes) for reads, writes in ((tree, ("x", "y")), ([*tree][::-1], ("y", "x"))))
    shuffled = BoundReads(one.declaration, replace(two.measured, files=two.measured.files[::-1]))
    assert len({cache_key(replace(BASE, bound=each)) for each in (one, two, shuffled)}) == 1
    envs = ({"A": "1", "B": "2"}, {"B": "2", "A": "1"})
    assert len({cache_key(replace(COMMAND, command=Command(("a",), env))) for env in envs}) == 1
    oks = ((0, 1), (1, 0, 1))
    assert len({cache_key(replace(COMMAND, command=Command(("a",), ok=ok))) for ok in oks}) == 1
    waits = (30, 30.0, timedelta(seconds=30))
    assert len({cache_key(replace(COMMAND, command=Command(("a",), timeout=wait))) for wait in waits}) == 1


def test_the_form_is_pinned() -> None:
    """A changed form is a new version: else a result would be found under a key that means something else now."""
    no_match: list[str] = []
    form: dict[str, object] = {
        "v": 1,
        "hash": "sha256",
        "kind": "python",
        "name": "fetch",
        "version": "3",
        "arguments": digest_of(b"[]"),
        "environment": C,
        "boundary": {
            "mode": "hard",
            "reads": [["a", "f", A, True], ["l", "l", "a"], ["no", "absent"]],
            "patterns": [["*.py", no_match]],
            "writes": ["out"],
            "trees": ["t"],
            "globs": ["g/*"],
            "removes": ["old"],
        },
    }
    tree: dict[str, Node] = {"a": FileNode(A, 1, executable=True), "l": LinkNode("a"), "old": FileNode(B, 1)}
    reads = bound(tree, ("no", "l", "a", "*.py"), ("t/**", "out", "g/*"), ("old",))
    material = CacheMaterial(kind="python", name="fetch", version="3", arguments=b"[]", environment=C, bound=reads)
    assert cache_key(material) == "key1_" + digest_of(canonical_json(form))


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": None},
        {"kind": "command", "code": None, "environment": None, "run_scope": "run-1"},
        {"version": "1"},
        {"command": COMMAND.command},
        {"kind": "command", "code": None},
        {"kind": "command", "command": COMMAND.command},
        {"tool": A},
    ],
)
def test_material_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"step|tool"):
        replace(BASE, **wrong)  # type: ignore[arg-type]  # of any type


def test_text_that_is_not_valid_has_no_key() -> None:
    with pytest.raises(NotCanonical, match="surrogate"):
        cache_key(replace(BASE, name="\ud800"))


# --- any two ------------------------------------------------------------------------

DIGESTS = st.sampled_from([A, B])
PATHS = st.sampled_from(["a", "b", "src/a.py", "src/b.py", "é"])
NODES: st.SearchStrategy[Node] = (
    st.builds(FileNode, DIGESTS, st.just(1), st.booleans()) | st.builds(LinkNode, PATHS) | st.just(DirNode())
)
OPTIONAL = st.none() | DIGESTS


@st.composite
def bounds(draw: st.DrawFn) -> BoundReads:
    tree = draw(st.dictionaries(PATHS, NODES, max_size=3))
    reads = draw(st.sets(PATHS | st.sampled_from(["src/*.py", "*"]), max_size=3))
    writes = draw(st.sets(st.sampled_from(["x", "y", "x/**", "y/*"]), max_size=2))
    removes = draw(st.sets(st.sampled_from(["old", "older"]), max_size=1))
    mode: BoundaryMode = draw(st.sampled_from(["hard", "expected"]))
    return bound(tree, draw(st.permutations(sorted(reads))), draw(st.permutations(sorted(writes))), removes, mode)


@st.composite
def materials(draw: st.DrawFn) -> CacheMaterial:
    in_one_run = draw(st.booleans())
    scope, code, pinned = draw(DIGESTS), draw(DIGESTS), draw(st.booleans())
    return CacheMaterial(
        kind="python",
        name=draw(st.sampled_from(["fetch", "load"])),
        code=None if pinned else code,
        version=code if pinned else None,
        arguments=draw(st.none() | st.sampled_from([b"1", b"2"])),
        result=draw(OPTIONAL),
        bound=draw(st.none() | bounds()),
        environment=None if in_one_run else scope,
        run_scope=scope if in_one_run else None,
        policy=draw(OPTIONAL),
        floor=draw(st.sampled_from([None, "shared"])),
        namespace=draw(OPTIONAL),
    )


def told(material: CacheMaterial) -> CacheMaterial:
    """The material without what does not count: a removal that is no read is in the base digest only."""
    if material.bound is None:
        return material
    measured = MeasuredReads(material.bound.measured.files, material.bound.measured.matches)
    return replace(material, bound=BoundReads(material.bound.declaration, measured))


@given(materials(), materials())
def test_two_materials_have_one_key_only_if_they_are_equal(one: CacheMaterial, two: CacheMaterial) -> None:
    assert (cache_key(one) == cache_key(two)) == (told(one) == told(two))


@given(materials(), st.data())
def test_changing_one_part_changes_the_key(material: CacheMaterial, data: st.DataObject) -> None:
    other = data.draw(materials())
    part = data.draw(st.sampled_from(["name", "arguments", "result", "bound", "policy", "floor", "namespace"]))
    changed = replace(material, **{part: getattr(other, part)})
    assert (cache_key(changed) != cache_key(material)) == (told(changed) != told(material))


# --- results ------------------------------------------------------------------------


UNTYPED: Callable[..., object] = eval("lambda x: x")


def test_c47_the_declared_result_makes_a_difference() -> None:
    def one() -> int: ...  # type: ignore[empty-body]
    def two() -> float: ...  # type: ignore[empty-body]
    async def three() -> int: ...  # type: ignore[empty-body]

    assert result_schema(one) == result_schema(three) != result_schema(two)
    assert result_schema(UNTYPED) == result_schema(len) == schema_of(object) == "json"
    one.__annotations__["return"] = float
    assert result_schema(one) == result_schema(two)


SCHEMAS: list[object] = [
    *(int, float, str, None, bytes, list[int], list[str], set[int], dict[str, int], int | None, tuple[int, str]),
    *(Success[int], Failure[int], Success[int] | Failure[str], Success[int] | Failure[bytes]),
    *(Success[float] | Failure[str], Success[int] | Failure[str | bytes], list[Success[int] | Failure[str]]),
    *(list[Success[int] | Failure[bytes]], dict[str, Success[int] | Failure[str]]),
    list[Success[int] | Failure[str]] | None,
]


def test_results_that_are_read_in_different_ways_have_different_schemas() -> None:
    found = [schema_of(each) for each in SCHEMAS]
    assert len(set(found)) == len(SCHEMAS)
    assert found == [schema_of(each) for each in SCHEMAS]
    json.dumps(found)
