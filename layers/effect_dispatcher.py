"""Effects that a function delivers and a store remembers, that a list remembers, and the absence of a dispatcher."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, final
from weakref import WeakValueDictionary

from ..core.effect import Effect, admit_effect
from ..core.model import InvalidState, StoreNotFound, Unavailable
from ..core.outcome import Failure, Outcome, Success
from ..services.definition import StoreDefinition, define_store
from ..services.effect_dispatcher import Dispatched, EffectDispatcher, EffectFailed, EffectMismatch
from ..services.store import Store
from .layer import Layer, provides
from .recorded import as_recorded
from .workspace.threads import to_its_end

__all__ = [
    "DELIVERED",
    "Delivery",
    "MemoryEffectDispatcher",
    "NoopEffectDispatcher",
    "StoreEffectDispatcher",
    "layer",
    "layer_noop",
    "layer_test",
]


@dataclass
class Delivery:
    """That an effect was delivered, and the digest of what its payload was as JSON."""

    payload_digest: str


DELIVERED: Final[StoreDefinition[Delivery]] = define_store("stepwell.effects", Delivery)
"""A store under the key of each effect that was delivered."""


@final
class StoreEffectDispatcher:
    """Delivers by a function of the caller's, and records it in a store afterwards. Used by one event loop."""

    def __init__(self, deliver: Callable[[Effect], object], store: Store) -> None:
        self._deliver = deliver
        self._is_async = inspect.iscoroutinefunction(deliver)
        self._store = store
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def dispatch(self, effect: Effect) -> Outcome[Dispatched, EffectFailed | EffectMismatch | Unavailable]:
        key = admit_effect(effect).key
        async with self._turns.setdefault(key, asyncio.Lock()):
            found = await self._store.get(DELIVERED, key)
            if isinstance(found, Success):
                return _delivered(key, found.unwrap().state.payload_digest == effect.payload_digest)
            match found.failure():
                case StoreNotFound():
                    work = self._carry_out(effect)
                    return await (work if self._is_async else to_its_end(work))
                case InvalidState():  # of a later version; that there is a record is what counts
                    return Success(Dispatched(key, again=True))
                case Unavailable() as unavailable:
                    return Failure(unavailable)

    async def _carry_out(self, effect: Effect) -> Outcome[Dispatched, EffectFailed | Unavailable]:
        try:
            await self._send(effect)
        except Exception as error:
            return Failure(EffectFailed(effect.key, as_recorded(error)))
        return await to_its_end(self._record(effect))  # a cancellation from now on does not make it be sent twice

    async def _send(self, effect: Effect) -> None:
        given = self._deliver(effect) if self._is_async else await asyncio.to_thread(self._deliver, effect)
        if inspect.isawaitable(given):
            _ = await given

    async def _record(self, effect: Effect) -> Outcome[Dispatched, Unavailable]:
        recorded = await self._store.get_or_create(DELIVERED, effect.key, Delivery(effect.payload_digest))
        if isinstance(recorded, Failure) and not isinstance(recorded.failure(), InvalidState):
            text = f"the effect {effect.key!r} was delivered, and that could not be recorded: {recorded.failure()}"
            return Failure(Unavailable(f"{text}; dispatching it again may deliver it again", "unknown"))
        return Success(Dispatched(effect.key, again=False))


@final
class MemoryEffectDispatcher:
    """Delivers to a list: `sent` is to be looked at, and holds each key once."""

    def __init__(self, sent: list[Effect] | None = None) -> None:
        self.sent: list[Effect] = [] if sent is None else sent

    async def dispatch(self, effect: Effect) -> Outcome[Dispatched, EffectFailed | EffectMismatch | Unavailable]:
        key = admit_effect(effect).key
        sent = next((each for each in self.sent if each.key == key), None)
        if sent is not None:
            return _delivered(key, sent.payload_digest == effect.payload_digest)
        self.sent.append(effect)
        return Success(Dispatched(key, again=False))


def _delivered(key: str, is_same: bool) -> Outcome[Dispatched, EffectMismatch]:
    return Success(Dispatched(key, again=True)) if is_same else Failure(EffectMismatch(key))


@final
class NoopEffectDispatcher:
    """No dispatcher: nothing is delivered."""

    async def dispatch(self, effect: Effect) -> Outcome[Dispatched, EffectFailed | EffectMismatch | Unavailable]:
        reason = f"nothing delivers the effect {admit_effect(effect).key!r} here; give effect_dispatcher.layer(deliver)"
        return Failure(Unavailable(reason, "no"))


# --- layers -----------------------------------------------------------------


def layer(deliver: Callable[[Effect], object]) -> Layer[EffectDispatcher, Store]:
    """Effects that `deliver` sends, an async function or an ordinary one, which is called on a thread.

    It is given the effect, and hands its key on to the receiver, who may be told twice: where the process ended, or the
    store could not be written, after delivery. What it raises is `EffectFailed`. An ordinary function is not
    interrupted by a cancellation; an async one is, and must leave an effect undelivered that it lets go of.
    """

    @provides
    def recipe(store: Store) -> Iterator[EffectDispatcher]:
        yield StoreEffectDispatcher(deliver, store)

    return recipe


def layer_test(sent: list[Effect] | None = None) -> Layer[EffectDispatcher, EffectDispatcher]:
    """Effects that are kept in `sent`, or a list of its own, and go nowhere. It needs no store."""

    @provides
    def recipe() -> Iterator[EffectDispatcher]:
        yield MemoryEffectDispatcher(sent)

    return recipe


def layer_noop() -> Layer[EffectDispatcher, EffectDispatcher]:
    """No effects: every call fails with `Unavailable`."""

    @provides
    def recipe() -> Iterator[EffectDispatcher]:
        yield NoopEffectDispatcher()

    return recipe
