"""What all drivers of an engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...services.clock import Clock
from ...services.ids import Ids
from ...services.ledger import Ledger
from ...services.store import Store
from ...services.waiters import Waiters
from ...services.wake_bus import WakeBus
from .execution import Pool
from .signal_types import SignalTypes

__all__ = ["Tools"]


@dataclass(frozen=True, slots=True)
class Tools:
    """The services, the threads for steps, `on_wait`, called when a run begins to wait for a wake, and what is known of
    the types of signals.
    """

    ledger: Ledger
    store: Store
    waiters: Waiters
    wake_bus: WakeBus
    clock: Clock
    ids: Ids
    pool: Pool
    on_wait: Callable[[], None]
    signal_types: SignalTypes
