"""What the director shows: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .progress import RunProgress
from .proof import StepName

FRAME = 10
"""Lines that the table needs beside its rows."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One moment: the runs, their names and verdicts by run id, what was finished at the kill, and a caption."""

    runs: Sequence[RunProgress]
    names: Mapping[str, str]
    verdicts: Mapping[str, str]
    before: frozenset[StepName]
    caption: str


@final
class Screen:
    """`say` prints a line that stays; `show` draws the moment, on a terminal only."""

    def __init__(self, console: Console, stages: Sequence[str]) -> None:
        self._console = console
        self._stages = stages
        self._began = time.monotonic()
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def say(self, text: str, style: str = "") -> None:
        """Print one line, with the seconds since the beginning."""
        self._console.print(Text(f"{self.elapsed():5.1f} s  ", "dim"), Text(text, style), sep="", soft_wrap=True)

    def tell(self, name: str, value: str) -> None:
        """Print one line of the summary."""
        self._console.print(Text(f"{name:>30}  ", "bold"), Text(value), sep="", soft_wrap=True)

    def show(self, picture: Picture) -> None:
        """Draw this moment in place of the last one."""
        if self._live is not None:
            self._live.update(self._table(picture))

    def close(self) -> None:
        """Take the table away; lines can still be said."""
        if self._live is not None:
            self._live.stop()

    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def _table(self, picture: Picture) -> Table:
        table = Table(caption=picture.caption, caption_style="default", expand=True, box=None, pad_edge=False)
        table.add_column("file", ratio=1, no_wrap=True, overflow="ellipsis")
        for stage in self._stages:
            table.add_column(stage, justify="center", no_wrap=True)
        table.add_column("verdict", min_width=17, no_wrap=True)
        table.add_column("run", min_width=9, no_wrap=True)
        for run in _ranked(picture.runs)[: max(self._console.height - FRAME, 4)]:
            cells = [_cell(run, stage, picture.before) for stage in self._stages]
            table.add_row(
                picture.names[run.run_id], *cells, _verdict(picture.verdicts.get(run.run_id)), run.state or "to come"
            )
        return table

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _ranked(runs: Sequence[RunProgress]) -> list[RunProgress]:
    """Runs that are under way, then those that have ended, the later ones first, then those to come."""
    ended = [run for run in runs if run.ended]
    return [
        *(run for run in runs if run.open),
        *reversed(ended),
        *(run for run in runs if run.state is None),
    ]


def _cell(run: RunProgress, stage: str, before: frozenset[StepName]) -> Text:
    if (run.run_id, stage) in before:
        return Text("●", "cyan")
    return Text("✓", "green") if stage in run.done else Text("·", "dim")


def _verdict(decision: str | None) -> Text:
    return Text(decision or "", {"approved": "green", "changes requested": "red"}.get(decision or "", "dim"))
