"""Figures: curves and histograms of the rows, each a pure function of the evidence.

Drawn in a few named colours, so that the report can put its own light or dark ones in their
place, and under the settings of `STYLE`, which the caller puts in force. Nothing is shown or saved
here but as bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from keybound.benchmark.report import paper
from keybound.benchmark.report.labels import label, titled
from keybound.benchmark.report.summaries import CLEAN, NOMINAL, SHIPPED, Evidence, natural

COLOURS = {  # by the names that the page has for them
    "ink": "#1f2a37",  # text and axes
    "soft": "#6b7785",  # second voice
    "faint": "#d3d9e0",  # grid
    "mark": "#2563c9",  # ours, or marked
    "host": "#c2710c",  # unmarked
    "alarm": "#c93a3a",  # what is bad
    "heat": "#cf4238",  # what is lost, behind a number
}
INK, SOFT, FAINT, MARK, HOST, ALARM, HEAT = COLOURS.values()
STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8.5, "text.color": INK,
    "axes.labelcolor": INK, "axes.edgecolor": SOFT, "xtick.color": SOFT, "ytick.color": SOFT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "grid.color": FAINT, "grid.linewidth": 0.7, "axes.axisbelow": True, "legend.frameon": False,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.titlecolor": INK,
    "axes.titlelocation": "left", "figure.facecolor": "none", "axes.facecolor": "none",
}  # fmt: skip
COLUMNS = 5  # of small panels
DASHES = ((0, ()), (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
BINS = 30  # of a histogram
FEW_CHAINS, MOST_PANELS = 12, 60  # more would drown the rest; the tables have them all
NETWORKS = {"unet": "U-net on the waveform", "gains": "network that predicts gains"}
LOWEST_RATE = 1e-3  # where the logarithmic axis of a ROC curve begins


@dataclass(frozen=True)
class Picture:
    """A figure with its words; `alt` says to those who cannot see it what it shows."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


def blank(width: float, height: float) -> Figure:
    """Return an empty figure, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure, salt: str = "keybound") -> bytes:
    """Return a figure as SVG, the same bytes every time; `salt` keeps ids of several apart."""
    file = BytesIO()
    with rc_context(STYLE | {"svg.hashsalt": salt}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def panels(count: int, height: float = 1.6) -> tuple[Figure, list[Any]]:
    """Return a figure of small panels that share their axes, and as many axes as asked for."""
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    figure = blank(2.0 * columns + 0.4, height * lines + 0.6)
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_visible(False)
    for axes in grid[max(0, count - columns) : count]:
        axes.tick_params(labelbottom=True)  # hidden panels below would keep the labels
    return figure, list(grid[:count])


def legend(figure: Figure, entries: Mapping[str, Any], columns: int = 4) -> None:
    """Name what is drawn, above the figure."""
    figure.legend(entries.values(), entries, loc="outside upper left", ncols=columns)


def shown_attacks(e: Evidence, method: str, *, suite: bool) -> list[str]:
    """Return the attacks of the paper's table that were measured, or the others, chains if few."""
    if suite:
        return [attack for attack in paper.ATTACKS if e.rows(method, attack)]
    others = sorted((a for a in e.attacks(method) if a not in paper.ATTACKS), key=natural)
    chains = [attack for attack in others if "+" in attack]
    return [
        *(attack for attack in others if "+" not in attack),
        *(chains if len(chains) <= FEW_CHAINS else []),
    ][:MOST_PANELS]


def roc(e: Evidence, *, suite: bool = True) -> Picture | None:
    """Draw ROC curves by attack, on a logarithmic axis of false positives."""
    if not e.marked_methods:
        return None
    attacks = shown_attacks(e, e.marked_methods[0], suite=suite)
    methods = [m for m in e.marked_methods if any(e.rows(m, a) for a in attacks)]
    if not attacks or not methods:
        return None
    figure, grid = panels(len(attacks))
    styles: list[dict[str, Any]] = [
        {"color": MARK if n == 0 else SOFT, "ls": DASHES[n % 4], "lw": 1.3 if n else 1.7}
        for n in range(len(methods))
    ]
    for axes, attack in zip(grid, attacks, strict=True):
        for method, style in zip(reversed(methods), reversed(styles), strict=True):
            of = e.of(method, attack)
            marked, unmarked = (of.mean(side).values for side in ("marked", "unmarked"))
            if marked and unmarked:
                axes.step(*roc_curve(marked, unmarked), where="post", **style)
        if (matched := e.of(methods[0], attack).matched(NOMINAL)) is not None:
            axes.text(0.9, 0.08, f"{matched:.3f}", ha="right", color=MARK, size=8)
        axes.axvline(0.01, color=FAINT, lw=1)
        axes.set(xscale="log", xlim=(LOWEST_RATE, 1), ylim=(-0.02, 1.04), yticks=(0, 0.5, 1))
        axes.set_xticks([0.001, 0.01, 0.1, 1], [".001", ".01", ".1", "1"])
        axes.minorticks_off()
        axes.set_title(label(attack).partition(",")[0])
        axes.grid(axis="y")
    figure.supxlabel("false-positive rate", fontsize=9)
    figure.supylabel("detection rate", fontsize=9)
    names = [titled(method) for method in methods]
    lines = [Line2D([], [], **style) for style in styles]
    legend(figure, dict(zip(names, lines, strict=True)), len(names))
    which = "the paper's attacks" if suite else "other attacks"
    return Picture(
        "roc" if suite else "roc-others",
        "ROC curves" if suite else "ROC curves, other attacks",
        f"Detection against false positives under {which}, unmarked clips attacked alike. A curve "
        "in the upper left corner parts marked from unmarked clips; the number is the detection "
        f"rate of {names[0]} at 1 % false positives.",
        f"ROC curves of {', '.join(names)} in {len(attacks)} panels, one for each attack. "
        + worst_parting(e, methods[0], attacks),
        figure,
    )


def roc_curve(marked: Sequence[float], unmarked: Sequence[float]) -> tuple[Any, Any]:
    """Return false-positive and detection rates at every threshold, from the strictest on."""
    cuts = np.unique(np.concatenate([marked, unmarked, [np.inf]]))[::-1]
    high, low = np.sort(marked), np.sort(unmarked)
    rates = [1 - np.searchsorted(side, cuts, side="left") / len(side) for side in (low, high)]
    false, true = rates
    corner = np.concatenate([[False], (np.diff(false) > 0) | (np.diff(true) > 0)])
    corner[0] = True
    return np.maximum(false[corner], LOWEST_RATE), true[corner]


def worst_parting(e: Evidence, method: str, attacks: Sequence[str]) -> str:
    """Return where a method detects least at its usual threshold."""
    rates = {a: e.of(method, a).reached().value for a in attacks}
    known = {a: rate for a, rate in rates.items() if rate is not None}
    if not known:
        return "No threshold is known."
    worst = min(known, key=known.__getitem__)
    told = "at its threshold" if e.threshold(method, SHIPPED) is not None else "at 1 % clean"
    if known[worst] == max(known.values()):
        return f"{titled(method)} detects {known[worst]:.3f} under each, {told}."
    return f"{titled(method)} detects least under {label(worst)}: {known[worst]:.3f} {told}."


def histograms(e: Evidence, method: str, *, suite: bool = True) -> Picture | None:
    """Draw the presence scores of marked and unmarked clips with the thresholds."""
    attacks = shown_attacks(e, method, suite=suite)
    if not attacks:
        return None
    figure, grid = panels(len(attacks))
    sides = {"marked": MARK, "unmarked": HOST}
    scores = {(a, s): e.of(method, a).mean(s).values for a in attacks for s in sides}
    low = min(min(values, default=0.0) for values in scores.values())
    high = max(max(values, default=1.0) for values in scores.values())
    low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    bins = np.linspace(low, high, BINS + 1)
    dashes = {SHIPPED: DASHES[0], CLEAN: DASHES[1]}
    cuts = {w: dash for w, dash in dashes.items() if e.threshold(method, w) is not None}
    for axes, attack in zip(grid, attacks, strict=True):
        for side, colour in sides.items():
            values = scores[attack, side]
            counts = np.histogram(values, bins)[0] / max(len(values), 1)
            axes.stairs(counts, bins, fill=True, color=colour, alpha=0.65, lw=0)
        for which, dash in cuts.items():
            axes.axvline(e.threshold(method, which), color=INK, lw=1.1, ls=dash)
        axes.set(yticks=(), xlim=(low, high), ylim=(0, None))
        axes.spines["left"].set_visible(False)
        axes.set_title(label(attack).partition(",")[0])
    figure.supxlabel("presence score", fontsize=9)
    entries: dict[str, Any] = {s: Patch(color=hue, alpha=0.65, lw=0) for s, hue in sides.items()}
    for which, dash in cuts.items():
        told = "shipped threshold" if which == SHIPPED else "1 % clean threshold"
        entries[told] = Line2D([], [], color=INK, lw=1.1, ls=dash)
    legend(figure, entries)
    rest = "" if suite else ", other attacks"
    return Picture(
        f"scores-{method}{'' if suite else '-others'}",
        f"Presence scores of {titled(method)}{rest}",
        "Share of clips by presence score, under the same attack marked and unmarked. Unmarked "
        "clips to the right of a threshold are false positives.",
        f"Histograms of the presence scores of {titled(method)} in {len(attacks)} panels, one for "
        "each attack, marked and unmarked. " + worst_parting(e, method, attacks),
        figure,
    )


def remover(e: Evidence, method: str = "keybound") -> Picture | None:
    """Draw what learned removers leave of the mark by their training, removal shaded."""
    every = e.suite("remover", method)
    if not every:
        return None
    networks = every.by("network")[::-1]  # the paper's U-net first
    budgets = sorted({row["budget"] for row in every.rows} | set(paper.REMOVER))
    figure = blank(4.3 * len(networks) + 0.3, 3.3)
    grid = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    told = []
    for axes, (network, of) in zip(grid, networks, strict=True):
        trained = of.by("budget")
        at = [budgets.index(budget) for budget, _ in trained]
        da = [part.reached().value for _, part in trained]
        ba = [part.accuracy().value for _, part in trained]
        axes.axhspan(0, 0.5, color=ALARM, alpha=0.09, lw=0)
        axes.text(-0.1, 0.025, "removed: DA < .5", color=ALARM, size=8)
        if network == "unet":
            steps = [place for place, budget in enumerate(budgets) if budget in paper.REMOVER]
            for column, dash in ((0, DASHES[0]), (1, DASHES[1])):
                theirs = [paper.REMOVER[budgets[place]][column] for place in steps]
                axes.plot(steps, theirs, color=SOFT, ls=dash, lw=1.2, marker="o", ms=3, mfc="none")
        for values, dash in ((da, DASHES[0]), (ba, DASHES[1])):
            known = [(p, v) for p, v in zip(at, values, strict=True) if v is not None]
            axes.plot(*zip(*known, strict=True), color=MARK, ls=dash, lw=1.9, marker="o", ms=4)
        axes.set(ylim=(0, 1.03), xlim=(-0.15, len(budgets) - 0.8))
        axes.set_xticks(range(len(budgets)), [f"{budget // 1000}k" for budget in budgets])
        axes.set_title(NETWORKS.get(network, network))
        axes.set_xlabel("training steps of the remover")
        axes.grid(axis="y")
        last = da[-1] if da and da[-1] is not None else float("nan")
        told.append(f"{network} leaves DA {last:.2f} after {budgets[at[-1]]} steps")
    entries = {
        f"{measure}, {whose}": Line2D([], [], color=colour, ls=dash, lw=1.6)
        for whose, colour in (("ours", MARK), ("paper", SOFT))
        for measure, dash in zip(("DA", "BA"), DASHES, strict=False)
    }
    legend(figure, entries)
    return Picture(
        "remover-plot",
        "Learned remover by training",
        "Detection and bit accuracy after a remover of growing training budget, as in the paper's "
        "figure; in the shaded region the mark counts as removed.",
        f"Detection and bit accuracy of {titled(method)} by the remover's steps: "
        + "; ".join(told)
        + ".",
        figure,
    )
