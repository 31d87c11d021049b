"""Tables of security: marks over marks and forgeries, removers, host binding, other audio."""

from dataclasses import replace
from typing import Any

import numpy as np

from keybound.benchmark.measure.samples import Sample
from keybound.benchmark.report import paper
from keybound.benchmark.report.grid import Rows, grid, rate_of_alarms, stacked
from keybound.benchmark.report.labels import PUBLISHED, label, thresholds, titled
from keybound.benchmark.report.layout import BLANK, Table, between, not_run
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, Evidence, natural

NETWORKS = {"unet": "U-net on the waveform (the paper's)", "gains": "network that predicts gains"}
COPIED = {
    "known-payload": "one known payload gives the mask: another payload, another host",
    "replay": "the code as anyone reads it, put on another host",
}


def forgeries(e: Evidence) -> Table | None:
    """Return marking over a mark, averaging of copies and what a known payload gives."""
    rows: Rows = []

    def add(method: str, told: str, of: Sample, errors: str = "errors") -> None:
        known = [row for row in of.rows if row.get(errors) is not None]
        best = replace(of, rows=[{**row, "errors": np.min(row[errors])} for row in known])
        figures = (of.reached(), of.accuracy(errors), best.verified(), of.accuracy("mask_errors"))
        rows.extend([(titled(method), told, *(one.value for one in figures))] if of else [])

    for method in e.methods:
        for which in ("first", "second"):
            told = f"marked again with another key: the {which} mark"
            add(method, told, e.suite("re-embed", method), which)
        for copies, of in e.suite("average", method).by("copies"):
            add(method, f"average of {copies} copies with different payloads", of)
        for name, told in COPIED.items():
            add(method, told, e.suite(name, method))
    return grid(
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
    methods = e.in_suite("remover")
    rows: Rows = []
    for method in methods:
        for network, every in reversed(e.suite("remover", method).by("network")):
            heading = NETWORKS.get(network, network)
            rows.append(f"{titled(method)}: {heading}" if len(methods) > 1 else heading)
            for budget, of in every.by("budget"):
                theirs = paper.REMOVER.get(budget) if network == "unet" else None
                da, ba = theirs[:2] if theirs and method == "keybound" else (None, None)
                row: list[Any] = [f"{budget:,}", (of.reached(SHIPPED).value, da)]
                row += [(of.reached(CLEAN).value, da), (of.accuracy().value, ba)]
                row.append(of.verified(SHIPPED).value)
                row += [of.mean(key).value for key in ("pesq", "stoi", "snr_db")]
                rows.append((*row, *(theirs or (BLANK,) * 5)))
    cleaned = "of the cleaned clip against the clean host"
    return grid(
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
        paper: DA; BA; PESQ; STOI | {PUBLISHED} | 2p
        paper: SNR | {PUBLISHED} | 1p""",
        rows,
        thresholds(e, methods),
    )


def host_binding(e: Evidence) -> Table | None:
    """Return how alike carriers on different hosts are, on the waveform and as gains."""
    rows = []
    for method in (*e.in_suite("carrier"), *e.study("ablation/")):
        by_domain = {row["domain"]: row for row in e.suite("carrier", method).rows}
        if not by_domain:
            continue
        theirs = paper.HOST_BINDING.get(method, (None, None))
        pairs = (
            (by_domain.get(domain, {}).get(measure), told)
            for domain, beside in (("waveform", method == "keybound"), ("gain-field", False))
            for measure, told in zip(
                ("correlation", "cosine"), theirs if beside else (None, None), strict=True
            )
        )
        hosts = max(int(row.get("hosts", 0)) for row in by_domain.values())
        rows.append((titled(method), *pairs, hosts, *theirs))
    pair = "mean over pairs of hosts"
    return grid(
        "Similarity of carriers across hosts at a fixed payload and key; lower is more bound.",
        f"""
        Method | who made the mark
        waveform: corr. | correlation of marked − host, {pair} | 3@2<
        waveform: cosine | cosine of marked − host, {pair} | 3@2<
        gain field: corr. | correlation of log |marked| / |host|, {pair} | 3@2<
        gain field: cosine | cosine of log |marked| / |host|, {pair} | 3@2<
        hosts | clips compared with each other
        paper: corr.; cosine | {PUBLISHED} | 2p""",
        rows,
    )


def other_audio(e: Evidence) -> Table | None:
    """Return false positives on unmarked audio that is not clean read speech."""
    methods = e.in_suite("null")

    def lines(method: str) -> Rows:
        every = e.suite("null", method)
        named = [row | {"named": _source(row)} for row in every.rows]
        parts = replace(every, rows=named).by("named")
        parts.sort(key=lambda part: natural(part[0]))
        parts += [("all of it", every)] if len(parts) > 1 else []
        return [(source, *_scored(of)) for source, of in parts]

    return grid(
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


def _source(row: dict[str, Any]) -> str:
    attacked = row.get("attack", "clean")
    return str(row["source"]) + ("" if attacked == "clean" else f", {label(attacked)}")


def _scored(of: Sample) -> tuple[Any, ...]:
    windows = replace(of, rows=[{"marked": s} for row in of.rows for s in row["scores"]])
    reason = next((str(row["not_run"]) for row in of.rows if "not_run" in row), None)
    if not windows and reason:
        return (not_run(reason, 7),)
    hours = sum(len(row["scores"]) * row["seconds"] for row in of.rows) / 3600
    found: list[Any] = [f"{len(windows):,}", hours]
    for which in (SHIPPED, CLEAN):
        rate = windows.reached(which)
        found += [rate_of_alarms(rate.value, 4), between(rate.interval, 4)]
    return (*found, max(windows.mean("marked").values, default=None))
