"""Figures that sum up: every attack in a heat map, and quality against robustness.

Each a pure function of the evidence, in the style of `figures`.
"""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from keybound.benchmark.report import paper
from keybound.benchmark.report.figures import (
    DASHES,
    FAINT,
    HEAT,
    INK,
    MARK,
    SOFT,
    Picture,
    blank,
    legend,
    picture,
)
from keybound.benchmark.report.labels import label, titled
from keybound.benchmark.report.summaries import SECOND, Evidence, natural

CHANCE = {"DA": 0.0, "BA": 0.5}  # the worst that a figure can be
HEADER = 14  # letters that fit over a column
SEEN = {"zimtohrli": "Zimtohrli", "visqol": "ViSQOL"}
MOST_CHAINS = 24  # shown; the tables have them all
Figures = dict[str, tuple[float | None, float | None]]  # attack -> (DA, BA)


def columns(e: Evidence) -> dict[str, Figures]:
    """Return DA and BA of every method, measured ones and the paper's, by attack."""
    found: dict[str, Figures] = {}
    for method in e.marked_methods:
        found[titled(method)] = {
            a: (e.of(method, a).reached().value, e.of(method, a).accuracy().value)
            for a in e.attacks(method)
        }
    for method in ("keybound", *paper.PEERS):
        told = "KeyBound\npaper" if method == "keybound" else f"{titled(method)}\npublished"
        figures = paper.ROBUSTNESS[method]
        found[told] = {attack: (of["DA"], of["BA"]) for attack, of in figures.items()}
    return found


def heat_map(e: Evidence) -> Picture | None:
    """Draw DA and BA of every method under every attack; only what is lost has colour."""
    if not e.marked_methods:
        return None
    by_method = columns(e)
    suite = paper.ATTACKS
    rest = {a for m in e.marked_methods for a in e.attacks(m)} - set(suite)
    singles = sorted((a for a in rest if "+" not in a), key=natural)
    chains = sorted((a for a in rest if "+" in a), key=natural)[:MOST_CHAINS]
    attacks = [*suite, *singles, *chains]
    width, gap = len(by_method), 0.25
    figure = blank(2.9 + 1.12 * width, 0.235 * len(attacks) + 0.85)
    axes = figure.subplots()
    for place, (told, figures) in enumerate(by_method.items()):
        ours = place < len(e.marked_methods)
        for line, attack in enumerate(attacks):
            pair = figures.get(attack if ours else paper.stands_for(attack))
            for side, value in enumerate(pair or (None, None)):
                x = place * (2 + gap) + side
                _square(axes, x, line, value, CHANCE["DA" if side == 0 else "BA"])
        x = place * (2 + gap) + 1
        weight = "bold" if place == 0 else "normal"
        told = "\n".join(wrap(told, HEADER)) if len(told) > 2 * HEADER else told
        axes.text(x, -1.4, told, ha="center", size=8, weight=weight, color=INK)
        for side, head in enumerate(("DA", "BA")):
            axes.text(x - 0.5 + side, -0.5, head, ha="center", size=8, color=SOFT)
    axes.set(xlim=(0, width * (2 + gap)), ylim=(len(attacks), -3.6), xticks=())
    axes.set_yticks([n + 0.5 for n in range(len(attacks))], [label(a) for a in attacks], size=8)
    axes.tick_params(length=0)
    for line in (len(suite), len(suite) + len(singles)):
        if 0 < line < len(attacks):
            axes.axhline(line, color=SOFT, lw=0.7)
    for spine in axes.spines.values():
        spine.set_visible(False)
    first = by_method[titled(e.marked_methods[0])]
    lost = min(((ba, a) for a, (_, ba) in first.items() if ba is not None), default=None)
    told = f"Our lowest bit accuracy is {lost[0]:.3f} under {label(lost[1])}." if lost else ""
    return picture("heat-map", figure, attacks=len(attacks), methods=width, lowest=told)


def _square(axes: Any, x: float, y: int, value: float | None, chance: float) -> None:
    if value is None:
        axes.text(x + 0.5, y + 0.72, "·", ha="center", size=7, color=SOFT)
        return
    lost = min(1.0, max(0.0, (1 - value) / (1 - chance)))
    shade = 0.78 * lost**0.6
    axes.add_patch(
        Rectangle((x + 0.03, y + 0.04), 0.94, 0.92, fc=HEAT, alpha=round(shade, 3), lw=0)
    )
    text = "1" if value >= 0.9995 else f"{value:.3f}".removeprefix("0")
    axes.text(x + 0.5, y + 0.72, text, ha="center", size=7.5, color=INK)


def frontier(e: Evidence) -> Picture | None:
    """Draw bit accuracy against PESQ: measured methods and the paper's."""
    measured = [m for m in e.marked_methods if e.of(m, "quality").mean("pesq").values]
    if not measured:
        return None
    figure = blank(9.4, 3.7)
    grid = figure.subplots(1, 2, sharey=True)
    for axes, attack in zip(grid, ("denoiser", "lyra-6"), strict=True):
        points = {}
        for method in measured:
            ba = e.of(method, attack).accuracy().value
            pesq = e.of(method, "quality").mean("pesq").value
            if ba is not None and pesq is not None:
                points[method] = (pesq, ba)
        tags = []
        for method, (pesq, ba) in points.items():
            ours = method == e.marked_methods[0]
            style = {"marker": "*", "ms": 13} if ours else {"marker": "D", "ms": 5}
            axes.plot(pesq, ba, color=MARK if ours else SOFT, ls="none", **style)
            tags.append((pesq, ba, titled(method), MARK if ours else INK))
        for method, figures in paper.TABLES["quality"].items():
            pesq, ba = figures["PESQ"], paper.ROBUSTNESS[method][paper.stands_for(attack)]["BA"]
            axes.plot(pesq, ba, color=SOFT, marker="o", ms=6, mfc="none", ls="none")
            tags.append((pesq, ba, titled(method), SOFT))
        write_tags(axes, tags)
        axes.axhline(0.5, color=FAINT, lw=1, ls=DASHES[1])
        axes.set(xlabel="PESQ of the marked clips", xlim=(1.9, 4.75), ylim=(0.44, 1.035))
        codec = "codec 6 kbps (ours Lyra, published EnCodec)"
        axes.set_title("denoiser" if attack == "denoiser" else codec)
        axes.grid(axis="both")
    grid[0].set_ylabel("bit accuracy")
    peer: Any = {"color": SOFT, "ls": "none"}
    entries = {"ours": Line2D([], [], color=MARK, marker="*", ms=11, ls="none")}
    if len(e.marked_methods) > 1:
        entries["measured peer"] = Line2D([], [], **peer, marker="D", ms=5)
    entries["as the paper published it"] = Line2D([], [], **peer, marker="o", ms=6, mfc="none")
    legend(figure, entries)
    first = measured[0]
    pesq = e.of(first, "quality").mean("pesq").value
    return picture("frontier", figure, method=titled(first), pesq=f"{pesq:.2f}")


def excerpts(e: Evidence) -> Picture | None:
    """Draw bit accuracy against quality of marks for excerpts of a second and longer."""
    longer = [(m, float(m.partition("/")[2])) for m in e.study("excerpt/")]
    points = [(m, s) for m, s in [("keybound", SECOND), *longer] if e.rows(m, "quality", s)]
    if len(points) < 2:
        return None
    figure = blank(9.4, 3.7)
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (measure, told) in zip(grid, SEEN.items(), strict=True):
        across = [e.of(m, "quality", s).mean(measure).value or 0.0 for m, s in points]
        for attack, sign in (("noise-10", "o"), ("lyra-6", "s"), ("lyra-3.2", "^")):
            up = [e.of(m, attack, s).accuracy().value for m, s in points]
            axes.plot(across, up, color=MARK, lw=1, marker=sign, ms=6, label=label(attack))
        for (_, seconds), x in zip(points, across, strict=True):
            axes.text(x, 0.946, f"{seconds:g} s", ha="center", size=8, color=INK)
        perth = e.of("perth", "quality", 3.0).mean(measure).value
        if perth is not None:
            axes.axvline(perth, color=SOFT, lw=1, ls=DASHES[1], label="Perth, no payload, 3 s")
        axes.set(xlabel=f"{told} of the marked clips", ylim=(0.945, 1.001))
        axes.grid(axis="both")
    grid[0].set_ylabel("bit accuracy")
    handles, names = grid[0].get_legend_handles_labels()
    legend(figure, dict(zip(names, handles, strict=True)))
    return picture("excerpts", figure, lengths=", ".join(f"{s:g} s" for _, s in points))


def write_tags(axes: Any, tags: Sequence[tuple[float, float, str, str]]) -> None:
    """Write names beside points, to the left where the right is taken or the axis ends."""
    for x, y, text, colour in tags:
        taken = any(0 <= a - x < 0.5 and abs(b - y) < 0.03 and t != text for a, b, t, _ in tags)
        left = x > 4.2 or taken
        axes.annotate(
            text.replace(", ", ",\n"),
            (x, y),
            (-9 if left else 9, -3),
            textcoords="offset points",
            ha="right" if left else "left",
            size=8,
            color=colour,
        )
