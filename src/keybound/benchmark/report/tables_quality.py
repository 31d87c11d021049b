"""Tables of what a mark costs and how sure the figures are: quality, speed, intervals, not run.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import suite, under
from keybound.benchmark.report.labels import PUBLISHED, counted, label, notes_for, titled
from keybound.benchmark.report.layout import (
    STANDS_IN,
    Cell,
    Column,
    Table,
    against,
    between,
    figure,
    name,
    published,
)
from keybound.benchmark.report.summaries import (
    SECOND,
    Evidence,
    Mean,
    Rate,
    accuracy,
    attributed,
    numbers,
    reached,
    total_left_out,
)

Lines = list[tuple[Cell, ...] | str]
MEASURES = {"pesq": 2, "stoi": 3, "snr_db": 1, "si_snr_db": 1, "visqol": 2, "visqol_host": 2}


def quality(e: Evidence) -> Table | None:
    """Lay out what the mark costs, beside the paper and its peers."""
    methods = [m for m in e.methods if e.rows(m, "quality")]
    if not methods:
        return None
    rows: Lines = [quality_line(e, method) for method in methods]
    rows.append("As the paper published them")
    for method, (pesq, stoi, snr) in paper.QUALITY.items():
        blank = Cell(kind="published")
        told = titled(method) + (" (1.1 s clips)" if method == "wavmark" else "")
        cells = (published(pesq, 2), blank, published(stoi), blank, published(snr, 1))
        rows.append((name(told), blank, *cells, *[blank] * 5))
    return Table(
        "quality",
        "Quality of the marked clips",
        "The marked clip against its host, nothing else done to it; means over the clips that a "
        "measure can score.",
        (
            Column("Method", "who made the mark", words=True),
            Column("clips", "marked clips"),
            Column("mean", "wideband PESQ, 1 to 4.64", "PESQ"),
            Column("worst", "lowest PESQ of a clip, with the number of the clip", "PESQ"),
            Column("mean", "intelligibility, 0 to 1", "STOI"),
            Column("worst", "lowest STOI of a clip, with the number of the clip", "STOI"),
            Column("SNR", "host to carrier, dB"),
            Column("SI-SNR", "scale-invariant SNR of the marked clip, dB"),
            Column("marked", "ViSQOL in speech mode", "ViSQOL"),
            Column("host", "ViSQOL of the host against itself: the most it gives", "ViSQOL"),
            Column("Δ DNSMOS", "DNSMOS of the marked clip less that of the host"),
            Column("left out", "clips that a measure could not score", words=True),
        ),
        tuple(rows),
        notes_for(rows, "#n is the number of the clip."),
    )


def quality_line(e: Evidence, method: str) -> tuple[Cell, ...]:
    """Give the line of a measured method."""
    rows = e.rows(method, "quality")
    means = {measure: numbers(rows, measure) for measure in MEASURES}
    theirs: dict[str, float] = {}
    if method == "keybound":
        theirs = dict(zip(("pesq", "stoi", "snr_db"), paper.QUALITY["keybound"], strict=True))

    def mean(measure: str) -> Cell:
        return against(means[measure].value, theirs.get(measure), MEASURES[measure])

    def worst(measure: str) -> Cell:
        scored = [(row[measure], row["clip"]) for row in rows if row.get(measure) is not None]
        if not scored:
            return Cell()
        value, clip = min(scored)
        return Cell(f"{value:.{MEASURES[measure]}f} (#{clip})")

    change = [
        {"change": row["dnsmos"] - row["dnsmos_host"]}
        if row.get("dnsmos") is not None and row.get("dnsmos_host") is not None
        else {}
        for row in rows
    ]
    opinion = numbers(change, "change")
    labels = {"pesq": "PESQ", "stoi": "STOI", "snr_db": "SNR", "si_snr_db": "SI-SNR"}
    missing = [(told, means[measure]) for measure, told in labels.items()]
    missing += [("ViSQOL", means["visqol"]), ("DNSMOS", opinion)]
    return (
        name(titled(method)),
        Cell(str(len(rows))),
        mean("pesq"),
        worst("pesq"),
        mean("stoi"),
        worst("stoi"),
        mean("snr_db"),
        mean("si_snr_db"),
        mean("visqol"),
        mean("visqol_host"),
        figure(opinion.value, 2),
        Cell(total_left_out(missing) or "none"),
    )


BESIDE = "audioseal"  # whose speed is the measure of the others


def speed(e: Evidence) -> Table | None:
    """Lay out how many times real time each method runs."""
    methods = e.in_suite("speed")
    if not methods:
        return None
    found = {
        (method, row.get("seconds"), row["verb"]): row
        for method in methods
        for row in e.suite("speed", method)
    }
    rows: Lines = []
    runs = {(method, seconds) for method, seconds, _ in found}
    for method, seconds in sorted(runs, key=lambda run: (run[1] or 0, methods.index(run[0]))):
        cells = [name(titled(method)), figure(seconds, 0)]
        for verb in ("embed", "detect"):
            row = found.get((method, seconds, verb))
            other = found.get((BESIDE, seconds, verb))
            times = row["times_real_time"] if row else None
            ratio = times / other["times_real_time"] if times and other else None
            cells += [figure(times, 1), figure(ratio, 2)]
        trained = all(row.get("trained", True) for row in e.suite("speed", method))
        rows.append((*cells, Cell("trained" if trained else "random: speed needs no training")))
    times_help = "seconds of audio in a second of work"
    ratio_help = "this method's speed over AudioSeal's in the same run"
    return Table(
        "speed",
        "Speed",
        "Times real time on one machine; absolute figures are the machine's, ratios the methods'.",
        (
            Column("Method", "what was run", words=True),
            Column("clip, s", "length of the audio"),
            Column("×", times_help, "embed"),
            Column("of AudioSeal", ratio_help, "embed"),
            Column("×", times_help, "detect"),
            Column("of AudioSeal", ratio_help, "detect"),
            Column("weights", "whether the networks were trained", words=True),
        ),
        tuple(rows),
        notes_for(rows),
    )


def intervals(e: Evidence) -> Table | None:
    """Lay out the paper's figures with intervals, and ours of the same."""
    rows: Lines = []
    measured_any = False
    for (measure, method, what), (value, low, high) in paper.INTERVALS.items():
        ours = next(
            (w for w in (what, "lyra-6") if what == "encodec-6" and e.rows(method, w)), what
        )
        found = estimate(e, measure, method, ours)
        measured_any |= found is not None and found.value is not None
        mark = STANDS_IN if ours != what else ""
        told = f"{titled(method)}: {measure}, {label(ours)}"
        count = len(found.values) if isinstance(found, Mean) else found.trials if found else 0
        rows.append(
            (
                name(told),
                figure(found.value if found else None),
                Cell(between(found.interval if found else None)),
                Cell(str(count) if count else "–"),
                published(value, mark=mark),
                Cell(between((low, high)), mark=mark, kind="published"),
            )
        )
    if not measured_any:
        return None
    interval = "95 % interval: Clopper–Pearson of rates, 2,000 clip resamplings of means"
    return Table(
        "intervals",
        "Confidence intervals",
        "The figures that the paper gives with intervals, beside ours; DA and V_A at the shipped "
        "threshold (the paper's where none is shipped).",
        (
            Column("Figure", "method, measure and attack", words=True),
            Column("value", "measured", "ours"),
            Column("95 % CI", interval, "ours"),
            Column("n", "clips", "ours"),
            Column("value", PUBLISHED, "paper"),
            Column("95 % CI", PUBLISHED, "paper"),
        ),
        tuple(rows),
        notes_for(rows),
    )


def estimate(e: Evidence, measure: str, method: str, what: str) -> Rate | Mean | None:
    """Find a rate or a mean by the name that the paper's table of intervals gives it."""
    cut, rho = e.usual(method), e.rho(method)
    if measure == "DA":
        return reached(e.rows(method, what), cut)
    if measure == "FPR":
        return reached(e.rows(method, what), cut, "unmarked")
    if measure == "V_A":
        return attributed(e.rows(method, what), cut, rho)
    if measure == "BA":
        return accuracy(e.rows(method, what))
    if measure == "no-key BA":
        return accuracy(e.suite("keys", method), "zero")
    moved = [row for row in e.suite("transplant", method) if row["attack"] == what]
    return attributed(moved, cut, rho, "presence")


def attack_intervals(e: Evidence) -> Table | None:
    """Lay out the interval of every rate and mean under the paper's attacks."""
    method = next((m for m in under(e, (a for _, a, _ in paper.SUITE))), None)
    if method is None:
        return None
    rows = []
    for attack in suite(e, [method]):
        if not e.rows(method, attack):
            continue
        cells = [name(label(attack))]
        for measure in ("DA", "FPR", "BA", "V_A"):
            found = estimate(e, measure, method, attack)
            assert found is not None
            cells += [figure(found.value), Cell(between(found.interval))]
        rows.append(tuple(cells))
    told = {"DA": "detection", "FPR": "false positives", "BA": "bit accuracy", "V_A": "attribution"}
    return Table(
        "attack-intervals",
        "Confidence intervals by attack",
        f"{titled(method)}, {counted(e, [method])}: rates with Clopper–Pearson, bit accuracy with "
        "the clip bootstrap, at the shipped threshold.",
        (
            Column("Attack", "what happened to the clip", words=True),
            *(
                Column(head, f"{words}, {head}", measure)
                for measure, words in told.items()
                for head in ("value", "95 % CI")
            ),
        ),
        tuple(rows),
        notes_for(rows),
    )


def missing(e: Evidence) -> Table | None:
    """Lay out what was not run, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (method, what), reason in e.reasons.items():
        if not e.rows(method, what, SECOND):
            reasons.setdefault((method, reason), []).append(label(what) if what else "everything")
    if not reasons:
        return None
    rows = tuple(
        (name(titled(method)), Cell(", ".join(sorted(whats))), Cell(reason))
        for (method, reason), whats in sorted(reasons.items())
    )
    return Table(
        "not-run",
        "Not run",
        "What the rows say could not be run, and why.",
        (
            Column("Method", "what was to be measured", words=True),
            Column("Attacks and suites", "what was to be done", words=True),
            Column("Why", "the reason in the row", words=True),
        ),
        rows,
    )
