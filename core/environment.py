"""What a step runs in, as far as its result may depend on it: the interpreter, the machine, the packages, and what was
named.

Nothing else of the process's variables, folders or users is part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import final

from .canonical_json import canonical_material
from .node import digest_of

__all__ = ["Environment", "Package", "Platform", "environment_digest", "packages_digest"]


@final
@dataclass(frozen=True, slots=True)
class Platform:
    """The machine: `os` as `sys.platform` names it, its architecture, and its C library with the version, or ""."""

    os: str
    arch: str
    libc: str = ""


@final
@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution. `record` is the digest of what its files were when they were installed, if known."""

    name: str
    version: str
    record: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Environment:
    """`python` is the whole version of the interpreter, as in 3.12.4; `implementation` names it and its bytecode.

    `packages` is what `packages_digest` gives. `variables` are those of the process that were named, None where one is
    not set; `extra` is what else was named, as the version of a model or a tool.
    """

    python: str
    implementation: str
    platform: Platform
    packages: str
    variables: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", MappingProxyType({**self.variables}))
        object.__setattr__(self, "extra", MappingProxyType({**self.extra}))


def environment_digest(environment: Environment) -> str:
    """The digest of an environment: 64 hex digits. NotCanonical, if a text in it is not valid Unicode."""
    platform = environment.platform
    return digest_of(
        canonical_material(
            {
                "v": 1,
                "python": environment.python,
                "implementation": environment.implementation,
                "platform": [platform.os, platform.arch, platform.libc],
                "packages": environment.packages,
                "variables": {**environment.variables},
                "extra": {**environment.extra},
            }
        )
    )


def packages_digest(packages: Iterable[Package]) -> str:
    """The digest of what is installed, in whatever order it was found."""
    return digest_of(canonical_material(sorted([each.name, each.version, each.record or ""] for each in packages)))
