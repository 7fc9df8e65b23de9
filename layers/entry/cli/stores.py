"""`stores` and `store`: what is stored, at which revision, and changes of it by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import click

from ....core.batch import Form
from ....core.damage import read_document
from ....core.form import version_of
from ....core.model import InvalidState, Revision, StoreKey, StoreNotFound
from ....core.outcome import Failure
from ....services.ledger import Ledger, StoreTip
from ....services.store import StoreDefinition
from ...layer import get
from ..open import App
from .modules import find_definition
from .numbers import whole_number
from .options import Settings, open_existing, run_blocking, shared, value_of
from .output import instant
from .problem import WRONG_USAGE, Problem, problem_of
from .store_edit import edit
from .store_history import print_differences, print_history, read_differences, read_history, unknown_version
from .words import read_assignment

__all__ = ["store", "stores"]

HISTORY: Final = 100
"""How many changes of a history are shown, unless --limit says so."""

COMPANIONS: Final = {"--history": "--limit", "--diff": "--of"}
"""What goes with an option that otherwise stands alone."""

# --- stores -----------------------------------------------------------------


@click.command()
@click.option("--name", metavar="NAME", help="Only the stores of this name.")
@click.option("--limit", type=whole_number(1), metavar="N", default="100", show_default=True, help="At most so many.")
@shared()
@click.pass_obj
def stores(settings: Settings, name: str | None, limit: int) -> None:
    """List the stores that there are, by name and id.

    The form is the version of its type in which a store's state is stored, 1 if none was named.
    """
    found = run_blocking(_list(settings, name))
    shown = found[:limit]
    output = settings.output
    if output.as_json:
        output.json({"stores": [_tip_json(tip) for tip in shown], "count": len(found)})
        return
    rows = [
        (t.key.name, t.key.id, t.revision.version, version_of(t.form), instant(t.updated_at_ms, "seconds"))
        for t in shown
    ]
    output.table(["name", "id", "version", "form", "changed"], rows, whole=("version", "form", "changed"))
    if len(found) > len(shown):
        output.note(f"{len(found) - len(shown)} more: --limit {len(found)}")


async def _list(settings: Settings, name: str | None) -> tuple[StoreTip, ...]:
    async with open_existing(settings) as app:
        return value_of(await get(app.env, Ledger).stores(name))


def _tip_json(tip: StoreTip) -> dict[str, object]:
    return {
        "name": tip.key.name,
        "id": tip.key.id,
        "instance_id": tip.revision.instance_id,
        "version": tip.revision.version,
        "form": _form_json(tip.form),
        "updated_at_ms": tip.updated_at_ms,
    }


# --- store ------------------------------------------------------------------


@click.command()
@click.argument("name")
@click.argument("store_id", metavar="ID")
@click.option("--at", "version", type=whole_number(0), metavar="VERSION", help="An earlier version of it.")
@click.option("--of", "instance", metavar="INSTANCE", help="With --at or --diff: of an earlier instance of it.")
@click.option("--history", is_flag=True, help="What changed it: its versions that are kept, the newest first.")
@click.option("--limit", type=whole_number(1), metavar="N", help=f"So many of its history; {HISTORY} if left out.")
@click.option("--diff", "versions", type=whole_number(0), nargs=2, metavar="A B", help="Where two versions differ.")
@click.option("--raw", is_flag=True, help="Only the JSON document, as it is stored.")
@click.option("--module", metavar="MODULE", help="Where the store is defined, to check the state by its type.")
@click.option("--set", "changes", metavar="PATH=JSON", multiple=True, help="Change the state; may be given repeatedly.")
@shared()
@click.pass_obj
def store(
    settings: Settings,
    name: str,
    store_id: str,
    version: int | None,
    instance: str | None,
    history: bool,
    limit: int | None,
    versions: tuple[int, int] | None,
    raw: bool,
    module: str | None,
    changes: tuple[str, ...],
) -> None:
    """Show a store's state, what it was before, or change it.

    A change is an ordinary update of the type that MODULE defines: all that is given by --set at once, and nothing
    if the state would not fit its type. A path is written items[0].status or items.0.status, a key of any
    text as ["a.b"], and the whole state as nothing. A store that was deleted and made again is another instance:
    --history names both, and --of says of which one --at and --diff are.
    """
    key = _admit_key(name, store_id)
    alone = {"--history": history, "--diff": versions is not None}
    _admit_alone(alone, version is not None or raw or bool(module or changes))
    _admit_companions(version is not None or versions is not None, instance, history, limit)
    if history:
        print_history(settings.output, key, run_blocking(read_history(settings, key, limit or HISTORY)))
        return
    if versions is not None:
        found = run_blocking(read_differences(settings, key, *versions, instance))
        print_differences(settings.output, key, *versions, found)
        return
    _admit_options(version, raw, module, changes)
    at = version if version is None or instance is None else Revision(instance, version)
    assignments = [read_assignment(word) for word in changes]
    definition = None if module is None else find_definition(module, name)
    if definition is not None and assignments:
        revision, document = run_blocking(edit(settings, definition, key, assignments))
        form: Form | None = definition.form
    else:
        revision, document, form = run_blocking(_read(settings, key, at, None if raw else definition))
    if raw:
        settings.output.text(document.decode())
    elif settings.as_json:
        shown = {**_revision_json(key, revision), "form": _form_json(form), "state": json.loads(document)}
        settings.output.json(shown)
    else:
        settings.output.note(f"{key} at version {revision.version} of {revision.instance_id}")
        settings.output.json(json.loads(document))


def _admit_key(name: str, store_id: str) -> StoreKey:
    try:
        return StoreKey(name, store_id)
    except ValueError as error:
        raise Problem("usage", str(error), exit_code=WRONG_USAGE) from None


def _admit_alone(asked: Mapping[str, bool], others: bool) -> None:
    """A history, or a difference, is all that is shown."""
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) + others > 1 and given:
        text = f"{given[0]} goes with no other option but {COMPANIONS[given[0]]}, --db and --json"
        raise Problem("usage", text, exit_code=WRONG_USAGE)


def _admit_companions(looks_back: bool, instance: str | None, history: bool, limit: int | None) -> None:
    """Nothing that is given is passed over."""
    wrong = None
    if instance is not None and not looks_back:
        wrong = "--of goes with --at or --diff: it says of which instance a version is"
    elif instance == "":
        wrong = "--of needs the id of an instance; --history names them"
    elif limit is not None and not history:
        wrong = "--limit goes with --history"
    if wrong is not None:
        raise Problem("usage", wrong, exit_code=WRONG_USAGE)


def _admit_options(version: int | None, raw: bool, module: str | None, changes: Sequence[str]) -> None:
    wrong = None
    if changes and module is None:
        wrong = "--set needs --module, where the store is defined: a change is checked by the type of the state"
    elif changes and version is not None:
        wrong = "--set changes the state as it is now: leave --at out"
    if wrong is not None:
        raise Problem("usage", wrong, exit_code=WRONG_USAGE)


def _revision_json(key: StoreKey, revision: Revision) -> dict[str, object]:
    return {"name": key.name, "id": key.id, "instance_id": revision.instance_id, "version": revision.version}


def _form_json(form: Form | None) -> dict[str, object] | None:
    """In which form of its type the state is stored; None if it was written before forms were kept."""
    return None if form is None else {"version": form.version, "fingerprint": form.fingerprint}


async def _read(
    settings: Settings, key: StoreKey, at: int | Revision | None, definition: StoreDefinition[object] | None
) -> tuple[Revision, bytes, Form | None]:
    """The revision, the document and its form, checked by the definition if one is given."""
    async with open_existing(settings) as app:
        revision, document, form = await _document(app, key, at)
    if definition is not None:
        decoded = definition.schema.decode_from(document, form)
        if isinstance(decoded, Failure):
            raise problem_of(InvalidState(key, decoded.failure()))
    return revision, document, form


async def _document(app: App, key: StoreKey, at: int | Revision | None) -> tuple[Revision, bytes, Form | None]:
    """At a revision, or at a version of the instance that exists, its newest one for None."""
    ledger = get(app.env, Ledger)
    last: Revision | None = None
    if not isinstance(at, Revision):
        last = value_of(await ledger.tip(key))
        if last is None:
            raise problem_of(StoreNotFound(key))
        at = last if at is None else Revision(last.instance_id, at)
    found = value_of(await ledger.document(key, at))
    if found is None:
        raise unknown_version(key, at, last)
    return found.revision, value_of(read_document(key, found)), found.form
