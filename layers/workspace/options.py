"""How a sandbox is set up: its limits, the spellings of its root, its rules about names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import final

from ...core.node import digest_of
from ...core.workspace_limits import LIMITS, WorkspaceLimits
from ...core.workspace_path import WORKSPACE_ROOT

__all__ = ["Options"]


@final
@dataclass(frozen=True, slots=True)
class Options:
    """`roots` are the absolute paths under which bodies may spell what is in the workspace."""

    limits: WorkspaceLimits = LIMITS
    portable_names: bool = True
    strict_probes: bool = False
    roots: tuple[str, ...] = (WORKSPACE_ROOT,)

    @property
    def policy_digest(self) -> str:
        """The digest of the rules that results depend on; where the root is, is none of them."""
        rules = {
            "v": 1,
            "limits": asdict(self.limits),
            "portable_names": self.portable_names,
            "strict_probes": self.strict_probes,
        }
        return digest_of(json.dumps(rules, sort_keys=True).encode())
