"""The review board: one store that all runs, the reviewer and the director share; an entry for each file."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel

from stepwell import InvalidState, ReceiptMismatch, StoreNotFound, TooLarge, define_store

Decision: TypeAlias = Literal["approved", "changes requested"]


class Measures(BaseModel):
    """How large a text is. `longest_at` is the number of its longest line, and `longest` that line's length."""

    lines: int
    words: int
    longest: int
    longest_at: int
    trailing: int
    """Lines that end in white space."""


class BrokenLink(BaseModel):
    """A relative link that leads to no file."""

    line: int
    target: str


class Links(BaseModel):
    """The relative links of a Markdown file: how many there are, and which are broken."""

    checked: int
    broken: list[BrokenLink]


class Misspelling(BaseModel):
    """A word that a dictionary of common misspellings lists, and what it says was meant."""

    line: int
    word: str
    meant: str


class Verdict(BaseModel):
    """What the reviewer decided, and why."""

    decision: Decision
    remarks: list[str]
    by: str


class Entry(BaseModel):
    """What is known of one file. `verdict` is missing until the reviewer has given it."""

    run_id: str
    recorded: int
    """How often its run recorded it; 1, however often that run was interrupted."""
    measures: Measures
    links: Links
    misspellings: list[Misspelling]
    verdict: Verdict | None = None


class Board(BaseModel):
    """The entries by path, relative to the folder that is reviewed."""

    entries: dict[str, Entry] = {}


BoardFailure: TypeAlias = StoreNotFound | InvalidState | ReceiptMismatch | TooLarge
"""How a call on the board can fail in a run."""

BOARD = define_store("review-board", Board)
