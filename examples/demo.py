"""`make demo`: real files are reviewed by durable runs, whose worker is killed in the middle and started again.

    python examples/demo.py [DIR] [--limit N] [--out FOLDER] [--fresh]

The director, this process, is a client: it starts runs and looks on. A worker (`stepwell worker review.workflow`)
drives them, and another process, the reviewer, gives the verdicts, for which the runs wait on one board that all write
to. The worker is killed with SIGKILL when between 30 % and 70 % of the steps are done; the log of executions then shows
whether a step that was finished ran again, and the log of looks whether a write to the board woke a run that had not
read what was written. Then a command counts the files in a sandbox, where there is bubblewrap, and another one is
refused what it had not declared. At last cached steps count the words of some files three times: the second time
nothing is executed, and after a change of one file only what rests on it. What is exited with: 0 if all is as it must
be; 1 if a finished step ran twice, a run was woken for nothing, the kill missed, a run did not complete, the sandbox
did not hold, or a cached step was executed that need not be; 130 after Ctrl-C. Another demo finds the finished runs; a
file that was changed since gets a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from director.children import Child, Children
from director.looks import Looks, Waited, passed_by
from director.play import DemoFailed, Play
from director.progress import LedgerUnavailable, Progress
from director.proof import Evidence, Proof, StepName
from director.screen import Picture, Screen
from review.board import BOARD, Entry
from review.counts import FOLDER as CACHED
from review.counts import Counted, count_thrice
from review.files import Ordered, select
from review.report import html, markdown
from review.sizes import FOLDER, NotShown, Sizing, count_sizes
from review.steps import EXECUTIONS, LOOKS, publish
from review.workflow import STAGES, VERDICT, review
from rich.console import Console

import stepwell
from stepwell import App, Failure, Ledger, Success, get
from stepwell.services.ledger import CannotOpen

HERE = Path(__file__).resolve().parent

LOGGED = frozenset(STAGES) - {"record", "findings"}
"""The stages that execute a function, which logs it; the other two change and read the board."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `plant` is for tests: a proof that cannot fail would show nothing."""

    root: Path
    out: Path
    limit: int
    fresh: bool
    plant: str | None

    @property
    def database(self) -> Path:
        return self.out / "review.db"


class ReviewPiece:
    """The review of files, as a piece for the director."""

    def __init__(
        self, options: Options, ordered: Sequence[Ordered], app: App, screen: Screen, children: Children
    ) -> None:
        self._options = options
        self._jobs = {one.run_id: one.job for one in ordered}
        self._app = app
        self._board = app.store(BOARD, ordered[0].job.board)
        self._screen = screen
        self._children = children
        self.progress = Progress(get(app.env, Ledger), list(self._jobs), STAGES)

    async def start_run(self, run_id: str) -> None:
        started = await self._app.start(review, self._jobs[run_id], id=run_id)
        if isinstance(started, Failure):
            raise DemoFailed(f"the run {run_id} cannot be started: {started.failure()}")

    def start_worker(self) -> Child:
        database = str(self._options.database)
        module = "review.greedy" if self._options.plant == "greedy" else "review.workflow"
        return self._children.start("worker", sys.executable, "-m", "stepwell", "--db", database, "worker", module)

    def start_reviewer(self) -> None:
        command = sys.executable, "-m", "review.reviewer", str(self._options.database), self._board.id
        reviewer = self._children.start("reviewer", *command)
        self._screen.say(f"started the reviewer, process {reviewer.pid}")

    async def show(self, before: frozenset[StepName], workers: str) -> None:
        runs = self.progress.runs
        names = {run_id: job.path for run_id, job in self._jobs.items()}
        counts = f"{sum(run.ended for run in runs)} of {len(runs)} runs ended, {sum(run.open for run in runs)} open"
        signs = f"✓ recorded{'   ● recorded before the kill' if before else ''}"
        self._screen.show(Picture(runs, names, await self.verdicts(), before, f"{counts}   {workers}   {signs}"))

    async def verdicts(self) -> dict[str, str]:
        """The decisions that were given, by run id."""
        entries = (await self._entries()).values()
        return {e.run_id: e.verdict.decision for e in entries if e.verdict is not None and e.run_id in self._jobs}

    async def missed(self) -> list[str]:
        """The runs that did not end with a review, and the entries that were not recorded exactly once."""
        wrong: list[str] = []
        for run_id, job in self._jobs.items():
            found = await self._app.start(review, job, id=run_id)  # gives the run that has this id, with its types
            result = found if isinstance(found, Failure) else await found.unwrap().result(timeout=1.0)
            if isinstance(result, Failure):
                wrong.append(f"the run {run_id} did not end with a review: {result.failure()} (--fresh starts over)")
        for path, entry in (await self._entries()).items():
            if entry.run_id in self._jobs and entry.recorded != 1:
                wrong.append(f"{path} was recorded {entry.recorded} times on the board")
        return wrong

    async def restore_reports(self) -> None:
        """Write the reports from the board, where they are gone."""
        board = await self._board.get()
        if isinstance(board, Success):
            snapshot = board.unwrap()
            for name, render in (("report.md", markdown), ("report.html", html)):
                publish(self._options.out / name, self._board.id, snapshot.version, snapshot.state, render)

    async def _entries(self) -> dict[str, Entry]:
        board = await self._board.get()
        return board.unwrap().state.entries if isinstance(board, Success) else {}


async def direct(
    options: Options, ordered: Sequence[Ordered], app: App, screen: Screen, children: Children
) -> list[str]:
    """Play the review and prove what is to be proved; what was not as it must be, nothing if all was."""
    piece = ReviewPiece(options, ordered, app, screen, children)
    progress = piece.progress
    await progress.refresh()
    played = frozenset(run.run_id for run in progress.runs if not run.ended)
    begun = frozenset(run.run_id for run in progress.runs if run.open)
    if found := len(ordered) - len(played):
        screen.say(f"found {found} of {len(ordered)} runs finished by an earlier demo; they are not done again", "bold")
    if not played:
        await piece.restore_reports()
        tell_where(options, screen)
        return await piece.missed()
    evidence = Evidence(options.out / EXECUTIONS, LOGGED)
    looks = Looks(options.out / LOOKS)
    play = Play(piece, progress, evidence, screen, children)
    problems = await play.perform(kill=options.plant != "no-kill")
    screen.close()
    if options.plant == "run-twice":
        run_id, key = min(evidence.of_log(progress.finished()))
        with evidence.path.open("a", encoding="utf-8") as log:
            log.write(f"{run_id} {key} 1 0\n" * 2)
    proof = evidence.prove(progress.finished())
    passed = await passed_by(get(app.env, Ledger), played, "record", VERDICT)
    waited = looks.judge(passed, begun | waiting_in(play.before))
    steps = sum(run.steps for run in progress.of(played))
    screen.tell("files reviewed", f"{len(played)}, each by a run of its own")
    tell_proof(proof, steps, play.kills, screen)
    tell_waits(waited, screen)
    screen.tell("verdicts", in_words(Counter((await piece.verdicts()).values())))
    screen.tell("time", f"{screen.elapsed():.1f} s")
    tell_where(options, screen)
    return [*problems, *wrong_in(proof), *wrong_in_waits(waited), *await piece.missed()]


def waiting_in(finished: frozenset[StepName]) -> frozenset[str]:
    """The runs that waited for their verdicts when these steps were finished, and no others."""
    return frozenset(run_id for run_id, key in finished if key == "record" and (run_id, "findings") not in finished)


def tell_proof(proof: Proof, steps: int, kills: int, screen: Screen) -> None:
    screen.tell("steps recorded", f"{steps}; {proof.executed} executions of functions were logged")
    screen.tell("workers killed", f"{kills}")
    screen.tell("executed again", f"{len(proof.again)}, in flight at the kill and not recorded then")
    screen.tell("finished steps that ran twice", f"{len(proof.twice)}")


def tell_waits(waited: Waited, screen: Screen) -> None:
    looks = f"{waited.looks} looks by {waited.runs} runs, {waited.found} found a verdict"
    screen.tell("waits for a verdict", looks)
    screen.tell("writes of others meanwhile", f"{waited.passed}, to the same board, counted for each run that waited")
    screen.tell("runs woken for nothing", f"{len(waited.idle)}")


def tell_sizing(sizing: Sizing, screen: Screen) -> None:
    if isinstance(sizing, NotShown):
        screen.tell("sandboxed command", f"not shown: {sizing.reason}")
        return
    screen.tell("sandboxed command read", f"{len(sizing.read)} files, each as it had declared")
    screen.tell("and wrote", ", ".join(f"{FOLDER}/{path}" for path in sizing.wrote) or "nothing new")
    screen.tell("another one was refused", f"{', '.join(sizing.refused)}; it had not declared to read that")


def tell_counted(counted: Counted, screen: Screen) -> None:
    first, again, changed = counted.first, counted.again, counted.changed
    screen.tell("cached steps executed", f"{first.executed}, each in a workspace of its own")
    screen.tell(
        "the same once more", f"{again.found} of {first.executed} found in the cache, {again.executed} executed"
    )
    screen.tell(f"with {counted.path} changed", f"{changed.executed} executed, {changed.found} found in the cache")


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in sorted(counts.items())) or "none"


def tell_where(options: Options, screen: Screen) -> None:
    screen.tell("report", f"{options.out / 'report.html'} (and report.md)")
    command = [str(Path(sys.executable).parent / "stepwell"), "--db", str(options.database), "runs"]
    screen.tell("look around", shlex.join(command))


def wrong_in(proof: Proof) -> list[str]:
    return [
        *(f"the finished step {key!r} of {run_id} ran twice" for run_id, key in proof.twice),
        *(f"the finished step {key!r} of {run_id} is not in the log" for run_id, key in proof.unlogged),
    ]


def wrong_in_waits(waited: Waited) -> list[str]:
    return [
        *(f"the run {run_id} was woken {times} times for nothing" for run_id, times in Counter(waited.idle).items()),
        *(f"the verdict that the run {run_id} found is not in the log of looks" for run_id in waited.unseen),
    ]


async def demo(options: Options, console: Console) -> int:
    """Prepare, direct, and say what was wrong; the code to exit with."""
    if options.fresh:
        forget(options)
    ordered = select(options.root, options.out, options.limit)
    if not ordered:
        raise DemoFailed(f"there is no text file to review in {options.root}")
    make_folder(options.out)
    screen = Screen(console, STAGES)
    screen.say(f"{len(ordered)} files of {options.root}")
    async with stepwell.open(options.database, drive=False) as app:
        with Children(options.out, importable(HERE)) as children, screen:
            problems = await direct(options, ordered, app, screen, children)
    sizing = await count_sizes([one.job for one in ordered], options.out)
    tell_sizing(sizing, screen)
    problems += [] if isinstance(sizing, NotShown) else sizing.problems
    counted = await count_thrice([one.job for one in ordered], options.out, plant=options.plant == "recount")
    tell_counted(counted, screen)
    problems += counted.problems
    for problem in problems:
        console.print(f"wrong: {problem}", style="bold red", markup=False, soft_wrap=True)
    return 1 if problems else 0


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoFailed(f"the results cannot be kept in {out}: {error.strerror}") from None


def importable(folder: Path) -> dict[str, str]:
    """The environment in which processes can import what is in a folder."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def forget(options: Options) -> None:
    """Remove what earlier demos have written, and nothing else that may be in the folder."""
    for pattern in ("review.db*", EXECUTIONS, LOOKS, "report.*", "worker.log", "reviewer.log"):
        for path in options.out.glob(pattern):
            path.unlink()
    for folder in (FOLDER, CACHED):
        shutil.rmtree(options.out / folder, ignore_errors=True)


async def interruptible(options: Options, console: Console) -> int:
    """The demo, with SIGTERM and SIGHUP like Ctrl-C: the processes are ended on the way out."""
    task = asyncio.ensure_future(demo(options, console))
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await task


def options_of(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description="Review files by durable runs, and kill their worker in the middle.")
    parser.add_argument("dir", nargs="?", type=Path, default=HERE.parent, help="the folder (default: this repository)")
    parser.add_argument("--limit", type=int, default=60, help="how many files at most (default: 60)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "demo-out", help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier demos have done")
    parser.add_argument("--plant", choices=("no-kill", "run-twice", "greedy", "recount"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.dir.is_dir():
        parser.error(f"{given.dir} is not a folder")
    if given.limit < 1:
        parser.error("--limit must be at least 1")
    return Options(given.dir.resolve(), given.out.resolve(), given.limit, given.fresh, given.plant)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    console = Console(highlight=False)
    try:
        return asyncio.run(interruptible(options, console))
    except (DemoFailed, LedgerUnavailable, CannotOpen) as failed:
        console.print(f"the demo failed: {failed}", style="bold red", markup=False, soft_wrap=True)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print("interrupted; the processes have been ended. The next demo goes on from here.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
