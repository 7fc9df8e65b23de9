"""Identifiers: the only source of new names."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Ids"]


class Ids(Protocol):
    def new(self) -> str:
        """A new name of lower-case hexadecimal digits and hyphens, greater as text than the one before."""
        ...
