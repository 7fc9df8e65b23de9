"""The events that stepwell itself tells the journals: a closed set, with a sentence each.

A journal stores them verbatim, since others fold them: that of a run to the run, that of the step cache to its heads.
They are facts and digests and hold no secrets. Whatever else is appended is redacted; nothing that is given with an
entry can change that.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from .cache_events import CACHE_EVENTS
from .cache_fold import EVENT_TYPE
from .run_events import RUN_EVENTS

__all__ = ["EVENTS", "VERBATIM"]

EVENTS: Final = MappingProxyType[str, str](
    {
        **{str(event_type): sentence for event_type, sentence in RUN_EVENTS.items()},
        **{str(event_type): sentence for event_type, sentence in CACHE_EVENTS.items()},
        EVENT_TYPE: "What became of a recorded row of the step cache: recorded, admitted, served, or out of force.",
    }
)
"""From each type to what it says."""

VERBATIM: Final = frozenset(EVENTS)
"""The types whose entries are stored as they are."""
