"""`purge`: erasing a store."""

from __future__ import annotations

import click

from ....core.model import StoreKey
from ....services.revisions import Purged
from .options import Settings, open_existing, run_blocking, shared, value_of
from .problem import WRONG_USAGE, Problem

__all__ = ["purge"]


@click.command()
@click.argument("name")
@click.argument("store_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Really; there is no way back.")
@shared()
@click.pass_obj
def purge(settings: Settings, name: str, store_id: str, yes: bool) -> None:
    """Erase a store: its state, all its earlier revisions, and what its receipts hold.

    A store that exists is deleted first, and whoever waits on it is woken. Nothing of its states can be read
    any more; the results that runs have recorded stay with the runs, until `stepwell gc --keep-runs` removes these.
    Traces in parts of the file that are not used are removed by `sqlite3 FILE vacuum`, with all processes stopped.
    """
    try:
        key = StoreKey(name, store_id)
    except ValueError as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None
    if not yes:
        text = f"this erases {key} with its whole history, for good; say --yes to do it"
        raise Problem("usage", text, exit_code=WRONG_USAGE)
    done = run_blocking(_purge(settings, key))
    if settings.as_json:
        shown = {"deleted": done.deleted, "receipts": done.receipts, "settled": done.settled}
        settings.output.json({"name": name, "id": store_id, **shown})
        return
    settings.output.text(f"{key} is erased")
    if not done.settled:
        settings.output.note(
            "others keep the database busy: the bytes are still in the file beside it, whose name ends in -wal, until "
            "that is written over; close the other processes and open the database once to make sure"
        )


async def _purge(settings: Settings, key: StoreKey) -> Purged:
    async with open_existing(settings) as app:
        return value_of(await app.revisions.purge(key.name, key.id))
