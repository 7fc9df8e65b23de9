"""How often to look where no news may come: a poll that is quick at first, and seldom in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_POLL", "PollPolicy"]


@dataclass(frozen=True, slots=True)
class PollPolicy:
    """The first pause is `initial_ms`, each next one `factor` times as long, none longer than `cap_ms`.

    A ValueError for a pause that is not positive or a factor below 1. No number of attempts exhausts it.
    """

    initial_ms: int = 200
    factor: float = 1.5
    cap_ms: int = 30_000

    def __post_init__(self) -> None:
        if self.initial_ms < 1 or self.cap_ms < self.initial_ms:
            raise ValueError(
                f"a poll pauses for at least 1 ms, and for no more than its cap: {self.initial_ms} to {self.cap_ms} ms"
            )
        if not self.factor >= 1:
            raise ValueError(f"the pauses of a poll do not shrink: a factor is at least 1, not {self.factor}")

    def pause_ms(self, attempt: int) -> int:
        """How long to wait after the look number `attempt`, counted from 1, that found nothing."""
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, not {attempt}")
        try:
            pause = self.initial_ms * self.factor ** (attempt - 1)
        except OverflowError:
            return self.cap_ms
        return round(min(pause, self.cap_ms))


DEFAULT_POLL: Final = PollPolicy()
