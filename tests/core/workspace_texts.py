"""Texts that somebody may take for a path: ordinary ones, hostile ones, and those that only look alike."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(
    ["a", "b", "ab", "A", ".git", ".stepwell", ".x", "caf\u00e9", "cafe\u0301", "con", "x.", "a:b", "*", "**"]
)
ODD = st.sampled_from(
    ["", ".", "..", "\\", "\0", "\n", "\x7f", "\ud800", "\u200d", " ", "x" * 256, "\u0345", "\U0001f600"]
)

PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
"""Paths and globs, most of which name something in a workspace."""

TEXTS = (
    st.lists(NAMES | ODD | st.text(st.characters(), max_size=4), max_size=8).map("/".join)
    | st.text(st.characters(), max_size=20)
    | st.integers(60, 70).map(lambda depth: "/".join("d" * depth))
    | st.integers(1_000, 1_050).map(lambda size: "/".join(["x" * 200] * (size // 201) + ["y" * (size % 201)]))
    | st.just("x" * 100_000)
)
"""Any text at all."""
