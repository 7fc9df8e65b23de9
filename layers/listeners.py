"""Who listens to a ledger's news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from ..services.ledger import News

__all__ = ["Listeners"]


@final
class Listeners:
    """Functions that are told news, in the order in which they came. One that fails keeps it from nobody else."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[News], None]] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Callable[[News], None]) -> Callable[[], None]:
        """Tell `listener` too, until what this returns is called; a function that is added twice is told twice."""
        self._last = number = self._last + 1
        self._listeners[number] = listener

        def remove() -> None:
            self._listeners.pop(number, None)

        return remove

    def tell(self, news: News) -> None:
        for number, listener in tuple(self._listeners.items()):
            if number not in self._listeners:  # removed by one before it
                continue
            try:
                listener(news)
            except Exception as error:  # what has been committed is to be answered all the same
                context = {"message": "a listener of the ledger has failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
