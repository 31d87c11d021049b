"""Tables of security: marks over marks and forgeries, removers, host binding, other audio.

Each function takes the evidence and returns a table, or None where there are no rows for it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import paper
from keybound.benchmark.report.grid import by, grid, rate_of_alarms, stacked
from keybound.benchmark.report.labels import PUBLISHED, label, thresholds, titled
from keybound.benchmark.report.layout import (
    BLANK,
    Table,
    between,
    not_run,
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
COPIED = {
    "known-payload": "one known payload gives the mask: another payload, another host",
    "replay": "the code as anyone reads it, put on another host",
}


def forgeries(e: Evidence) -> Table | None:
    """Return marking over a mark, averaging of copies and what a known payload gives."""
    rows: list[Any] = []

    def add(method: str, told: str, of: Sequence[Row], errors: str = "errors") -> None:
        cut, rho = e.usual(method), e.rho(method)
        best = [{**row, "errors": np.min(row[errors])} for row in of if row.get(errors) is not None]
        figures = (
            reached(of, cut, "presence").value,
            accuracy(of, errors).value,
            attributed(best, cut, rho, "presence").value,
            accuracy(of, "mask_errors").value,
        )
        rows.extend([(titled(method), told, *figures)] if of else [])

    for method in e.methods:
        for which in ("first", "second"):
            told = f"marked again with another key: the {which} mark"
            add(method, told, e.suite("re-embed", method), which)
        for copies, of in by(e.suite("average", method), "copies"):
            add(method, f"average of {copies} copies with different payloads", of)
        for name, told in COPIED.items():
            add(method, told, e.suite(name, method))
    return grid(
        "forgeries",
        "Marks over marks, averages, known payloads",
        "What is left, or what a forger gets, at the shipped threshold (the paper's where none is "
        "shipped).",
        """
        Method | who made the mark
        Attack | what was done | words
        DA | share of clips in which any mark is present | 3
        BA | bit accuracy, the mean over copies where there are several | 3
        V_A | share of clips that verify; of copies: for at least one of them | 3
        mask bits | share of the key's mask that the known payload gave away | 3""",
        rows,
    )


def remover(e: Evidence) -> Table | None:
    """Return learned removers by network and budget, beside the paper's."""
    methods = [m for m in e.methods if e.suite("remover", m)]
    rows: list[Any] = []
    for method in methods:
        shipped, clean = (e.threshold(method, which) for which in (SHIPPED, CLEAN))
        for network, every in reversed(by(e.suite("remover", method), "network")):
            heading = NETWORKS.get(network, network)
            rows.append(f"{titled(method)}: {heading}" if len(methods) > 1 else heading)
            for budget, of in by(every, "budget"):
                theirs = paper.REMOVER.get(budget) if network == "unet" else None
                da, ba = theirs[:2] if theirs and method == "keybound" else (None, None)
                row: list[Any] = [f"{budget:,}", (reached(of, shipped).value, da)]
                row += [(reached(of, clean).value, da), (accuracy(of).value, ba)]
                row.append(attributed(of, shipped, e.rho(method)).value)
                row += [numbers(of, key).value for key in ("pesq", "stoi", "snr_db")]
                rows.append((*row, *(theirs or (BLANK,) * 5)))
    cleaned = "of the cleaned clip against the clean host"
    return grid(
        "remover",
        "Learned remover",
        "Networks trained from marked to clean audio, without the detector or the key, by training "
        "steps.",
        f"""
        Steps | budget of the remover's training
        ours: DA shipped | detection after removal, shipped threshold | 3@2
        ours: DA 1 % | detection after removal, the paper's threshold | 3@2
        ours: BA | bit accuracy after removal | 3@2
        ours: V_A shipped | share of clips that still verify | 3
        ours: PESQ | {cleaned} | 2
        ours: STOI | {cleaned} | 3
        ours: SNR | {cleaned}, dB | 1
        paper: DA | {PUBLISHED} | 2p
        paper: BA | {PUBLISHED} | 2p
        paper: PESQ | {PUBLISHED} | 2p
        paper: STOI | {PUBLISHED} | 2p
        paper: SNR | {PUBLISHED} | 1p""",
        rows,
        thresholds(e, methods),
    )


def host_binding(e: Evidence) -> Table | None:
    """Return how alike carriers on different hosts are, on the waveform and as gains."""
    methods = [*e.in_suite("carrier")]
    methods += [m for m in e.study("ablation/") if e.suite("carrier", m)]
    rows = []
    for method in methods:
        by_domain = {row["domain"]: row for row in e.suite("carrier", method)}
        theirs = paper.HOST_BINDING.get(method, (None, None))
        beside = {"waveform": theirs} if method == "keybound" else {}
        pairs = (
            (by_domain.get(domain, {}).get(measure), told)
            for domain in ("waveform", "gain-field")
            for measure, told in zip(
                ("correlation", "cosine"), beside.get(domain, (None, None)), strict=True
            )
        )
        hosts = max((int(row.get("hosts", 0)) for row in by_domain.values()), default=0)
        rows.append((titled(method), *pairs, hosts, *theirs))
    pair = "mean over pairs of hosts"
    return grid(
        "host-binding",
        "Host binding",
        "Similarity of carriers across hosts at a fixed payload and key; lower is more bound.",
        f"""
        Method | who made the mark
        waveform: corr. | correlation of marked − host, {pair} | 3@2<
        waveform: cosine | cosine of marked − host, {pair} | 3@2<
        gain field: corr. | correlation of log |marked| / |host|, {pair} | 3@2<
        gain field: cosine | cosine of log |marked| / |host|, {pair} | 3@2<
        hosts | clips compared with each other
        paper: corr. | {PUBLISHED} | 2p
        paper: cosine | {PUBLISHED} | 2p""",
        rows,
    )


def other_audio(e: Evidence) -> Table | None:
    """Return false positives on unmarked audio that is not clean read speech."""
    methods = e.in_suite("null")

    def lines(method: str) -> list[tuple[Any, ...]]:
        by_source: dict[str, list[Row]] = {}
        for row in e.suite("null", method):
            attacked = row.get("attack", "clean")
            source = str(row["source"]) + ("" if attacked == "clean" else f", {label(attacked)}")
            by_source.setdefault(source, []).append(row)
        parts = sorted(by_source.items(), key=lambda part: natural(part[0]))
        every = [row for _, of in parts for row in of]
        parts += [("all of it", every)] if len(parts) > 1 else []
        return [(source, *_scored(e, method, of)) for source, of in parts]

    return grid(
        "other-audio",
        "False positives on other audio",
        "Presence in windows of unmarked audio that is not clean read speech.",
        """
        Source | what the audio is
        windows | scores taken
        hours | length of all windows together | 2
        shipped: FPR | share of windows that reach the shipped threshold
        shipped: 95 % CI | Clopper–Pearson interval
        1 % clean: FPR | share of windows that reach the paper's threshold
        1 % clean: 95 % CI | Clopper–Pearson interval
        highest | highest score of a window | 4""",
        stacked(methods, lines),
        thresholds(e, methods),
    )


def _scored(e: Evidence, method: str, rows: Sequence[Row]) -> tuple[Any, ...]:
    scores = [{"score": score} for row in rows for score in row["scores"]]
    reason = next((str(row["not_run"]) for row in rows if "not_run" in row), None)
    if not scores and reason:
        return (not_run(reason, 7),)
    hours = sum(len(row["scores"]) * row["seconds"] for row in rows) / 3600
    found: list[Any] = [f"{len(scores):,}", hours]
    for which in (SHIPPED, CLEAN):
        rate = reached(scores, e.threshold(method, which), "score")
        found += [rate_of_alarms(rate.value, 4), between(rate.interval, 4)]
    return (*found, max(numbers(scores, "score").values, default=None))
