"""The key of a step in the cache: the digest of all that its result may depend on.

`CacheMaterial` has each part by its name. A part that is not there leaves no trace, so that a part which is added later
changes no key of a step without it; and no two parts can stand for each other. Times, inodes, absolute paths of the
host, users and process ids are no parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from .boundary import Declaration
from .canonical_json import canonical_material
from .command import Command
from .measured import MeasuredReads
from .node import FileNode, Node, digest_of
from .tree import node_form, path_order

__all__ = ["KEY_PREFIX", "BoundReads", "CacheMaterial", "StepKind", "cache_key"]

VERSION: Final = 1
"""The version of the form: to raise it is to forget every result that is in a cache."""

KEY_PREFIX: Final = f"key{VERSION}_"

StepKind: TypeAlias = Literal["python", "command"]

_ABSENT: Final = "absent"

_Part: TypeAlias = "str | int | bool | list[_Part] | dict[str, _Part]"


@final
@dataclass(frozen=True, slots=True)
class BoundReads:
    """What a step declares, and what its declared reads were measured to be."""

    declaration: Declaration
    measured: MeasuredReads


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMaterial:
    """All that a result may depend on.

    `name` is the step's key in its run. `code` is the digest of a `CodeIdentity`, `version` what the step was pinned to
    instead; a step of kind "python" has one of them unless its key is of one run, a command may have a version beside
    its `command`, and `tool` is the digest of its program where that is not in the workspace. `arguments` is what
    `canonical_arguments` gives, or what their codecs wrote, and `parameters` tells how these read it; `result` is what
    `result_schema` gives. `environment` is the digest of the environment; where there is none, the key is of one run
    only, which `run_scope` names. `policy` is the digest of the rules that a step is executed by, and `floor` the
    evidence that they ask for. `namespace` keeps caches apart that must not share.

    Building it raises ValueError for a part that is missing or does not belong.
    """

    kind: StepKind
    name: str
    code: str | None = None
    version: str | None = None
    command: Command | None = None
    tool: str | None = None
    arguments: bytes | None = None
    parameters: str | None = None
    result: str | None = None
    bound: BoundReads | None = None
    environment: str | None = None
    run_scope: str | None = None
    policy: str | None = None
    floor: str | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        if (self.environment is None) == (self.run_scope is None):
            raise ValueError("a cache key is of an environment, or else of one run: give either")
        if self.code is not None and self.version is not None:
            raise ValueError("a step is known by its code or by its version: give one of them")
        if self.kind == "python" and self.command is not None:
            raise ValueError("a Python step has no command")
        if self.kind == "python" and self.code is None and self.version is None and self.run_scope is None:
            raise ValueError("a Python step of which neither code nor version is known is of one run")
        if self.kind == "command" and (self.command is None or self.code is not None):
            raise ValueError("a step that is a command has that, and no code digest")
        if self.tool is not None and self.command is None:
            raise ValueError("a tool is the program of a command")


def cache_key(material: CacheMaterial) -> str:
    """The key: "key1_" and 64 hex digits. Equal material has one key, and different material another.

    Raises NotCanonical if a text in it is not valid Unicode.
    """
    parts = dict(_parts(material))
    # With ASCII members, no floats and valid Unicode this is RFC 8785, byte for byte. `canonical_material` is slower.
    text = _encode(parts)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = canonical_material(parts)
    return KEY_PREFIX + digest_of(data)


_encode: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def _parts(material: CacheMaterial) -> Iterator[tuple[str, _Part]]:
    yield "v", VERSION
    yield "hash", "sha256"
    yield "kind", material.kind
    yield "name", material.name
    for name in _TEXTS:
        text: str | None = getattr(material, name)
        if text is not None:
            yield name, text
    if material.arguments is not None:
        yield "arguments", digest_of(material.arguments)
    if material.command is not None:
        yield "command", _command(material.command)
    if material.bound is not None:
        yield "boundary", _boundary(material.bound.declaration, material.bound.measured)


_TEXTS: Final = (
    "code",
    "version",
    "tool",
    "parameters",
    "result",
    "environment",
    "run_scope",
    "policy",
    "floor",
    "namespace",
)


def _command(command: Command) -> _Part:
    """A command as it is executed: the order of its variables and of its exit codes makes no difference."""
    parts: dict[str, _Part] = {
        "argv": [*command.argv],
        "env": [[name, command.env[name]] for name in sorted(command.env)],
        "ok": [*sorted({*command.ok})],
        "stdin": digest_of(command.stdin),
    }
    if command.timeout_s is not None:
        parts["timeout"] = repr(float(command.timeout_s))
    return parts


def _boundary(declaration: Declaration, measured: MeasuredReads) -> _Part:
    declared = {read.path: read.digest for read in declaration.read_files if read.digest is not None}
    found = dict(measured.files)
    paths = {*found, *(read.path for read in declaration.read_files)}
    parts: dict[str, _Part] = {
        "mode": declaration.mode,
        "reads": [_read(path, found.get(path), declared.get(path)) for path in sorted(paths, key=path_order)],
    }
    if measured.matches:
        matches = sorted(measured.matches, key=lambda match: path_order(match[0]))
        parts["patterns"] = [[pattern, [*sorted(matched, key=path_order)]] for pattern, matched in matches]
    writes = {
        "writes": declaration.outputs,
        "trees": declaration.trees,
        "globs": tuple(glob.pattern for glob in declaration.write_globs),
        "removes": declaration.removals,
    }
    for name, written in writes.items():
        if written:
            parts[name] = [*sorted(written, key=path_order)]
    return parts


def _read(path: str, node: Node | None, declared: str | None) -> _Part:
    """A read by what it was measured to be; by the digest that was declared, if one was.

    So a declared digest that is not true any more finds the row that was recorded when it was, and the row is judged.
    """
    if declared == _ABSENT or (declared is None and node is None):
        return [path, _ABSENT]
    if declared is not None:
        return [path, "f", declared, isinstance(node, FileNode) and node.executable]
    assert node is not None
    return [path, *node_form(node)]
