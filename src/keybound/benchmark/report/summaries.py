"""Summaries: what rows say of a method, as rates and means. Pure functions of rows.

Rows are taken as they were measured: a missing or null measure is left out and counted, never
filled. Nothing here prints, draws or knows the paper's figures.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from keybound.benchmark.measure import metrics
from keybound.benchmark.measure.methods import STUDIES
from keybound.benchmark.measure.rows import Row, identity

SECOND = 1.0  # the clips of the main tables; other lengths have their own
NOMINAL = 0.01  # the false-positive rate that thresholds are set for
USUAL_RHO = 2  # where a method's facts are missing: the paper's rule
SHIPPED, CLEAN = "shipped", "clean"  # thresholds: the method's own, and the paper's protocol


@dataclass(frozen=True)
class Rate:
    """How many of how many."""

    hits: int
    trials: int

    @property
    def value(self) -> float | None:
        return self.hits / self.trials if self.trials else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The Clopper–Pearson interval at 95 %."""
        return metrics.interval(self.hits, self.trials) if self.trials else None


@dataclass(frozen=True)
class Mean:
    """A mean over the clips that could be scored, and how many could not."""

    values: tuple[float, ...]
    left_out: int

    @property
    def value(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def low(self) -> float | None:
        """The 5th percentile."""
        return float(np.quantile(self.values, 0.05)) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The percentile interval at 95 % over 2,000 resamplings of the clips."""
        return metrics.bootstrap(self.values) if self.values else None


@dataclass(frozen=True)
class Evidence:
    """Rows, sorted by what they are about."""

    clips: dict[tuple[str, str, float], list[Row]]  # (method, attack, seconds), by clip
    suites: dict[tuple[str, str], list[Row]]  # (suite, method)
    reasons: dict[tuple[str, str], str]  # (method, attack or suite) -> why it was not run
    older: int = 0  # rows of versions that a later one replaces
    sets: dict[str, "Evidence"] = field(default_factory=dict)  # other speech, by its name
    _cuts: dict[tuple[str, str, float], float | None] = field(default_factory=dict, repr=False)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Return the measured methods, KeyBound first, without those of the studies."""
        found = {method for method, _, _ in self.clips} | {method for _, method in self.suites}
        shown = (m for m in found if not m.startswith(STUDIES))
        return tuple(sorted(shown, key=lambda m: (m != "keybound", m != "paper", m)))

    @cached_property
    def marked_methods(self) -> tuple[str, ...]:
        """Return the measured methods with rows of attacked clips."""
        having = {method for method, attack, _ in self.clips if attack != "quality"}
        return tuple(method for method in self.methods if method in having)

    def study(self, prefix: str) -> tuple[str, ...]:
        """Return the methods of a study: by number where they have one, baseline first."""
        found = {m for m, _, _ in self.clips} | {m for _, m in self.suites}
        return tuple(sorted((m for m in found if m.startswith(prefix)), key=_study_order))

    def attacks(self, method: str, seconds: float | None = SECOND) -> tuple[str, ...]:
        """Return the attacks that a method was measured under, noise-5 before noise-10."""
        found = {
            attack
            for m, attack, length in self.clips
            if m == method and attack != "quality" and seconds in (None, length)
        }
        return tuple(sorted(found, key=natural))

    def rows(self, method: str, attack: str, seconds: float = SECOND) -> list[Row]:
        """Return the rows of a method under an attack, in order of their clips."""
        return self.clips.get((method, attack, seconds), [])

    def suite(self, suite: str, method: str) -> list[Row]:
        """Return the rows of a security suite."""
        return self.suites.get((suite, method), [])

    def in_suite(self, suite: str) -> tuple[str, ...]:
        """Return the measured methods that a suite has rows of."""
        return tuple(method for method in self.methods if (suite, method) in self.suites)

    def facts(self, method: str) -> Row:
        """Return what a method says of itself; nothing where it said nothing."""
        return (self.suite("method", method) or [{}])[-1]

    def rho(self, method: str) -> int:
        """Return the wrong bits that a method's attribution tolerates."""
        return int(self.facts(method).get("rho", USUAL_RHO))

    def bits(self, method: str) -> int | None:
        """Return the bits of a method's payload."""
        if "bits" in self.facts(method):
            return int(self.facts(method)["bits"])
        found = (rows[0].get("bits") for (m, _, _), rows in self.clips.items() if m == method)
        return next((int(bits) for bits in found if bits is not None), None)

    def keyed(self, method: str) -> bool:
        """Return whether a method has a key."""
        return bool(self.facts(method).get("keyed", method == "keybound"))

    def threshold(self, method: str, which: str, seconds: float = SECOND) -> float | None:
        """Return the shipped threshold, or the one that holds clean unmarked clips to 1 %."""
        if which == SHIPPED:
            told = self.facts(method).get("threshold")
            return None if told is None else float(told)
        key = (method, which, seconds)
        if key not in self._cuts:
            scores = numbers(self.rows(method, "clean", seconds), "unmarked").values
            self._cuts[key] = metrics.threshold_at(scores, NOMINAL) if scores else None
        return self._cuts[key]

    def usual(self, method: str, seconds: float = SECOND) -> float | None:
        """Return the shipped threshold, or the paper's where a method ships none."""
        shipped = self.threshold(method, SHIPPED)
        return self.threshold(method, CLEAN, seconds) if shipped is None else shipped


def gather(rows: Iterable[Row]) -> Evidence:
    """Sort rows by what they are about; of a row measured twice the later one counts.

    Of a method with several versions only the one of its last row is kept. Rows of other speech
    than the main set are kept apart.
    """
    rows = list(rows)
    newest = {row["method"]: row["version"] for row in rows if row.get("version")}
    current = [r for r in rows if not r.get("version") or r["version"] == newest[r["method"]]]
    apart: dict[str, list[Row]] = {}
    for row in current:
        apart.setdefault(row.get("speech", ""), []).append(row)
    main = _sorted(apart.pop("", []))
    sets = {name: _sorted(apart[name]) for name in sorted(apart)}
    return replace(main, older=len(rows) - len(current), sets=sets)


def _sorted(rows: Iterable[Row]) -> Evidence:
    kept = {(identity(row), "reason" in row): row for row in rows}
    clips: dict[tuple[str, str, float], list[Row]] = {}
    suites: dict[tuple[str, str], list[Row]] = {}
    reasons: dict[tuple[str, str], str] = {}
    for row in kept.values():
        method = str(row["method"])
        if "reason" in row:
            reasons[method, str(row.get("attack") or row.get("suite") or "")] = str(row["reason"])
        elif "suite" in row:
            suites.setdefault((str(row["suite"]), method), []).append(row)
        else:
            seconds = float(row.get("seconds", SECOND))
            clips.setdefault((method, str(row["attack"]), seconds), []).append(row)
    for group in (*clips.values(), *suites.values()):
        group.sort(key=lambda row: (row.get("clip", 0), row.get("seed", 0)))
    return Evidence(clips, suites, reasons)


def natural(name: str) -> list[tuple[bool, float, str]]:
    """Return a key that sorts the numbers in names by their size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(i % 2 == 1, float(p) if i % 2 else 0.0, p) for i, p in enumerate(parts)]


def _study_order(method: str) -> tuple[bool, float, str]:
    rest = method.partition("/")[2]
    try:
        return (False, float(rest.partition("-")[0]), rest)
    except ValueError:
        return (rest != "baseline", math.inf, rest)


def numbers(rows: Iterable[Row], measure: str) -> Mean:
    """Return the values of a measure, counting the rows that have none."""
    told = [row.get(measure) for row in rows]
    values = tuple(float(v) for v in told if v is not None and math.isfinite(v))
    return Mean(values, len(told) - len(values))


def reached(rows: Iterable[Row], threshold: float | None, side: str = "marked") -> Rate:
    """Return how many scores reach a threshold: DA of the marked side, FPR of the unmarked."""
    if threshold is None:
        return Rate(0, 0)
    scores = numbers(rows, side).values
    return Rate(sum(score >= threshold for score in scores), len(scores))


def attributed(
    rows: Iterable[Row], threshold: float | None, rho: int, score: str = "marked"
) -> Rate:
    """Return how many clips the rule V_A accepts: presence, and at most `rho` wrong bits."""
    if threshold is None:
        return Rate(0, 0)
    told = [
        (row[score] >= threshold and row["errors"] <= rho)
        for row in rows
        if row.get(score) is not None and row.get("errors") is not None
    ]
    return Rate(sum(told), len(told))


def accuracy(rows: Iterable[Row], errors: str = "errors") -> Mean:
    """Return the bit accuracy of each clip; a list of errors counts by its mean."""
    rows = list(rows)
    values = tuple(
        1 - float(np.mean(row[errors])) / row["bits"] for row in rows if row.get(errors) is not None
    )
    return Mean(values, len(rows) - len(values))


def bound(bits: int, rho: int) -> float:
    """Return beta: how often uniform bits lie within `rho` of a payload (the paper's Prop. 2)."""
    near = sum(math.comb(bits, wrong) for wrong in range(rho + 1))
    return float(near / (1 << bits))


def total_left_out(means: Sequence[tuple[str, Mean]]) -> str:
    """Return how many clips each measure could not score; nothing where all were scored."""
    return ", ".join(f"{label} {mean.left_out}" for label, mean in means if mean.left_out)
