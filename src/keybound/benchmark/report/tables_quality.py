"""Tables of quality, speed, intervals, what was not run, and which weights were measured."""

from typing import Any

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.measure.samples import Mean, Rate, Sample
from keybound.benchmark.report import columns, layout, paper
from keybound.benchmark.report.grid import Rows, grid
from keybound.benchmark.report.labels import PUBLISHED, counted, label, titled
from keybound.benchmark.report.layout import BLANK, EMPTY, Cell, Table, between, published
from keybound.benchmark.report.summaries import SECOND, Evidence, total_left_out
from keybound.model.networks import shipped

LABELS = {
    "pesq": "PESQ",
    "stoi": "STOI",
    "visqol": "ViSQOL",
    "zimtohrli": "Zimtohrli",
    "snr_db": "SNR",
    "si_snr_db": "SI-SNR",
}
BESIDE = "audioseal"  # whose speed is the measure of the others
INTERVAL = "95 % interval: Clopper–Pearson of rates, 2,000 clip resamplings of means"
MEASURED = {"DA": "detection", "FPR": "false positives", "BA": "bit accuracy", "V_A": "attribution"}


def quality(e: Evidence) -> Table | None:
    """Return what the mark costs, beside the paper, its peers and landmarks, by length of clips."""
    rows: Rows = []
    for seconds in sorted({s for m, a, s in e.clips if a == "quality" and m in e.methods}):
        rows.append(f"Clips of {seconds:g} s")
        for method in e.methods:
            if of := e.of(method, "quality", seconds):
                beside = method == "keybound" and seconds == SECOND
                rows.append(_quality_line(method, of, beside=beside))
    if not rows:
        return None
    rows.append("As the paper published them")
    for method, (pesq, stoi, snr) in paper.QUALITY.items():
        told = titled(method) + (" (1.1 s clips)" if method == "wavmark" else "")
        cells = (published(pesq, 2), BLANK, published(stoi), BLANK, *[BLANK] * 5)
        rows.append((told, BLANK, *cells, published(snr, 1), *[BLANK] * 3))
    return grid(
        "The marked clip against its host, nothing else done to it; mean and 5th percentile over "
        "the clips that a measure can score. A landmark is what an attack does to the host itself.",
        """
        Method | who made the mark
        clips | marked clips
        PESQ: mean | wideband PESQ, 1 to 4.64 | 2
        PESQ: 5 % | 5th percentile | 2
        STOI: mean | intelligibility, 0 to 1 | 3
        STOI: 5 % | 5th percentile | 3
        ViSQOL: mean | ViSQOL in speech mode | 2
        ViSQOL: 5 % | 5th percentile | 2
        ViSQOL: host | ViSQOL of the host against itself: the most it gives | 2
        Zimtohrli: mean | Zimtohrli as MOS, 1 to 5 | 2
        Zimtohrli: 5 % | 5th percentile | 2
        SNR | host to carrier, dB | 1
        SI-SNR | scale-invariant SNR of the marked clip, dB | 1
        Δ DNSMOS | DNSMOS of the marked clip less that of the host | 2
        left out | clips that a measure could not score | words""",
        rows,
    )


def _quality_line(method: str, of: Sample, *, beside: bool) -> tuple[Any, ...]:
    """Return the figures of a method, beside the paper's where they are of the same length."""
    means = {m: of.mean(m) for m in (*LABELS, "visqol_host")}
    told = dict(zip(("pesq", "stoi", "snr_db"), paper.QUALITY["keybound"], strict=True))

    def mean(measure: str) -> Any:
        value = means[measure].value
        return (value, told[measure]) if beside and measure in told else value

    cells: list[Any] = []
    for measure in ("pesq", "stoi", "visqol", "zimtohrli"):
        cells += [mean(measure), means[measure].low]
        cells += [mean("visqol_host")] if measure == "visqol" else []
    pairs: list[Any] = [(row.get("dnsmos"), row.get("dnsmos_host")) for row in of.rows]
    opinion = Sample([{} if None in p else {"Δ": p[0] - p[1]} for p in pairs]).mean("Δ")
    missing = {text: means[measure] for measure, text in LABELS.items()} | {"DNSMOS": opinion}
    cells += [mean("snr_db"), mean("si_snr_db"), opinion.value, total_left_out(missing)]
    return (titled(method), len(of), *cells)


def speed(e: Evidence) -> Table | None:
    """Return how many times real time each method runs."""
    methods = e.in_suite("speed")
    found = {
        (method, row.get("seconds"), row["verb"]): row
        for method in methods
        for row in e.suite("speed", method).rows
    }
    rows: Rows = []
    runs = {(method, seconds) for method, seconds, _ in found}
    for method, seconds in sorted(runs, key=lambda run: (run[1] or 0, methods.index(run[0]))):
        cells: list[Any] = [titled(method), None if seconds is None else float(seconds)]
        for verb in ("embed", "detect"):
            row, other = (found.get((m, seconds, verb)) for m in (method, BESIDE))
            times = row["times_real_time"] if row else None
            cells += [times, times / other["times_real_time"] if times and other else None]
        trained = all(row.get("trained", True) for row in e.suite("speed", method).rows)
        rows.append((*cells, "trained" if trained else "random: speed needs no training"))
    heads = "".join(
        f"""
        {verb}: × | seconds of audio in a second of work | 1
        {verb}: of AudioSeal | this method's speed over AudioSeal's in the same run | 2"""
        for verb in ("embed", "detect")
    )
    return grid(
        "Times real time on one machine; absolute figures are the machine's, ratios the methods'.",
        f"""
        Method | what was run
        clip, s | length of the audio | 0{heads}
        weights | whether the networks were trained | words""",
        rows,
    )


def intervals(e: Evidence) -> Table | None:
    """Return the paper's figures with intervals, and ours of the same."""
    rows: Rows = []
    for (measure, method, what), (value, low, high) in paper.INTERVALS.items():
        stands_in = what == "encodec-6" and not e.rows(method, what) and e.rows(method, "lyra-6")
        ours, mark = ("lyra-6", layout.STANDS_IN) if stands_in else (what, "")
        found = estimate(e, measure, method, ours)
        told = Cell(between((low, high)), mark=mark, kind="published")
        cells = (found.value, between(found.interval), str(found.trials or EMPTY))
        named = f"{titled(method)}: {measure}, {label(ours)}"
        rows.append((named, *cells, published(value, mark=mark), told))
    return grid(
        "The figures that the paper gives with intervals, beside ours; DA and V_A at the shipped "
        "threshold (the paper's where none is shipped).",
        f"""
        Figure | method, measure and attack
        ours: value | measured | 3
        ours: 95 % CI | {INTERVAL}
        ours: n | clips
        paper: value; 95 % CI | {PUBLISHED}""",
        rows if any(row[1] is not None for row in rows) else [],
    )


def estimate(e: Evidence, measure: str, method: str, what: str) -> Rate | Mean:
    """Return a rate or a mean by the name that the paper's table of intervals gives it."""
    of = e.of(method, what)
    match measure:
        case "DA":
            return of.reached()
        case "FPR":
            return of.reached(side="unmarked")
        case "V_A":
            return of.verified()
        case "BA":
            return of.accuracy()
        case "no-key BA":
            return e.suite("keys", method).accuracy("zero")
        case _:
            return e.suite("transplant", method).where(attack=what).verified()


def attack_intervals(e: Evidence) -> Table | None:
    """Return the interval of every rate and mean under the paper's attacks."""
    method = next(iter(columns.under(e, paper.ATTACKS)), "")
    rows = []
    for attack in columns.suite(e, [method]):
        if e.rows(method, attack):
            found = [estimate(e, measure, method, attack) for measure in MEASURED]
            cells = [cell for one in found for cell in (one.value, between(one.interval))]
            rows.append((label(attack), *cells))
    heads = "".join(
        f"\n{measure}: value | {words}, value | 3\n{measure}: 95 % CI | {words}, 95 % CI"
        for measure, words in MEASURED.items()
    )
    return grid(
        f"{titled(method)}, {counted(e, [method])}: rates with Clopper–Pearson, bit accuracy with "
        "the clip bootstrap, at the shipped threshold.",
        "Attack | what happened to the clip" + heads,
        rows,
    )


def missing(e: Evidence) -> Table | None:
    """Return what was not run, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for (method, what), reason in e.reasons.items():
        if not e.rows(method, what):
            reasons.setdefault((method, reason), []).append(label(what) if what else "everything")
    return grid(
        "What the rows say could not be run, and why.",
        """
        Method | what was to be measured
        Attacks and suites | what was to be done | words
        Why | the reason in the row | words""",
        [
            (titled(method), ", ".join(sorted(whats)), reason)
            for (method, reason), whats in sorted(reasons.items())
        ],
    )


def weights(e: Evidence) -> Table | None:
    """Return which weights the rows of each method are of, and whether those are shipped."""
    by_method: dict[str, list[Row]] = {}
    for (method, _, _), clips in e.clips.items():
        by_method.setdefault(method, []).extend(clips)
    for (_, method), suite in e.suites.items():
        by_method.setdefault(method, []).extend(suite)
    ours = shipped().card.sha256["detector.onnx"][:12]
    lines: Rows = []
    for method in (*e.methods, *sorted(set(by_method) - set(e.methods))):
        own = by_method.get(method, [])
        for version in sorted({str(row["version"]) for row in own if row.get("version")}):
            said = "shipped" if version.partition("+")[0] == ours else "not the shipped ones"
            told = said if method.startswith("keybound") else ""
            lines.append((titled(method), version, told, len(own)))
    return grid(
        "The version of each method in all tables: of KeyBound and of other weights of its design "
        "the first digits of the hash of the detector, of a peer that of its package.",
        """
        Method | what was measured
        Version | of the weights or the package | words
        Weights | of KeyBound: whether they are those in the package | words
        Rows | measured with it""",
        lines,
    )
