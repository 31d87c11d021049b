"""Tables of channels: re-synthesis, what users meet, others' lists, other speech, damage."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from keybound.attacks import ATTACKS, SUITES
from keybound.attacks import attack as find
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import columns, layout, paper
from keybound.benchmark.report.columns import THEIRS, Block, Lines, attack_table, measured
from keybound.benchmark.report.grid import grid, rate_of_alarms, stacked
from keybound.benchmark.report.labels import FAR, PUBLISHED, in_order, label, thresholds, titled
from keybound.benchmark.report.layout import Cell, Column, Table
from keybound.benchmark.report.summaries import SECOND, Evidence, natural, total_left_out
from keybound.errors import AttackError

HARM = {"pesq": "PESQ", "stoi": "STOI", "si_snr_raw_db": "SI-SNR raw", "si_snr_db": "SI-SNR"}
FOREIGN = {*SUITES["raw-bench-strict"], *SUITES["audiomarkbench"]} - {*SUITES["everyday"]}
MAIN = "test clips"
SHARES = ("BA", "V_A", "DA")  # by attack on each set of speech, and the false positives


def resynthesis(e: Evidence) -> Table | None:
    """Return re-synthesis, held out of training first, with what it does to the speech."""
    held, harm = SUITES["held-out"], tuple(HARM.values())
    others = [a for a in SUITES["resynthesis"] if a not in (*held, *SUITES["paper"])]
    methods = columns.under(e, (*held, *others))
    beside = {
        a: {"DA shipped": da, "DA 1 %": da, "BA": ba} for a, (da, ba, *_) in paper.HELD_OUT.items()
    }
    heads = dict.fromkeys(("DA", "BA", *harm), PUBLISHED)
    figures = {a: (*of[:4], paper.HELD_OUT_RAW_DB[a], of[4]) for a, of in paper.HELD_OUT.items()}
    wanted = ("DA shipped", "DA 1 %", "BA", "V_A shipped", "FPR shipped")
    lines: Lines = []
    for told, attacks in (("Held out of training", held), ("Other re-synthesis", others)):
        for method in methods:
            whose = f": {titled(method)}" if len(methods) > 1 else ""
            if there := columns.known(e, [method], attacks):
                lines += [told + whose, *((method, attack) for attack in there)]
    return attack_table(
        "Codecs, vocoders and denoisers; what is held out stays out of training and of every "
        "choice of weights. Damage is the attacked marked clip against its clean host.",
        [
            measured(e, wanted, group="mark", beside=beside, printed=2),
            measured(e, harm, group="damage"),
            columns.from_paper(THEIRS, heads, figures, (2, 2, 2, 2, 1, 1), ours=True),
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
    return _listed(e, told, families)


def foreign(e: Evidence, name: str) -> Table | None:
    """Return another benchmark's list, once an attack was run that only such lists have."""
    attacks = columns.known(e, e.marked_methods, SUITES[name])
    if not columns.under(e, FOREIGN.intersection(attacks)):
        return None
    return _listed(e, "Its attacks and strengths, in our implementations.", {"": attacks})


raw_bench = partial(foreign, name="raw-bench-strict")
audiomarkbench = partial(foreign, name="audiomarkbench")


def _listed(e: Evidence, caption: str, families: dict[str, list[str]]) -> Table | None:
    methods = columns.under(e, (attack for attacks in families.values() for attack in attacks))
    if not methods:
        return None
    wanted = ("DA shipped", "FPR shipped", "DA 1 %", "BA", "V_A shipped", "PESQ")
    blocks = [measured(e, wanted, methods[0])]
    blocks += [measured(e, ("DA 1 %", "BA"), method) for method in methods[1:]]
    lines: Lines = []
    for family, attacks in sorted(families.items()):
        lines += [family] if len(families) > 1 else []
        lines += [("", attack) for attack in attacks]
    return attack_table(caption, blocks, lines, thresholds(e, methods))


def other_speech(e: Evidence) -> Table | None:
    """Return the figures on every set of speech beside those on the main one.

    Thresholds are those of the main set, since a user has no others.
    """
    sets = {told: of for told, of in e.sets.items() if any(s == SECOND for _, _, s in of.clips)}
    found = {method for of in sets.values() for method, _, s in of.clips if s == SECOND}
    methods = sorted(found, key=lambda m: (m != "keybound", m))
    every = {MAIN: e, **sets}

    def across(name: str, cells: list[Cell]) -> tuple[Cell, ...]:
        """Return a line with one cell for each set of speech."""
        return (Cell(name, kind="name"), *(replace(cell, span=len(SHARES) + 1) for cell in cells))

    def quality(method: str, measure: str, digits: int) -> list[Cell]:
        means = [of.of(method, "quality").mean(measure).value for of in every.values()]
        return [_beside(mean, means[0], digits) for mean in means]

    def lines(method: str) -> Lines:
        hit = {attack for of in sets.values() for attack in of.attacks(method)}
        order = [attack for attack in paper.ATTACKS if attack in hit]
        order += sorted(hit - {*order}, key=natural)
        counts = [
            max(len(of.rows(method, attack)) for attack in (*order, "quality"))
            for of in every.values()
        ]
        return [
            across("Clips", [Cell(str(count)) for count in counts]),
            *columns.in_families(order, method),
            "Quality of the marked clips",
            across("PESQ", quality(method, "pesq", 2)),
            across("STOI", quality(method, "stoi", 3)),
        ]

    return attack_table(
        "The same figures on other sets of speech, beside the test clips that every other table is "
        "of; clips of one second.",
        [_speech_columns(e, told, of) for told, of in every.items()],
        stacked(methods, lines),
        thresholds(e, methods),
    )


def _speech_columns(e: Evidence, told: str, of: Evidence) -> Block:
    """Return the columns of a set of speech: shares by attack, beside those of the main set."""

    def cells(method: str, attack: str) -> list[Cell]:
        main = e.of(method, attack)
        here = replace(main, rows=of.rows(method, attack))
        measures = [columns.MEASURES[label] for label in SHARES]
        found = [_beside(measure(here), measure(main)) for measure in measures]
        return [*found, rate_of_alarms(columns.MEASURES["FPR"](here))]

    heads = (Column(label, columns.HELP[label], told) for label in (*SHARES, "FPR"))
    return Block(tuple(heads), cells)


def _beside(value: float | None, main: float | None, digits: int = 3) -> Cell:
    """Return a figure, marked where it is far below that on the main set, as both are printed."""
    cell = layout.figure(value, digits)
    if value is None or main is None or round(round(main, digits) - round(value, digits), 9) <= FAR:
        return cell
    return replace(cell, mark=layout.BELOW, kind="behind")


def damage(e: Evidence) -> Table | None:
    """Return what each attack leaves of the speech: one that ruins it has not won."""

    def scored(method: str) -> list[str]:
        """Return the single attacks whose damage was measured."""
        single = (attack for attack in e.attacks(method) if "+" not in attack)
        return [a for a in single if any(e.of(method, a).mean(key).values for key in HARM)]

    heads = (
        Column("lag", "median shift in samples at which clip and host agree best"),
        Column("left out", "clips that a measure could not score", words=True),
    )

    def more(method: str, attack: str) -> tuple[Cell, Cell]:
        of = e.of(method, attack)
        lags = of.mean("lag").values
        missing = total_left_out({told: of.mean(key) for key, told in HARM.items()})
        return layout.figure(float(np.median(lags)) if lags else None, 0), Cell(missing)

    method = next((m for m in e.marked_methods if scored(m)), "")
    return attack_table(
        "Quality of the attacked marked clip against its clean host, with the bit accuracy that "
        "was left. Attacks that change the length of a clip are not scored.",
        [measured(e, (*HARM.values(), "BA"), group=""), Block(heads, more)],
        [(method, attack) for attack in in_order(scored(method))],
    )


def configuration(e: Evidence) -> Table | None:
    """Return the attacks that rows name, with the nominal parameters of the code."""
    named = {a for m in e.marked_methods for a in e.attacks(m, None)}
    named |= {attack for _, attack in e.reasons}
    rows: list[Any] = []
    otherwise = []
    for attack in in_order(a for a in named if a != "clean" and "+" not in a):
        try:
            summary, nominal = definition(attack)
        except AttackError:
            continue
        otherwise += [attack] if measured_otherwise(e, attack, nominal) else []
        words = ", ".join(f"{key} {value}" for key, value in nominal.items())
        theirs = paper.CONFIGURATION.get(attack, layout.EMPTY)
        rows.append((label(attack), summary, words or "none", Cell(theirs, kind="published")))
    differing = f"Rows measured with other parameters than these: {', '.join(otherwise)}."
    found = grid(
        "What each attack does, its nominal parameters read from the code, and the paper's words.",
        f"""
        Attack | what rows call it
        What it does | from the catalogue of attacks | words
        Parameters | nominal ones, without what is drawn by chance | words
        Paper | {PUBLISHED} | words""",
        rows,
    )
    return found and replace(found, notes=(differing,) if otherwise else ())


def definition(attack: str) -> tuple[str, Row]:
    """Return an attack's summary and the parameters that do not depend on chance."""
    known = find(attack)
    first, second = (known.draw(np.random.default_rng(seed), None) for seed in (0, 1))
    return known.summary, {key: value for key, value in first.items() if second[key] == value}


def measured_otherwise(e: Evidence, attack: str, nominal: Row) -> bool:
    """Return whether a row of an attack names other parameters than its nominal ones."""
    drawn = (
        row.get("parameters", {})
        for (_, named, _), rows in e.clips.items()
        if named == attack
        for row in rows
    )
    return any(one.get(key, value) != value for one in drawn for key, value in nominal.items())
