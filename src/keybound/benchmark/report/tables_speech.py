"""The table of other speech: whether what holds on the main set holds for other voices and rates.

Thresholds are those of the main set, since a user has no others.
"""

from collections.abc import Iterable

from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import MEASURES, Block, Look, heads, in_families
from keybound.benchmark.report.labels import FAR, TOO_MANY, notes_for, thresholds, titled
from keybound.benchmark.report.layout import BELOW, OVER, Cell, Column, Table, figure, name
from keybound.benchmark.report.summaries import SECOND, Evidence, natural, numbers

Lines = list[tuple[Cell, ...] | str]

MAIN = "test clips"
SHARES = ("BA", "V_A", "DA", "FPR")
QUALITY = {"PESQ": ("pesq", 2), "STOI": ("stoi", 3)}  # label -> measure, digits


def other_speech(e: Evidence) -> Table | None:
    """Lay out the figures on every set of speech beside those on the main one."""
    sets = {told: of for told, of in e.sets.items() if any(s == SECOND for _, _, s in of.clips)}
    found = {method for of in sets.values() for method, _, s in of.clips if s == SECOND}
    methods = sorted(found, key=lambda m: (m != "keybound", m))
    if not methods:
        return None
    every = {MAIN: e, **sets}
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        rows += _lines(e, every, method)
    return Table(
        "other-speech",
        "Other speech",
        "The same figures on other sets of speech, beside the test clips that every other table is "
        "of; clips of one second.",
        heads(_blocks(e, every, methods[0])),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def _lines(e: Evidence, sets: dict[str, Evidence], method: str) -> Lines:
    """Give the lines of a method: its clips, its shares by attack, the quality of its mark."""
    hit = {attack for told, of in sets.items() if told != MAIN for attack in of.attacks(method)}
    order = [attack for _, attack, _ in paper.SUITE if attack in hit]
    order += sorted(hit - {*order}, key=natural)
    counts = (_clips(of, method, (*order, "quality")) for of in sets.values())
    rows: Lines = [(name("Clips"), *(Cell(str(n), span=len(SHARES)) for n in counts))]
    rows += in_families(_blocks(e, sets, method), order)
    rows.append("Quality of the marked clips")
    for told, (measure, digits) in QUALITY.items():
        means = [numbers(of.rows(method, "quality"), measure).value for of in sets.values()]
        cells = (beside(mean, means[0], digits, span=len(SHARES)) for mean in means)
        rows.append((name(told), *cells))
    return rows


def _clips(e: Evidence, method: str, attacks: Iterable[str]) -> int:
    return max(len(e.rows(method, attack)) for attack in attacks)


def _blocks(e: Evidence, sets: dict[str, Evidence], method: str) -> list[Block]:
    def value(of: Evidence, attack: str, label: str) -> float | None:
        return MEASURES[label].find(Look(e, method, of.rows(method, attack), SECOND))

    def cell(of: Evidence, attack: str, label: str) -> Cell:
        share = value(of, attack, label)
        if label == "FPR":
            over = share is not None and share > TOO_MANY
            return figure(share, mark=OVER, kind="over") if over else figure(share)
        return beside(share, value(e, attack, label))

    def block(told: str, of: Evidence) -> Block:
        columns = tuple(Column(label, MEASURES[label].help, told) for label in SHARES)
        return Block(columns, lambda attack: [cell(of, attack, label) for label in SHARES])

    return [block(told, of) for told, of in sets.items()]


def beside(value: float | None, main: float | None, digits: int = 3, span: int = 1) -> Cell:
    """Print a figure, marked where it is far below that on the main set, as both are printed."""
    text = figure(value, digits).text
    if value is None or main is None or round(round(main, digits) - round(value, digits), 9) <= FAR:
        return Cell(text, span=span)
    return Cell(text, mark=BELOW, kind="behind", span=span)
