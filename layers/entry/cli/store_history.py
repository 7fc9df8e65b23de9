"""`store --history` and `store --diff`: what changed a store, and where two of its versions differ."""

from __future__ import annotations

import json

from ....core.difference import ABSENT
from ....core.model import Revision, StoreKey, StoreNotFound
from ....core.outcome import Failure
from ....services.ledger import Ledger
from ....services.revisions import Changed, Difference
from ...layer import get
from .options import Settings, open_existing, value_of
from .output import Output, instant, shorten
from .paths import path_text
from .problem import Problem, problem_of

__all__ = ["print_differences", "print_history", "read_differences", "read_history", "unknown_version"]

PAGE = 100
"""How many changes are read at a time."""


async def read_history(settings: Settings, key: StoreKey, limit: int) -> tuple[Changed, ...]:
    """The newest changes of the store, at most so many."""
    found: list[Changed] = []
    async with open_existing(settings) as app:
        before: Revision | None = None
        while len(found) < limit:
            page = value_of(
                await app.revisions.history(key.name, key.id, limit=min(PAGE, limit - len(found)), before=before)
            )
            if not page:
                break
            found += page
            before = page[-1].revision
    return tuple(found)


def print_history(output: Output, key: StoreKey, changes: tuple[Changed, ...]) -> None:
    if output.as_json:
        output.json({"name": key.name, "id": key.id, "changes": [_json(change) for change in changes]})
        return
    rows = [
        (
            change.revision.version,
            change.kind,
            instant(change.at_ms, "seconds"),
            change.patch_bytes if change.kind == "patched" else None,
            shorten(", ".join(map(path_text, change.paths))),
            change.revision.instance_id,
        )
        for change in changes
    ]
    output.table(["version", "change", "at", "bytes", "of", "instance"], rows, whole=("version", "change", "at"))


def _json(change: Changed) -> dict[str, object]:
    return {
        "instance_id": change.revision.instance_id,
        "version": change.revision.version,
        "kind": change.kind,
        "at_ms": change.at_ms,
        "paths": [list(path) for path in change.paths],
        "patch_bytes": change.patch_bytes,
    }


# --- differences --------------------------------------------------------------


async def read_differences(
    settings: Settings, key: StoreKey, one: int, other: int, instance: str | None = None
) -> tuple[Difference, ...]:
    """Of two versions of the instance; for None of the one that exists, or that was deleted last."""
    async with open_existing(settings) as app:
        last: Revision | None = None
        if instance is None:
            newest = value_of(await get(app.env, Ledger).revisions(key, limit=1, patches=False))
            if not newest:
                raise problem_of(StoreNotFound(key))
            last = newest[0].revision
            instance = last.instance_id
        found = await app.revisions.diff(key.name, key.id, Revision(instance, one), Revision(instance, other))
        if isinstance(found, Failure):
            missing = found.failure()
            if isinstance(missing, StoreNotFound) and missing.expected is not None:
                raise unknown_version(key, missing.expected, last)
        return value_of(found)


def unknown_version(key: StoreKey, revision: Revision, last: Revision | None) -> Problem:
    """There is no such version, or it is kept no more. `last` is the instance's last one; None: it was asked for."""
    version = revision.version
    if last is not None and version > last.version:
        return Problem("unknown_version", f"{key} has no version {version}: it is at version {last.version}")
    lists = f"`stepwell store {key.name} {key.id} --history` lists those that are"
    if last is None:
        text = f"version {version} of instance {revision.instance_id} of {key} is not there, or not kept any more"
    else:
        text = f"version {version} of {key} is not kept any more"
    return Problem("unknown_version", f"{text}; {lists}")


def print_differences(output: Output, key: StoreKey, one: int, other: int, differences: tuple[Difference, ...]) -> None:
    if output.as_json:
        found = [_difference_json(difference) for difference in differences]
        output.json({"name": key.name, "id": key.id, "before": one, "after": other, "differences": found})
        return
    if not differences:
        output.note(f"{key}: versions {one} and {other} are alike")
    for each in differences:
        output.text(f"{path_text(each.path)}: {_shown(each.before)} -> {_shown(each.after)}")


def _difference_json(difference: Difference) -> dict[str, object]:
    """A side on which there is nothing is left out: null is a value."""
    sides = {"before": difference.before, "after": difference.after}
    return {"path": list(difference.path), **{name: value for name, value in sides.items() if value is not ABSENT}}


def _shown(value: object) -> str:
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False)
