"""What it costs to know a step: the identity of its code, the material of its call, and its key.

    python benchmarks/identity.py [--rounds 20] [--check]

In time of this process, at the median of the rounds. A hit of the cache has a budget of about one commit for all that
it does, 100 to 250 µs, so each part has a bound well below that. `--check` takes fewer rounds. Exits 1 where a bound
is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from stepwell.core.argument_material import canonical_arguments
from stepwell.core.boundary import Boundary, Declaration, declare
from stepwell.core.cache_key import BoundReads, CacheMaterial, cache_key
from stepwell.core.canonical_json import canonical_json, canonical_material
from stepwell.core.code_identity import identify
from stepwell.core.measured import measured_reads
from stepwell.core.node import FileNode, Node, digest_of
from stepwell.core.result_schema import result_schema

PER_ROUND = 300
LIMIT = 3
WORDS = ["a", "b", "c"]


class Order(BaseModel):
    id: int
    note: str = ""

    def total(self) -> int:
        return self.id * LIMIT


def trivial(number: int) -> int:
    return number + 1


def doubled(number: int) -> int:
    return 2 * number


def helped(number: int) -> int:
    return doubled(number) + LIMIT + len(WORDS)


def modelled(order: Order) -> int:
    return helped(order.total())


DIGEST = digest_of(b"")


def material() -> CacheMaterial:
    tree: dict[str, Node] = {f"src/{number}.py": FileNode(DIGEST, 1) for number in range(5)}
    declared = declare(Boundary(["src/*.py"], ["out/report"]))
    assert isinstance(declared, Declaration)
    reads = measured_reads(declared, tree, {"src/*.py": tuple(tree)})
    return CacheMaterial(
        kind="python",
        name="report",
        code=DIGEST,
        arguments=b"[[],{}]",
        result=DIGEST,
        bound=BoundReads(declared, reads),
        environment=DIGEST,
        policy=DIGEST,
        floor="local",
    )


MATERIAL = material()
VALUE = {"name": "report", "reads": [[f"src/{number}.py", "f", DIGEST, False] for number in range(5)], "v": 1}
ORDER = Order(id=1)


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], object]
    bound_us: float


CASES = [
    Case("identify: x + 1", lambda: identify(trivial), 40),
    Case("identify: a helper and two constants", lambda: identify(helped), 80),
    Case("identify: a model with a method", lambda: identify(modelled), 600),
    Case("arguments: an int and a model", lambda: canonical_arguments([1, ORDER]), 60),
    Case("result's schema", lambda: result_schema(trivial), 5),
    Case("key with five reads", lambda: cache_key(MATERIAL), 80),
    Case("canonical_json, 30 values", lambda: canonical_json(VALUE), 60),
    Case("canonical_material, 30 values", lambda: canonical_material(VALUE), 60),
]


def microseconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(PER_ROUND):
        _ = run()
    return (time.process_time() - began) / PER_ROUND * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--check", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    rounds: int = 5 if arguments.check else arguments.rounds
    missed = 0
    for case in CASES:
        _ = microseconds(case.run)
        found = statistics.median(microseconds(case.run) for _ in range(rounds))
        missed += found > case.bound_us
        verdict = "ok" if found <= case.bound_us else "MISSED"
        print(f"{case.name:<40} {found:8.1f} µs   bound {case.bound_us:5.0f} µs   {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
