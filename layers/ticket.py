"""A ticket: one caller's operation on its way through a lane, from the queue to its answer.

It is planned, perhaps several times, and answered once. Until its batch is handed to the ledger its caller may take it
back by being cancelled; from then on the caller waits for the verdict, for a bounded time, and is cancelled after it.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import Final, Generic, TypeAlias, TypeVar, final

from msgspec import Struct

from ..core.batch import Batch, Fenced, Receipt
from ..core.held import Held
from ..core.model import Contended, ReceiptMismatch, TooLarge, Unavailable
from ..core.operation import Operation, Planned, admit_size
from ..core.outcome import Failure, Outcome
from ..services.clock import Clock
from ..services.store import Join

__all__ = ["Answered", "Applied", "Reply", "Ticket", "Unwritten"]

_A_co = TypeVar("_A_co", covariant=True)
_E_co = TypeVar("_E_co", covariant=True)

VERDICT_MS: Final = 5_000
"""How long a cancelled caller waits for the verdict on a batch that the ledger has."""


class Answered(Struct, Generic[_A_co, _E_co], frozen=True):
    """The operation's outcome; what was to be committed with it is committed."""

    outcome: Outcome[_A_co, _E_co | TooLarge | Contended | Fenced | Unavailable]


class Unwritten(Struct, Generic[_A_co, _E_co], frozen=True):
    """The operation's outcome, which writes nothing; what is to be committed with it is not committed yet."""

    outcome: Outcome[_A_co, _E_co | ReceiptMismatch | TooLarge]


class Applied(Struct, frozen=True):
    """The operation was applied before; its receipt has the outcome."""

    receipt: Receipt


_NOTHING: Final = Batch()

Reply: TypeAlias = Answered[_A_co, _E_co] | Unwritten[_A_co, _E_co] | Applied


@final
class Ticket(Generic[_A_co, _E_co]):
    """One operation, what its caller wants to commit beside it, and the context in which the caller's code runs."""

    __slots__ = (
        "_answered",
        "_context",
        "_done",
        "_error",
        "_join",
        "_operation",
        "_planned",
        "_reply",
        "_state_bytes",
        "attempts",
        "batch",
        "handed_over",
        "held",
        "key",
        "withdrawn",
        "writes",
    )

    def __init__(self, operation: Operation[_A_co, _E_co], join: Join[_A_co, _E_co] | None, state_bytes: int) -> None:
        self.key: Final = operation.key
        self._operation = operation
        self._join = join
        self._state_bytes = state_bytes
        self._context = contextvars.copy_context()
        self._planned: Planned[_A_co, _E_co | TooLarge] | None = None
        self._error: BaseException | None = None
        self._reply: Reply[_A_co, _E_co] | None = None
        self._done: asyncio.Future[None] | None = None
        self.handed_over = False
        self._answered = False
        self.attempts = 0
        self.batch = _NOTHING
        self.held: Held | None = None
        self.writes = False
        self.withdrawn = False

    # --- planning -----------------------------------------------------------

    def plan(self, held: Held | None) -> None:
        """Run the operation on what is held, and set what it writes (`writes`, `batch`) and leaves (`held`).

        An exception of the caller's code is kept as its answer: it may rest on a state that is not committed yet.
        """
        self._error = None
        try:
            self._context.run(self._decide, held)
        except BaseException as error:
            self._error = error
            self.held, self.writes = held, False

    def _decide(self, held: Held | None) -> None:
        planned = admit_size(self._operation.plan(held), self.key, self._state_bytes)
        self.writes = bool(planned.batch.writes)
        if not self.writes:
            self.held = held
        else:
            self.held = planned.held
            self.batch = planned.batch if self._join is None else planned.batch + self._join(planned.outcome)
        self._planned = planned

    def hand_over(self) -> Batch:
        """The batch, for the ledger: from now on it cannot be taken back."""
        self.handed_over = True
        return self.batch

    # --- answering ----------------------------------------------------------

    def committed(self) -> None:
        """The batch is durable, so the planned outcome holds."""
        if self._planned is not None:
            self._answer(Answered(self._planned.outcome))

    def stands(self) -> None:
        """The state on which a plan without writes rests is, or was meanwhile, the one in force."""
        if self._planned is not None and self._error is None:
            self._answer(Unwritten(self._planned.outcome))
        else:
            self._wake()  # it is answered by what was raised

    def lost(self) -> None:
        """The batch was refused, and what it rests on is to be planned again; now it may be taken back once more."""
        self.handed_over = False
        if self.withdrawn:
            self._wake()  # nobody asks for its answer any more

    def applied(self, receipt: Receipt) -> None:
        self._answer(Applied(receipt))

    def refused(self, failure: ReceiptMismatch | TooLarge) -> None:
        """Nothing was committed, and another attempt would end alike."""
        self._answer(Unwritten(Failure(failure)))

    def failed(self, failure: Contended | Fenced | Unavailable) -> None:
        """It ends here, with nothing to be committed beside it."""
        self._answer(Answered(Failure(failure)))

    def raised(self, error: BaseException) -> None:
        """Something broke that is nobody's expected failure."""
        if not self._answered:
            self._error = error
            self._wake()

    def _answer(self, reply: Reply[_A_co, _E_co]) -> None:
        if not self._answered:
            self._reply = reply
            self._error = None
            self._wake()

    def _wake(self) -> None:
        self._answered = True
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    # --- waiting ------------------------------------------------------------

    async def wait(self, clock: Clock) -> None:
        """Return when it is answered. Cancelled before it is handed over, it is withdrawn."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        try:
            await self._done
        except asyncio.CancelledError:
            self.withdrawn = True
            if self.handed_over and not self._answered:
                self._done = loop.create_future()
                await _wait_bounded(self._done, clock)
            raise

    def reply(self) -> Reply[_A_co, _E_co]:
        """The answer, or what the caller's code raised."""
        if self._error is not None:
            raise self._error
        if self._reply is None:
            raise AssertionError(f"the lane of {self.key} left a ticket without an answer")
        return self._reply


async def _wait_bounded(done: asyncio.Future[None], clock: Clock) -> None:
    deadline = asyncio.ensure_future(clock.sleep_until_ms(clock.now_ms() + VERDICT_MS))
    try:
        await asyncio.wait({done, deadline}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        deadline.cancel()
