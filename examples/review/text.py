"""What can be said of a text: how large it is, which of its relative links are broken, which words are misspelled.

Links are read by markdown-it-py, misspellings by the dictionary that codespell carries; neither needs a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .board import BrokenLink, Links, Measures, Misspelling

MISSPELLINGS = 40
"""How many misspellings of one file are kept, so that a word list in another language does not fill the board."""

_WORD = re.compile(r"[\w\-'’]+")  # noqa: RUF001  # both apostrophes, as in codespell
_ADDRESS = re.compile(r"\b\w+://\S+|\b[\w.%+-]+@[\w.-]+\b")


def measure(text: str) -> Measures:
    """The size of a text."""
    lines = text.splitlines()
    longest_at, longest = max(enumerate(lines, 1), key=lambda numbered: len(numbered[1]), default=(0, ""))
    return Measures(
        lines=len(lines),
        words=len(text.split()),
        longest=len(longest),
        longest_at=longest_at,
        trailing=sum(line != line.rstrip() for line in lines),
    )


# --- links ------------------------------------------------------------------


def check_links(markdown: str, exists: Callable[[str], bool]) -> Links:
    """The relative links and images of a Markdown text; `exists` tells whether a target is there."""
    found = [(line, target) for line, target in _targets(markdown) if _is_relative(target)]
    broken = [BrokenLink(line=line, target=target) for line, target in found if not exists(_path(target))]
    return Links(checked=len(found), broken=broken)


def _targets(markdown: str) -> Iterator[tuple[int, str]]:
    for block in MarkdownIt("commonmark").enable("table").parse(markdown):
        line = block.map[0] + 1 if block.map else 0
        for token in block.children or ():
            line += token.type in ("softbreak", "hardbreak")
            target = _target(token)
            if target:
                yield line, target


def _target(token: Token) -> str:
    name = {"link_open": "href", "image": "src"}.get(token.type)
    return str(token.attrs.get(name, "")) if name else ""


def _is_relative(target: str) -> bool:
    parts = urlsplit(target)
    return not parts.scheme and not parts.netloc and bool(parts.path)


def _path(target: str) -> str:
    return unquote(urlsplit(target).path)


# --- spelling ---------------------------------------------------------------


def check_spelling(text: str) -> list[Misspelling]:
    """The misspelled words of a text, the first `MISSPELLINGS` of them. Addresses are passed over."""
    listed = _dictionary()
    found: list[Misspelling] = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in _WORD.findall(_ADDRESS.sub(" ", line)):
            if meant := listed.get(word.lower()):
                found.append(Misspelling(line=number, word=word, meant=meant))
                if len(found) == MISSPELLINGS:
                    return found
    return found


@cache
def _dictionary() -> dict[str, str]:
    """From each listed misspelling to what was meant. A line is `wrong->right`, or `wrong->one, another, remark`."""
    listed: dict[str, str] = {}
    for line in files("codespell_lib").joinpath("data", "dictionary.txt").read_text(encoding="utf-8").splitlines():
        wrong, _, right = line.partition("->")
        meant, comma, remark = right.rpartition(",")
        listed[wrong.lower()] = (meant if comma else remark).strip()
    return listed
