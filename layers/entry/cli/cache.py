"""`cache`: the heads of the step cache, made anew from the journal, compared with it, and explained."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from ....core.cache_entry import check_key
from ....core.journal import Compacted
from ....core.outcome import Failure
from ....core.step_cache import RecordedRef
from ....services.artifacts import Artifacts
from ....services.cache_fold import CacheFold, Explanation, Rebuilt, Verification
from ....services.ledger import Ledger
from ...artifacts import layer as artifacts_layer
from ...clock import layer as clock_layer
from ...layer import build, get
from ...needed_artifacts import damaged_artifacts
from .journal import compacted, verified_journals
from .options import Settings, open_existing, run_blocking, shared, value_of
from .output import Output
from .problem import FAILED, WRONG_USAGE, Problem, problem_of

__all__ = ["cache"]


def _counts(rebuilt: Rebuilt) -> dict[str, int]:
    return {
        "runs": rebuilt.runs,
        "compacted": rebuilt.compacted,
        "rewound": rebuilt.rewound,
        "admitted": rebuilt.admitted,
        "retired": rebuilt.retired,
        "heads": rebuilt.heads,
    }


@click.group()
def cache() -> None:
    """What is in force in the step cache, and what the journal says of it."""


@cache.command()
@shared()
@click.pass_obj
def rebuild(settings: Settings) -> None:
    """Put in force what the journal proves, and nothing else. Workers may go on meanwhile.

    Every journal is verified first: one that is not as it was written proves nothing, and then nothing is changed.
    """
    _ = run_blocking(verified_journals(settings))
    rebuilt = run_blocking(_rebuild(settings))
    output = settings.output
    if output.as_json:
        output.json({**_counts(rebuilt), "keys": [_explanation_json(each) for each in rebuilt.keys]})
        return
    output.pairs(_counts(rebuilt).items())
    _print_keys(output, (each for each in rebuilt.keys if each.verdict != "restored"))


async def _rebuild(settings: Settings) -> Rebuilt:
    async with open_existing(settings) as app:
        rebuilt = await get(app.env, CacheFold).rebuild()
        if isinstance(rebuilt, Failure):
            failure = rebuilt.failure()
            raise compacted(failure) if isinstance(failure, Compacted) else problem_of(failure)
        return rebuilt.unwrap()


@cache.command()
@click.option("--artifacts", metavar="DIR", help="Read the artifacts too that rows need, and compare their digests.")
@shared()
@click.pass_obj
@click.pass_context
def verify(context: click.Context, settings: Settings, artifacts: str | None) -> None:
    """Compare what is in force with what the journal proves; nothing is written. Exit code 1: they differ."""
    if artifacts is not None and not Path(artifacts).is_dir():
        raise Problem("usage", f"there is no folder {artifacts}", exit_code=WRONG_USAGE)
    found, damaged, missing = run_blocking(_verify(settings, artifacts))
    output = settings.output
    counts = {
        "matching": found.matching,
        "missing": found.missing,
        "extra": found.extra,
        "different": found.different,
    }
    differing = [each for each in found.keys if each.difference not in (None, "matching") or each.reason == "damaged"]
    rotten = any(each.reason == "damaged" for each in found.keys)
    if output.as_json:
        output.json(
            {
                **counts,
                "keys": [_explanation_json(each) for each in differing],
                "damaged_artifacts": list(damaged),
                "missing_artifacts": list(missing),
            }
        )
    else:
        output.pairs(counts.items())
        _print_keys(output, differing)
        for digest in damaged:
            output.text(f"the artifact {digest} is damaged: what needs it is executed again when it is asked for")
        for digest in missing:
            output.text(f"the artifact {digest} is missing: what needs it is executed again when it is asked for")
    differs = bool(found.missing or found.extra or found.different)
    if differs:
        output.note("`stepwell cache rebuild` makes them agree")
    if rotten:
        output.note("a damaged row is never served: it goes when it is asked for, and the step is executed again")
    if differs or rotten or damaged or missing:
        context.exit(FAILED)


async def _verify(settings: Settings, folder: str | None) -> tuple[Verification, tuple[str, ...], tuple[str, ...]]:
    """What the fold says, and of the artifacts those that are damaged and those that are missing."""
    from ...missing_artifacts import missing_artifacts  # here: no other command needs what it loads

    async with open_existing(settings) as app:
        found = value_of(await get(app.env, CacheFold).verify())
        if folder is None:
            return found, (), ()
        async with build(artifacts_layer(folder) | clock_layer()) as built:
            kept, ledger = get(built.unwrap(), Artifacts), get(app.env, Ledger)
            damaged = value_of(await damaged_artifacts(ledger, kept))
            return found, damaged, value_of(await missing_artifacts(ledger, kept))


@cache.command()
@click.argument("key")
@shared()
@click.pass_obj
def explain(settings: Settings, key: str) -> None:
    """Tell what became of a cache key: which row is in force, or why none is, and where the journal says so."""
    try:
        _ = check_key(key)
    except ValueError as error:
        text = f"{error}; `stepwell journal ID --json` names the keys of a run's steps"
        raise Problem("usage", text, exit_code=WRONG_USAGE) from None
    found = run_blocking(_explain(settings, key))
    if found.ref is None and not found.rows:
        settings.output.note(
            "no row was ever recorded under this key, as far as the journal tells; a key is given whole"
        )
    if settings.as_json:
        settings.output.json(_explanation_json(found))
        return
    settings.output.pairs(
        [
            ("key", found.key_digest),
            ("verdict", found.verdict),
            ("row", _row(found.ref)),
            ("action", found.action),
            ("reason", found.reason),
            ("said by", None if found.run_id is None else f"{found.run_id} {'' if found.seq is None else found.seq}"),
            ("rows in question", ", ".join(filter(None, map(_row, found.rows))) or None),
        ]
    )


async def _explain(settings: Settings, key: str) -> Explanation:
    async with open_existing(settings) as app:
        return value_of(await get(app.env, CacheFold).explain(key))


def _print_keys(output: Output, keys: Iterable[Explanation]) -> None:
    rows = [
        (each.key_digest, each.difference, each.verdict, each.reason or each.action, _row(each.ref)) for each in keys
    ]
    if rows:
        output.table(["key", "difference", "verdict", "why", "row"], rows, whole=("difference", "verdict"))


def _row(ref: RecordedRef | None) -> str | None:
    return None if ref is None else f"{ref.recorded_run_id} {ref.recorded_event_seq}"


def _explanation_json(explanation: Explanation) -> dict[str, object]:
    return {
        "key_digest": explanation.key_digest,
        "verdict": explanation.verdict,
        "ref": _ref_json(explanation.ref),
        "action": explanation.action,
        "reason": explanation.reason,
        "run_id": explanation.run_id,
        "seq": explanation.seq,
        "rows": [_ref_json(each) for each in explanation.rows],
        "difference": explanation.difference,
    }


def _ref_json(ref: RecordedRef | None) -> dict[str, object] | None:
    if ref is None:
        return None
    return {
        "key_digest": ref.key_digest,
        "recorded_run_id": ref.recorded_run_id,
        "recorded_event_seq": ref.recorded_event_seq,
    }
