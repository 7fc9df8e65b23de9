"""Executing a step whole: open, execute, materialize, and then send the effects that it asked for.

If somebody changes what the step read or is to write, it is executed again on what is there now, a bounded number of
times. Effects are sent only when the files are on the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar, overload

from ...core.boundary import Boundary
from ...core.command import Command, CommandOutput
from ...core.effect import Effect, as_effect, within
from ...core.model import Unavailable
from ...core.outcome import Failure, Outcome, Success
from ...core.step_sandbox import (
    Accepted,
    ExecuteFailure,
    FileChange,
    MaterializationConflict,
    UnsupportedBoundary,
    WorkspaceError,
)
from ...services.effect_dispatcher import EffectDispatcher, EffectFailed, EffectMismatch
from ...services.step import STEP
from ...services.step_sandbox import StepSandbox, Workspace, WorkspaceTransaction

__all__ = ["REBASES", "SettleFailure", "Settled", "Undelivered", "settle"]

_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)

REBASES: Final = 3
"""How often a step is executed again because somebody else changed its files meanwhile."""

SettleFailure: TypeAlias = ExecuteFailure | UnsupportedBoundary | MaterializationConflict


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An effect that was not sent, and why. The files of its step are on the host; dispatching it again is safe.

    In a run, raise for it: the step is executed again then, finds its files, and sends what was not.
    """

    effect: Effect
    failure: EffectFailed | EffectMismatch | Unavailable | None
    """None: there is nobody who sends effects."""


@dataclass(frozen=True, slots=True)
class Settled(Generic[_R_co]):
    """A step that is done: its files are on the host. `rebases` counts how often it was executed again."""

    accepted: Accepted[_R_co]
    changes: tuple[FileChange, ...]
    rebases: int
    dispatched: int
    undelivered: tuple[Undelivered, ...] = ()


@overload
async def settle(
    sandbox: StepSandbox, boundary: Boundary, body: Command, dispatcher: EffectDispatcher | None = None
) -> Outcome[Settled[CommandOutput], SettleFailure]: ...
@overload
async def settle(
    sandbox: StepSandbox,
    boundary: Boundary,
    body: Callable[[Workspace], Awaitable[_R]],
    dispatcher: EffectDispatcher | None = None,
) -> Outcome[Settled[_R], SettleFailure]: ...
@overload
async def settle(
    sandbox: StepSandbox,
    boundary: Boundary,
    body: Callable[[Workspace], _R],
    dispatcher: EffectDispatcher | None = None,
) -> Outcome[Settled[_R], SettleFailure]: ...
async def settle(
    sandbox: StepSandbox,
    boundary: Boundary,
    body: Command | Callable[[Workspace], object],
    dispatcher: EffectDispatcher | None = None,
) -> Outcome[Settled[object], SettleFailure]:
    """Execute a body and materialize what it made. Nothing is on the host, and nothing is sent, if it fails.

    A conflict executes it again in a fresh workspace; after the last of `REBASES` it is the answer. No other refusal is
    tried again. Effects with one key are sent once; one that cannot be sent is told, and takes nothing back. An effect
    without a key of its own is known by its payload, within the step of a run that this is called from. Who is
    cancelled settles again: the files may be there already, and not all effects may have been sent.
    """
    rebases = 0
    while True:
        opened = await sandbox.open()
        if isinstance(opened, Failure):
            return opened
        async with opened.unwrap() as transaction:
            attempted = await _attempt(transaction, boundary, body)
        if isinstance(attempted, Success):
            accepted, changes = attempted.unwrap()
            dispatched, undelivered = await _dispatch(accepted.effects, dispatcher)
            return Success(Settled(accepted, changes, rebases, dispatched, undelivered))
        if not isinstance(attempted.failure(), MaterializationConflict) or rebases == REBASES:
            return attempted
        rebases += 1


async def _attempt(
    transaction: WorkspaceTransaction, boundary: Boundary, body: Command | Callable[[Workspace], object]
) -> Outcome[tuple[Accepted[object], tuple[FileChange, ...]], ExecuteFailure | MaterializationConflict]:
    executed: Outcome[Accepted[object], ExecuteFailure]
    if isinstance(body, Command):
        executed = await transaction.execute(boundary, body)
    else:
        executed = await transaction.execute(boundary, body)
    if isinstance(executed, Failure):
        return executed
    accepted = executed.unwrap()
    written: Outcome[object, MaterializationConflict | WorkspaceError] = await transaction.materialize(accepted)
    return written if isinstance(written, Failure) else Success((accepted, accepted.changes))


async def _dispatch(
    queued: tuple[object, ...], dispatcher: EffectDispatcher | None
) -> tuple[int, tuple[Undelivered, ...]]:
    step = STEP.get()
    scope = "" if step is None else step.idempotency_key
    effects = {effect.key: effect for effect in (within(scope, as_effect(each)) for each in queued)}
    if dispatcher is None:
        return 0, tuple(Undelivered(effect, None) for effect in effects.values())
    undelivered: list[Undelivered] = []
    for effect in effects.values():
        sent = await dispatcher.dispatch(effect)
        if isinstance(sent, Failure):
            undelivered.append(Undelivered(effect, sent.failure()))
    return len(effects) - len(undelivered), tuple(undelivered)
