"""The cache key of a step: what its code, its call, its boundary and the reads that were measured make of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import final

from ...core.canonical_json import canonical_material
from ...core.code_identity import Unidentified, identify
from ...core.command import Command
from ...core.measured import MeasuredReads
from ...core.owed import reads_digest
from ...services.driver import CachedCall

__all__ = ["StepKey", "derive_key"]


@final
@dataclass(frozen=True, slots=True)
class StepKey:
    """`digest` is the key, `own` that of the run alone. `scope` says why they are the same, where they are."""

    digest: str
    own: str
    scope: str | None = None


def derive_key(call: CachedCall, reads: MeasuredReads, run_id: str, environment: str | None) -> StepKey:
    """The key of a call, with these reads and in this environment, None where it is not known."""
    code: object = call.version
    scope = None if environment is not None else "the environment is not known"
    if call.function is not None and call.version is None:
        identity = identify(call.function)
        if isinstance(identity, Unidentified):
            code, scope = None, identity.reason
        else:
            code = identity.digest
    if isinstance(call.body, Command):
        body: object = [list(call.body.argv), dict(call.body.env), call.body.stdin, list(call.body.ok)]
    else:
        body = json.loads(call.arguments)
    boundary = call.boundary
    declared = [[*map(str, boundary.reads)], [*boundary.writes], [*boundary.removes], boundary.mode]
    material: list[object] = [call.key, code, body, declared, reads_digest(reads), environment]
    own = "key1_" + sha256(canonical_material([*material, run_id])).hexdigest()
    if scope is not None:
        return StepKey(own, own, scope)
    return StepKey("key1_" + sha256(canonical_material(material)).hexdigest(), own)
