"""Being told of the threads that are started, on Python 3.11 too, which raises no event for it."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

__all__ = ["are_told", "tell_thread_starts"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_NAMES: Final = ((threading, "_start_new_thread"), (_thread, "start_new_thread"), (_thread, "start_new"))
_tellers: Final[dict[str, object]] = {}


def tell_thread_starts(told: Callable[[Callable[..., object]], None]) -> None:
    """Have `told` called with the function of each thread that is about to be started, by whoever starts it.

    From Python 3.12 on there is an event for that, and nothing is done here. Before, the function that starts threads
    is stood in for by one that tells and then calls it, for the whole process: nothing else about threads changes.
    """
    if sys.version_info >= (3, 12):
        return
    for module, name in _NAMES:
        start: object = getattr(module, name)
        if callable(start):
            _tellers[name] = _telling(start, told)
            setattr(module, name, _tellers[name])


def are_told() -> bool:
    """Whether the next thread that `threading` starts will be told; somebody else may have stood in since."""
    if sys.version_info >= (3, 12):
        return True
    return all(getattr(module, name) is _tellers.get(name) for module, name in _NAMES)


def _telling(start: Callable[_P, _R], told: Callable[[Callable[..., object]], None]) -> Callable[_P, _R]:
    @wraps(start)
    def start_new_thread(*arguments: _P.args, **named: _P.kwargs) -> _R:
        function: object = arguments[0] if arguments else None
        if callable(function):
            told(function)
        return start(*arguments, **named)

    return start_new_thread
