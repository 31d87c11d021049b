"""The files of tables: the same bytes from the same rows, every column in every line."""

import random
import re
from pathlib import Path

import made_rows
import pytest
from made_rows import Row

from keybound.benchmark.report import layout
from keybound.benchmark.report.descriptions import DESCRIPTIONS
from keybound.benchmark.report.tables import check_tables, make_tables, render, write_tables


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return made_rows.all_rows(12)


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


def test_without_rows_every_table_is_named_and_none_filled(tmp_path: Path) -> None:
    tables, empty = make_tables([])
    assert not tables
    assert empty == [described.title for described in DESCRIPTIONS.values()]
    write_tables([], tmp_path)
    assert (tmp_path / "tables.md").read_text().count("no rows yet") == len(DESCRIPTIONS)


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
