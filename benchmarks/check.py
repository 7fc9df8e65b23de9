"""Every budget, each measured beside its floor, several times in a row, in one table.

    python benchmarks/check.py [--only NAME[,NAME]] [--runs 3] [--json] [--list]

`--only hot` takes every budget whose name begins so. The table has each budget's worst run and the medians of all of
them. Exits 1 if a budget is missed in any run. Ratios to a floor can be compared between machines; a busy machine makes
them worse, and wider.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import TypeAlias

from budget import Budget, Summary, number, summarise, table
from cache import CACHE_BUDGETS
from core_budgets import CORE_BUDGETS
from floor import folder
from run_budgets import RUN_BUDGETS, RUN_SIZE_BUDGETS
from sandbox import SANDBOX_BUDGETS
from store_budgets import STORE_BUDGETS
from world import World

Result: TypeAlias = tuple[Budget[World], list[Summary]]

# What holds a state of 10 MB comes last: a heap that large makes the collector's part in everything else larger.
BUDGETS: tuple[Budget[World], ...] = (
    *RUN_BUDGETS,
    *STORE_BUDGETS,
    *SANDBOX_BUDGETS,
    *CACHE_BUDGETS,
    *RUN_SIZE_BUDGETS,
    *CORE_BUDGETS,
)


def chosen(only: str | None, budgets: Sequence[Budget[World]]) -> list[Budget[World]]:
    """The budgets whose names begin with one of these; a ValueError names the ones that there are."""
    prefixes = tuple(only.split(",")) if only else ("",)
    found = [budget for budget in budgets if budget.name.startswith(prefixes)]
    unknown = [prefix for prefix in prefixes if not any(budget.name.startswith(prefix) for budget in found)]
    if unknown:
        names = ", ".join(budget.name for budget in budgets)
        raise ValueError(f"no budget begins with {', '.join(unknown)}; there are {names}")
    return found


async def run_once(results: Sequence[Result]) -> None:
    with folder() as path:
        world = World(path)
        for budget, runs in results:
            gc.collect()
            found = summarise(budget, await budget.measure(world))
            runs.append(found)
            line = f"{budget.name:<18}{number(found.median):>9}   {budget.bound_text:<12} {budget.verdict(found.met)}"
            print(line, file=sys.stderr, flush=True)


def as_json(results: Sequence[Result]) -> str:
    return json.dumps(
        [
            {
                "name": budget.name,
                "what": budget.what,
                "floor": budget.floor,
                "unit": budget.unit,
                "bound": budget.bound,
                "at_least": budget.at_least,
                "met": all(run.met for run in runs),
                "runs": [run._asdict() for run in runs],
            }
            for budget, runs in results
        ],
        indent=2,
    )


def load() -> str:
    """How busy the machine is: where more wants to run than there are cores, what takes time of ours looks worse."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main(arguments: Sequence[str] | None = None, budgets: Sequence[Budget[World]] = BUDGETS) -> int:
    """Measure, print, and say how to exit; a `SystemExit` for arguments that make no sense."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of budgets, or what they begin with, separated by commas")
    parser.add_argument("--runs", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--json", action="store_true", help="the results as JSON, with every run")
    parser.add_argument("--list", action="store_true", help="the names of the budgets, and nothing else")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        parser.error("--runs is at least 1")
    try:
        wanted = chosen(given.only, budgets)
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        for budget in wanted:
            print(f"{budget.name:<18}{budget.what}, {budget.bound_text}")
        return 0
    results: list[Result] = [(budget, []) for budget in wanted]
    for number_ in range(given.runs):
        print(f"run {number_ + 1} of {given.runs}, {load()}", file=sys.stderr, flush=True)
        asyncio.run(run_once(results))
    print(as_json(results) if given.json else f"{table(results)}\n{load()}")
    return 0 if all(run.met for _, runs in results for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
