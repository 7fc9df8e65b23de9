"""How a sandbox is set up: its limits, the spellings of its root, its rules about names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import final

from ...core.node import digest_of
from ...core.workspace_limits import LIMITS, WorkspaceLimits
from ...core.workspace_path import WORKSPACE_ROOT

__all__ = ["Options"]


@final
@dataclass(frozen=True, slots=True)
class Options:
    """`places` are the absolute paths at which the folder is on the host. With `tripwire` the interpreter is asked what
    else Python bodies do. `policy_digest` is the digest of the rules that results depend on; where the root is, is none
    of them."""

    limits: WorkspaceLimits = LIMITS
    portable_names: bool = True
    strict_probes: bool = False
    places: tuple[str, ...] = ()
    tripwire: bool = True
    policy_digest: str = field(init=False, repr=False, compare=False)  # made once: every key has it

    def __post_init__(self) -> None:
        rules = {
            "v": 1,
            "limits": asdict(self.limits),
            "portable_names": self.portable_names,
            "strict_probes": self.strict_probes,
            "tripwire": self.tripwire,
        }
        object.__setattr__(self, "policy_digest", digest_of(json.dumps(rules, sort_keys=True).encode()))

    @property
    def roots(self) -> tuple[str, ...]:
        """The absolute paths under which bodies may spell what is in the workspace."""
        return (*self.places, WORKSPACE_ROOT)
