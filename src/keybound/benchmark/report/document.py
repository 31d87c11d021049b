"""The report: one HTML file with every table, figure and clip, and nothing from outside.

A pure function of the rows and the clips: no dates, no machine, no requests. `report.html` beside
this module is the page; `report.css` and `report.js` are written into it.
"""

import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

from matplotlib import rc_context

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import page
from keybound.benchmark.report.figures import LOOKS, STYLE, Picture, histograms, remover, roc
from keybound.benchmark.report.figures_summary import excerpts, frontier, heat_map
from keybound.benchmark.report.gallery import Samples, exhibits
from keybound.benchmark.report.labels import titled
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, Evidence, gather
from keybound.benchmark.report.tables import make_tables

Clips = Mapping[str, tuple[Samples, int]]  # by name: samples and their rate
FOLDED = ("-others",)  # figures that open on demand


def pictures(e: Evidence) -> list[Picture]:
    """Draw every figure that the rows give."""
    with rc_context(STYLE):
        found = [heat_map(e), frontier(e), excerpts(e), remover(e), roc(e), roc(e, suite=False)]
        for method in e.marked_methods:
            found += [histograms(e, method), histograms(e, method, suite=False)]
    return [picture for picture in found if picture is not None]


def report(rows: Iterable[Row], clips: Clips | None = None) -> str:
    """Return the report of rows; `clips` are shown and played."""
    rows = list(rows)
    evidence = gather(rows)
    tables, empty = make_tables(rows)
    pieces = {table.name: (table.title, page.table(table)) for table in tables}
    for item in pictures(evidence):
        folded = item.name.endswith(FOLDED)
        pieces[item.name] = (item.title, page.picture(item, folded=folded))
    grouped = {title: _matching(names, pieces) for title, names in LOOKS["sections"].items()}
    placed = {name for names in grouped.values() for name in names}
    grouped["More"] = [name for name in pieces if name not in placed]
    sections, index = [], []
    for heading, names in grouped.items():
        if names:
            sections.append(_section(heading, "".join(pieces[name][1] for name in names)))
            index.append(_entry(heading, [(name, pieces[name][0]) for name in names]))
    if clips:
        shown = "".join(page.clip(item) for item in exhibits(clips))
        told = "All spectrograms share one scale, 80 dB from the loudest point of the first."
        sections.append(_section("Clips", f'<p>{told}</p><div class="gallery">{shown}</div>'))
        index.append(_entry("Clips", []))
    if empty:
        items = "".join(f"<li>{page.words(name)}</li>" for name in empty)
        sections.append(_section("No rows yet", f'<ul class="empty">{items}</ul>'))
        index.append(_entry("No rows yet", []))
    return _document(_opening(evidence, len(rows)), index, sections)


def write_report(rows: Iterable[Row], path: Path, clips: Clips | None = None) -> Path:
    """Write the report of rows to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report(rows, clips), encoding="utf-8", newline="\n")
    return path


def _matching(names: Iterable[str], pieces: Mapping[str, object]) -> list[str]:
    """Return the pieces of these names; a name that ends in a hyphen stands for all it begins."""
    return [
        piece
        for name in names
        for piece in pieces
        if piece == name or (name.endswith("-") and piece.startswith(name))
    ]


def _opening(e: Evidence, count: int) -> str:
    lines = ""
    for method in e.methods:
        told = escape(" · ".join(_facts(e, method)))
        lines += f"<dt>{page.words(titled(method))}</dt><dd>{told}</dd>"
    older = f" {e.older:,} rows of earlier versions are left out." if e.older else ""
    lead = f'<p class="lead">Made from {count:,} measured rows.{older}</p>'
    return f'{lead}<dl class="facts">{lines}</dl>'


def _facts(e: Evidence, method: str) -> list[str]:
    """Return what the rows say of a method, in a few words each."""
    measured = {a: rows for (m, a, _), rows in e.clips.items() if m == method}
    attacks = len(e.attacks(method, None))
    facts = [f"{attacks} attacks"] if attacks else []
    facts += [f"{max(map(len, measured.values()))} clips"] if measured else []
    facts += [f"{e.bits(method)} bits"] if e.bits(method) else []
    for which in (SHIPPED, CLEAN):
        cut = e.threshold(method, which)
        facts += [f"{which} threshold {cut:.4f}"] if cut is not None else []
    versions = {str(row.get("version") or "") for rows in measured.values() for row in rows}
    facts += [f"version {version}" for version in sorted(versions) if version]
    suites = sorted(s for s, m in e.suites if m == method and s != "method")
    return [*facts, *([f"suites: {', '.join(suites)}"] if suites else [])]


def _slug(heading: str) -> str:
    return "part-" + heading.lower().replace(" ", "-")


def _section(heading: str, inner: str) -> str:
    slug = _slug(heading)
    head = f'<h2 id="{slug}-head">{heading}</h2>'
    return f'<section id="{slug}" aria-labelledby="{slug}-head">{head}{inner}</section>'


def _entry(heading: str, items: Iterable[tuple[str, str]]) -> str:
    inner = "".join(f'<li><a href="#{name}">{page.words(title)}</a></li>' for name, title in items)
    deeper = f"<ol>{inner}</ol>" if inner else ""
    return f'<li><a href="#{_slug(heading)}">{heading}</a>{deeper}</li>'


def _document(opening: str, index: Iterable[str], sections: Iterable[str]) -> str:
    def text(name: str) -> str:
        return (files(__package__) / name).read_text(encoding="utf-8")

    parts = {"opening": opening, "index": "".join(index), "sections": "".join(sections)}
    parts |= {"style": text("report.css"), "script": text("report.js")}
    return re.sub(r"<!--(\w+)-->", lambda place: parts[place[1]], text("report.html"))
