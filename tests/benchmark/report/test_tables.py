"""Tables: figures from rows, what is marked, what is left out, and the bytes of the files."""

import random
import re
from pathlib import Path

import made_rows
import numpy as np
import pytest

from keybound.benchmark.report import layout, paper
from keybound.benchmark.report.layout import Cell, Table
from keybound.benchmark.report.summaries import CLEAN, SHIPPED, gather
from keybound.benchmark.report.tables import TABLES, check_tables, make_tables, render, write_tables
from keybound.crypto import codes
from keybound.model.networks import shipped

TEX = Path(__file__).resolve().parents[4] / "shared" / "paper" / "keybound.tex"
Row = made_rows.Row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return made_rows.all_rows(12)


def clip(
    attack: str, number: int, marked: float, unmarked: float, errors: int, **more: object
) -> Row:
    row: Row = {"method": "keybound", "version": "1", "attack": attack, "clip": number}
    row |= {"seconds": 1.0, "seed": 0, "bits": 16, "marked": marked, "unmarked": unmarked}
    return row | {"errors": errors} | more


def named(rows: list[Row], name: str) -> Table:
    return next(table for table in make_tables(rows)[0] if table.name == name)


def line(table: Table, label: str) -> dict[str, Cell]:
    """Give the cells of the first line with this label, by group and column."""
    heads = [f"{c.group}: {c.label}" if c.group else c.label for c in table.columns]
    for row in table.rows:
        if not isinstance(row, str) and row[0].text == label:
            return {
                head: cell for head, cell in zip(heads, layout.spread(row), strict=True) if cell
            }
    raise AssertionError(f"no line {label!r} in {table.name}")


def test_every_table_is_made_and_fits(rows: list[Row]) -> None:
    tables, empty = make_tables(rows)
    assert empty == ["Every pair of the catalogue"]
    assert [table.title for table in tables] == [title for title in TABLES if title not in empty]
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert table.rows
        assert all(column.help for column in table.columns)


def test_without_rows_every_table_is_named_and_none_filled(tmp_path: Path) -> None:
    tables, empty = make_tables([])
    assert not tables
    assert empty == list(TABLES)
    write_tables([], tmp_path)
    assert (tmp_path / "tables.md").read_text().count("no rows yet") == len(TABLES)


def test_same_rows_same_bytes_in_any_order(rows: list[Row]) -> None:
    shuffled = list(rows)
    random.Random(1).shuffle(shuffled)
    assert render(rows) == render(shuffled)


def test_check_names_what_differs(rows: list[Row], tmp_path: Path) -> None:
    assert check_tables(rows, tmp_path) == ["tables.md", "tables.tex"]
    write_tables(rows, tmp_path)
    assert check_tables(rows, tmp_path) == []
    (tmp_path / "tables.tex").write_text("edited")
    assert check_tables(rows, tmp_path) == ["tables.tex"]
    assert "tables.md" in check_tables(rows[:-1], tmp_path)


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


def test_rows_of_other_speech_change_no_other_table(rows: list[Row]) -> None:
    main = [row for row in rows if "speech" not in row]
    with_sets, without = make_tables(rows)[0], make_tables(main)[0]
    assert len(main) < len(rows)
    assert [table for table in with_sets if table.name != "other-speech"] == without


def test_other_speech_stands_beside_the_test_clips() -> None:
    def side(speech: dict[str, str], clips: int, wrong: int, unmarked: float) -> list[Row]:
        made = [clip("clean", n, 0.9, 0.1, 0, **speech) for n in range(clips)]
        echo = [clip("echo", n, 0.6, 0.1, 0, **speech) for n in range(clips)]
        echo[0] |= {"errors": wrong, "unmarked": unmarked, "marked": 0.45}
        kind = {"attack": "quality", "pesq": 4.5 - wrong / 100, "stoi": 0.99}
        return [*made, *echo, clip("quality", 0, 0, 0, 0, **speech) | kind]

    made = [made_rows.facts("keybound", 0.5), *side({}, 100, 0, 0.0)]
    made += side({"speech": "near"}, 50, 2, 0.0)
    made += side({"speech": "far"}, 10, 16, 0.9)
    made += [clip("clean", 0, 0.0, 0.9, 16, speech="long", seconds=3.0)]  # has no column here
    table = named(made, "other-speech")
    assert [c.group for c in table.columns][1::4] == ["test clips", "far", "near"]
    clips = line(table, "Clips")
    assert [cell.text for cell in clips.values()] == ["Clips", "100", "10", "50"]
    cells = line(table, "Echo")
    assert cells["near: BA"] == Cell("0.998")
    assert cells["near: DA"] == Cell("0.980")  # 0.990 there: near enough
    assert cells["far: BA"] == Cell("0.900", layout.BELOW, "behind")
    assert cells["far: DA"] == Cell("0.900", layout.BELOW, "behind")
    assert cells["far: V_A"] == Cell("0.900", layout.BELOW, "behind")
    assert cells["far: FPR"] == Cell("0.100", layout.OVER, "over")
    assert line(table, "Clean")["far: DA"] == Cell("1.000")
    pesq = line(table, "PESQ")
    assert pesq["near: BA"] == Cell("4.48", span=4)  # 0.02 below is not more than 0.02
    assert pesq["far: BA"] == Cell("4.34", layout.BELOW, "behind", 4)
    assert any(note.startswith(layout.BELOW) for note in table.notes)


def test_other_speech_is_judged_at_the_threshold_of_the_test_clips() -> None:
    made = [clip("clean", n, 0.9, n / 1000, 0) for n in range(100)]
    made += [clip("clean", n, 0.2, 0.5, 0, speech="other") for n in range(10)]
    cells = line(named(made, "other-speech"), "Clean")
    assert cells["other: DA"].text == "1.000"  # its own would let none through
    assert cells["other: FPR"].text == "1.000"


def test_other_speech_of_other_weights_is_left_out() -> None:
    old = [clip("clean", n, 0.9, 0.0, 0, speech="other") for n in range(4)]
    new = [clip("clean", n, 0.9, 0.0, 0) | {"version": "2"} for n in range(3)]
    assert gather([*old, *new]).older == 4
    tables, empty = make_tables([*old, *new])
    assert "Other speech" in empty
    assert "other-speech" not in [table.name for table in tables]


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


def test_the_librarys_bound_is_the_papers_beta() -> None:
    for bits, told in paper.BETA.items():
        assert layout.power(codes.bound(bits, 2)) == layout.power(told)


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


def test_markdown_and_latex_lines_have_all_columns(rows: list[Row]) -> None:
    for table in make_tables(rows)[0]:
        bars = {
            len(re.findall(r"(?<!\\)\|", text))
            for text in layout.markdown(table).splitlines()
            if text.startswith("|")
        }
        assert bars == {len(table.columns) + 1}
        for text in layout.latex(table).splitlines():
            if text.endswith(r"\\") and "multicolumn" not in text:
                assert len(re.findall(r"(?<!\\)&", text)) == len(table.columns) - 1
    assert all(files.isascii() for files in [render(rows)["tables.tex"]])


@pytest.mark.skipif(not TEX.is_file(), reason="the paper lies beside the repository only")
def test_published_figures_are_the_papers() -> None:
    text = re.sub(r"\\textbf\{([^}]*)\}|\$\^\\dagger\$|\\,", r"\1", TEX.read_text())
    for label, published in (
        ("robust", [[v for m in (*paper.PEERS, "keybound") for v in of[m]]
                    for of in paper.ROBUSTNESS.values()]),
        ("va", [[of[m][0] for m in (*paper.PEERS, "keybound")]
                for of in paper.ATTRIBUTION.values()]),
        ("fpr", [list(of) for of in paper.FALSE_POSITIVES.values()]),
        ("remover", [list(of) for of in paper.REMOVER.values()]),
        ("compound", [list(of) for of in paper.COMPOUND.values()]),
        ("heldout", [list(of) for of in paper.HELD_OUT.values()]),
        ("ablation", [list(of) for of in paper.ABLATION.values()]),
        ("hostbound", [list(of) for of in paper.HOST_BINDING.values()]),
        ("quality", [list(of) for of in paper.QUALITY.values()]),
    ):  # fmt: skip
        body = text.split(f"\\label{{tab:{label}}}")[1].split("\\end{tabular")[0]
        cells = [part.split("&")[1:] for part in body.split("\\midrule", 1)[1].split("\\\\")]
        found = [[float(c) for c in cell] for cell in cells if cell and "cmidrule" not in cell[0]]
        assert found == published, label


def test_rows_of_other_weights_than_the_shipped_are_labelled() -> None:
    ours = shipped().card.sha256["detector.onnx"][:12]
    for version, said in ((f"{ours}+seal", "shipped"), ("0430f6bd809a", "not the shipped ones")):
        rows = [clip("clean", n, 0.9, 0.1, 0) | {"version": version} for n in range(3)]
        cells = line(named(rows, "weights"), "KeyBound")
        assert (cells["Version"].text, cells["Weights"].text) == (version, said)
        assert cells["Rows"].text == "3"
