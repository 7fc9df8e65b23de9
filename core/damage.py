"""Damage: stored history that cannot be read as what was written. It does not pass by waiting, unlike its base."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

import msgspec

from .batch import Commit, Document
from .held import Held
from .model import Revision, StoreKey, Unavailable
from .outcome import Failure, Outcome, Success
from .patch import replay_json

__all__ = ["Damaged", "caught_up", "damaged_history", "damaged_rows", "followed", "read_document", "read_held"]

REMEDY: Final = "restore a backup; `stepwell doctor` checks the file"


@final
@dataclass(frozen=True, slots=True)
class Damaged(Unavailable):
    """What is stored is damaged: the same call fails for as long as nobody mends it. Nothing was changed.

    `why` is what is wrong, where the reason says more: what it happened to, and what to do.
    """

    why: str = field(default="", compare=False)


def damaged_history(key: StoreKey, revision: Revision | None, why: str) -> Damaged:
    """That the history of a store cannot be read, at that revision if it is known."""
    place = "" if revision is None else f" at version {revision.version}"
    return Damaged(f"the stored history of {key} is damaged{place}: {why}; {REMEDY}", "no")


def damaged_rows(why: str) -> Damaged:
    """That other rows of the database cannot be read."""
    return Damaged(f"the database is damaged: {why}; {REMEDY}", "no", why)


def read_document(key: StoreKey, document: Document) -> Outcome[bytes, Damaged]:
    """The state that a stored document stands for, as JSON."""
    try:
        if document.patches:
            return Success(replay_json(document.base, document.patches))
        _ = msgspec.json.decode(document.base, type=msgspec.Raw)
        _ = document.base.decode()
    except Exception as error:
        if document.patches:
            return Failure(_led_astray(key, document.revision, error))
        return Failure(damaged_history(key, document.revision, f"its base cannot be read ({error})"))
    return Success(document.base)


def read_held(key: StoreKey, document: Document) -> Outcome[Held, Damaged]:
    """What is held of a document that was read."""
    json = read_document(key, document)
    if isinstance(json, Failure):
        return json
    stored = json.unwrap()
    patch_bytes = sum(map(len, document.patches))
    return Success(Held(document.revision, len(stored), len(document.patches), patch_bytes, stored, form=document.form))


def caught_up(key: StoreKey, held: Held, commits: Sequence[Commit]) -> Outcome[Held | None, Damaged]:
    """What is held after the commits, of which there is one; None if only the whole document can tell."""
    revision = commits[-1].revision
    form = next((commit.form for commit in reversed(commits) if commit.form is not None), None)
    try:
        return Success(held.advanced(revision, [commit.patch for commit in commits], form))
    except Exception as error:
        return Failure(_led_astray(key, revision, error))


def followed(key: StoreKey, held: Held, revision: Revision, patches: Sequence[bytes]) -> Outcome[Held | None, Damaged]:
    """The state at a later revision, to be read only; None if only its document can tell."""
    try:
        return Success(held.followed(revision, patches))
    except Exception as error:
        return Failure(_led_astray(key, revision, error))


def _led_astray(key: StoreKey, revision: Revision, error: Exception) -> Damaged:
    """A garbled patch may name anything, and so meets any error on its way."""
    why = f"its patches do not lead there ({type(error).__name__}: {error})"
    return damaged_history(key, revision, why)
