"""Figures: curves and histograms of the rows, each a pure function of the evidence.

Drawn in a few named colours, so that the report can put its own light or dark ones in their
place, and under the settings of `STYLE`, which the caller puts in force. Nothing is shown or saved
here but as bytes.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from keybound.benchmark.report import paper
from keybound.benchmark.report.descriptions import DESCRIPTIONS, fill
from keybound.benchmark.report.labels import label, titled
from keybound.benchmark.report.summaries import CLEAN, NOMINAL, SHIPPED, Evidence, natural

LOOKS = tomllib.loads((files(__package__) / "report.toml").read_text(encoding="utf-8"))
COLOURS: dict[str, str] = LOOKS["colours"]
INK, SOFT, FAINT, MARK, HOST, ALARM, HEAT = COLOURS.values()
STYLE: dict[str, Any] = {key: COLOURS.get(value, value) for key, value in LOOKS["style"].items()}
COLUMNS = 5  # of small panels
DASHES = ((0, ()), (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
BINS = 30  # of a histogram
FEW_CHAINS, MOST_PANELS = 12, 60  # more would drown the rest; the tables have them all
LOWEST_RATE = 1e-3  # where the logarithmic axis of a ROC curve begins


@dataclass(frozen=True)
class Picture:
    """A figure with its words; `alt` says to those who cannot see it what it shows."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


def picture(name: str, figure: Figure, **words: object) -> Picture:
    """Return a figure with the words that `report.toml` has for it, completed by those given."""
    filled = {key: str(said) for key, said in words.items()}
    return Picture(
        **{k: fill(text, filled) for k, text in LOOKS["figures"][name].items()}, figure=figure
    )


def shown(e: Evidence, method: str, attacks: Sequence[str], *, suite: bool) -> dict[str, object]:
    """Return the words on a figure of panels: how many of which attacks, where they part worst."""
    others, rest = ("", "") if suite else ("-others", ", other attacks")
    which = "the paper's attacks" if suite else "other attacks"
    words = {"others": others, "rest": rest, "which": which, "panels": len(attacks)}
    return {**words, "worst": worst_parting(e, method, attacks)}


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
    words = shown(e, methods[0], attacks, suite=suite)
    return picture("roc", figure, **words, first=names[0], methods=", ".join(names))


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
    words = shown(e, method, attacks, suite=suite)
    return picture("scores", figure, **words, id=method, method=titled(method))


def remover(e: Evidence, method: str = "keybound") -> Picture | None:
    """Draw what learned removers leave of the mark by their training, removal shaded."""
    every = e.suite("remover", method)
    if not every:
        return None
    networks = every.by("network")[::-1]  # the paper's U-net first
    theirs = {int(k.split()[1]): figures for k, figures in paper.TABLES["remover"].items()}
    names = DESCRIPTIONS["remover"].names["network"]
    budgets = sorted({row["budget"] for row in every.rows} | set(theirs))
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
            steps = [place for place, budget in enumerate(budgets) if budget in theirs]
            for column, dash in (("DA", DASHES[0]), ("BA", DASHES[1])):
                values = [theirs[budgets[place]][column] for place in steps]
                axes.plot(steps, values, color=SOFT, ls=dash, lw=1.2, marker="o", ms=3, mfc="none")
        for values, dash in ((da, DASHES[0]), (ba, DASHES[1])):
            known = [(p, v) for p, v in zip(at, values, strict=True) if v is not None]
            axes.plot(*zip(*known, strict=True), color=MARK, ls=dash, lw=1.9, marker="o", ms=4)
        axes.set(ylim=(0, 1.03), xlim=(-0.15, len(budgets) - 0.8))
        axes.set_xticks(range(len(budgets)), [f"{budget // 1000}k" for budget in budgets])
        axes.set_title(names.get(network, network).partition(" (")[0])
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
    return picture("remover", figure, method=titled(method), left="; ".join(told))
