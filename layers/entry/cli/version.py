"""Which stepwell this is."""

from __future__ import annotations

from importlib import metadata

__all__ = ["stepwell_version"]


def stepwell_version() -> str:
    """As it is installed; where it is not, as the source says nothing else, "unknown"."""
    try:
        return metadata.version("stepwell")
    except metadata.PackageNotFoundError:
        return "unknown"
