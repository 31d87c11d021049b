"""Pages: tables, figures and clips as pieces of HTML. Knows nothing of rows.

Pieces need nothing from outside: pictures are inline SVG whose colours are the page's variables,
sound is in the page itself.
"""

import re
from collections.abc import Sequence
from html import escape

from keybound.benchmark.report.figures import COLOURS, Picture, svg
from keybound.benchmark.report.gallery import Exhibit
from keybound.benchmark.report.layout import STANDS_IN, Cell, Column, Table, groups

RAISED = {STANDS_IN: "E"}  # a mark that is raised already


def words(text: str) -> str:
    """Return escaped text, the rule's name with its subscript, numbers beside their units."""
    joined = re.sub(r"(?<=\d) (?=(dB|kbps|kHz|Hz|bit|s)\b|%)", "\u00a0", text)
    return escape(joined).replace("V_A", "V<sub>A</sub>").replace("SI-SNR", "SI\u2011SNR")


def table(item: Table) -> str:
    """Return a table with its caption, notes and the help of its columns."""
    body = "".join(_bodies(item))
    head = _head(item.columns)
    notes = "".join(f"<li>{words(note)}</li>" for note in item.notes)
    return f"""<article class="item" id="{item.name}">
<h3>{words(item.title)}</h3>
<p class="caption" id="{item.name}-caption">{words(item.caption)}</p>
<div class="scroll" role="region" tabindex="0" aria-label="{escape(item.title)}, table">
<table aria-describedby="{item.name}-caption">{head}{body}</table>
</div>
{f'<ul class="notes">{notes}</ul>' if notes else ""}
{_help(item.columns)}
</article>"""


def _head(columns: Sequence[Column]) -> str:
    starts = _starts(columns)
    lines = ""
    if any(column.group for column in columns):
        cells, at = "", 0
        for group, size in groups(columns):
            kind = _classes("start" if at in starts else "")
            scope = f' scope="colgroup" colspan="{size}"' if group else ""
            cells += f"<th{scope}{kind}>{words(group)}</th>" if group else "<td></td>"
            at += size
        lines = f'<tr class="groups">{cells}</tr>'
    heads = "".join(
        f'<th scope="col"{_classes("words" if c.words else "", "start" if n in starts else "")}'
        f' title="{escape(c.help)}">{words(c.label)}</th>'
        for n, c in enumerate(columns)
    )
    return f"<thead>{lines}<tr>{heads}</tr></thead>"


def _starts(columns: Sequence[Column]) -> set[int]:
    """Return the columns at which a group begins or a group ends."""
    return {n for n in range(1, len(columns)) if columns[n].group != columns[n - 1].group}


def _bodies(item: Table) -> list[str]:
    """Return a body for each heading, so that headings name what stands below them."""
    starts = _starts(item.columns)
    bodies: list[str] = []
    lines: list[str] = []
    for row in item.rows:
        if isinstance(row, str):
            if lines:
                bodies.append(f"<tbody>{''.join(lines)}</tbody>")
            span = len(item.columns)
            heading = f'<th scope="rowgroup" colspan="{span}"><span>{words(row)}</span></th>'
            lines = [f'<tr class="section">{heading}</tr>']
        else:
            lines.append(f"<tr>{_cells(row, item.columns, starts)}</tr>")
    return [*bodies, f"<tbody>{''.join(lines)}</tbody>"] if lines else bodies


def _cells(row: Sequence[Cell], columns: Sequence[Column], starts: set[int]) -> str:
    at, found = 0, ""
    for cell in row:
        kinds = _classes(cell.kind, "words" * columns[at].words, "start" * (at in starts))
        mark = f"<sup>{words(RAISED.get(cell.mark, cell.mark))}</sup>" if cell.mark else ""
        text = f"<span>{words(cell.text)}{mark}</span>"
        span = f' colspan="{cell.span}"' if cell.span > 1 else ""
        first = cell.kind == "name"
        found += f'<th scope="row"{kinds}>{text}</th>' if first else f"<td{span}{kinds}>{text}</td>"
        at += cell.span
    return found


def _classes(*kinds: str) -> str:
    told = " ".join(kind for kind in kinds if kind)
    return f' class="{told}"' if told else ""


def _help(columns: Sequence[Column]) -> str:
    seen: dict[str, str] = {}
    for column in columns:
        told = f"{column.group}: {column.label}" if column.group else column.label
        same = column.label in seen and seen[column.label] == column.help
        if not same:
            seen[told if column.label in seen else column.label] = column.help
    entries = "".join(f"<dt>{words(k)}</dt><dd>{words(v)}</dd>" for k, v in seen.items())
    return (
        f'<details class="help"><summary>What the columns say</summary><dl>{entries}</dl></details>'
    )


def picture(item: Picture, *, folded: bool = False) -> str:
    """Return a figure with its caption, folded away where it is one of many."""
    drawing = inline(svg(item.figure, item.name), item.name, item.alt)
    caption = f"<figcaption>{words(item.caption)}</figcaption>"
    inner = f'<figure>{caption}<div class="scroll" tabindex="0">{drawing}</div></figure>'
    if folded:
        return f"""<details class="item" id="{item.name}">
<summary>{words(item.title)}</summary>{inner}</details>"""
    return f'<article class="item" id="{item.name}"><h3>{words(item.title)}</h3>{inner}</article>'


def inline(source: bytes, slug: str, alt: str) -> str:
    """Return an SVG for the page: with ids of its own, the page's colours, words for readers."""
    text = source.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="', f'id="{slug}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{slug}-", text)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    size = f"--width: {float(width.group(1)) * 4 / 3:.0f}px" if width else ""
    root = f'<svg role="img" aria-label="{escape(alt)}" style="{size}"'
    return re.sub(
        r'<svg( [^>]*?)? width="[^"]*"', lambda m: root + (m.group(1) or ""), text, count=1
    )


def clip(item: Exhibit) -> str:
    """Return a clip: its spectrogram and a player."""
    slug = "clip-" + re.sub(r"[^a-z0-9]+", "-", item.name.lower()).strip("-")
    alt = f"Spectrogram of {item.name}, {item.seconds:.1f} seconds"
    drawing = inline(svg(item.figure, slug), slug, alt)
    return f"""<figure class="clip" id="{slug}">
<figcaption>{words(item.name)}</figcaption>
{drawing}
<audio controls preload="none" src="{item.sound}" aria-label="{escape(item.name)}"></audio>
</figure>"""
