"""What a draft costs beside the same change of a plain object, and in a large state beside a small one.

    python benchmarks/drafts.py [--rounds 30] [--check]

Each change is made by `draft.apply`: a draft, the updater, the new state, the changed paths and the patch. Each builds
on the state that the last one made, so that big containers are in chunks and in layers. What is timed is the time of
this process, in turn with its floor. Exits 1 where a median misses its bound.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from floor import Row, report
from pydantic import BaseModel

from stepwell.core import draft

PLAIN_RATIO = 25.0
"""A draft with patch and paths, beside the plain set in place."""

SIZE_RATIO = 1.5
"""The same change in 10 MB, beside 1 KB."""

PER_ROUND = 100
SIZES = {"1 KB": (6, 2), "100 KB": (700, 200), "10 MB": (86_000, 21_000)}
"""How many elements the list and the dict have."""


class Item(BaseModel):
    sku: str
    title: str
    x: int = 0


class Order(BaseModel):
    status: str = "new"
    attempts: int = 0
    items: list[Item] = []
    by: dict[str, Item] = {}


def order(size: str) -> Order:
    items, keys = SIZES[size]
    return Order(
        items=[Item(sku=f"sku-{number:06d}", title="t" * 50, x=number) for number in range(items)],
        by={f"k{number}": Item(sku=f"sku-{number:06d}", title="t" * 50) for number in range(keys)},
    )


# --- changes ------------------------------------------------------------------------


def set_field(state: Order) -> None:
    state.attempts += 1


def set_in_list(state: Order) -> None:
    state.items[3].x += 1


def set_in_dict(state: Order) -> None:
    state.by["k1"].x += 1


def append(state: Order) -> None:
    state.items.append(Item(sku="sku", title="new"))


def pop_first(state: Order) -> None:
    state.items.append(state.items.pop(0))


def put_and_delete(state: Order) -> None:
    state.by["new"] = Item(sku="sku", title="new")
    del state.by["new"]


def ten_changes(state: Order) -> None:
    state.attempts += 1
    state.status = "old" if state.status == "new" else "new"
    for at in range(4):
        state.items[at].x += 1
    for at in range(4):
        state.by["k0"].x += at


@dataclass(frozen=True)
class Case:
    """`beside_plain` and `beside_small` say whether a bound is set for the ratio to either."""

    name: str
    change: Callable[[Order], None]
    beside_plain: bool = False
    beside_small: bool = False


CASES = (
    Case("one field", set_field, beside_plain=True, beside_small=True),
    Case("items[3].x", set_in_list, beside_plain=True, beside_small=True),
    Case("by[k].x", set_in_dict, beside_small=True),
    Case("append", append, beside_small=True),
    Case("pop(0), append", pop_first),
    Case("by[new], del", put_and_delete),
    Case("10 changes", ten_changes),
)


# --- measuring ----------------------------------------------------------------------


class Drafting:
    """Makes a change by drafts, each on what the last one made; the first ones are not timed."""

    def __init__(self, state: Order, change: Callable[[Order], None]) -> None:
        self._state = state
        self._change = change
        for _ in range(PER_ROUND):
            self()

    def __call__(self) -> None:
        self._state = draft.apply(self._state, self._change).state


def seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(PER_ROUND):
        run()
    return (time.process_time() - began) / PER_ROUND


def measured(case: Case, states: dict[str, Order], rounds: int) -> tuple[dict[str, Row], Row]:
    """For each size the ratio to the plain change, and the ratio of the largest to the smallest."""
    plain = states["1 KB"].model_copy(deep=True)
    drafts = {size: Drafting(state, case.change) for size, state in states.items()}
    spent: dict[str, list[float]] = {size: [] for size in states}
    floors: list[float] = []
    for _ in range(rounds):
        floors.append(seconds(lambda: case.change(plain)))
        for size, run in drafts.items():
            spent[size].append(seconds(run))
    rows: dict[str, Row] = {}
    for size in states:
        ratios = [one / other for one, other in zip(spent[size], floors, strict=True)]
        bound = PLAIN_RATIO if case.beside_plain else None
        rows[size] = Row(case.name, statistics.median(spent[size]) * 1e6, ratios, bound)
    ratios = [one / other for one, other in zip(spent["10 MB"], spent["1 KB"], strict=True)]
    bound = SIZE_RATIO if case.beside_small else None
    return rows, Row(case.name, statistics.median(spent["10 MB"]) * 1e6, ratios, bound)


def main(rounds: int) -> int:
    states = {size: order(size) for size in SIZES}
    gc.freeze()  # the collector would look at 10 MB again and again, on either side by chance
    found = [measured(case, states, rounds) for case in CASES]
    missed = 0
    for size in states:
        missed |= report(f"Drafts of {size}, beside the same in place", [rows[size] for rows, _ in found])
    missed |= report("Drafts of 10 MB, beside those of 1 KB", [row for _, row in found])
    return int(missed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="how many rounds each row is measured for")
    parser.add_argument("--check", action="store_true", help="few rounds, for a quick look at the bounds")
    given = parser.parse_args()
    sys.exit(main(7 if given.check else given.rounds))
