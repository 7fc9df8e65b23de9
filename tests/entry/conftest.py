"""Fixtures of this folder."""

from .shell import shell

__all__ = ["shell"]
