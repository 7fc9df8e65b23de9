"""The types of signals, as the calls of workflows in this process have asked for them."""

from __future__ import annotations

from typing import Final, final

from ...core.codec import Codec

__all__ = ["SignalTypes"]

MOST: Final = 16
"""Of a name that is read as more types than this, nothing is known."""

NAMES: Final = 4_096
"""Of how many names something is known, the first that were asked for."""


@final
class SignalTypes:
    """By workflow and name of the signal."""

    __slots__ = ("_codecs",)

    def __init__(self) -> None:
        self._codecs: dict[tuple[str, str], tuple[Codec, ...] | None] = {}

    def learn(self, workflow: str, name: str, codec: Codec) -> None:
        """A run of the workflow reads signals of this name by this codec."""
        known = self._codecs.get((workflow, name), () if len(self._codecs) < NAMES else None)
        if known is not None and codec not in known:
            self._codecs[workflow, name] = (*known, codec) if len(known) < MOST else None

    def of(self, workflow: str, name: str) -> tuple[Codec, ...]:
        """By which codecs such signals are read; none where that is not known."""
        return self._codecs.get((workflow, name)) or ()
