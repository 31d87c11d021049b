"""Tables of channels: re-synthesis, what users meet, others' lists, other speech, damage.

Each function takes the evidence and returns a table, or None where there are no rows for it.
"""

from functools import partial

import numpy as np

from keybound.attacks import ATTACKS, SUITES
from keybound.attacks import attack as find
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.columns import (
    HELP,
    MEASURES,
    THEIRS,
    Block,
    Line,
    Lines,
    attack_lines,
    attack_names,
    from_paper,
    in_families,
    known,
    measured,
    of_method,
    table,
    under,
)
from keybound.benchmark.report.grid import rate_of_alarms, stacked
from keybound.benchmark.report.labels import (
    FAR,
    PUBLISHED,
    in_order,
    label,
    thresholds,
    titled,
)
from keybound.benchmark.report.layout import BELOW, EMPTY, Cell, Column, Table, figure
from keybound.benchmark.report.summaries import SECOND, Evidence, natural, numbers, total_left_out
from keybound.errors import AttackError

HARM = {"pesq": "PESQ", "stoi": "STOI", "si_snr_raw_db": "SI-SNR raw", "si_snr_db": "SI-SNR"}
FOREIGN = {*SUITES["raw-bench-strict"], *SUITES["audiomarkbench"]} - {*SUITES["everyday"]}
MAIN = "test clips"
SHARES = ("BA", "V_A", "DA", "FPR")


def resynthesis(e: Evidence) -> Table | None:
    """Return re-synthesis, held out of training first, with what it does to the speech."""
    held, harm = SUITES["held-out"], tuple(HARM.values())
    others = [a for a in SUITES["resynthesis"] if a not in (*held, *SUITES["paper"])]
    methods = under(e, (*held, *others))
    beside = {
        a: {"DA shipped": da, "DA 1 %": da, "BA": ba} for a, (da, ba, *_) in paper.HELD_OUT.items()
    }
    columns = dict.fromkeys(("DA", "BA", *harm), PUBLISHED)
    figures = {a: (*of[:4], paper.HELD_OUT_RAW_DB[a], of[4]) for a, of in paper.HELD_OUT.items()}
    wanted = ("DA shipped", "DA 1 %", "BA", "V_A shipped", "FPR shipped")
    lines: Lines = []
    for told, attacks in (("Held out of training", held), ("Other re-synthesis", others)):
        for method in methods:
            whose = f": {titled(method)}" if len(methods) > 1 else ""
            if there := known(e, [method], attacks):
                lines += [told + whose, *attack_lines(e, there, method)]
    return table(
        "resynthesis",
        "Re-synthesis",
        "Codecs, vocoders and denoisers; what is held out stays out of training and of every "
        "choice of weights. Damage is the attacked marked clip against its clean host.",
        [
            attack_names(),
            measured(wanted, group="mark", beside=beside, printed=2),
            measured(harm, group="damage"),
            from_paper(THEIRS, columns, figures, (2, 2, 2, 2, 1, 1), ours=True),
        ],
        lines,
        thresholds(e, methods),
    )


def everyday(e: Evidence) -> Table | None:
    """Return what users meet: every single attack that no other table shows."""
    elsewhere = {*paper.ATTACKS, *SUITES["held-out"], *SUITES["resynthesis"], *FOREIGN}
    found = {attack for method in e.marked_methods for attack in e.attacks(method)} - elsewhere
    families: dict[str, list[str]] = {}
    for attack in sorted((a for a in found if "+" not in a), key=natural):
        entry = ATTACKS.get(attack.partition("@")[0])
        families.setdefault(entry.family.capitalize() if entry else "Other", []).append(attack)
    told = "Attacks outside the paper's table; PESQ is the attacked marked clip against its host."
    return _listed(e, "everyday", "What users meet", told, families)


def foreign(e: Evidence, name: str, link: str, title: str) -> Table | None:
    """Return another benchmark's list, once an attack was run that only such lists have."""
    attacks = known(e, e.marked_methods, SUITES[name])
    told = "Its attacks and strengths, in our implementations."
    run = any(e.rows(m, a) for a in attacks if a in FOREIGN for m in e.marked_methods)
    return _listed(e, link, title, told, {"": attacks}) if run else None


def _listed(
    e: Evidence, link: str, title: str, caption: str, families: dict[str, list[str]]
) -> Table | None:
    methods = under(e, (attack for attacks in families.values() for attack in attacks))
    if not methods:
        return None
    wanted = ("DA shipped", "FPR shipped", "DA 1 %", "BA", "V_A shipped", "PESQ")
    blocks = [attack_names(), of_method(e, wanted, methods[0])]
    blocks += [measured(("DA 1 %", "BA"), method) for method in methods[1:]]
    lines: Lines = []
    for family, attacks in sorted(families.items()):
        lines += [family] if len(families) > 1 else []
        lines += attack_lines(e, attacks)
    return table(link, title, caption, blocks, lines, thresholds(e, methods))


raw_bench = partial(foreign, name="raw-bench-strict", link="raw-bench", title="RAW-Bench strict")
audiomarkbench = partial(
    foreign, name="audiomarkbench", link="audiomarkbench", title="AudioMarkBench"
)


def other_speech(e: Evidence) -> Table | None:
    """Return the figures on every set of speech beside those on the main one.

    Thresholds are those of the main set, since a user has no others.
    """
    sets = {told: of for told, of in e.sets.items() if any(s == SECOND for _, _, s in of.clips)}
    found = {method for of in sets.values() for method, _, s in of.clips if s == SECOND}
    methods = sorted(found, key=lambda m: (m != "keybound", m))
    every = {MAIN: e, **sets}

    def lines(method: str) -> Lines:
        hit = {attack for of in sets.values() for attack in of.attacks(method)}
        order = [attack for attack in paper.ATTACKS if attack in hit]
        order += sorted(hit - {*order}, key=natural)
        said = {"attacks": (*order, "quality")}
        return [
            Line("Clips", e, method, also=said),
            *in_families(e, order, method),
            "Quality of the marked clips",
            Line("PESQ", e, method, also={"measure": "pesq", "digits": 2}),
            Line("STOI", e, method, also={"measure": "stoi", "digits": 3}),
        ]

    return table(
        "other-speech",
        "Other speech",
        "The same figures on other sets of speech, beside the test clips that every other table is "
        "of; clips of one second.",
        [attack_names(), *(_speech_columns(e, told, of) for told, of in every.items())],
        stacked(methods, lines),
        thresholds(e, methods),
    )


def _speech_columns(e: Evidence, told: str, of: Evidence) -> Block:
    """Return the columns of a set of speech: its clips, shares by attack, quality of the mark."""

    def share(line: Line, among: Evidence, label: str) -> float | None:
        rows = among.rows(line.method, line.attack)
        return MEASURES[label](Line("", e, line.method, rows))

    def cells(line: Line) -> list[Cell]:
        if attacks := line.also.get("attacks"):
            count = max(len(of.rows(line.method, attack)) for attack in attacks)
            return [Cell(str(count), span=len(SHARES))]
        if measure := line.also.get("measure"):
            here, main = (
                numbers(one.rows(line.method, "quality"), measure).value for one in (of, e)
            )
            return [_beside(here, main, line.also["digits"], span=len(SHARES))]
        *shares, alarms = SHARES
        found = [_beside(share(line, of, label), share(line, e, label)) for label in shares]
        return [*found, rate_of_alarms(share(line, of, alarms))]

    return Block(tuple(Column(label, HELP[label], told) for label in SHARES), cells)


def _beside(value: float | None, main: float | None, digits: int = 3, span: int = 1) -> Cell:
    """Return a figure, marked where it is far below that on the main set, as both are printed."""
    text = figure(value, digits).text
    if value is None or main is None or round(round(main, digits) - round(value, digits), 9) <= FAR:
        return Cell(text, span=span)
    return Cell(text, mark=BELOW, kind="behind", span=span)


def damage(e: Evidence) -> Table | None:
    """Return what each attack leaves of the speech: one that ruins it has not won."""

    def scored(method: str) -> list[str]:
        """Return the single attacks whose damage was measured."""
        single = (attack for attack in e.attacks(method) if "+" not in attack)
        return [a for a in single if any(numbers(e.rows(method, a), key).values for key in HARM)]

    heads = (
        Column("lag", "median shift in samples at which clip and host agree best"),
        Column("left out", "clips that a measure could not score", words=True),
    )

    def more(line: Line) -> tuple[Cell, Cell]:
        lags = numbers(line.rows, "lag").values
        missing = total_left_out([(told, numbers(line.rows, key)) for key, told in HARM.items()])
        return figure(float(np.median(lags)) if lags else None, 0), Cell(missing or "none")

    method = next((m for m in e.marked_methods if scored(m)), "")
    return table(
        "damage",
        "Damage of each attack",
        "Quality of the attacked marked clip against its clean host, with the bit accuracy that "
        "was left. Attacks that change the length of a clip are not scored.",
        [attack_names(), measured((*HARM.values(), "BA"), group=""), Block(heads, more)],
        attack_lines(e, in_order(scored(method)), method),
    )


def configuration(e: Evidence) -> Table | None:
    """Return the attacks that rows name, with the nominal parameters of the code."""
    named = {a for m in e.marked_methods for a in e.attacks(m, None)}
    named |= {attack for _, attack in e.reasons}
    rows, otherwise = [], []
    for attack in in_order(a for a in named if a != "clean" and "+" not in a):
        try:
            summary, nominal = definition(attack)
        except AttackError:
            continue
        otherwise += [attack] if measured_otherwise(e, attack, nominal) else []
        words = ", ".join(f"{key} {value}" for key, value in nominal.items())
        theirs = Cell(paper.CONFIGURATION.get(attack, EMPTY), kind="published")
        first = Cell(label(attack), kind="name")
        rows.append((first, Cell(summary), Cell(words or "none"), theirs))
    if not rows:
        return None
    differing = f"Rows measured with other parameters than these: {', '.join(otherwise)}."
    heads = {
        "Attack": "what rows call it",
        "What it does": "from the catalogue of attacks",
        "Parameters": "nominal ones, without what is drawn by chance",
        "Paper": PUBLISHED,
    }
    return Table(
        "configuration",
        "Attack configuration",
        "What each attack does, its nominal parameters read from the code, and the paper's words.",
        tuple(Column(head, told, words=True) for head, told in heads.items()),
        tuple(rows),
        (differing,) if otherwise else (),
    )


def definition(attack: str) -> tuple[str, Row]:
    """Return an attack's summary and the parameters that do not depend on chance."""
    known = find(attack)
    first, second = (known.draw(np.random.default_rng(seed), None) for seed in (0, 1))
    return known.summary, {key: value for key, value in first.items() if second[key] == value}


def measured_otherwise(e: Evidence, attack: str, nominal: Row) -> bool:
    """Return whether a row of an attack names other parameters than its nominal ones."""
    return any(
        row.get("parameters", {}).get(key, value) != value
        for (_, named, _), rows in e.clips.items()
        if named == attack
        for row in rows
        for key, value in nominal.items()
    )
