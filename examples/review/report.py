"""The review board as a report: in Markdown, and as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .board import Board, Entry

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667085; --line: #e3e6ea; --paper: #fff; --card: #f7f8fa;
  --good: #17794a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #98a2b3; --line: #2f343b; --paper: #15181c;
  --card: #1c2026; --good: #5bd79a; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.totals { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0; padding: 0; list-style: none; }
.totals li { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem 1rem; }
.totals b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top; }
th { color: var(--soft); font-size: .85rem; font-weight: 600; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: .9em/1.4 ui-monospace, monospace; overflow-wrap: anywhere; } td code { overflow-wrap: normal; }
article { border: 1px solid var(--line); border-radius: .6rem; margin: .75rem 0; padding: .75rem 1rem; }
article h3 { font-size: 1rem; margin: 0; } article ul { margin: .4rem 0 0; padding-left: 1.2rem; }
""".strip()

COLUMNS = ("lines", "words", "longest line", "links", "broken", "misspelled")


def markdown(name: str, board: Board) -> str:
    """The report as Markdown."""
    lines = [f"# Review of {name}", "", ", ".join(f"{what}: {count}" for what, count in _totals(board)), ""]
    lines += [f"| file | verdict | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
    for path, entry in sorted(board.entries.items()):
        numbers = " | ".join(map(str, _numbers(entry)))
        lines.append(f"| {_code(path)} | {_verdict(entry)} | {numbers} |")
    for title, entries in _chapters(board):
        lines += ["", f"## {title}"]
        for path, remarks in entries:
            lines += ["", f"### {_code(path)}", "", *(f"- {_plain(remark)}" for remark in remarks)]
    return "\n".join(lines) + "\n"


def html(name: str, board: Board) -> str:
    """The report as HTML, for light and dark screens."""
    totals = "".join(f"<li><b>{count}</b>{what}</li>" for what, count in _totals(board))
    head = "".join(f'<th class="n">{column}</th>' for column in COLUMNS)
    rows = "\n".join(_row(path, entry) for path, entry in sorted(board.entries.items()))
    chapters = "\n".join(_chapter(title, entries) for title, entries in _chapters(board))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Review of {escape(name)}</title>
<style>
{STYLE}
</style>
</head>
<body>
<h1>Review of {escape(name)}</h1>
<p class="soft">One run a file, one board for all; every line below comes from a recorded step.</p>
<ul class="totals">{totals}</ul>
<div class="wide"><table>
<thead><tr><th>file</th><th>verdict</th>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table></div>
{chapters}
</body>
</html>
"""


# --- what is told -----------------------------------------------------------


def _totals(board: Board) -> list[tuple[str, int]]:
    entries = board.entries.values()
    decisions = [entry.verdict.decision for entry in entries if entry.verdict]
    return [
        ("files", len(entries)),
        ("approved", decisions.count("approved")),
        ("changes requested", decisions.count("changes requested")),
        ("broken links", sum(len(entry.links.broken) for entry in entries)),
        ("misspellings", sum(len(entry.misspellings) for entry in entries)),
        ("lines", sum(entry.measures.lines for entry in entries)),
    ]


def _numbers(entry: Entry) -> tuple[int, ...]:
    size = entry.measures
    return size.lines, size.words, size.longest, entry.links.checked, len(entry.links.broken), len(entry.misspellings)


def _verdict(entry: Entry) -> str:
    return entry.verdict.decision if entry.verdict else "not decided"


def _chapters(board: Board) -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    for title, decision in (("Changes requested", "changes requested"), ("Approved, with remarks", "approved")):
        entries = [
            (path, entry.verdict.remarks)
            for path, entry in sorted(board.entries.items())
            if entry.verdict and entry.verdict.decision == decision and entry.verdict.remarks
        ]
        if entries:
            yield title, entries


# --- how it is written ------------------------------------------------------


def _plain(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>#|" else char for char in text)


def _code(path: str) -> str:
    """A path as Markdown, also within a table."""
    return _plain(path) if "`" in path or "|" in path else f"`{path}`"


def _row(path: str, entry: Entry) -> str:
    tone = {"approved": "good", "changes requested": "bad"}.get(_verdict(entry), "soft")
    numbers = "".join(f'<td class="n">{number}</td>' for number in _numbers(entry))
    return f'<tr><td><code>{escape(path)}</code></td><td class="{tone}">{_verdict(entry)}</td>{numbers}</tr>'


def _chapter(title: str, entries: list[tuple[str, list[str]]]) -> str:
    articles = "\n".join(
        f"<article><h3><code>{escape(path)}</code></h3><ul>"
        + "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
        + "</ul></article>"
        for path, remarks in entries
    )
    return f"<h2>{title}</h2>\n{articles}"
