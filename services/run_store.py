"""A store as a workflow sees it: its calls as durable steps."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypeAlias, TypeVar, cast, final

from ..core.codec import result_codec
from ..core.model import (
    Conflict,
    Deleted,
    InvalidState,
    ReceiptMismatch,
    Revision,
    Snapshot,
    StoreNotFound,
    Taken,
    TimedOut,
    TooLarge,
    Unmatched,
    Updated,
)
from ..core.outcome import Outcome
from .clock import span_ms
from .driver import Driver, DurableCall
from .store import (
    Claim,
    Initial,
    Selector,
    StoreDefinition,
    Updater,
    admit_function,
    admit_revision,
    admit_version_read,
)

__all__ = ["RunStore", "Timeout", "step_span_ms"]

_R = TypeVar("_R")
_T = TypeVar("_T")

Timeout: TypeAlias = timedelta | float | None
"""How long, in seconds or as a timedelta; None is without end."""


@final
class RunStore(Generic[_T]):
    """The calls of one store as durable steps. `Unavailable` and `Contended` never come: the engine tries again.

    What a function of the caller's raises (an updater, a selector, an initial state) is recorded, and raised as
    `StepFailed` in the first run as in every replay; misuse, as an async updater, as a TypeError.
    """

    __slots__ = ("_definition", "_driver", "_id")

    def __init__(self, driver: Driver, definition: StoreDefinition[_T], id: str) -> None:
        self._driver = driver
        self._definition = definition
        self._id = id

    @property
    def definition(self) -> StoreDefinition[_T]:
        return self._definition

    @property
    def id(self) -> str:
        return self._id

    def get_or_create(
        self, key: str, initial: Initial[_T]
    ) -> DurableCall[Outcome[Snapshot[_T], InvalidState | TooLarge]]:
        """The store, made from `initial` where there is none."""
        return self._call(key, self._driver.stores.get_or_create(key, self._definition, self._id, initial))

    def get(
        self, key: str, *, version: int | Revision | None = None
    ) -> DurableCall[Outcome[Snapshot[_T], StoreNotFound | InvalidState]]:
        """The state as it was when this was first reached.

        With `version` the state at an earlier one, as `Store.get` says. It is recorded whole, so that the run has it
        however long that version is kept. TypeError and ValueError for what can be none.
        """
        at = None if version is None else admit_version_read(version)
        return self._call(key, self._driver.stores.get(key, self._definition, self._id, at))

    def select(self, key: str, selector: Callable[[_T], _R]) -> DurableCall[Outcome[_R, StoreNotFound | InvalidState]]:
        """What `selector` makes of the state; only that is recorded. It gets a copy of its own."""
        admit_function(f"the selector of {key!r}", selector)
        codec = result_codec(selector)
        chosen = self._driver.stores.select(key, self._definition, self._id, selector, codec)
        # The codec gives back what the selector's annotation says, and it says _R.
        return self._call(key, cast(Coroutine[Any, Any, Outcome[_R, StoreNotFound | InvalidState]], chosen))

    def update(
        self, key: str, updater: Updater[_T]
    ) -> DurableCall[Outcome[Updated[_T], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """Change the state, exactly once in this run."""
        return self._call(key, self._driver.stores.update(key, self._definition, self._id, updater))

    def update_from(
        self, key: str, expected: Snapshot[_T] | Revision, updater: Updater[_T]
    ) -> DurableCall[Outcome[Updated[_T], Conflict | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """Change the state, exactly once in this run, if it is still at the expected revision."""
        revision = admit_revision(expected)
        return self._call(key, self._driver.stores.update_from(key, self._definition, self._id, revision, updater))

    def take(
        self, key: str, selector: Selector[_T, _R], claim: Claim[_T, _R]
    ) -> DurableCall[Outcome[Taken[_R], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """Wait until `selector` finds something, and make it this run's own by `claim`, exactly once and for good.

        None and False are a miss, nothing else is. Runs that take by the same selector get their turns in the order in
        which they began to wait. `StoreNotFound`: the store that was looked at is gone.
        """
        _admit_taking(key, selector, claim)
        taken = self._driver.stores.take(key, self._definition, self._id, selector, claim, result_codec(selector))
        # The codec gives back what the selector's annotation says, and it says _R.
        return self._call(
            key,
            cast(
                Coroutine[Any, Any, Outcome[Taken[_R], StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]],
                taken,
            ),
        )

    def take_now(
        self, key: str, selector: Selector[_T, _R], claim: Claim[_T, _R]
    ) -> DurableCall[Outcome[Taken[_R], Unmatched | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge]]:
        """`take` that does not wait: `Unmatched` says that the selector found nothing."""
        _admit_taking(key, selector, claim)
        taken = self._driver.stores.take_now(key, self._definition, self._id, selector, claim, result_codec(selector))
        return self._call(
            key,
            cast(
                Coroutine[
                    Any,
                    Any,
                    Outcome[Taken[_R], Unmatched | StoreNotFound | InvalidState | ReceiptMismatch | TooLarge],
                ],
                taken,
            ),
        )

    def when(
        self, key: str, selector: Selector[_T, _R], timeout: Timeout = None
    ) -> DurableCall[Outcome[_R, StoreNotFound | InvalidState | TimedOut]]:
        """Wait until `selector` finds something, and give it; the run is woken by a change of what it read only.

        None and False are a miss, nothing else is. The deadline counts from the first time that this is reached; what
        is there when the run looks after it still counts. `StoreNotFound`: the store that was looked at is gone.
        """
        admit_function(f"the selector of {key!r}", selector)
        timeout_ms = None if timeout is None else step_span_ms(key, timeout)
        found = self._driver.stores.when(key, self._definition, self._id, selector, result_codec(selector), timeout_ms)
        return self._call(key, cast(Coroutine[Any, Any, Outcome[_R, StoreNotFound | InvalidState | TimedOut]], found))

    def delete_from(
        self, key: str, expected: Snapshot[_T] | Revision
    ) -> DurableCall[Outcome[Deleted, Conflict | StoreNotFound | ReceiptMismatch | TooLarge]]:
        """Delete the store, exactly once in this run, if it is still at the expected revision."""
        revision = admit_revision(expected)
        return self._call(key, self._driver.stores.delete_from(key, self._definition, self._id, revision))

    def _call(self, key: str, coroutine: Coroutine[Any, Any, _R]) -> DurableCall[_R]:
        return DurableCall(self._driver, key, coroutine)


def _admit_taking(key: str, selector: object, claim: object) -> None:
    admit_function(f"the selector of {key!r}", selector)
    admit_function(f"the claim of {key!r}", claim)


def step_span_ms(key: str, span: object) -> int:
    """A span of time given to the durable call `key`, in milliseconds; a ValueError if it is negative."""
    delay_ms = span_ms(f"step {key!r}: a time", span)
    if delay_ms < 0:
        raise ValueError(f"step {key!r}: a time is at least 0, not {span!r}")
    return delay_ms
