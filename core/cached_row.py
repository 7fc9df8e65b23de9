"""What a row of the step cache holds of a step: its result, what it left at its targets, and what it asked for.

    {"v": 1, "evidence": "enforced", "reach": "shared", "scope": null, "diff": "diff1_...",
     "outputs": {...} or {"artifact": "<digest>"}, "effects": [["key", "<JSON>"]], "exact": null}

The result is the row's own, this is its meta. A record of outputs that is large is an artifact, named here. A row is
canonical JSON, for which 1.0 is 1, so a result with such a number is kept as text too, and so are effects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

import msgspec

from .boundary import Boundary, Declaration, declare
from .canonical_json import NotCanonical, canonical_json, canonical_material
from .effect import Effect
from .node import is_digest
from .outputs import Outputs, outputs_json, read_outputs
from .replay import BoundaryCorruption
from .reuse import Reach
from .step_sandbox import EvidenceLevel
from .workspace_path import PathProblem

__all__ = [
    "RECORD_BYTES",
    "CachedRow",
    "Kept",
    "Spilled",
    "artifacts_of",
    "belongs_to",
    "effects_form",
    "kept_form",
    "read_effects",
    "read_kept",
    "read_meta",
    "result_of",
    "row_meta",
]

RECORD_BYTES: Final = 256 * 1024
"""The largest record of outputs that stands in a row itself, as JSON; one that is larger becomes an artifact."""

_VERSION: Final = 1


@final
@dataclass(frozen=True, slots=True)
class Spilled:
    """A record of outputs that is an artifact, and what else has to be in the artifact store for it."""

    digest: str
    needs: tuple[str, ...] = ()


Kept: TypeAlias = Outputs | Spilled
"""A record of outputs as it is kept."""


@final
@dataclass(frozen=True, slots=True)
class CachedRow:
    """The meta of a row. `scope` says why it is for its own run only, if it is."""

    evidence: EvidenceLevel
    reach: Reach
    diff_identity: str
    kept: Kept
    effects: tuple[Effect, ...] = ()
    scope: str | None = None


# --- JSON ---------------------------------------------------------------------


class _Form(msgspec.Struct, frozen=True):
    v: int
    evidence: EvidenceLevel
    reach: Reach
    diff: str
    outputs: dict[str, object]
    effects: tuple[tuple[str, str], ...] = ()
    scope: str | None = None
    exact: str | None = None


class _Spilled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    artifact: str
    needs: tuple[str, ...]


def row_meta(row: CachedRow, result: bytes) -> dict[str, object]:
    """The meta as a JSON value; `result` is the JSON of the row's result."""
    form = _Form(
        v=_VERSION,
        evidence=row.evidence,
        reach=row.reach,
        diff=row.diff_identity,
        outputs=kept_form(row.kept),
        effects=effects_form(row.effects),
        scope=row.scope,
        exact=_exact(result),
    )
    return msgspec.json.decode(msgspec.json.encode(form), type=dict[str, object])


def read_meta(meta: Mapping[str, object]) -> CachedRow | BoundaryCorruption | None:
    """What `row_meta` gave; None if it is of another form, or the fault of its record of outputs."""
    try:
        form = msgspec.convert(meta, type=_Form)
        effects = read_effects(form.effects)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
        return None
    if form.v != _VERSION:
        return None
    kept = read_kept(form.outputs)
    if isinstance(kept, BoundaryCorruption):
        return kept
    return CachedRow(form.evidence, form.reach, form.diff, kept, effects, form.scope)


def result_of(result: object, meta: Mapping[str, object]) -> bytes:
    """The JSON of a row's result as its step gave it."""
    exact = meta.get("exact")
    if isinstance(exact, str):
        return exact.encode()
    return _encode(result).encode()


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _exact(result: bytes) -> str | None:
    """The text of a result of which canonical JSON would lose something: that 1.0 is no integer."""
    if b"." not in result and b"e" not in result and b"E" not in result:
        return None
    value = json.loads(result)
    try:
        same = canonical_material(value) == canonical_material(json.loads(canonical_json(value)))
    except NotCanonical:
        same = False
    return None if same else result.decode()


def kept_form(kept: Kept) -> dict[str, object]:
    """A record of outputs, or the name of the artifact that it is."""
    if isinstance(kept, Spilled):
        return {"artifact": kept.digest, "needs": list(kept.needs)}
    return outputs_json(kept)


def read_kept(value: Mapping[str, object]) -> Kept | BoundaryCorruption:
    """What `kept_form` gave, or the first of its faults."""
    if "artifact" not in value:
        return read_outputs(value)
    try:
        form = msgspec.convert(value, type=_Spilled)
    except msgspec.ValidationError:
        return BoundaryCorruption("", "", "invalid_record")
    if not all(map(is_digest, (form.artifact, *form.needs))):
        return BoundaryCorruption("", form.artifact, "invalid_record")
    return Spilled(form.artifact, form.needs)


def effects_form(effects: tuple[Effect, ...]) -> tuple[tuple[str, str], ...]:
    """Effects as pairs of key and JSON text."""
    return tuple((effect.key, json.dumps(effect.payload, ensure_ascii=False)) for effect in effects)


def read_effects(form: tuple[tuple[str, str], ...]) -> tuple[Effect, ...]:
    """What `effects_form` gave; a ValueError or TypeError if it is that of no effects."""
    return tuple(Effect(key, json.loads(payload)) for key, payload in form)


# --- what it needs and may name -------------------------------------------------


def artifacts_of(kept: Kept, needed: frozenset[str]) -> tuple[str, ...]:
    """The digests of all that has to be in the artifact store; `needed` are those of the record itself."""
    return (kept.digest, *kept.needs) if isinstance(kept, Spilled) else tuple(sorted(needed))


def belongs_to(outputs: Outputs, boundary: Boundary) -> bool:
    """Whether a record names nothing but what the boundary writes or removes."""
    if not outputs.entries and not outputs.removed:
        return True
    declared = declare(boundary, portable=False)
    return not isinstance(declared, PathProblem) and _belongs(outputs, declared)


def _belongs(outputs: Outputs, declared: Declaration) -> bool:
    written = all(declared.writes(entry.path) for entry in outputs.entries)
    return written and all(declared.writes(path) or declared.may_remove(path) for path in outputs.removed)
