"""Values of a line by the words of a description: of its own rows, an attack's or a suite's."""

import made_rows
import pytest

from keybound.benchmark.measure.samples import USUAL, Sample
from keybound.benchmark.report.layout import BLANK
from keybound.benchmark.report.summaries import gather
from keybound.benchmark.report.values import Line, value

ROWS = [
    {"presence": 0.9, "errors": [3, 1], "bits": 16, "a": 3.0, "b": 1.0, "kind": "x", "flags": [1]},
    {"presence": 0.2, "errors": [0, 9], "bits": 16, "a": 5.0, "b": None, "kind": "y", "flags": [0]},
]


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ("count", 2),
        ("mean a", 4.0),
        ("mean a where kind=y", 5.0),
        ("mean a-b", 2.0),  # of the rows that have both
        ("difference a b", 3.0),
        ("least a", 3.0),
        ("most a", 5.0),
        ("is kind x", 0.5),
        ("any flags", 0.5),
        ("DA", 0.5),
        ("V_A-by errors", 0.5),  # the second has no presence
        ("interval DA", "[0.013, 0.987]"),
        ("{name}: {count:,}", "line: 1,200"),
        ("paper DA", 0.7),
        ("paper BA", BLANK),
    ],
)
def test_values_of_a_lines_own_rows(told: str, wanted: object) -> None:
    facts, theirs = {"name": "line", "count": 1200}, {"DA": 0.7}
    line = Line("keybound", Sample(ROWS, {USUAL: 0.5}), facts, theirs)
    assert value(gather([]), line, told) == wanted


def test_values_of_attacks_suites_and_methods_without_a_key() -> None:
    e = gather(made_rows.all_rows(6))
    line = Line("keybound", Sample([]))
    assert value(e, line, "BA of codec") == e.of("keybound", "lyra-6").accuracy().value
    moved = e.suite("transplant", "keybound").where(attack="residual").verified().value
    assert value(e, line, "V_A in transplant where attack=residual") == moved
    assert value(e, line, "BA zero in keys or public") != "public"
    assert value(e, Line("perth", Sample([])), "BA zero in keys or public") == "public"
    with pytest.raises(KeyError, match="loudness"):
        value(e, line, "loudness of clean")
