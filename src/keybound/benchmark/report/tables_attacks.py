"""Tables of attacks: the paper's, longer clips, re-synthesis, chains, what users meet, damage.

Each function takes the evidence and returns a table, or None where there are no rows for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from keybound.attacks import ATTACKS, SUITES
from keybound.attacks import attack as find
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.columns import (
    HELP,
    MEASURES,
    USUAL,
    Block,
    Line,
    Lines,
    accepted,
    attack_lines,
    attack_names,
    from_paper,
    grid,
    in_families,
    measured,
    of_method,
    rate_of_alarms,
    right,
    stack_of_attacks,
    stacked,
    suite,
    table,
    under,
)
from keybound.benchmark.report.labels import (
    FAR,
    PUBLISHED,
    counted,
    in_order,
    label,
    short,
    thresholds,
    titled,
)
from keybound.benchmark.report.layout import BELOW, EMPTY, Cell, Column, Table, figure
from keybound.benchmark.report.summaries import SECOND, Evidence, natural, numbers, total_left_out
from keybound.errors import AttackError

THEIRS = "KeyBound, paper"
HARM = {"pesq": "PESQ", "stoi": "STOI", "si_snr_raw_db": "SI-SNR raw", "si_snr_db": "SI-SNR"}
MANY = 12  # pairs beyond this number stand in a square, not in a list
FOREIGN = {*SUITES["raw-bench-strict"], *SUITES["audiomarkbench"]} - {*SUITES["everyday"]}
MAIN = "test clips"
SHARES = ("BA", "V_A", "DA", "FPR")


def with_published(
    e: Evidence,
    methods: Sequence[str],
    wanted: Mapping[str, int | None],
    columns: Mapping[str, str],
    published: Mapping[str, Mapping[str, Sequence[float]]],
    digits: int = 3,
) -> list[Block]:
    """Return the columns of the first method, the paper's of it, and those of other methods.

    `wanted` has for each measure the place of the paper's figure to compare it with.
    """
    told = {m: {a: of[m] for a, of in published.items()} for m in next(iter(published.values()))}
    places = {label: place for label, place in wanted.items() if place is not None}
    ours = told.pop("keybound")
    beside = {a: {label: of[place] for label, place in places.items()} for a, of in ours.items()}
    labels = tuple(wanted)
    return [
        of_method(e, labels, methods[0], beside=beside, printed=digits),
        from_paper(THEIRS, columns, ours, digits),
        *(of_method(e, labels, method) for method in methods[1:]),
        *(
            from_paper(f"{titled(peer)}, published", columns, figures, digits)
            for peer, figures in told.items()
        ),
    ]


def robustness(e: Evidence) -> Table | None:
    """Return DA and BA under the paper's attacks, beside the paper and its peers."""
    if not (methods := under(e, paper.ATTACKS)):
        return None
    columns = {"DA": f"detection accuracy, {PUBLISHED}", "BA": f"bit accuracy, {PUBLISHED}"}
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": 1}
    return table(
        "robustness",
        "Robustness",
        "Detection accuracy (DA) and bit accuracy (BA) under the paper's attacks; "
        f"{counted(e, methods)}.",
        [attack_names(), *with_published(e, methods, wanted, columns, paper.ROBUSTNESS)],
        in_families(e, suite(e, methods)),
        thresholds(e, methods),
    )


def attribution(e: Evidence) -> Table | None:
    """Return how often the rule V_A accepts the owner's own clips."""
    if not (methods := under(e, paper.ATTACKS)):
        return None
    rates = {a: {m: (r,) for m, r in of.items()} for a, of in paper.ATTRIBUTION.items()}
    columns, wanted = {"V_A": f"true-accept rate, {PUBLISHED}"}, {"V_A shipped": 0, "V_A 1 %": 0}
    rho = ", ".join(f"{titled(m)} {e.rho(m)} of {e.bits(m) or '?'} bits" for m in methods)
    return table(
        "attribution",
        "Attribution",
        "True-accept rate of the rule V_A: presence at the threshold, and at most ρ wrong bits "
        f"({rho}).",
        [attack_names(), *with_published(e, methods, wanted, columns, rates)],
        in_families(e, suite(e, methods)),
        thresholds(e, methods),
    )


def false_positives(e: Evidence) -> Table | None:
    """Return what the thresholds let through under each attack, and whether scores still part."""
    methods = under(e, paper.ATTACKS)
    columns = {
        "DA": f"at 1 % clean, {PUBLISHED}",
        "FPR": f"realised, {PUBLISHED}",
        "matched": f"DA matched at 1 %, {PUBLISHED}",
    }
    before = ("DA shipped", "FPR shipped", "DA 1 %", "FPR 1 %")
    after = ("matched 1 %", "matched 0.1 %", "lowest marked", "highest unmarked")

    def attacks(method: str) -> list[str]:
        """Return the paper's attacks; of another method than ours, those that rows speak of."""
        every = suite(e, [method])
        return every if method == "keybound" else known(e, [method], every)

    return table(
        "false-positives",
        "False-positive control",
        "What thresholds set beforehand let through under each attack, and detection at thresholds "
        "set on equally attacked unmarked clips.",
        [
            attack_names(),
            measured(before, group="set beforehand"),
            measured(after, group="set on the same attack"),
            from_paper(THEIRS, columns, paper.FALSE_POSITIVES, ours=True),
        ],
        stack_of_attacks(e, methods, attacks),
        thresholds(e, methods),
    )


def lengths(e: Evidence) -> Table | None:
    """Return DA, FPR and BA by the length of the clips."""
    all_lengths = sorted({s for m, a, s in e.clips if m in e.methods and a != "quality"})
    methods = [m for m in e.marked_methods if any(k[0] == m and k[2] != SECOND for k in e.clips)]

    def attacks(method: str) -> list[str]:
        return in_order({a for m, a, s in e.clips if m == method and s != SECOND} - {"quality"})

    wanted = ("DA", "FPR", "BA")
    return table(
        "lengths",
        "Longer clips",
        "Detection, false positives and bit accuracy by the length of the clip, since users have "
        "more than a second.",
        [attack_names(), *(measured(wanted, seconds=s, group=f"{s:g} s") for s in all_lengths)],
        stack_of_attacks(e, methods, attacks),
        thresholds(e, methods),
    )


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


def known(e: Evidence, methods: Iterable[str], attacks: Iterable[str]) -> list[str]:
    """Return those of the attacks that were measured, or of which a row says why not."""
    methods = list(methods)
    return [a for a in attacks if any(e.rows(m, a) or (m, a) in e.reasons for m in methods)]


def compound(e: Evidence) -> Table | None:
    """Return chains of attacks: the paper's four, what stands in for them, and any other."""
    chains = {a for m in e.marked_methods for a in e.attacks(m) if "+" in a}
    if not (methods := under(e, chains)):
        return None
    wanted = {"DA shipped": 0, "DA 1 %": 0, "BA": None, "V_A shipped": None}
    column = {"DA": f"detection accuracy, {PUBLISHED}"}
    figures = {
        chain: {"keybound": (ours,), "audioseal": (theirs,)}
        for chain, (ours, theirs) in paper.COMPOUND.items()
    }
    named = []
    for chain in paper.COMPOUND:
        swapped = chain.replace("encodec-6", "lyra-6")
        named += [chain, *([swapped] if swapped != chain and swapped in chains else [])]
    squared = catalogue_pairs(e)
    rest = sorted(chains - {*named} - {*(squared if len(squared) > MANY else ())}, key=natural)
    lines = attack_lines(e, named)
    return table(
        "compound",
        "Compound attacks",
        "One attack after the other; noise is at 20 dB in the paper's chains.",
        [attack_names("Chain"), *with_published(e, methods, wanted, column, figures, 2)],
        lines + (["Other chains", *attack_lines(e, rest)] if rest else []),
        thresholds(e, methods),
    )


def catalogue_pairs(e: Evidence) -> list[str]:
    """Return the measured chains of two attacks of the paper's table."""
    found = {a for m in e.marked_methods for a in e.attacks(m)}
    return [pair for pair in SUITES["pairs"] if pair in found]


def pairs(e: Evidence) -> Table | None:
    """Return every pair of the catalogue as a square, when more than a few were measured."""
    found = catalogue_pairs(e)
    method = next((m for m in e.marked_methods if any(e.rows(m, a) for a in found)), None)
    if method is None or len(found) <= MANY:
        return None
    there = {part for pair in found for part in pair.split("+")}
    attacks = [attack for attack in paper.ATTACKS if attack in there]
    rows: list[Any] = []
    for told, value in {"BA": right(), "V_A": accepted(USUAL)}.items():
        rows.append(f"{told}, by first attack")
        for a in attacks:
            of = (Line("", e, method, e.rows(method, f"{a}+{then}")) for then in attacks)
            rows.append((short(a), *map(value, of)))
    heads = (f"then: {short(a)} | followed by {label(a)} | 2" for a in attacks)
    return grid(
        "pairs",
        "Every pair of the catalogue",
        f"Bit accuracy and attribution of {titled(method)} under one attack (rows) followed by "
        "another (columns).",
        "\n".join(["First | the attack that comes first", *heads]),
        rows,
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


raw_bench = partial(foreign, name="raw-bench-strict", link="raw-bench", title="RAW-Bench strict")
audiomarkbench = partial(
    foreign, name="audiomarkbench", link="audiomarkbench", title="AudioMarkBench"
)


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
