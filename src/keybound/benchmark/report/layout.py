"""Layout: a table as data, and its two writers, Markdown and LaTeX (booktabs).

Knows nothing of rows, methods or attacks: a table here is text in cells. Writers are pure, so the
same table always gives the same bytes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

EMPTY = "–"
OVER = "†"  # a false-positive rate above twice the nominal one
BELOW = "‡"  # a figure on other speech well below that on the main set
BEHIND = "▽"  # a figure worse than the paper's, as both are printed
STANDS_IN = "ᴱ"  # the paper's figure under EnCodec, in the row of what stands in for it

MOST_LINES = 45  # of one LaTeX table: what a page holds
COLUMN_LETTERS, PAGE_LETTERS = 55, 105  # what a line of one of two columns holds, and of a page
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "–": "--", "−": "$-$", "×": r"$\times$", "±": r"$\pm$", "→": r"$\to$", "≥": r"$\geq$",
    "≤": r"$\leq$", "<": r"$<$", ">": r"$>$", "β": r"$\beta$", "ρ": r"$\rho$", "Δ": r"$\Delta$",
    "†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$", "▽": r"$^{\triangledown}$",
    "ᴱ": r"$^{\mathrm{E}}$", "|": "$|$",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table.

    `mark` hangs behind the text; `kind` says what the figure is: "" ours, "published", "absent",
    "over" (too many false positives), "behind" (worse than the paper's, or than on the main set),
    "name".
    """

    text: str = EMPTY
    mark: str = ""
    kind: str = ""
    span: int = 1


BLANK = Cell(kind="published")  # where the paper has no figure


@dataclass(frozen=True)
class Column:
    """The head of a column, with one line of help and the group it belongs to."""

    label: str
    help: str
    group: str = ""
    words: bool = False  # set flush left


@dataclass(frozen=True)
class Table:
    """A table; a row that is a string is the heading of the rows below it."""

    name: str  # for links: lower case and hyphens
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...] | str, ...]
    notes: tuple[str, ...] = ()


def figure(value: float | None, digits: int = 3, *, kind: str = "", mark: str = "") -> Cell:
    """Return the cell of a number; nothing measured is an empty cell."""
    if value is None:
        return Cell()
    return Cell(number(value, digits), mark=mark, kind=kind)


def number(value: float, digits: int = 3) -> str:
    """Return a number with a true minus sign and no negative zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def between(interval: tuple[float, float] | None, digits: int = 3) -> str:
    """Return an interval as text."""
    if interval is None:
        return EMPTY
    return f"[{number(interval[0], digits)}, {number(interval[1], digits)}]"


def power(value: float) -> str:
    """Return a small probability as 2.1×10⁻³."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    return mantissa if int(exponent) == 0 else f"{mantissa}×10{raised}"


def against(
    value: float | None,
    published: float | None,
    digits: int = 3,
    *,
    printed: int | None = None,
    lower_is_better: bool = False,
) -> Cell:
    """Return the cell of our figure, marked where it is worse than the published one.

    Both are compared with the digits that the paper `printed`, or else with ours.
    """
    cell = figure(value, digits)
    if value is None or published is None:
        return cell
    printed = digits if printed is None else printed
    ours, theirs = round(value, printed), round(published, printed)
    worse = ours > theirs if lower_is_better else ours < theirs
    return Cell(cell.text, mark=BEHIND, kind="behind") if worse else cell


def published(value: float | None, digits: int = 3, mark: str = "") -> Cell:
    """Return the cell of a figure of the paper."""
    return figure(value, digits, kind="published", mark=mark)


def not_run(reason: str, span: int = 1) -> Cell:
    """Return the cell that says why there are no figures."""
    return Cell(f"not run: {reason}", kind="absent", span=span)


def spread(cells: Sequence[Cell]) -> Iterator[Cell | None]:
    """Return the cells by column; None where a cell before reaches over."""
    for cell in cells:
        yield cell
        yield from [None] * (cell.span - 1)


def groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Return the groups of neighbouring columns, each with how many columns it spans."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and column.group and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


def check(table: Table) -> Table:
    """Return a table; raise an error where its rows do not fit its columns."""
    for row in table.rows:
        if not isinstance(row, str) and sum(cell.span for cell in row) != len(table.columns):
            raise ValueError(f"{table.name}: a row of {row[0].text!r} does not fit the columns")
    return table


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    heads = [f"{c.group}: {c.label}" if c.group else c.label for c in table.columns]
    lines = [f"## {table.title}", "", table.caption, ""]
    lines.append(_markdown_line(heads))
    lines.append(_markdown_line([":--" if c.words else "--:" for c in table.columns]))
    for row in table.rows:
        if isinstance(row, str):
            texts = [f"*{row}*", *[""] * (len(table.columns) - 1)]
        else:
            texts = [c.text + c.mark if c else "" for c in spread(row)]
        lines.append(_markdown_line(texts))
    lines += ["", *(f"- {note}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def _markdown_line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", r"\|") for text in texts) + " |"


def latex(table: Table) -> str:
    """Return a table in LaTeX; a long one in parts that fit a page."""
    parts = [
        table.rows[start : start + MOST_LINES] for start in range(0, len(table.rows), MOST_LINES)
    ]
    return "\n".join(_latex_part(table, part, n, len(parts)) for n, part in enumerate(parts))


def _latex_part(table: Table, rows: Sequence[tuple[Cell, ...] | str], part: int, parts: int) -> str:
    count, letters = len(table.columns), _letters(table)
    wide = "*" if letters > COLUMN_LETTERS else ""
    title = table.title + (f" (part {part + 1} of {parts})" if parts > 1 else "")
    label = table.name + (f"-{part + 1}" if parts > 1 else "")
    lines = [rf"\begin{{table{wide}}}[t]", rf"\caption{{{tex(title)}. {tex(table.caption)}}}"]
    lines += [rf"\label{{tab:{label}}}", r"\centering\footnotesize"]
    fit = letters > PAGE_LETTERS
    lines += [r"\resizebox{\textwidth}{!}{%"] if fit else []
    shape = "".join("l" if column.words else "r" for column in table.columns)
    lines += [rf"\begin{{tabular}}{{{shape}}}", r"\toprule"]
    if any(column.group for column in table.columns):
        lines += _latex_groups(table.columns)
    lines.append(" & ".join(tex(column.label) for column in table.columns) + r" \\")
    lines.append(r"\midrule")
    for row in rows:
        if isinstance(row, str):
            lines.append(rf"\multicolumn{{{count}}}{{@{{}}l}}{{\emph{{{tex(row)}}}}} \\")
        else:
            lines.append(" & ".join(_latex_cell(cell) for cell in row) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += ["}"] if fit else []
    if table.notes:
        notes = " ".join(tex(note.rstrip(".") + ".") for note in table.notes)
        lines.append(rf"\par\smallskip\parbox{{0.95\linewidth}}{{\scriptsize {notes}}}")
    return "\n".join([*lines, rf"\end{{table{wide}}}"]) + "\n"


def _letters(table: Table) -> int:
    """Return about how wide a table is set: the widest cell of each column, and room between."""
    widths = [len(column.label) for column in table.columns]
    for row in table.rows:
        for place, cell in enumerate(spread(row) if not isinstance(row, str) else ()):
            if cell and cell.span == 1:
                widths[place] = max(widths[place], len(cell.text))
    at, total = 0, 0
    for group, size in groups(table.columns):
        total += max(len(group), sum(widths[at : at + size]) + 2 * (size - 1)) + 2
        at += size
    return total


def _latex_groups(columns: Sequence[Column]) -> list[str]:
    heads, rules, at = [], [], 1
    for group, size in groups(columns):
        heads.append(rf"\multicolumn{{{size}}}{{c}}{{{tex(group)}}}" if group else "")
        rules += [rf"\cmidrule(lr){{{at}-{at + size - 1}}}"] if group else []
        at += size
    return [" & ".join(heads) + r" \\", "".join(rules)]


def _latex_cell(cell: Cell) -> str:
    text = tex(cell.text + cell.mark)
    return rf"\multicolumn{{{cell.span}}}{{c}}{{{text}}}" if cell.span > 1 else text


def tex(text: str) -> str:
    """Return text escaped for LaTeX."""
    raised = re.split(r"(×10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)", text)
    return "".join(
        rf"$\times10^{{{part[3:].translate(SUPERSCRIPTS)}}}$"
        if part.startswith("×10") and len(part) > 3
        else _subscripts("".join(LATEX.get(letter, letter) for letter in part))
        for part in raised
    )


def _subscripts(text: str) -> str:
    return text.replace(r"V\_A", "$V_A$")
