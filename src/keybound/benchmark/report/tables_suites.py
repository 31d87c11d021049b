"""Tables of suites and studies: the lines that a description divides their rows into."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from keybound.attacks import SUITES
from keybound.benchmark.measure.samples import Sample
from keybound.benchmark.report import paper
from keybound.benchmark.report.descriptions import Description, Head, Part
from keybound.benchmark.report.grid import Rows, cell, grid
from keybound.benchmark.report.labels import (
    counted,
    in_order,
    label,
    mechanisms,
    thresholds,
    titled,
)
from keybound.benchmark.report.layout import BLANK, EMPTY, Table, power
from keybound.benchmark.report.summaries import SECOND, Evidence, natural
from keybound.benchmark.report.values import Line, cells
from keybound.crypto.codes import bound


def suite_table(
    e: Evidence,
    d: Description,
    words: Mapping[str, str] | None = None,
    each: Sequence[Mapping[str, str]] | None = None,
) -> Table | None:
    """Return a table with the lines of the parts of its description, method by method."""
    methods = e.in_suite(*(s for part in d.rows if not part.study for s in part.suite))
    listed = [(method, "") for method in methods]
    studies = dict.fromkeys(part.study for part in d.rows if part.study)
    listed += [(m, study) for study in studies for m in e.study(study) if m not in methods]
    found: Rows = []
    named = any("{method}" in value for value in d.columns[0][3:4])
    headed = any(part.heading for part in d.rows)
    for method, study in listed:
        found += [titled(method)] if len(methods) > 1 and not (named or headed) else []
        for part in d.rows:
            if part.study == study:
                whose = f"{titled(method)}: " if len(methods) > 1 or method != "keybound" else ""
                found += part_lines(e, d, part, method, whose)
    filled = {"thresholds": thresholds(e, methods), **(words or {})}
    return lines_table(e, d, found, filled, each)


def lines_table(
    e: Evidence,
    d: Description,
    lines: Rows,
    words: Mapping[str, str] | None = None,
    each: Sequence[Mapping[str, str]] | None = None,
) -> Table | None:
    """Return a table of lines and headings, and below them the paper's own where it has some."""
    heads = d.heads(each)
    made = [cells(e, line, heads) if isinstance(line, Line) else line for line in lines]
    if d.ends and made:
        made += [d.ends, *published_lines(d, heads)]
    return grid(d, made, words, each)


def published_lines(d: Description, heads: Sequence[Head]) -> Iterator[tuple[Any, ...]]:
    """Return the lines of the paper, each figure in the last column that is compared with it."""
    last = {head.compared: head for head in heads if head.compared}
    for method, figures in paper.TABLES[d.published].items():
        name = d.names.get("ends", {}).get(method, titled(method))
        others = (
            cell(figures[head.compared], head.form.partition("@")[0] + "p")
            if last.get(head.compared) is head
            else BLANK
            for head in heads[1:]
        )
        yield name, *others


def part_lines(
    e: Evidence, d: Description, part: Part, method: str, whose: str
) -> Iterator[Line | str]:
    """Return the lines of one part of a description, and the headings between them."""
    of = e.suite(part.suite[0], method) if part.suite else Sample([])
    if part.suite and not any(e.suite(suite, method) for suite in part.suite):
        return
    heading = ""
    for rows in divided(d, part, of) if part.by else [of]:
        facts = facts_of(e, d, method, rows)
        facts["told"] = part.told.format_map(facts)
        if part.heading.format_map(facts) != heading:
            heading = part.heading.format_map(facts)
            yield whose + heading
        theirs = paper.TABLES[d.published].get(d.key.format_map(facts), {}) if d.published else {}
        yield Line(method, taken(part, rows), facts, theirs)


def divided(d: Description, part: Part, of: Sample) -> list[Sample]:
    """Return rows by the keys of a part: in the order of their names, or of their values."""
    keys = [key.removeprefix("-") for key in part.by]

    def rank(rows: Sample) -> list[Any]:
        return [_rank(d, key, rows.rows[0][key.removeprefix("-")]) for key in part.by]

    return sorted((rows for _, rows in of.by(*keys)), key=rank)


def _rank(d: Description, key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return -value if key.startswith("-") else value
    order = list(d.names.get(key, SUITES["sealed"]))
    return (order.index(value) if value in order else len(order), natural(value))


def facts_of(e: Evidence, d: Description, method: str, of: Sample) -> dict[str, Any]:
    """Return what the words of a line may tell: of its method, and what its first row holds."""
    arm, bits = method.partition("/")[2], e.bits(method)
    facts: dict[str, Any] = {"id": method, "arm": arm or "baseline"}
    facts["mechanisms"] = mechanisms(method)
    facts |= {"bits": bits or arm, "beta": power(bound(bits, e.rho(method))) if bits else EMPTY}
    if not of:
        return facts | {"method": titled(method)}
    row = of.rows[0]
    attack = label(str(row.get("attack")))
    known = {key: d.names.get(key, {}).get(str(value), value) for key, value in row.items()}
    if "attack" not in d.names:
        known |= {"attack": attack, "attack_alone": attack.partition(", in ")[0]}
    return {**facts, **known, "id_network": row.get("network"), "method": titled(method)}


def taken(part: Part, of: Sample) -> Sample:
    """Return rows as a part takes them: errors by its name, a row for each entry of lists."""
    rows = [{**row, "errors": row.get(part.errors)} for row in of.rows]
    if not part.spread:
        return replace(of, rows=rows)
    spread = []
    for row in rows:
        for place, values in enumerate(zip(*(row[key] for key in part.spread), strict=True)):
            once = {} if place else {"any_holds": any(row["holds"])}  # of the row as a whole
            spread.append({**row, **dict(zip(part.spread, values, strict=True)), **once})
    return replace(of, rows=spread)


def collusion(e: Evidence, d: Description) -> Table | None:
    """Return whom combined copies of one host are attributed to, beside what chance gives."""
    bits = {m: e.bits(m) for m in e.in_suite("collusion")}
    betas = {bound(n, e.rho(method)) for method, n in bits.items() if n}
    return suite_table(e, d, {"beta": ", ".join(power(beta) for beta in sorted(betas))})


def sealed(e: Evidence, d: Description) -> Table | None:
    """Return by attack and length how many seals hold, and how clearly."""
    methods = e.in_suite("seal")
    every = {method: e.suite("seal", method) for method in methods}
    lengths = sorted({row["seconds"] for of in every.values() for row in of.rows})
    each = [{"seconds": f"{length:g}", "length": str(length)} for length in lengths]
    told = (_recordings(every[m], titled(m) if len(methods) > 1 else "") for m in methods)
    return suite_table(e, d, {"recordings": "\n".join(told)}, each)


def _recordings(every: Sample, whose: str) -> str:
    counts = (
        f"{len({row['clip'] for row in of.rows})} of {seconds:g} s"
        for seconds, of in every.by("seconds")
    )
    layers = every.where(holds=True).by("layer")
    names = {"code": "codes of its seconds, on the audio of its record"}
    found = ", ".join(f"{len(of)} by the {names.get(one, one)}" for one, of in layers)
    by_layer = f"; seals that hold: {found}" if len(layers) > 1 else ""
    return f"{whose and whose + ': '}recordings: {', '.join(counts)}{by_layer}."


def quality(e: Evidence, d: Description) -> Table | None:
    """Return what the mark costs, beside the paper, its peers and landmarks, by length of clips."""
    lines: Rows = []
    shown = (*e.methods, *e.study("excerpt/"))
    for seconds in sorted({s for m, a, s in e.clips if a == "quality" and m in shown}):
        lines.append(f"Clips of {seconds:g} s")
        for method in shown:
            if of := e.of(method, "quality", seconds):
                theirs = paper.TABLES["quality"]["keybound"] if seconds == SECOND else {}
                lines.append(Line(method, of, {"method": titled(method)}, theirs))
    return lines_table(e, d, lines)


def excerpts(e: Evidence, d: Description) -> Table | None:
    """Return what survives of marks for longer excerpts, on clips of that length."""
    lines: Rows = []
    for method in e.study("excerpt/"):
        seconds = float(method.partition("/")[2])
        lines += [titled(method)]
        for attack in in_order(e.attacks(method, seconds)):
            lines.append(Line(method, e.of(method, attack, seconds), {"attack": label(attack)}))
    return lines_table(e, d, lines)


def attack_intervals(e: Evidence, d: Description) -> Table | None:
    """Return the interval of every rate and mean under the paper's attacks, by method."""
    lines: Rows = []
    for method in e.marked_methods:
        attacks = paper.suite_of(e.attacks(method))
        lines += [titled(method)] if attacks else []
        lines += [Line(method, e.of(method, one), {"attack": label(one)}) for one in attacks]
    return lines_table(e, d, lines, {"clips": counted(e, e.marked_methods)})
