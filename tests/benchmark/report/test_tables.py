"""Tables: figures from rows, what is marked, what is left out, and the bytes of the files."""

import re

import made_rows
import numpy as np
import pytest
from made_tables import clip, line, named

from keybound.benchmark.report import layout
from keybound.benchmark.report.descriptions import DESCRIPTIONS
from keybound.benchmark.report.layout import Cell
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, gather
from keybound.benchmark.report.tables import make_tables, render
from keybound.model.networks import shipped

Row = made_rows.Row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return made_rows.all_rows(12)


def test_every_table_is_made_and_fits(rows: list[Row]) -> None:
    tables, empty = make_tables(rows)
    assert empty == ["Every pair of the catalogue"]
    titles = [described.title for described in DESCRIPTIONS.values()]
    assert [table.title for table in tables] == [title for title in titles if title not in empty]
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert table.rows
        assert all(column.help for column in table.columns)


def test_rates_of_a_few_clips() -> None:
    made = [clip("clean", n, 0.9, n / 1000, 0) for n in range(100)]
    made += [clip("echo", n, 0.6 if n < 3 else 0.04, 0.7 if n == 0 else 0.0, n) for n in range(4)]
    evidence = gather([*made, made_rows.facts("keybound", 0.5)])
    echo = evidence.of("keybound", "echo")
    assert echo.reached().value == 0.75
    assert echo.reached(side="unmarked").value == 0.25
    assert echo.accuracy().value == pytest.approx(1 - 1.5 / 16)
    assert echo.verified(rho=1).value == 0.5
    assert evidence.threshold("keybound", SHIPPED) == 0.5
    cut = evidence.threshold("keybound", CLEAN)
    assert cut is not None
    assert sum(row["unmarked"] >= cut for row in evidence.rows("keybound", "clean")) == 1
    table = named([*made, made_rows.facts("keybound", 0.5)], "robustness")
    cells = line(table, "Echo")
    assert cells["KeyBound: DA shipped"] == Cell("0.750", layout.BEHIND, "behind")
    assert cells["KeyBound, paper: BA"] == Cell("0.994", kind="published")
    alarms = line(named([*made, made_rows.facts("keybound", 0.5)], "false-positives"), "Echo")
    assert alarms["set beforehand: FPR shipped"] == Cell("0.250", layout.OVER, "over")
    assert alarms["set on the same attack: matched 1 %"].text == "0.000"
    assert alarms["set on the same attack: lowest marked"].text == "0.040"
    assert alarms["set on the same attack: highest unmarked"].text == "0.700"


def test_encodec_keeps_its_row_and_lyra_stands_beside_it(rows: list[Row]) -> None:
    table = named(rows, "robustness")
    own = line(table, "EnCodec (6 kbps)")
    assert own["KeyBound: DA shipped"].text == "not run: weights absent"
    assert own["KeyBound: DA shipped"].span == 3
    assert own["KeyBound, paper: BA"].text == "0.982"
    lyra = line(table, "Lyra (6 kbps), in EnCodec's place")
    assert lyra["KeyBound, paper: BA"] == Cell("0.982", layout.STANDS_IN, "published")
    assert "WavMark, published: DA" in lyra


def test_a_method_without_a_threshold_has_the_papers_alone(rows: list[Row]) -> None:
    heads = [f"{c.group}: {c.label}" for c in named(rows, "robustness").columns]
    assert "KeyBound: DA shipped" in heads
    assert "Perth: DA shipped" not in heads
    assert "Perth: DA 1 %" in heads


def test_what_a_measure_cannot_score_is_left_out_and_counted() -> None:
    made = made_rows.quality_rows("keybound", 8)
    made[0]["stoi"] = float("nan")
    cells = line(named(made, "quality"), "KeyBound")
    scored = [row["pesq"] for row in made if row["pesq"] is not None]
    assert cells["PESQ: mean"].text == f"{sum(scored) / len(scored):.2f}"
    assert cells["left out"].text == "PESQ 1, STOI 1"
    assert cells["PESQ: 5 %"].text == f"{np.quantile(scored, 0.05):.2f}"
    assert cells["Zimtohrli: mean"].text == "4.50"
    assert cells["Δ DNSMOS"].text == "−0.05"


def test_combined_copies_and_gradient_steps(rows: list[Row]) -> None:
    table = named(rows, "collusion")
    mean, drawn = (
        dict(zip((f"{c.group}: {c.label}" for c in table.columns), cells, strict=True))
        for cells in table.rows
    )
    assert [mean[k].text for k in (": Copies", "V_A: a copy's", "V_A: framed")] == [
        "2",
        "1.000",
        "0.000",
    ]
    assert mean["V_A: others"].text == "0.0100"  # 2 of 200, whatever the clip
    assert [mean[f"seal: {k}"].text for k in ("a copy's", "framed")] == ["1.000", "0.000"]
    assert [drawn[f"V_A: {k}"].text for k in ("a copy's", "framed")] == ["0.000", "0.500"]
    table = named(rows, "gradient")
    removed, created = (
        line(table, "remove the mark"),
        line(table, "mark an unmarked clip for a party"),
    )
    assert [removed[k].text for k in ("DA", "usual", "owner: V_A", "owner: seal")] == [
        "0.000",
        "1.000",
        "0.000",
        "1.000",
    ]
    assert removed["forged: V_A"].text == created["owner: V_A"].text == "–"
    assert [created[k].text for k in ("usual", "forged: V_A", "forged: seal")] == [
        "0.000",
        "1.000",
        "0.000",
    ]


def test_only_the_newest_version_counts_and_the_rest_is_told() -> None:
    old = [clip("clean", n, 0.1, 0.0, 8) for n in range(5)]
    new = [clip("clean", n, 0.9, 0.0, 0) | {"version": "2"} for n in range(3)]
    evidence = gather([*old, *new])
    assert len(evidence.rows("keybound", "clean")) == 3
    assert evidence.older == 5
    assert "5 rows of earlier versions" in render([*old, *new])["tables.md"]


def test_a_row_measured_twice_counts_once() -> None:
    evidence = gather([clip("clean", 0, 0.1, 0.0, 8), clip("clean", 0, 0.9, 0.0, 0)])
    assert [row["marked"] for row in evidence.rows("keybound", "clean")] == [0.9]


def test_lengths_do_not_mix() -> None:
    made = [clip("clean", 0, 0.9, 0.0, 4), clip("clean", 0, 0.9, 0.0, 0, seconds=3.0)]
    cells = line(named(made, "lengths"), "Clean")
    assert cells["1 s: BA"].text == "0.750"
    assert cells["3 s: BA"].text == "1.000"
    assert line(named(made, "robustness"), "Clean")["KeyBound: BA"].text == "0.750"


def test_longer_excerpts_stand_apart_and_beside_others_in_quality() -> None:
    longer = {"method": "excerpt/3", "seconds": 3.0}
    made = [clip("clean", 0, 0.9, 0.0, 4), clip("quality", 0, 0, 0, 0, pesq=4.0)]
    made += [clip("clean", n, 2.5 - n, 1.6 * n, n, **longer) for n in (0, 1)]
    made += [clip("quality", 0, 0, 0, 0, pesq=4.5, **longer), made_rows.facts("excerpt/3", 1.55)]
    cells = line(named(made, "excerpts"), "Clean")
    assert [cells[c].text for c in ("DA", "FPR", "V_A")] == ["0.500", "0.500", "0.500"]
    assert line(named(made, "quality"), "KeyBound, --excerpt 3")["PESQ: mean"].text == "4.50"
    assert line(named(made, "robustness"), "Clean")["KeyBound: BA"].text == "0.750"


def test_security_tables(rows: list[Row]) -> None:
    keys = [row for row in rows if row.get("suite") == "keys"]
    table = named(rows, "wrong-key")
    wrong = line(table, "Wrong keys")
    assert wrong["tries"].text == str(10 * len(keys))
    assert wrong["β"].text == "2.1×10⁻³"
    assert re.fullmatch(r"0\.\d{3} ± 0\.\d{3}", wrong["BA"].text)
    assert line(table, "Right key")["BA"].text == "1.000"
    assert line(named(rows, "security"), "WavMark")["no-key BA"].text == "public"
    assert line(named(rows, "remover"), "4,000")["paper: DA"].text == "0.17"
    heard = named(rows, "other-audio")
    assert line(heard, "attacked-speech, EnCodec (6 kbps)")["windows"].kind == "absent"
    assert line(heard, "all of it")["windows"].text == "1,200"
    forged = [row for row in named(rows, "forgeries").rows if not isinstance(row, str)]
    told = {row[1].text: row for row in forged}
    assert told["average of 2 copies with different payloads"][4].text == "0.000"  # none within rho
    assert told["the code as anyone reads it, put on another host"][4].text == "1.000"


def test_configuration_tells_rows_with_other_parameters() -> None:
    made = [clip("echo", 0, 0.9, 0.0, 0, parameters={"delay_s": 0.1, "decay": 0.4})]
    assert not named(made, "configuration").notes
    made.append(clip("echo", 1, 0.9, 0.0, 0, parameters={"delay_s": 0.2, "decay": 0.4}))
    assert "echo" in named(made, "configuration").notes[0]


def test_many_pairs_stand_in_a_square() -> None:
    first = ("noise-20", "lowpass", "gain", "mp3", "echo")
    chains = tuple(f"{a}+{b}" for a in first for b in first if a != b)
    made = made_rows.clip_rows("keybound", ("clean", *chains), 3)
    assert len(named(made, "pairs").columns) == 1 + len(first)
    assert all("Other" not in row for row in named(made, "compound").rows if isinstance(row, str))


def test_rows_of_other_weights_than_the_shipped_are_labelled() -> None:
    ours = shipped().card.weights
    for version, said in ((f"{ours}+seal-1", "shipped"), ("0430f6bd809a", "not the shipped ones")):
        rows = [clip("clean", n, 0.9, 0.1, 0) | {"version": version} for n in range(3)]
        cells = line(named(rows, "weights"), "KeyBound")
        assert (cells["Version"].text, cells["Weights"].text) == (version, said)
        assert cells["Rows"].text == "3"
