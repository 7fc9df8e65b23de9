"""Why a run waits, in words: for what, what it read, what is there now, since when and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from .kind import is_dict, is_list
from .model import Path
from .paths import EACH, SHAPE
from .waiter import WaiterRow

__all__ = ["explain", "path_text", "until_text"]

SHOWN_PATHS: Final = 8
SHOWN_VALUES: Final = 3
SHOWN_CHARACTERS: Final = 60


def explain(text: str, until_ms: int | None, waits: Iterable[tuple[WaiterRow, bytes | None]]) -> str:
    """`text`, which says what is waited for, with the instants, and what each waiter read as it is now.

    `waits` pairs each waiter with the present state of the instance that it looked at as JSON, None where that is gone.
    """
    return "; ".join([until_text(text, until_ms), *(_read(row, document) for row, document in waits)])


def until_text(text: str, until_ms: int | None) -> str:
    """What is waited for, with the first instant at which it ends, if there is one."""
    return text if until_ms is None else f"{text}, until {_instant(until_ms)}"


def _read(row: WaiterRow, document: bytes | None) -> str:
    waiter = row.waiter
    since = f"step {waiter.step.key!r} waits since {_instant(row.registered_at_ms)}"
    if document is None:
        return f"{since}; {waiter.key} is gone"
    state: object = msgspec.json.decode(document)
    paths = waiter.read_paths
    shown = [f"{path_text(path)} = {_value_text(state, path)}" for path in paths[:SHOWN_PATHS]]
    more = f" and {len(paths) - SHOWN_PATHS} more" if len(paths) > SHOWN_PATHS else ""
    due = "" if row.due_no is None else "; it is due"
    read = f"what it read of {waiter.key} at version {waiter.seen.version}"
    return f"{since} for a change of {read}, and there now is: {', '.join(shown)}{more}{due}"


def path_text(path: Path) -> str:
    """A path as it is written in code: `items[0].status`; `len(items)` for a shape, `items[*]` for each element."""
    if path and path[-1] is SHAPE:
        return f"len({path_text(path[:-1])})"
    text = ""
    for segment in path:
        if segment is EACH:
            text += "[*]"
        elif isinstance(segment, int):
            text += f"[{segment}]"
        elif segment.isidentifier():
            text += f".{segment}" if text else segment
        else:
            text += f"[{segment!r}]"
    return text or "the state"


def _value_text(state: object, path: Path) -> str:
    values = _values(state, path)
    if EACH not in path:
        return values[0] if values else "absent"
    more = f", ... ({len(values)} in all)" if len(values) > SHOWN_VALUES else ""
    return (", ".join(values[:SHOWN_VALUES]) or "none") + more


def _values(state: object, path: Path) -> Sequence[str]:
    """What is at the path, as text: nothing if it leads nowhere, several for one with a wildcard."""
    if not path:
        return (_shortened(state),)
    first, rest = path[0], path[1:]
    if first is SHAPE:
        return (str(len(state)),) if is_list(state) or is_dict(state) else ()
    if first is EACH:
        parts = state if is_list(state) else state.values() if is_dict(state) else ()
        return [text for part in parts for text in _values(part, rest)]
    if is_list(state) and isinstance(first, int) and first < len(state):
        return _values(state[first], rest)
    if is_dict(state) and first in state:
        return _values(state[first], rest)
    return ()


def _shortened(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
