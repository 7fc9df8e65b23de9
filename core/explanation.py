"""What a change of a state costs, told to people: which parts are validated by themselves, and which only together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from .checks import WholeCheck
from .model import Path
from .paths import EACH
from .places import Barrier

__all__ = ["Explanation"]


@final
@dataclass(frozen=True, slots=True)
class Explanation:
    """What is validated by itself where states of one type change. `str()` of it is for people.

    `barriers` are the places at which a change costs as much as the whole part there. `checks` are the validators of
    whole records that may read much: each change beneath costs what they read, and twice that where they write.
    """

    type_name: str
    barriers: tuple[Barrier, ...]
    checks: tuple[WholeCheck, ...] = ()

    def __str__(self) -> str:
        begin = f"{self.type_name}: a change is validated where it was made, "
        lines = [begin + ("but for these parts, each as a whole:" if self.barriers else "whatever it is.")]
        for barrier in self.barriers:
            lines += [f"  {_shown(barrier.path)}: {barrier.reason}", f"      {_advice(barrier.reason)}"]
        if self.checks:
            lines.append(_CHECKS)
        for check in self.checks:
            parts = ", ".join(_shown(part, "it") for part in check.parts)
            lines += [f"  {_shown(check.path)}: {check.name} may read all of {parts}", f"      {_CHECK_ADVICE}"]
        return "\n".join(lines)


def _shown(path: Path, root: str = "the whole state") -> str:
    """A path as one writes it in code, with `[*]` for any element or key; `root` is for the path of no segment."""
    shown = ""
    for segment in path:
        shown += "[*]" if segment is EACH else f"[{segment!r}]" if isinstance(segment, int) else f".{segment}"
    return shown.removeprefix(".") or root


_CHECKS: Final = "Each change beneath these costs, too, what a validator reads there, and twice that if it writes:"

_CHECK_ADVICE: Final = "let it read little, validate elements or fields instead, or keep these parts small"

_ADVICE: Final = (
    ("a validator takes all of it", "validate its elements or fields instead, or keep it small"),
    ("a validator of the whole asks", "take the record alone, without info, in a validator of mode after"),
    ("a validator of ", "declare fields that change often after these, or check both in a validator of mode after"),
    ("its class does more", "derive the field in a validator of mode after, or keep the record small"),
    ("it may hold keys", "declare a dict for them, or keep it small"),
    ("its keys are more", "use plain text as keys, or keep it small"),
    ("it is a set", "use a dict whose keys are the members, or keep it small"),
    ("it is a tuple", "use a model or a list, or keep it small"),
)


def _advice(reason: str) -> str:
    return next((advice for begin, advice in _ADVICE if reason.startswith(begin)), "keep it small")
