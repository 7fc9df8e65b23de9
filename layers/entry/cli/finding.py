"""One thing that `doctor` looked at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: its value, for programs and for people, and what is to be said about it.

    `wrong` is a fault and says what to do; `remark` is worth knowing.
    """

    name: str
    value: object
    shown: str | None = None
    wrong: str | None = None
    remark: str | None = None

    @property
    def label(self) -> str:
        """The name for people, whose values say their unit themselves."""
        return self.name.removesuffix("_bytes").removesuffix("_us").replace("_", " ")

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "value": self.value, "wrong": self.wrong, "remark": self.remark}
