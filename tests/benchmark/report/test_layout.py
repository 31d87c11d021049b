"""How tables are laid out: escapes, numbers, what does not fit."""

import pytest

from keybound.benchmark.report import layout
from keybound.benchmark.report.layout import Cell, Column, Table


def test_latex_escapes() -> None:
    assert layout.tex("50 % of V_A ≤ 2.1×10⁻³ ± 1") == (
        r"50 \% of $V_A$ $\leq$ 2.1$\times10^{-3}$ $\pm$ 1"
    )
    assert layout.tex("a_b {c} #d") == r"a\_b \{c\} \#d"
    assert layout.number(-0.0001) == "0.000"
    assert layout.number(-2.66, 1) == "−2.7"


def test_a_table_that_does_not_fit_is_refused() -> None:
    table = Table("t", "T", "", (Column("a", "h"), Column("b", "h")), ((Cell("1"),),))
    with pytest.raises(ValueError, match="does not fit"):
        layout.check(table)
