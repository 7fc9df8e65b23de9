"""`sandbox run`: a command that sees what it is given, and what it read, wrote and was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from .options import Settings, shared

__all__ = ["sandbox"]

EXIT_CODE: Final = click.IntRange(0, 255)


@click.group()
def sandbox() -> None:
    """Commands that see what they are given, and nothing else."""


@sandbox.command(context_settings={"allow_interspersed_args": False})
@click.option("--root", default=".", metavar="DIR", show_default=True, help="The folder that it works on.")
@click.option("--reads", multiple=True, metavar="PATH", help="A file that it may read, or a glob of such files.")
@click.option("--writes", multiple=True, metavar="PATH", help="A file that it has to write, or a glob of what it may.")
@click.option("--removes", multiple=True, metavar="PATH", help="A file that it has to remove.")
@click.option("--expected", is_flag=True, help="Accept what departs from these, and say so.")
@click.option("--ok", "codes", multiple=True, type=EXIT_CODE, metavar="CODE", help="An exit code of success; else 0.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that it is given.")
@click.option("--timeout", type=float, metavar="SECONDS", help="After how long it is ended.")
@click.option("--toolchain", multiple=True, metavar="DIR", help="A further folder of programs and libraries.")
@click.option("--network", is_flag=True, help="Let it reach the network.")
@click.option("--bwrap", metavar="FILE", help="The bubblewrap that is used; the one in PATH if left out.")
@click.option("--dry-run", is_flag=True, help="Leave the folder as it is.")
@click.option("--quiet", is_flag=True, help="Do not tell what it read and wrote.")
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@shared(database=False)
@click.pass_obj
def run(
    settings: Settings,
    root: str,
    reads: Sequence[str],
    writes: Sequence[str],
    removes: Sequence[str],
    expected: bool,
    codes: Sequence[int],
    variables: Sequence[str],
    timeout: float | None,
    toolchain: Sequence[str],
    network: bool,
    bwrap: str | None,
    dry_run: bool,
    quiet: bool,
    argv: Sequence[str],
) -> None:
    """Run a command on copies of the files that it may read, and write back what it made if it kept to that.

    The folder changes all at once when the command has ended well, or not at all. A path is relative to the folder;
    `*` stands for anything in a name and `**` for any folders, so quote it. Nothing is written, and the exit code is 1,
    if the command read or wrote anything else that is there, left out what it has to write, or failed. Options that
    take a PATH, DIR, CODE or NAME may be repeated.

    What the command prints is passed on when it has ended; what it read and wrote is told on standard error. It has no
    standard input.
    """
    from .sandboxed import Asked, run_sandboxed  # here: it takes longer to load than all other commands together

    declared = (root, reads, writes, removes, expected)
    asked = Asked(*declared, codes, variables, timeout, toolchain, network, bwrap, dry_run, quiet)
    run_sandboxed(asked, argv, settings.output)
