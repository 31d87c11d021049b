"""The paper's figures as data: copied rightly, all of them in use."""

import re
from pathlib import Path

import pytest

from keybound.benchmark.report import layout, paper
from keybound.benchmark.report.descriptions import DESCRIPTIONS
from keybound.crypto import codes

TEX = Path(__file__).resolve().parents[4] / "shared" / "paper" / "keybound.tex"
REPORT = Path(str(paper.__file__)).parent


def test_every_part_of_the_file_is_known() -> None:
    parts = {"intervals", "stand_in", "suite", "attacks", "compound", "tables", "configuration"}
    assert set(paper.DATA) == parts
    assert all(set(figures) <= set(paper.ATTACKS) for figures in paper.ROBUSTNESS.values())


def test_every_table_of_figures_is_printed_somewhere() -> None:
    source = "".join(path.read_text() for path in REPORT.glob("*.py"))
    described = {d.published for d in DESCRIPTIONS.values()}
    described |= {
        name for d in DESCRIPTIONS.values() for b in d.blocks for name in (b.paper, b.compare)
    }
    for name in (*paper.TABLES, *paper.BY_METHOD):
        assert name in described or f'["{name}"]' in source, name


def test_lines_and_columns_are_given_by_name() -> None:
    assert paper.TABLES["remover"]["unet 4000"]["DA"] == 0.17
    assert paper.column(paper.ROBUSTNESS["keybound"], "FPR")["noise-10"] == 0.803
    assert paper.stands_for("lyra-6+denoiser") == "encodec-6+denoiser"
    assert paper.suite_of(["echo", "speed", "clean"]) == ["clean", "echo"]


def test_the_librarys_bound_is_the_papers_beta() -> None:
    for bits, told in paper.column(paper.TABLES["beta"], "β").items():
        assert layout.power(codes.bound(int(bits), 2)) == layout.power(told)


@pytest.mark.skipif(not TEX.is_file(), reason="the paper lies beside the repository only")
def test_published_figures_are_the_papers() -> None:
    text = re.sub(r"\\textbf\{([^}]*)\}|\$\^\\dagger\$|\\,", r"\1", TEX.read_text())
    by_method = [*(paper.ROBUSTNESS[m] for m in paper.PEERS), paper.ROBUSTNESS["keybound"]]

    def across(columns: tuple[str, ...], methods: list[paper.Figures]) -> list[list[float]]:
        return [[of[a][c] for of in methods for c in columns] for a in methods[0]]

    def lines(name: str, *left_out: str) -> list[list[float]]:
        table = paper.TABLES[name].values()
        return [[value for k, value in of.items() if k not in left_out] for of in table]

    for label, published in (
        ("robust", across(("DA", "BA"), by_method)),
        ("va", across(("V_A",), by_method)),
        ("fpr", across(("DA", "FPR", "matched"), by_method[-1:])),
        ("remover", lines("remover")),
        ("compound", across(("DA",), [*paper.BY_METHOD["compound"].values()])),
        ("heldout", lines("held-out", "SI-SNR raw")),
        ("ablation", lines("ablation")),
        ("hostbound", lines("host-binding")),
        ("quality", lines("quality")),
    ):
        body = text.split(f"\\label{{tab:{label}}}")[1].split("\\end{tabular")[0]
        cells = [part.split("&")[1:] for part in body.split("\\midrule", 1)[1].split("\\\\")]
        found = [[float(c) for c in cell] for cell in cells if cell and "cmidrule" not in cell[0]]
        assert found == published, label
