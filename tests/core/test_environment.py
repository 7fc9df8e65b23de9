"""What a step runs in: each part of it makes another digest, and another key."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from stepwell.core.cache_key import CacheMaterial, cache_key
from stepwell.core.environment import Environment, Package, Platform, environment_digest, packages_digest

PACKAGES = (Package("click", "8.2.0", "a" * 64), Package("rich", "14.0.0"))
BASE = Environment(
    python="3.12.4",
    implementation="cpython cpython-312",
    platform=Platform("linux", "x86_64", "glibc 2.36"),
    packages=packages_digest(PACKAGES),
    variables={"MODE": "a", "LEVEL": None},
    extra={"model": "3"},
)

CHANGED: dict[str, Environment] = {
    "the patch version": replace(BASE, python="3.12.5"),
    "the implementation": replace(BASE, implementation="pypy pypy-312"),
    "the system": replace(BASE, platform=Platform("darwin", "x86_64", "glibc 2.36")),
    "the architecture": replace(BASE, platform=Platform("linux", "aarch64", "glibc 2.36")),
    "the C library": replace(BASE, platform=Platform("linux", "x86_64", "glibc 2.37")),
    "the version of a package": replace(BASE, packages=packages_digest((Package("click", "8.2.1"), PACKAGES[1]))),
    "the files of a package": replace(
        BASE, packages=packages_digest((Package("click", "8.2.0", "b" * 64), PACKAGES[1]))
    ),
    "a package less": replace(BASE, packages=packages_digest(PACKAGES[:1])),
    "a variable": replace(BASE, variables={"MODE": "b", "LEVEL": None}),
    "a variable that is empty": replace(BASE, variables={"MODE": "a", "LEVEL": ""}),
    "a variable that was not named": replace(BASE, variables={"MODE": "a"}),
    "what else was named": replace(BASE, extra={"model": "4"}),
    "a variable as what else was named": replace(BASE, variables={"LEVEL": None}, extra={"model": "3", "MODE": "a"}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_k_10_k_08_each_part_of_the_environment_makes_another_key(what: str) -> None:
    keys = [
        cache_key(CacheMaterial(kind="python", name="fetch", version="1", environment=environment_digest(each)))
        for each in (BASE, *CHANGED.values())
    ]
    assert len(set(keys)) == len(keys)
    assert environment_digest(CHANGED[what]) != environment_digest(BASE)


def test_the_order_in_which_things_were_found_makes_no_difference() -> None:
    assert packages_digest(PACKAGES[::-1]) == packages_digest(PACKAGES)
    shuffled = replace(BASE, variables={"LEVEL": None, "MODE": "a"})
    assert environment_digest(shuffled) == environment_digest(BASE)


def test_what_was_named_cannot_be_changed_afterwards() -> None:
    named = {"MODE": "a"}
    environment = replace(BASE, extra=named)
    named["MODE"] = "b"
    assert environment.extra == {"MODE": "a"}
    assert isinstance(environment.extra, MappingProxyType)
    assert isinstance(environment.variables, MappingProxyType)
