"""`store --set`: a change by hand, as an update of the typed store like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from ....core.model import Conflict, Contended, InvalidState, Replace, Revision, Snapshot, StoreKey
from ....core.outcome import Failure
from ....core.schema import StateSchema
from ....services.store import StoreDefinition
from .options import Settings, open_existing, value_of
from .problem import Problem, problem_of
from .words import Assignment, UnknownPath, assign, look

__all__ = ["edit"]

ATTEMPTS: Final = 10
"""How often a change is tried again when others are faster."""


async def edit(
    settings: Settings, definition: StoreDefinition[object], key: StoreKey, assignments: Sequence[Assignment]
) -> tuple[Revision, bytes]:
    """Change the store, and give its revision and document after that. A `Problem` has changed nothing."""
    async with open_existing(settings) as app:
        store = app.store(definition, key.id)
        for _ in range(ATTEMPTS):
            snapshot = value_of(await store.get())
            changed = _changed(definition.schema, snapshot, key, assignments)
            updated = await store.update_from(snapshot, _replace_by(changed))
            if isinstance(updated, Failure) and isinstance(updated.failure(), Conflict):
                continue
            after = value_of(updated)
            return after.revision, definition.schema.encode(after.state)
    raise problem_of(Contended(key, ATTEMPTS))


def _changed(
    schema: StateSchema[object], snapshot: Snapshot[object], key: StoreKey, assignments: Sequence[Assignment]
) -> object:
    """The state with the values in their places, by way of its JSON document, where every part has a path."""
    document = json.loads(schema.encode(snapshot.state))
    try:
        document = assign(document, assignments)
    except UnknownPath as error:
        raise _unknown(key, error) from None
    decoded = schema.decode(json.dumps(document).encode())
    if isinstance(decoded, Failure):
        raise problem_of(InvalidState(key, decoded.failure()))
    kept = json.loads(schema.encode(decoded.unwrap()))
    try:
        for assignment in assignments:  # a type may pass over what it does not know
            look(kept, assignment.path)
    except UnknownPath as error:
        raise _unknown(key, error) from None
    return decoded.unwrap()


def _unknown(key: StoreKey, error: UnknownPath) -> Problem:
    return Problem("unknown_path", f"{key}: {error}; nothing was changed")


def _replace_by(state: object) -> Callable[[object], Replace[object]]:
    return lambda _: Replace(state)
