"""Whole numbers and spans of time as words of a command line: ASCII digits, wherever one is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

from .output import shorten

__all__ = ["read_digits", "span_ms", "whole_number"]

DIGITS: Final = re.compile(r"[0-9]{1,100}")
"""Longer ones stand for nothing here, and Python refuses to read very long ones at all."""

UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def read_digits(word: str) -> int | None:
    """The number, from 0 on, that the word is; None if it is none."""
    return int(word) if DIGITS.fullmatch(word) else None


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option whose value is a number from `least` on, up to `most`."""
    where = f"from {least} on" if most is None else f"from {least} to {most}"

    def convert(word: str) -> int:
        number = read_digits(word)
        if number is None or number < least or (most is not None and number > most):
            raise click.BadParameter(f"'{shorten(word)}' is not a number {where}, in digits")
        return number

    return convert


def span_ms(word: str) -> int:
    """The type of an option whose value is a span of time, a number and its unit; in milliseconds."""
    number, unit = read_digits(word[:-1]), UNITS_MS.get(word[-1:])
    if number is None or unit is None:
        text = f"'{shorten(word)}' is no span of time: write a number and s, m, h, d or w, like 30d"
        raise click.BadParameter(text)
    return number * unit
