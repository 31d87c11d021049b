"""The table of other speech: beside the test clips, at their thresholds, in no other table."""

import made_rows
from made_rows import Row
from made_tables import clip, line, named

from keybound.benchmark.report import layout
from keybound.benchmark.report.layout import Cell
from keybound.benchmark.report.summaries import gather
from keybound.benchmark.report.tables import make_tables


def test_rows_of_other_speech_change_no_other_table() -> None:
    rows = made_rows.all_rows(12)
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
