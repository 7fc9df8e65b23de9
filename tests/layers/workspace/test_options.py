"""The rules of a sandbox that a result depends on, as a cache key has them."""

from __future__ import annotations

from dataclasses import replace

from stepwell.core.workspace_limits import LIMITS
from stepwell.layers.workspace.commands import Commands, LazyCommands, NoCommands
from stepwell.layers.workspace.options import Options


def test_each_rule_for_python_bodies_is_told_apart_and_the_place_is_none() -> None:
    ruled = [
        Options(),
        Options(limits=replace(LIMITS, wall=1)),
        Options(portable_names=False),
        Options(strict_probes=True),
        Options(tripwire=False),
    ]
    assert len({options.policy_digest for options in ruled}) == len(ruled)
    assert Options(places=("/somewhere",)).policy_digest == Options().policy_digest


def test_each_rule_for_commands_is_told_apart() -> None:
    ruled: list[Commands] = [
        LazyCommands(Options(), None, (), network=False),
        LazyCommands(Options(), None, (), network=True),
        LazyCommands(Options(), None, ("/opt/tools",), network=False),
        LazyCommands(Options(strict_probes=True), None, (), network=False),
        NoCommands(),
    ]
    assert len({commands.policy_digest for commands in ruled}) == len(ruled)
    here = LazyCommands(Options(places=("/somewhere",)), "/usr/bin/bwrap", (), network=False)
    assert here.policy_digest == ruled[0].policy_digest
