"""The budgets of the core: a draft with its patch and paths, a validation, and what a change keeps in memory.

Nothing here waits for anything, so it is timed in the time of this process.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

from budget import Budget, Pair
from pydantic import BaseModel
from world import Order, Size, World, order, orders, set_item, set_root

from stepwell.core import draft
from stepwell.core.chunks import CHUNK, Chunked
from stepwell.core.incremental import Settled

__all__ = ["CORE_BUDGETS"]

PAIRS = 15
EACH = 200
KEPT = 50
"""How many changes are kept, each with the state that it made, to see what one of them takes."""

Change = Callable[[Order], None]


def seconds(run: Callable[[], object], times: int = EACH) -> float:
    began = time.process_time()
    for _ in range(times):
        _ = run()
    return (time.process_time() - began) / times


def in_turn(ours: Callable[[], object], floor: Callable[[], object]) -> list[Pair]:
    """The collector is off: it meets either side by chance, and each makes little of what it looks at."""
    _ = seconds(ours), seconds(floor)
    gc.collect()
    gc.disable()
    try:
        found: list[Pair] = []
        for _ in range(PAIRS):
            below = seconds(floor)
            found.append(Pair(seconds(ours), below))
    finally:
        gc.enable()
    return found


class Drafting:
    """Changes a state by drafts, each on what the last one made."""

    def __init__(self, size: Size, change: Change) -> None:
        self._state = order(size)
        self._change = change

    def __call__(self) -> None:
        self._state = draft.apply(self._state, self._change).state


async def drafts_beside_plain(change: Change, _: World) -> Sequence[Pair]:
    plain = order("1 KB").model_copy(deep=True)
    return in_turn(Drafting("1 KB", change), lambda: change(plain))


async def drafts_of_sizes(change: Change, _: World) -> Sequence[Pair]:
    return in_turn(Drafting("10 MB", change), Drafting("1 KB", change))


class Validating:
    """Settles one change again and again: what an updater made of a state, and where it wrote.

    The state has been changed before, as that of a store has but for its first change in a process: that one cuts a
    big list into chunks, once.
    """

    def __init__(self, size: Size, change: Change) -> None:
        self._before = settle(order(size), change).state
        drafted = draft.run(self._before, change, orders.schema.key_types)
        self._after, self._written = drafted.state, drafted.written

    def __call__(self) -> None:
        _ = orders.schema.settle(self._before, self._after, self._written).unwrap()


async def validations_of_sizes(change: Change, _: World) -> Sequence[Pair]:
    return in_turn(Validating("10 MB", change), Validating("1 KB", change))


# --- memory -------------------------------------------------------------------------


async def kept(size: Size, change: Change, _: World) -> Sequence[Pair]:
    """KB that each change keeps, with its patch and paths, besides the containers that it had to copy."""
    return [Pair(kept_bytes(order(size), change) / 1000) for _ in range(5)]


def kept_bytes(state: Order, change: Change) -> float:
    settled = [settle(state, change)]  # what is made once is made before
    gc.collect()
    tracemalloc.start()
    try:
        began = tracemalloc.get_traced_memory()[0]
        for _ in range(KEPT):
            settled.append(settle(settled[-1].state, change))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - began
    finally:
        tracemalloc.stop()
    return grown / KEPT - copied_bytes(settled[-2].state, settled[-1].state)


def settle(state: Order, change: Change) -> Settled[Order]:
    drafted = draft.run(state, change, orders.schema.key_types)
    return orders.schema.settle(state, drafted.state, drafted.written).unwrap()


def copied_bytes(before: Order, after: Order) -> int:
    """How large the containers are that are not shared between the two states."""
    copied = own_bytes(before, after)
    if before.items is not after.items:
        copied += list_bytes(after.items)
        copied += sum(own_bytes(old, new) for old, new in zip(before.items, after.items, strict=True) if old is not new)
    return copied


def list_bytes(items: object) -> int:
    """A list; of one in chunks the directory and the chunk that was written."""
    if isinstance(items, Chunked):
        return sys.getsizeof(items) + 8 * (len(items) // CHUNK + CHUNK) + 2 * sys.getsizeof([])
    return sys.getsizeof(items)


def own_bytes(before: BaseModel, after: BaseModel) -> int:
    """A record, its fields and the set of those that were given."""
    fields = sys.getsizeof(after.__dict__)
    given = 0 if before.model_fields_set is after.model_fields_set else sys.getsizeof(after.model_fields_set)
    return sys.getsizeof(after) + fields + given


# --- the budgets ----------------------------------------------------------------------

PLAIN = "the same in place"
SMALL = "the same of 1 KB"

CORE_BUDGETS = (
    Budget("draft-root", "draft, field of the root", PLAIN, 25.0, partial(drafts_beside_plain, set_root)),
    Budget("draft-item", "draft, items[3].status", PLAIN, 25.0, partial(drafts_beside_plain, set_item)),
    Budget("kept-root", "kept by a change of 1 KB, root", "-", 3.0, partial(kept, "1 KB", set_root), "KB"),
    Budget("kept-item", "kept by a change of 1 KB, item", "-", 3.0, partial(kept, "1 KB", set_item), "KB"),
    Budget("kept-large", "kept by a change of 10 MB, item", "-", 3.0, partial(kept, "10 MB", set_item), "KB"),
    Budget("draft-size-root", "draft, field of a 10 MB root", SMALL, 1.5, partial(drafts_of_sizes, set_root)),
    Budget("draft-size-item", "draft, items[3].status of 10 MB", SMALL, 1.5, partial(drafts_of_sizes, set_item)),
    Budget("valid-root", "validation, field of a 10 MB root", SMALL, 1.2, partial(validations_of_sizes, set_root)),
    Budget("valid-item", "validation, items[3] of 10 MB", SMALL, 1.2, partial(validations_of_sizes, set_item)),
)
