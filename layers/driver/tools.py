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

__all__ = ["Tools"]


@dataclass(frozen=True, slots=True)
class Tools:
    """The services, the threads for steps, and `on_wait`, called when a run begins to wait for a wake."""

    ledger: Ledger
    store: Store
    waiters: Waiters
    wake_bus: WakeBus
    clock: Clock
    ids: Ids
    pool: Pool
    on_wait: Callable[[], None]
