"""Descriptions of tables as data: nothing in them is unknown, and nothing is without use."""

import re
from pathlib import Path

import pytest

from keybound.benchmark.report import descriptions, figures, values
from keybound.benchmark.report.descriptions import DATA, DESCRIPTIONS, MEASURES, PHRASES
from keybound.benchmark.report.tables import MAKERS
from keybound.benchmark.report.tables_attacks import LINES

REPORT = Path(str(descriptions.__file__)).parent
BLOCKS = [block for described in DESCRIPTIONS.values() for block in described.blocks]
HEADS = [head for described in DESCRIPTIONS.values() for head in described.heads()]


def test_every_part_of_the_file_is_known() -> None:
    assert set(DATA) == {"methods", "meters", "phrases", "measures", "tables"}
    with pytest.raises(TypeError, match="colour"):
        descriptions.Description("a", "b", "c", **{"colour": "red"})


def test_every_table_is_made_in_one_way() -> None:
    assert set(MAKERS) <= set(DESCRIPTIONS)
    for name, described in DESCRIPTIONS.items():
        assert bool(described.blocks) == (name in LINES), name
        assert bool(described.columns) != bool(described.blocks), name
        assert described.rows or described.blocks or name in MAKERS, name


def test_every_measure_and_phrase_is_used() -> None:
    assert {name for block in BLOCKS for name in block.measures} == set(MEASURES)
    text = (REPORT / "tables.toml").read_text()
    assert [phrase for phrase in PHRASES if f"{{{phrase}}}" not in text] == []
    meters = {word for head in (*HEADS, *MEASURES.values()) for word in head.value.split()}
    assert set(descriptions.METERS) <= meters


def test_every_value_is_known_and_used() -> None:
    told = [head.value for head in (*HEADS, *MEASURES.values())]
    names = {text.split()[0] for text in told if text and "{" not in text}
    assert names - {"paper"} == set(values.VALUES)


def test_forms_are_digits_words_or_nothing() -> None:
    forms = {head.form for head in (*HEADS, *MEASURES.values())} - {"{digits}"}
    form = re.compile(r"words|p|\d(@\d<?|†|p)?|")
    assert [one for one in forms if not form.fullmatch(one)] == []
    assert all(("@" in head.form) <= bool(head.compared) for head in HEADS)


def test_the_report_has_a_place_for_what_it_shows() -> None:
    assert set(figures.LOOKS) == {"sections", "figures", "colours", "style"}
    placed = [name for names in figures.LOOKS["sections"].values() for name in names]
    assert len(placed) == len(set(placed))
    drawn = {"heat-map", "frontier", "excerpt-plot", "remover-plot", "roc", "roc-others", "scores-"}
    assert set(placed) - set(DESCRIPTIONS) == drawn
    assert set(DESCRIPTIONS) - set(placed) == {"weights"}  # it stands under "More"


def test_columns_are_repeated_together() -> None:
    described = descriptions.Description(
        "a", "b", "c", [["Name", "x"], ["{k}: low", "y"], ["{k}: high", "z"], ["end", "w"]]
    )
    heads = described.heads([{"k": "p"}, {"k": "q"}])
    told = [f"{head.column.group} {head.column.label}".strip() for head in heads]
    assert told == ["Name", "p low", "p high", "q low", "q high", "end"]
