"""What can be done to a store, as pure plans: what was read -> what to answer and what to commit.

A writing call of the store service is one `Operation`. Its `plan` runs the user's code on what the store holds and
gives the answer together with the batch that makes it true; the caller commits the batch, and plans again from what
is then there if another writer was faster. `answer` reads the outcome back from a receipt. Nothing here waits or
writes, so the engine can join a plan with the rows of a run in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .batch import Batch, Receipt
from .model import Revision, StepId, StoreKey
from .outcome import Outcome

__all__ = ["Held", "Operation", "Planned"]

_A_co = TypeVar("_A_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Held:
    """A committed state as the planner holds it: its revision, and the whole state as a JSON document."""

    revision: Revision
    json: bytes
