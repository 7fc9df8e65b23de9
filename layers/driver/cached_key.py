"""The cache key of a step: what its code, its call, its boundary and the reads that were measured make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, final

from ...core.boundary import Boundary, Declaration, declare
from ...core.cache_key import BoundReads, CacheMaterial, cache_key
from ...core.canonical_json import NotCanonical
from ...core.code_identity import CodeIdentity, Unidentified, identify
from ...core.command import Command
from ...core.measured import MeasuredReads
from ...core.result_schema import parameter_schema, result_schema
from ...core.workspace_path import PathProblem
from ...services.driver import CachedCall
from .surroundings import Surrounding

__all__ = ["StepKey", "derive_key"]

BOUNDARIES: Final = 128
"""Of how many boundaries the declarations are kept: a workflow has a few, which its steps come back to."""


@final
@dataclass(frozen=True, slots=True)
class StepKey:
    """`digest` is the key. `scope` says why it is one of the run alone, where it is."""

    digest: str
    material: CacheMaterial
    run_id: str
    scope: str | None = None

    @property
    def own(self) -> str:
        """The key that the same has for this run alone; made when it is asked for, which a hit never does."""
        return self.digest if self.scope is not None else cache_key(_own(self.material, self.run_id))


def derive_key(
    call: CachedCall, reads: MeasuredReads, run_id: str, surrounding: Surrounding, policy: str
) -> StepKey | None:
    """The key of a call with these reads, executed by this policy; None if there can be none, and nothing is kept.

    The arguments count as their types wrote them, byte for byte: a body can tell the order of a dict. Code that cannot
    be identified, and an environment that is not known, make the key one of the run alone.
    """
    declaration = _declared(call.boundary)
    if not isinstance(declaration, Declaration):
        return None
    code = _code(call)
    scope = code.reason if isinstance(code, Unidentified) else None
    if scope is None and surrounding.environment is None:
        scope = "the environment is not known"
    has_arguments = call.arguments != b"[]"
    material = CacheMaterial(
        kind="command" if isinstance(call.body, Command) else "python",
        name=call.key,
        code=code.digest if isinstance(code, CodeIdentity) else None,
        version=call.version,
        command=call.body if isinstance(call.body, Command) else None,
        tool=surrounding.tool,
        arguments=call.arguments if has_arguments else None,
        parameters=parameter_schema(call.function) if has_arguments and call.function is not None else None,
        result=None if call.function is None else result_schema(call.function),
        bound=BoundReads(declaration, reads),
        environment=surrounding.environment if scope is None else None,
        run_scope=None if scope is None else run_id,
        policy=policy,
    )
    try:
        return StepKey(cache_key(material), material, run_id, scope)
    except NotCanonical:
        return None


@lru_cache(maxsize=BOUNDARIES)
def _declared(boundary: Boundary) -> Declaration | PathProblem:
    """A boundary is a value: equal ones declare the same."""
    return declare(boundary, portable=False)


def _own(material: CacheMaterial, run_id: str) -> CacheMaterial:
    return replace(material, environment=None, run_scope=run_id)


def _code(call: CachedCall) -> CodeIdentity | Unidentified | None:
    """What the code is known by; None where it needs to be nothing, or where the caller says it."""
    return None if call.function is None or call.version is not None else identify(call.function)
