"""Paths in a state as words: `items[0].status`, `items.0.status`, and keys of any text as `["a.b"]`."""

from __future__ import annotations

import json
import re
from typing import Final

from ....core.model import Path

__all__ = ["path_text", "read_path"]

NAME: Final = re.compile(r"""[^.\[\]="]+""")
"""A field or key that needs no quotes."""

SEGMENT: Final = re.compile(
    rf"""\.?(?P<name>{NAME.pattern}) | \[(?P<index>[0-9]{{1,100}})\] | \[(?P<key>"(?:[^"\\]|\\.)*")\]""", re.VERBOSE
)


def path_text(path: Path) -> str:
    """A path as `read_path` takes it; the empty one as what it stands for."""
    return "".join(map(_segment_text, path)).removeprefix(".") or "the state"


def _segment_text(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    return f".{segment}" if NAME.fullmatch(segment) else f"[{json.dumps(segment, ensure_ascii=False)}]"


def read_path(word: str) -> tuple[Path, str]:
    """The path with which the word begins, and what follows it: nothing, a `=`, or what can be no path."""
    at, path = 0, list[str | int]()
    while (segment := SEGMENT.match(word, at)) is not None:
        path.append(_segment(segment))
        at = segment.end()
    return tuple(path), word[at:]


def _segment(segment: re.Match[str]) -> str | int:
    if segment["index"] is not None:
        return int(segment["index"])
    return json.loads(segment["key"]) if segment["key"] is not None else segment["name"]
