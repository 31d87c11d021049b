"""Tables of the paper's studies: ablation, payload length, operating point; and the first glance.

Each function takes the evidence and returns a table, or None where there are no rows for it. The
studies are methods named `ablation/...`, `bits/...` and `budget/...`.
"""

from typing import Any

from keybound.benchmark.report import paper
from keybound.benchmark.report.columns import suite
from keybound.benchmark.report.grid import grid
from keybound.benchmark.report.labels import PUBLISHED, label, mechanisms, titled
from keybound.benchmark.report.layout import BLANK, Cell, Table, against, power, published
from keybound.benchmark.report.summaries import (
    Evidence,
    accuracy,
    attributed,
    bound,
    numbers,
    reached,
)
from keybound.benchmark.report.tables_keys import moved


def codec(e: Evidence, method: str) -> str:
    """Return the codec that a method was measured under: EnCodec, or Lyra in its place."""
    return "encodec-6" if e.rows(method, "encodec-6") else "lyra-6"


def transplanted(e: Evidence, method: str, kind: str) -> float | None:
    """Return how often a moved mark verifies, at the method's usual threshold."""
    return moved(e, method, kind, e.usual(method), e.rho(method))


def under(e: Evidence, method: str, *attacks: str) -> list[float | None]:
    """Return bit and detection accuracy under each attack."""
    found: list[float | None] = []
    for attack in attacks:
        of = e.rows(method, attack)
        found += [accuracy(of).value, reached(of, e.usual(method)).value]
    return found


def quality(e: Evidence, method: str, *measures: str) -> list[float | None]:
    """Return the means of measures of the marked clips."""
    return [numbers(e.rows(method, "quality"), measure).value for measure in measures]


def ablation(e: Evidence) -> Table | None:
    """Return what each mechanism is good for, beside the paper's ablation."""
    rows = []
    for method in e.study("ablation/"):
        cells = [transplanted(e, method, kind) for kind in ("residual", "gain-field")]
        cells += under(e, method, codec(e, method), "denoiser") + quality(e, method, "pesq")
        theirs = paper.ABLATION.get(method.partition("/")[2], (None,) * 6)
        rows.append((mechanisms(method), *cells, *theirs))
    return grid(
        "ablation",
        "Ablation",
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
        paper: transpl. | {PUBLISHED} | 2p
        paper: EnCodec BA | {PUBLISHED} | 2p
        paper: EnCodec DA | {PUBLISHED} | 2p
        paper: denoiser BA | {PUBLISHED} | 2p
        paper: denoiser DA | {PUBLISHED} | 2p
        paper: PESQ | {PUBLISHED} | 2p""",
        rows,
        "Our codec is Lyra 6 kbps where EnCodec was not run.",
    )


def payload_length(e: Evidence) -> Table | None:
    """Return what longer payloads cost."""
    rows = []
    for method in e.study("bits/"):
        bits, rho = e.bits(method), e.rho(method)
        told = [e.rows(method, attack) for attack in ("clean", "denoiser", codec(e, method))]
        cells = [accuracy(of).value for of in told]
        cells += [attributed(told[0], e.usual(method), rho).value, *quality(e, method, "pesq")]
        beta = power(bound(bits, rho)) if bits else "–"
        theirs = paper.PAYLOAD_LENGTH.get(bits or 0)
        rows.append((str(bits or method.partition("/")[2]), *cells, beta, theirs))
    return grid(
        "payload-length",
        "Payload length",
        "Bit accuracy by the number of bits, on one shorter schedule.",
        f"""
        Bits | length of the payload
        BA: clean | bit accuracy | 3
        BA: denoiser | bit accuracy | 3
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
        "operating-point",
        "Operating point",
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
    cut, rho = e.usual(method), e.rho(method)
    hit = {a: e.rows(method, a) for a in suite(e, [method]) if e.rows(method, a)}
    worst: dict[str, tuple[Any, Any]] = {  # how ours is found, and the paper's
        "Lowest DA": (
            lambda of: reached(of, cut),
            {a: r["keybound"][0] for a, r in paper.ROBUSTNESS.items()},
        ),
        "Lowest BA": (accuracy, {a: r["keybound"][1] for a, r in paper.ROBUSTNESS.items()}),
        "Lowest V_A": (
            lambda of: attributed(of, cut, rho),
            {a: r["keybound"][0] for a, r in paper.ATTRIBUTION.items()},
        ),
        "Highest FPR": (
            lambda of: reached(of, cut, "unmarked"),
            {a: r[1] for a, r in paper.FALSE_POSITIVES.items()},
        ),
    }
    rows: list[Any] = []
    for told, (find, theirs) in worst.items():
        found = {a: find(of).value for a, of in hit.items()}
        known = {a: value for a, value in found.items() if value is not None}
        if known:
            high = told.startswith("Highest")
            pick = max if high else min
            at, there = (pick(d, key=d.__getitem__) for d in (known, theirs))
            ours = against(known[at], theirs[there], lower_is_better=high)
            where = Cell(place(theirs, there), kind="published")
            rows.append((told, ours, place(known, at), theirs[there], where))
    named = zip(("PESQ", "STOI", "SNR, dB"), (2, 3, 1), paper.QUALITY["keybound"], strict=True)
    means = quality(e, method, "pesq", "stoi", "snr_db")
    for (told, digits, figure), value in zip(named, means, strict=True):
        if value is not None:
            ours, mean = against(value, figure, digits), Cell("mean", kind="published")
            rows.append((told, ours, "mean", published(figure, digits), mean))
    rate = paper.SECURITY["keybound"][1]
    for told, kind, theirs in (("residual", "residual", rate), ("gain field", "gain-field", None)):
        if (value := transplanted(e, method, kind)) is not None:
            ours = against(value, theirs, lower_is_better=True)
            rows.append((f"Transplant V_A, {told}", ours, Cell(), theirs, BLANK))
    return grid(
        "glance",
        "At a glance",
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
