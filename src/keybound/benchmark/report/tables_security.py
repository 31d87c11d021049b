"""Tables of security: transplants and other forgeries, the remover, host binding, other audio.

Each function takes the evidence and gives a table, or None where there are no rows for it.
"""

from collections.abc import Sequence

import numpy as np

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.labels import (
    PUBLISHED,
    TOO_MANY,
    label,
    notes_for,
    thresholds,
    titled,
)
from keybound.benchmark.report.layout import (
    OVER,
    Cell,
    Column,
    Table,
    against,
    between,
    figure,
    name,
    not_run,
    published,
)
from keybound.benchmark.report.summaries import (
    CLEAN,
    SHIPPED,
    Evidence,
    accuracy,
    attributed,
    natural,
    numbers,
    reached,
)

NETWORKS = {"unet": "U-net on the waveform (the paper's)", "gains": "network that predicts gains"}
Lines = list[tuple[Cell, ...] | str]


def security(e: Evidence) -> Table | None:
    """Lay out what a reader without the key gets, and how often a moved carrier verifies."""
    methods = [m for m in e.methods if e.suite("keys", m) or e.suite("transplant", m)]
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        ours = method == "keybound"
        no_key = accuracy(e.suite("keys", method), "zero").value
        first = figure(no_key) if e.keyed(method) else Cell("public")
        cells = [name(titled(method)), first]
        for kind in ("residual", "gain-field"):
            moved = [row for row in e.suite("transplant", method) if row["attack"] == kind]
            for which in (SHIPPED, CLEAN):
                cut = e.threshold(method, which)
                rate = attributed(moved, cut, e.rho(method), "presence").value
                theirs = paper.SECURITY["keybound"][1] if ours and kind == "residual" else None
                cells.append(against(rate, theirs, lower_is_better=True))
        rows.append(tuple(cells))
    rows.append("As the paper published them")
    for method, (no_key, moved_rate) in paper.SECURITY.items():
        first = Cell("public", kind="published") if no_key is None else published(no_key)
        blank = Cell(kind="published")
        rows.append((name(titled(method)), first, blank, published(moved_rate), blank, blank))
    verify = "share of carriers moved onto another host that verify, presence at "
    return Table(
        "security",
        "No-key reading and transplants",
        "Bit accuracy of a reader without the key (0.5 is chance), and how often a mark moved onto "
        "another host still verifies.",
        (
            Column("Method", "who made the mark", words=True),
            Column("no-key BA", "bit accuracy with a zero mask; public: there is no key"),
            Column("shipped", f"{verify}the shipped threshold", "residual, V_A"),
            Column("1 %", f"{verify}the paper's threshold", "residual, V_A"),
            Column("shipped", f"{verify}the shipped threshold", "gain field, V_A"),
            Column("1 %", f"{verify}the paper's threshold", "gain field, V_A"),
        ),
        tuple(rows),
        notes_for(
            rows,
            "Residual: marked − host, added to the next clip unscaled, which needs the clean host. "
            "Gain field: |marked| / |host|, multiplied onto the next clip's spectrum.",
            thresholds(e, methods),
        ),
    )


def forgeries(e: Evidence) -> Table | None:
    """Lay out marking over a mark, averaging of copies and what a known payload gives."""
    rows: Lines = []
    for method in e.methods:
        twice = e.suite("re-embed", method)
        if twice:
            told = "marked again with another key: the"
            rows.append(_forged(e, method, f"{told} first mark", twice, "first"))
            rows.append(_forged(e, method, f"{told} second mark", twice, "second"))
        averaged = e.suite("average", method)
        for copies in sorted({row["copies"] for row in averaged}):
            of = [row for row in averaged if row["copies"] == copies]
            told = f"average of {copies} copies with different payloads"
            rows.append(_forged(e, method, told, of, "errors"))
        copied = {
            "known-payload": "one known payload gives the mask: another payload, another host",
            "replay": "the code as anyone reads it, put on another host",
        }
        for suite, told in copied.items():
            of = e.suite(suite, method)
            rows += [_forged(e, method, told, of, "errors")] if of else []
    if not rows:
        return None
    return Table(
        "forgeries",
        "Marks over marks, averages, known payloads",
        "What is left, or what a forger gets, at the shipped threshold (the paper's where none is "
        "shipped).",
        (
            Column("Method", "who made the mark", words=True),
            Column("Attack", "what was done", words=True),
            Column("DA", "share of clips in which any mark is present"),
            Column("BA", "bit accuracy, the mean over copies where there are several"),
            Column("V_A", "share of clips that verify; of copies: for at least one of them"),
            Column("mask bits", "share of the key's mask that the known payload gave away"),
        ),
        tuple(rows),
        notes_for(rows),
    )


def _forged(
    e: Evidence, method: str, told: str, rows: Sequence[Row], errors: str
) -> tuple[Cell, ...]:
    cut = e.usual(method)
    best = [{**row, "errors": np.min(row[errors])} for row in rows if row.get(errors) is not None]
    return (
        name(titled(method)),
        Cell(told),
        figure(reached(rows, cut, "presence").value),
        figure(accuracy(rows, errors).value),
        figure(attributed(best, cut, e.rho(method), "presence").value),
        figure(accuracy(rows, "mask_errors").value),
    )


def remover(e: Evidence) -> Table | None:
    """Lay out learned removers by network and budget, beside the paper's."""
    methods = [m for m in e.methods if e.suite("remover", m)]
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        for network in sorted({row["network"] for row in e.suite("remover", method)}, reverse=True):
            heading = NETWORKS.get(network, network)
            rows.append(f"{titled(method)}: {heading}" if len(methods) > 1 else heading)
            of = [row for row in e.suite("remover", method) if row["network"] == network]
            for budget in sorted({row["budget"] for row in of}):
                rows.append(_removed(e, method, network, budget, of))
    against_host = "against the clean host"
    return Table(
        "remover",
        "Learned remover",
        "Networks trained from marked to clean audio, without the detector or the key, by training "
        "steps.",
        (
            Column("Steps", "budget of the remover's training", words=True),
            Column("DA shipped", "detection after removal, shipped threshold", "ours"),
            Column("DA 1 %", "detection after removal, the paper's threshold", "ours"),
            Column("BA", "bit accuracy after removal", "ours"),
            Column("V_A shipped", "share of clips that still verify", "ours"),
            Column("PESQ", f"of the cleaned clip {against_host}", "ours"),
            Column("STOI", f"of the cleaned clip {against_host}", "ours"),
            Column("SNR", f"of the cleaned clip {against_host}, dB", "ours"),
            *(Column(c, PUBLISHED, "paper") for c in ("DA", "BA", "PESQ", "STOI", "SNR")),
        ),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def _removed(
    e: Evidence, method: str, network: str, budget: int, rows: Sequence[Row]
) -> tuple[Cell, ...]:
    of = [row for row in rows if row["budget"] == budget]
    blank = (Cell(kind="published"),) * 5
    theirs = paper.REMOVER.get(budget) if network == "unet" else None
    da = theirs[0] if theirs and method == "keybound" else None
    ba = theirs[1] if theirs and method == "keybound" else None
    shipped, clean = (e.threshold(method, which) for which in (SHIPPED, CLEAN))
    return (
        name(f"{budget:,}"),
        against(reached(of, shipped).value, da, printed=2),
        against(reached(of, clean).value, da, printed=2),
        against(accuracy(of).value, ba, printed=2),
        figure(attributed(of, shipped, e.rho(method)).value),
        figure(numbers(of, "pesq").value, 2),
        figure(numbers(of, "stoi").value),
        figure(numbers(of, "snr_db").value, 1),
        *(
            (published(v, n) for v, n in zip(theirs, (2, 2, 2, 2, 1), strict=True))
            if theirs
            else blank
        ),
    )


def host_binding(e: Evidence) -> Table | None:
    """Lay out how alike carriers on different hosts are, on the waveform and as gains."""
    methods = [*e.in_suite("carrier")]
    methods += [m for m in e.study("ablation/") if e.suite("carrier", m)]
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        by_domain = {row["domain"]: row for row in e.suite("carrier", method)}
        theirs = paper.HOST_BINDING.get(method, (None, None))
        cells = [name(titled(method))]
        for domain in ("waveform", "gain-field"):
            for measure, told in zip(("correlation", "cosine"), theirs, strict=True):
                beside = told if domain == "waveform" and method == "keybound" else None
                value = by_domain.get(domain, {}).get(measure)
                cells.append(against(value, beside, printed=2, lower_is_better=True))
        hosts = max((int(row.get("hosts", 0)) for row in by_domain.values()), default=0)
        rows.append((*cells, Cell(str(hosts)), *(published(told, 2) for told in theirs)))
    pairs = "mean over pairs of hosts"
    return Table(
        "host-binding",
        "Host binding",
        "Similarity of carriers across hosts at a fixed payload and key; lower is more bound.",
        (
            Column("Method", "who made the mark", words=True),
            Column("corr.", f"correlation of marked − host, {pairs}", "waveform"),
            Column("cosine", f"cosine of marked − host, {pairs}", "waveform"),
            Column("corr.", f"correlation of log |marked| / |host|, {pairs}", "gain field"),
            Column("cosine", f"cosine of log |marked| / |host|, {pairs}", "gain field"),
            Column("hosts", "clips compared with each other"),
            Column("corr.", PUBLISHED, "paper"),
            Column("cosine", PUBLISHED, "paper"),
        ),
        tuple(rows),
        notes_for(rows),
    )


def other_audio(e: Evidence) -> Table | None:
    """Lay out false positives on unmarked audio that is not clean read speech."""
    methods = e.in_suite("null")
    if not methods:
        return None
    rows: Lines = []
    for method in methods:
        rows += [titled(method)] if len(methods) > 1 else []
        by_source: dict[str, list[Row]] = {}
        for row in e.suite("null", method):
            attacked = row.get("attack", "clean")
            source = str(row["source"]) + ("" if attacked == "clean" else f", {label(attacked)}")
            by_source.setdefault(source, []).append(row)
        parts = sorted(by_source.items(), key=lambda part: natural(part[0]))
        every = [row for _, of in parts for row in of]
        for source, of in [*parts, ("all of it", every)] if len(parts) > 1 else parts:
            rows.append(_heard(e, method, source, of))
    return Table(
        "other-audio",
        "False positives on other audio",
        "Presence in windows of unmarked audio that is not clean read speech.",
        (
            Column("Source", "what the audio is", words=True),
            Column("windows", "scores taken"),
            Column("hours", "length of all windows together"),
            Column("FPR", "share of windows that reach the shipped threshold", "shipped"),
            Column("95 % CI", "Clopper–Pearson interval", "shipped"),
            Column("FPR", "share of windows that reach the paper's threshold", "1 % clean"),
            Column("95 % CI", "Clopper–Pearson interval", "1 % clean"),
            Column("highest", "highest score of a window"),
        ),
        tuple(rows),
        notes_for(rows, thresholds(e, methods)),
    )


def _heard(e: Evidence, method: str, source: str, rows: Sequence[Row]) -> tuple[Cell, ...]:
    scores = [{"score": score} for row in rows for score in row["scores"]]
    reason = next((str(row["not_run"]) for row in rows if "not_run" in row), None)
    if not scores and reason:
        return (name(source), not_run(reason, 7))
    hours = sum(len(row["scores"]) * row["seconds"] for row in rows) / 3600
    cells = [name(source), Cell(f"{len(scores):,}"), figure(hours, 2)]
    for which in (SHIPPED, CLEAN):
        rate = reached(scores, e.threshold(method, which), "score")
        over = rate.value is not None and rate.value > TOO_MANY
        cells.append(figure(rate.value, 4, mark=OVER if over else "", kind="over" if over else ""))
        cells.append(Cell(between(rate.interval, 4)))
    return (*cells, figure(max(numbers(scores, "score").values, default=None), 4))
