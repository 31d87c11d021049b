"""The report: one HTML file with every table, figure and clip, and nothing from outside.

A pure function of the rows and the clips: no dates, no machine, no requests. Style and script
stand in `report.css` and `report.js` beside this module and are written into the page.
"""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

from matplotlib import rc_context

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import page
from keybound.benchmark.report.figures import STYLE, Picture, histograms, remover, roc
from keybound.benchmark.report.figures_summary import frontier, heat_map
from keybound.benchmark.report.gallery import Samples, exhibits
from keybound.benchmark.report.labels import titled
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, Evidence, gather
from keybound.benchmark.report.tables import make_tables

TITLE = "KeyBound benchmark"
Clips = Mapping[str, tuple[Samples, int]]  # by name: samples and their rate
GROUPS = {  # heading -> tables and figures by name, in order
    "Summary": ("glance", "heat-map"),
    "Robustness": ("robustness", "attribution", "lengths", "other-speech", "roc", "roc-others"),
    "False positives": ("false-positives", "other-audio", "scores-"),
    "Security": (
        "security", "wrong-key", "tolerance", "beta", "forgeries", "remover", "remover-plot",
        "collusion", "gradient", "host-binding",
    ),
    "Seals": ("sealed", "false-acceptance", "seal-forgery", "seal-copy", "seal-quality"),
    "Quality": ("quality", "frontier", "damage"),
    "Channels": (
        "resynthesis", "compound", "pairs", "everyday", "raw-bench", "audiomarkbench",
    ),
    "Studies": ("ablation", "payload-length", "operating-point"),
    "Certainty": ("intervals", "attack-intervals"),
    "Facts": ("configuration", "speed", "not-run"),
}  # fmt: skip
FOLDED = ("-others",)  # figures that open on demand
POLICY = (
    "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'"
)
READING = """<p><b>DA</b>, detection accuracy: the share of marked clips whose presence score
reaches a threshold; anyone can compute it. <b>BA</b>, bit accuracy: the share of payload bits read
rightly with the key. <b>V<sub>A</sub></b>: the share of clips that verify, presence and at most ρ
wrong bits. <b>FPR</b>: the share of equally attacked unmarked clips that reach the threshold.
<b>Shipped</b> is the method's own threshold, set beforehand; <b>1 %</b> is the paper's protocol,
set on the clean unmarked clips of the test itself. Figures in <span class="published">grey</span>
are the paper's; none of them was measured here.</p>"""


def pictures(e: Evidence) -> list[Picture]:
    """Draw every figure that the rows give."""
    with rc_context(STYLE):
        found = [heat_map(e), frontier(e), remover(e), roc(e), roc(e, suite=False)]
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
    grouped = {title: _matching(names, pieces) for title, names in GROUPS.items()}
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
    return f'{lead}<dl class="facts">{lines}</dl>{READING}'


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
    here = files("keybound.benchmark.report")
    style = (here / "report.css").read_text(encoding="utf-8")
    script = (here / "report.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="color-scheme" content="light dark">
<title>{TITLE}</title>
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<nav aria-label="Contents"><ol>{"".join(index)}</ol></nav>
<main id="main">
<header>
<h1>{TITLE}</h1>
<button type="button" id="theme" hidden>Theme: auto</button>
</header>
{opening}
{"".join(sections)}
</main>
<script>
{script}</script>
</body>
</html>
"""
