"""Tables of the paper's studies: ablation, payload length, operating point; and the first glance.

Each function takes the evidence and gives a table, or None where there are no rows for it. The
studies are methods named `ablation/...`, `bits/...` and `budget/...`.
"""

from keybound.benchmark.report import paper
from keybound.benchmark.report.blocks import suite
from keybound.benchmark.report.labels import PUBLISHED, label, mechanisms, notes_for, titled
from keybound.benchmark.report.layout import (
    Cell,
    Column,
    Table,
    against,
    figure,
    name,
    power,
    published,
)
from keybound.benchmark.report.summaries import (
    Evidence,
    accuracy,
    attributed,
    bound,
    numbers,
    reached,
)

Lines = list[tuple[Cell, ...] | str]


def codec(e: Evidence, method: str) -> str:
    """Give the codec that a method was measured under: EnCodec, or Lyra in its place."""
    return "encodec-6" if e.rows(method, "encodec-6") else "lyra-6"


def moved(e: Evidence, method: str, kind: str) -> float | None:
    """Give how often a transplanted mark verifies, at the method's usual threshold."""
    rows = [row for row in e.suite("transplant", method) if row["attack"] == kind]
    return attributed(rows, e.usual(method), e.rho(method), "presence").value


def ablation(e: Evidence) -> Table | None:
    """Lay out what each mechanism is good for, beside the paper's ablation."""
    methods = e.study("ablation/")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        short, cut = method.partition("/")[2], e.usual(method)
        cells = [
            name(mechanisms(method)),
            *(figure(moved(e, method, k)) for k in ("residual", "gain-field")),
        ]
        for attack in (codec(e, method), "denoiser"):
            of = e.rows(method, attack)
            cells += [figure(accuracy(of).value), figure(reached(of, cut).value)]
        cells.append(figure(numbers(e.rows(method, "quality"), "pesq").value, 2))
        theirs = paper.ABLATION.get(short, (None,) * 6)
        rows.append((*cells, *(published(value, 2) for value in theirs)))
    verify = "share of moved carriers that verify"
    return Table(
        "ablation",
        "Ablation",
        "Each row leaves one mechanism out, all else alike, on one shorter schedule. Thresholds "
        "are each model's own.",
        (
            Column("Mechanisms", "what the model has", words=True),
            Column("residual", f"{verify}, the paper's attack", "ours, transplant V_A"),
            Column("gains", f"{verify}, moved as gains", "ours, transplant V_A"),
            Column("BA", "bit accuracy", "ours, codec 6 kbps"),
            Column("DA", "detection accuracy", "ours, codec 6 kbps"),
            Column("BA", "bit accuracy", "ours, denoiser"),
            Column("DA", "detection accuracy", "ours, denoiser"),
            Column("PESQ", "of the marked clips", "ours, quality"),
            Column("transpl.", PUBLISHED, "paper"),
            Column("EnCodec BA", PUBLISHED, "paper"),
            Column("EnCodec DA", PUBLISHED, "paper"),
            Column("denoiser BA", PUBLISHED, "paper"),
            Column("denoiser DA", PUBLISHED, "paper"),
            Column("PESQ", PUBLISHED, "paper"),
        ),
        tuple(rows),
        notes_for(rows, "Our codec is Lyra 6 kbps where EnCodec was not run."),
    )


def payload_length(e: Evidence) -> Table | None:
    """Lay out what longer payloads cost."""
    methods = e.study("bits/")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        bits = e.bits(method)
        told = [e.rows(method, attack) for attack in ("clean", "denoiser", codec(e, method))]
        rows.append(
            (
                name(str(bits or method.partition("/")[2])),
                *(figure(accuracy(of).value) for of in told),
                figure(attributed(told[0], e.usual(method), e.rho(method)).value),
                figure(numbers(e.rows(method, "quality"), "pesq").value, 2),
                Cell(power(bound(bits, e.rho(method))) if bits else "–"),
                published(paper.PAYLOAD_LENGTH.get(bits or 0), 2),
            )
        )
    return Table(
        "payload-length",
        "Payload length",
        "Bit accuracy by the number of bits, on one shorter schedule.",
        (
            Column("Bits", "length of the payload", words=True),
            Column("clean", "bit accuracy", "BA"),
            Column("denoiser", "bit accuracy", "BA"),
            Column("codec 6 kbps", "bit accuracy; Lyra where EnCodec was not run", "BA"),
            Column("V_A clean", "share of clean marked clips that verify"),
            Column("PESQ", "of the marked clips"),
            Column("β", "bound on a wrong key's acceptance at the method's ρ"),
            Column("BA, paper", f"clean and denoised, {PUBLISHED}"),
        ),
        tuple(rows),
        notes_for(rows),
    )


def operating_point(e: Evidence) -> Table | None:
    """Lay out the trade of quality against robustness over perceptual budgets."""
    methods = e.study("budget/")
    if not methods:
        return None
    shown = [*methods, *(m for m in ("keybound",) if e.rows(m, "quality"))]
    rows: Lines = []
    for method in shown:
        of, cut = e.rows(method, "quality"), e.usual(method)
        arm = method.partition("/")[2]
        cells = [name(f"{arm} dB" if arm else titled(method))]
        cells += [figure(numbers(of, "pesq").value, 2), figure(numbers(of, "stoi").value)]
        cells.append(figure(numbers(of, "snr_db").value, 1))
        for attack in ("denoiser", codec(e, method), "noise-10"):
            hit = e.rows(method, attack)
            cells += [figure(accuracy(hit).value), figure(reached(hit, cut).value)]
        rows.append(tuple(cells))
    loud, quiet = paper.OPERATING_POINT
    return Table(
        "operating-point",
        "Operating point",
        "Quality against robustness over perceptual budgets, on one shorter schedule; the shipped "
        "model stands below.",
        (
            Column("Budget", "rms gain that the recipe allows in the mean", words=True),
            Column("PESQ", "of the marked clips"),
            Column("STOI", "of the marked clips"),
            Column("SNR", "host to carrier, dB"),
            *(
                Column(measure, f"{measure} under {attack}", attack)
                for attack in ("denoiser", "codec 6 kbps", "noise 10 dB")
                for measure in ("BA", "DA")
            ),
        ),
        tuple(rows),
        notes_for(
            rows,
            f"The paper's sweep: denoiser BA {loud} at the loudest budget, {quiet} at the "
            "quietest, 0.983 at PESQ 3.03 deployed.",
        ),
    )


def glance(e: Evidence) -> Table | None:
    """Lay out the worst figures of our method beside the paper's worst."""
    method = next((m for m in e.marked_methods if e.rows(m, "clean")), None)
    if method is None:
        return None
    cut, rho = e.usual(method), e.rho(method)
    hit = {a: e.rows(method, a) for a in suite(e, [method]) if e.rows(method, a)}
    ours = {
        "Lowest DA": {a: reached(rows, cut).value for a, rows in hit.items()},
        "Lowest BA": {a: accuracy(rows).value for a, rows in hit.items()},
        "Lowest V_A": {a: attributed(rows, cut, rho).value for a, rows in hit.items()},
        "Highest FPR": {a: reached(rows, cut, "unmarked").value for a, rows in hit.items()},
    }
    theirs = {
        "Lowest DA": {a: of["keybound"][0] for a, of in paper.ROBUSTNESS.items()},
        "Lowest BA": {a: of["keybound"][1] for a, of in paper.ROBUSTNESS.items()},
        "Lowest V_A": {a: of["keybound"] for a, of in paper.ATTRIBUTION.items()},
        "Highest FPR": {a: of[1] for a, of in paper.FALSE_POSITIVES.items()},
    }
    rows: Lines = []
    for told, figures in ours.items():
        known = {a: value for a, value in figures.items() if value is not None}
        if not known:
            continue
        high = told.startswith("Highest")
        pick, of_paper = (max if high else min), theirs[told]
        at, there = (pick(d, key=d.__getitem__) for d in (known, of_paper))
        worst = against(known[at], of_paper[there], lower_is_better=high)
        cells = (published(of_paper[there]), Cell(place(of_paper, there), kind="published"))
        rows.append((name(told), worst, Cell(place(known, at)), *cells))
    of = e.rows(method, "quality")
    pesq, stoi, snr = paper.QUALITY["keybound"]
    for told, value, figure_of, digits in (
        ("PESQ", numbers(of, "pesq").value, pesq, 2),
        ("STOI", numbers(of, "stoi").value, stoi, 3),
        ("SNR, dB", numbers(of, "snr_db").value, snr, 1),
    ):
        if value is not None:
            cells = (published(figure_of, digits), Cell("mean", kind="published"))
            rows.append((name(told), against(value, figure_of, digits), Cell("mean"), *cells))
    for told, kind, paper_rate in (
        ("Transplant V_A, residual", "residual", paper.SECURITY["keybound"][1]),
        ("Transplant V_A, gain field", "gain-field", None),
    ):
        rate = moved(e, method, kind)
        if rate is not None:
            first = against(rate, paper_rate, lower_is_better=True)
            rows.append((name(told), first, Cell(), published(paper_rate), Cell(kind="published")))
    return Table(
        "glance",
        "At a glance",
        f"The worst figures of {titled(method)} over {len(hit)} attacks of the paper's table, at "
        "the shipped threshold (the paper's where none is shipped), beside the paper's worst.",
        (
            Column("Figure", "what is compared", words=True),
            Column("ours", "measured"),
            Column("where", "the attack with this figure", words=True),
            Column("paper", PUBLISHED),
            Column("where", "the attack with this figure", words=True),
        ),
        tuple(rows),
        notes_for(rows),
    )


def place(figures: dict[str, float], at: str) -> str:
    """Name the attack of a figure, or say that all share it."""
    shared = [a for a, value in figures.items() if round(value, 3) == round(figures[at], 3)]
    if len(shared) == len(figures):
        return "every attack"
    return label(at) + (f" and {len(shared) - 1} more" if len(shared) > 1 else "")
