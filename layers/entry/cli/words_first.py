"""A command that has commands of its own: `store NAME ID` and `store purge`, `journal ID` and `journal verify`."""

from __future__ import annotations

from typing import Any, final

import click

__all__ = ["WithOwn"]


@final
class WithOwn(click.Command):
    """What begins with the name of a command of its own is that; the rest is for the command itself.

    What has such a name all the same is meant where `--` comes before it.
    """

    def __init__(self, itself: click.Command, *own: click.Command) -> None:
        super().__init__(itself.name, help=itself.help, params=itself.params)
        self._itself = itself
        self._own = {each.name: each for each in own}
        named = ", ".join(f"`stepwell {itself.name} {name} --help`" for name in self._own)
        itself.epilog = f"See also {named}."

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # as click has it
    ) -> click.Context:
        own = self._own.get(args[0]) if args else None
        if own is None:
            return self._itself.make_context(info_name, args, parent, **extra)
        return own.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
