"""Evidence: all rows, sorted by what they are about, and the samples that tables are made of.

Nothing here prints, draws or knows the paper's figures.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from keybound.benchmark.measure.methods import STUDIES
from keybound.benchmark.measure.rows import Row, identity
from keybound.benchmark.measure.samples import RHO, USUAL, Sample, threshold_at

SECOND = 1.0  # the clips of the main tables; other lengths have their own
NOMINAL = 0.01  # the false-positive rate that thresholds are set for
SHIPPED, CLEAN = "shipped", "clean"  # thresholds: the method's own, and the paper's protocol


@dataclass(frozen=True)
class Evidence:
    """Rows, sorted by what they are about."""

    clips: dict[tuple[str, str, float], list[Row]]  # (method, attack, seconds), by clip
    suites: dict[tuple[str, str], list[Row]]  # (suite, method)
    reasons: dict[tuple[str, str], str]  # (method, attack or suite) -> why it was not run
    older: int = 0  # rows of versions that a later one replaces
    sets: dict[str, "Evidence"] = field(default_factory=dict)  # other speech, by its name
    _cuts: dict[tuple[str, float], float | None] = field(default_factory=dict, repr=False)

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
        """Return the methods of a study: by number where they have one, baseline first.

        Where a method has the name of the design, `paper` of `paper/no-`, it is the baseline.
        """
        found = {m for m, _, _ in self.clips} | {m for _, m in self.suites}
        own = (m for m in found if m.startswith(prefix) or m == prefix.partition("/")[0])
        return tuple(sorted(own, key=lambda m: ("/" in m and "/baseline" not in m, natural(m))))

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

    def of(self, method: str, attack: str, seconds: float = SECOND) -> Sample:
        """Return the clips of a method under an attack."""
        return self.sample(method, self.rows(method, attack, seconds), seconds)

    def suite(self, suite: str, method: str) -> Sample:
        """Return the rows of a security suite."""
        return self.sample(method, self.suites.get((suite, method), []))

    def sample(self, method: str, rows: Sequence[Row], seconds: float = SECOND) -> Sample:
        """Return rows with what the decisions of their method depend on."""
        cuts = {which: self.threshold(method, which, seconds) for which in (SHIPPED, CLEAN, USUAL)}
        return Sample(rows, cuts, self.rho(method))

    def in_suite(self, *suites: str) -> list[str]:
        """Return the measured methods that one of the suites has rows of."""
        return [m for m in self.methods if any((suite, m) in self.suites for suite in suites)]

    def facts(self, method: str) -> Row:
        """Return what a method says of itself; nothing where it said nothing."""
        return self.suites.get(("method", method), [{}])[-1]

    def rho(self, method: str) -> int:
        """Return the wrong bits that a method's attribution tolerates."""
        return int(self.facts(method).get("rho", RHO))

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
        shipped = self.facts(method).get("threshold")
        if which == SHIPPED or (which == USUAL and shipped is not None):
            return None if shipped is None else float(shipped)
        if (method, seconds) not in self._cuts:
            scores = Sample(self.rows(method, "clean", seconds)).mean("unmarked").values
            cut = threshold_at(scores, NOMINAL) if scores else None
            self._cuts[method, seconds] = cut
        return self._cuts[method, seconds]


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
