"""Samples: what rows say of a method, as rates and means. Pure functions of rows.

Rows are taken as they were measured: a missing or null measure is left out and counted, never
filled.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.stats

from keybound.benchmark.measure.rows import Row

RHO = 2  # wrong bits that attribution tolerates where nothing else is said: the paper's
USUAL = "usual"  # the threshold in use where no other is named
RESAMPLES = 2000  # of a bootstrap


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
        if not self.trials:
            return None
        found = scipy.stats.binomtest(self.hits, self.trials).proportion_ci(0.95, method="exact")
        return float(found.low), float(found.high)


@dataclass(frozen=True)
class Mean:
    """A mean over the clips that could be scored, and how many could not."""

    values: tuple[float, ...]
    left_out: int

    @property
    def trials(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def low(self) -> float | None:
        """The 5th percentile."""
        return float(np.quantile(self.values, 0.05)) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The percentile interval at 95 % over resampled clips, the same on every run."""
        if not self.values:
            return None
        picked = np.random.default_rng(0).integers(self.trials, size=(RESAMPLES, self.trials))
        low, high = np.quantile(np.array(self.values)[picked].mean(axis=1), [0.025, 0.975])
        return float(low), float(high)


@dataclass(frozen=True)
class Sample:
    """Rows of one method, with its thresholds and the wrong bits that it tolerates."""

    rows: Sequence[Row]
    cuts: Mapping[str, float | None] = field(default_factory=dict)
    rho: int = RHO

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def score(self) -> str:
        """The presence score of marked clips: rows of security suites have no unmarked side."""
        return "marked" if self.rows and "marked" in self.rows[0] else "presence"

    def where(self, **wanted: Any) -> "Sample":
        """Return the rows that have these values."""
        found = [r for r in self.rows if all(r.get(k) == value for k, value in wanted.items())]
        return replace(self, rows=found)

    def by(self, *keys: str) -> list[tuple[Any, "Sample"]]:
        """Return the rows by their values of some keys, in order; of one key the value itself."""
        parts: dict[Any, list[Row]] = {}
        for row in self.rows:
            value = tuple(row[key] for key in keys)
            parts.setdefault(value if len(keys) > 1 else value[0], []).append(row)
        return [(value, replace(self, rows=parts[value])) for value in sorted(parts)]

    def mean(self, measure: str) -> Mean:
        """Return the mean of a measure, counting the rows that have none."""
        found = [row.get(measure) for row in self.rows]
        values = tuple(float(v) for v in found if v is not None and math.isfinite(v))
        return Mean(values, len(found) - len(values))

    def accuracy(self, errors: str = "errors") -> Mean:
        """Return the bit accuracy over clips; a list of errors counts by its mean."""
        known = [row for row in self.rows if row.get(errors) is not None]
        values = tuple(1 - float(np.mean(row[errors])) / row["bits"] for row in known)
        return Mean(values, len(self) - len(values))

    def share(self, flag: str) -> float | None:
        """Return the share of rows of which something is true."""
        found = [bool(row[flag]) for row in self.rows if row.get(flag) is not None]
        return Rate(sum(found), len(found)).value

    def reached(self, which: str = USUAL, side: str = "") -> Rate:
        """Return how many scores reach a threshold: DA of the marked side, FPR of the unmarked."""
        cut, scores = self.cuts[which], self.mean(side or self.score).values
        if cut is None:
            return Rate(0, 0)
        return Rate(sum(score >= cut for score in scores), len(scores))

    def verified(self, which: str = USUAL, rho: int | None = None) -> Rate:
        """Return how many clips the rule V_A accepts: presence, and at most `rho` wrong bits."""
        cut, most = self.cuts[which], self.rho if rho is None else rho
        if cut is None:
            return Rate(0, 0)
        accepted = [
            row[self.score] >= cut and row["errors"] <= most
            for row in self.rows
            if row.get(self.score) is not None and row.get("errors") is not None
        ]
        return Rate(sum(accepted), len(accepted))

    def matched(self, rate: float) -> float | None:
        """Return DA at a threshold that lets this share of equally attacked clips pass."""
        scores = self.mean("unmarked").values
        cut = threshold_at(scores, rate) if scores else None
        return replace(self, cuts={USUAL: cut}).reached().value


def threshold_at(scores: Sequence[float], rate: float) -> float:
    """Return the lowest threshold that at most this share of unmarked scores reaches."""
    ordered = np.sort(np.asarray(scores, np.float64))[::-1]
    return float(np.nextafter(ordered[int(rate * len(ordered))], np.inf))
