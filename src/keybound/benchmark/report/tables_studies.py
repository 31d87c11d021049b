"""Tables of the paper's studies: ablation, payload length, operating point; and the first glance.

The studies are methods named `ablation/...`, `bits/...` and `budget/...`.
"""

from keybound.benchmark.report import columns, paper
from keybound.benchmark.report.grid import Rows, grid
from keybound.benchmark.report.labels import PUBLISHED, label, mechanisms, titled
from keybound.benchmark.report.layout import BLANK, EMPTY, Cell, Table, against, power, published
from keybound.benchmark.report.summaries import Evidence
from keybound.crypto.codes import bound


def codec(e: Evidence, method: str) -> str:
    """Return the codec that a method was measured under: EnCodec, or Lyra in its place."""
    return "encodec-6" if e.rows(method, "encodec-6") else "lyra-6"


def transplanted(e: Evidence, method: str, kind: str) -> float | None:
    """Return how often a moved mark verifies, at the method's usual threshold."""
    return e.suite("transplant", method).where(attack=kind).verified().value


def under(e: Evidence, method: str, *attacks: str) -> list[float | None]:
    """Return bit and detection accuracy under each attack."""
    samples = [e.of(method, attack) for attack in attacks]
    return [one.value for of in samples for one in (of.accuracy(), of.reached())]


def quality(e: Evidence, method: str, *measures: str) -> list[float | None]:
    """Return the means of measures of the marked clips."""
    return [e.of(method, "quality").mean(measure).value for measure in measures]


def ablation(e: Evidence) -> Table | None:
    """Return what each mechanism is good for, beside the paper's ablation."""
    rows = []
    for method in e.study("ablation/"):
        cells = [transplanted(e, method, kind) for kind in ("residual", "gain-field")]
        cells += under(e, method, codec(e, method), "denoiser") + quality(e, method, "pesq")
        theirs = paper.ABLATION.get(method.partition("/")[2], (None,) * 6)
        rows.append((mechanisms(method), *cells, *theirs))
    return grid(
        "Each row leaves one mechanism out, all else alike, on one shorter schedule. Thresholds "
        "are each model's own.",
        f"""
        Mechanisms | what the model has
        ours, transplant V_A: residual | share of moved carriers that verify, the paper's attack | 3
        ours, transplant V_A: gains | share of moved carriers that verify, moved as gains | 3
        ours, codec 6 kbps: BA | bit accuracy | 3
        ours, codec 6 kbps: DA | detection accuracy | 3
        ours, denoiser: BA | bit accuracy | 3
        ours, denoiser: DA | detection accuracy | 3
        ours, quality: PESQ | of the marked clips | 2
        paper: transpl.; EnCodec BA; EnCodec DA | {PUBLISHED} | 2p
        paper: denoiser BA; denoiser DA; PESQ | {PUBLISHED} | 2p""",
        rows,
        "Our codec is Lyra 6 kbps where EnCodec was not run.",
    )


def payload_length(e: Evidence) -> Table | None:
    """Return what longer payloads cost."""
    rows = []
    for method in e.study("bits/"):
        bits, attacks = e.bits(method), ("clean", "denoiser", codec(e, method))
        cells = [e.of(method, attack).accuracy().value for attack in attacks]
        cells += [e.of(method, "clean").verified().value, *quality(e, method, "pesq")]
        beta = power(bound(bits, e.rho(method))) if bits else EMPTY
        theirs = paper.PAYLOAD_LENGTH.get(bits or 0)
        rows.append((str(bits or method.partition("/")[2]), *cells, beta, theirs))
    return grid(
        "Bit accuracy by the number of bits, on one shorter schedule.",
        f"""
        Bits | length of the payload
        BA: clean; denoiser | bit accuracy | 3
        BA: codec 6 kbps | bit accuracy; Lyra where EnCodec was not run | 3
        V_A clean | share of clean marked clips that verify | 3
        PESQ | of the marked clips | 2
        β | bound on a wrong key's acceptance at the method's ρ
        BA, paper | clean and denoised, {PUBLISHED} | 2p""",
        rows,
    )


def operating_point(e: Evidence) -> Table | None:
    """Return the trade of quality against robustness over perceptual budgets."""
    methods = e.study("budget/")
    if not methods:
        return None
    rows = []
    for method in (*methods, *(m for m in ("keybound",) if e.rows(m, "quality"))):
        arm = method.partition("/")[2]
        cells = quality(e, method, "pesq", "stoi", "snr_db")
        cells += under(e, method, "denoiser", codec(e, method), "noise-10")
        rows.append((f"{arm} dB" if arm else titled(method), *cells))
    heads = "".join(
        f"\n{attack}: {measure} | {measure} under {attack} | 3"
        for attack in ("denoiser", "codec 6 kbps", "noise 10 dB")
        for measure in ("BA", "DA")
    )
    loud, quiet = paper.OPERATING_POINT
    return grid(
        "Quality against robustness over perceptual budgets, on one shorter schedule; the shipped "
        "model stands below.",
        f"""
        Budget | rms gain that the recipe allows in the mean
        PESQ | of the marked clips | 2
        STOI | of the marked clips | 3
        SNR | host to carrier, dB | 1{heads}""",
        rows,
        f"The paper's sweep: denoiser BA {loud} at the loudest budget, {quiet} at the "
        "quietest, 0.983 at PESQ 3.03 deployed.",
    )


def glance(e: Evidence) -> Table | None:
    """Return the worst figures of our method beside the paper's worst."""
    method = next((m for m in e.marked_methods if e.rows(m, "clean")), None)
    if method is None:
        return None
    hit = {a: e.of(method, a) for a in columns.suite(e, [method]) if e.rows(method, a)}
    published_ones: dict[str, dict[str, float]] = {
        "DA": {a: of["keybound"][0] for a, of in paper.ROBUSTNESS.items()},
        "BA": {a: of["keybound"][1] for a, of in paper.ROBUSTNESS.items()},
        "V_A": {a: of["keybound"][0] for a, of in paper.ATTRIBUTION.items()},
        "FPR": {a: of[1] for a, of in paper.FALSE_POSITIVES.items()},
    }
    rows: Rows = []
    for measure, theirs in published_ones.items():
        values = {a: columns.MEASURES[measure](of) for a, of in hit.items()}
        found = {a: value for a, value in values.items() if value is not None}
        if found:
            high = measure == "FPR"
            pick = max if high else min
            at, there = (pick(d, key=d.__getitem__) for d in (found, theirs))
            ours = against(found[at], theirs[there], lower_is_better=high)
            where = Cell(place(theirs, there), kind="published")
            told = f"{'Highest' if high else 'Lowest'} {measure}"
            rows.append((told, ours, place(found, at), theirs[there], where))
    named = zip(("PESQ", "STOI", "SNR, dB"), (2, 3, 1), paper.QUALITY["keybound"], strict=True)
    means = quality(e, method, "pesq", "stoi", "snr_db")
    for (told, digits, figure), value in zip(named, means, strict=True):
        if value is not None:
            ours, mean = against(value, figure, digits), Cell("mean", kind="published")
            rows.append((told, ours, "mean", published(figure, digits), mean))
    rate = paper.SECURITY["keybound"][1]
    for kind, beside in (("residual", rate), ("gain-field", None)):
        if (value := transplanted(e, method, kind)) is not None:
            ours, told = against(value, beside, lower_is_better=True), kind.replace("-", " ")
            rows.append((f"Transplant V_A, {told}", ours, Cell(), beside, BLANK))
    return grid(
        f"The worst figures of {titled(method)} over {len(hit)} attacks of the paper's table, at "
        "the shipped threshold (the paper's where none is shipped), beside the paper's worst.",
        f"""
        Figure | what is compared
        ours | measured
        where | the attack with this figure | words
        paper | {PUBLISHED} | 3p
        where | the attack with this figure | words""",
        rows,
    )


def place(figures: dict[str, float], at: str) -> str:
    """Return the attack of a figure, or that all share it."""
    shared = [a for a, value in figures.items() if round(value, 3) == round(figures[at], 3)]
    if len(shared) == len(figures):
        return "every attack"
    return label(at) + (f" and {len(shared) - 1} more" if len(shared) > 1 else "")
