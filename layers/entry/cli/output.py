"""What a command prints: tables and sentences for people, JSON for programs, never both.

On a terminal tables fit the screen and have colours, unless NO_COLOR is set; elsewhere they are plain text, any width.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TextIO

from .problem import Problem

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Output", "instant", "json_text", "plain", "shorten", "size"]

WIDE: Final = 10_000
"""Columns of what is not a terminal: whoever reads it cuts and wraps for himself."""

SHOWN: Final = 60
"""Characters of a value in a table."""

FOLDED: Final = 6
"""Columns of the screen below which what is folded cannot be read any more."""

STYLES: Final = {
    "completed": "green",
    "done": "green",
    "running": "cyan",
    "waiting": "yellow",
    "retrying": "yellow",
    "settling": "yellow",
    "stuck": "bold red",
    "failed": "red",
    "cancelled": "magenta",
    "lost": "magenta",
}


class Output:
    """Where a command prints to. Results go to standard output, everything else to standard error."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def live(self) -> bool:
        """Whether somebody watches: progress is shown to people at terminals only."""
        return not self.as_json and sys.stderr.isatty()

    def json(self, value: object) -> None:
        """One result, for programs."""
        print(json_text(value, indent=None if self.as_json else 2), flush=True)

    def text(self, text: str) -> None:
        """A line of a result, for people."""
        print(text, flush=True)

    def note(self, text: str) -> None:
        """A line beside the result, for people; programs are not told."""
        if not self.as_json:
            print(plain(text), file=sys.stderr, flush=True)

    def passed_on(self, data: bytes, *, as_error: bool = False) -> None:
        """What a program printed, byte for byte; on a terminal without what that would obey.

        Where more is going to be told after it, its last line is ended.
        """
        stream = sys.stderr if as_error else sys.stdout
        if data and not data.endswith(b"\n") and (as_error or stream.isatty()):
            data += b"\n"
        try:
            if stream.isatty():
                _ = stream.write(plain(data.decode(errors="replace")))
            else:
                stream.flush()
                _ = stream.buffer.write(data)
            stream.flush()
        except BrokenPipeError:  # nobody reads on, as `head` does; neither will the flush at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        whole: Collection[str] = (),
        *,
        beside: bool = False,
    ) -> None:
        """Rows for people; a None is an empty cell, and what names a state has its colour.

        Where the screen is too narrow, the columns are folded, those that are to stay `whole` only if the others would
        vanish. `beside` the result it is told on standard error.
        """
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        shown = [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
        file = sys.stderr if beside else sys.stdout
        kept = whole if _least(columns, shown, whole) <= _console(file).width else ()
        for column in columns:
            table.add_column(column, overflow="fold", no_wrap=column in kept)
        for cells in shown:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
        _print(table, file)

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Names and values, one to a line; those without a value are left out."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, value in pairs:
            if value is not None:
                text = plain(str(value))
                table.add_row(Text(name, style="bold"), Text(text, style=STYLES.get(text, ""), overflow="fold"))
        _print(table, sys.stdout)

    def problem(self, problem: Problem) -> None:
        """Why there is no result, on standard error."""
        if self.as_json:
            print(json_text(problem.as_json()), file=sys.stderr, flush=True)
            return
        from rich.text import Text

        line = Text.assemble(("error: ", "bold red"), plain(problem.message))
        _console(sys.stderr).print(line, soft_wrap=True)

    @contextmanager
    def progress(self, text: str) -> Generator[Callable[[str], None]]:
        """A spinner with a text that the block may change, if somebody watches."""
        if not self.live:
            yield lambda text: None
            return
        from rich.markup import escape

        with _console(sys.stderr).status(escape(plain(text))) as status:
            yield lambda text: status.update(escape(plain(text)))


def _least(columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Collection[str]) -> int:
    """How wide a table must be for its `whole` columns, and for something of the others."""
    widths = [
        max(map(len, cells)) if column in whole else FOLDED
        for column, cells in zip(columns, zip(columns, *rows, strict=True), strict=True)
    ]
    return sum(widths) + 2 * (len(columns) - 1)


def _print(table: Table, file: TextIO) -> None:
    """A table; outside of a terminal without the blanks that fill up its lines."""
    console = _console(file)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), file=file, flush=True)


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=file, highlight=False, width=None if file.isatty() else WIDE)


def json_text(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def plain(text: str) -> str:
    """Text without what a terminal would obey: stored names and values come from anywhere."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str | None) -> str | None:
    """A value in one line of a table."""
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def instant(at_ms: int | None, precision: Literal["seconds", "milliseconds"] = "milliseconds") -> str | None:
    """An instant for people, in their own time zone."""
    if at_ms is None:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000).isoformat(sep=" ", timespec=precision)
    except (ValueError, OverflowError, OSError):  # beyond what a calendar holds
        return f"{at_ms} ms"


def size(size_bytes: int) -> str:
    """A number of bytes for people."""
    shown = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if shown < 1024:
            return f"{shown:.0f} {unit}" if unit == "bytes" else f"{shown:.1f} {unit}"
        shown /= 1024
    return f"{shown:.1f} TiB"
