"""Write the figures of README.md from results/tables.md, so that no figure there is typed.

`scripts/figures.py` rewrites what stands between the marks in README.md; with --check it only says
whether that is up to date, by its exit status. Run it after `keybound bench tables`.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from keybound.benchmark.measure.rows import Row, read_rows
from keybound.model.networks import read_card

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: written by scripts/figures.py -->", "<!-- end of figures -->"
NAMES = {  # of attacks, where the tables have those of the command line
    "hifigan": "HiFi-GAN, held out",
    "speex-wb2": "Speex, quality 2, held out",
    "gsm": "GSM, 13 kbps, held out",
    "codec2-3200": "Codec2, 3.2 kbps, held out",
    "speed@0.9": "10 % slower",
    "speed@0.95": "5 % slower",
    "speed@1.05": "5 % faster",
    "speed@1.1": "10 % faster",
    "opus-24": "Opus (24 kbps)",
}
KEPT = {"keybound": "src/keybound/model/weights", "paper": "models/paper"}  # where weights are
PAPER = "the paper's design, our training"
IDENTIFIED = "KeyBound, identifier"
Cells = dict[str, str]
Table = dict[tuple[str, str], Cells]  # (heading above the row, its name) -> column -> figure


def read_tables(text: str) -> dict[str, Table]:
    """Return the tables of tables.md by title."""
    tables: dict[str, Table] = {}
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        columns = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
        heading, rows = "", Table()
        for line in lines[2:]:
            name, *cells = (cell.strip() for cell in line[1:-1].split("|"))
            if name.startswith("*"):
                heading = name.strip("*")
            else:
                rows[heading, name] = dict(zip(columns, cells, strict=False))
        tables[title] = rows
    return tables


def row_of(table: Table, name: str, heading: str | None = None) -> Cells:
    """Return a row by its name and, where several methods have it, the heading above it."""
    (found,) = (
        cells for (above, row), cells in table.items() if row == name and heading in (None, above)
    )
    return found


def figure(text: str) -> str:
    """Return a figure without the marks of the tables, and without a zero before the point."""
    return re.sub(r"^0(?=\.)", "", re.sub("[▽†‡ᴱ]", "", text))


def markdown(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """Return a table, its figures flush right."""
    lines = [heads, [":--", *("--:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def weights(rows: list[Row]) -> dict[str, str]:
    """Return which weights each method was measured with last, and where these are."""
    facts = (row for row in rows if row.get("suite") == "method")
    found = {fact["method"]: str(fact["version"]).partition("+")[0] for fact in facts}
    for method, folder in KEPT.items():
        same = read_card(ROOT / folder).weights == found[method]
        found[method] += f", in `{folder}`" if same else f", earlier than those in `{folder}`"
    return found


def both_rules(tables: dict[str, Table]) -> str:
    """Return KeyBound beside the paper, at the shipped threshold and by the paper's rule."""
    heads = "attack | BA | shipped: V_A | FPR | 1 % clean: V_A | FPR | paper: BA | V_A | FPR"

    def rows() -> Iterator[list[str]]:
        for heading, attack in tables["Robustness"]:
            bits = row_of(tables["Robustness"], attack, heading)
            rule = row_of(tables["Attribution"], attack)
            alarms = row_of(tables["False-positive control"], attack, "KeyBound")
            if "not run" in bits["KeyBound: DA shipped"]:
                continue
            yield [
                attack,
                bits["KeyBound: BA"],
                rule["KeyBound: V_A shipped"],
                alarms["set beforehand: FPR shipped"],
                rule["KeyBound: V_A 1 %"],
                alarms["set beforehand: FPR 1 %"],
                bits["KeyBound, paper: BA"],
                rule["KeyBound, paper: V_A"],
                alarms["KeyBound, paper: FPR"],
            ]

    return markdown(heads.split(" | "), (list(map(figure, row)) for row in rows()))


def own_design(tables: dict[str, Table]) -> str:
    """Return the paper's own design as trained here beside the paper, both by its rule."""
    heads = "attack | trained here: DA | BA | V_A | FPR | paper: DA | BA | V_A | FPR"

    def rows() -> Iterator[list[str]]:
        for heading, attack in tables["Robustness"]:
            bits = row_of(tables["Robustness"], attack, heading)
            rule = row_of(tables["Attribution"], attack)
            alarms = row_of(tables["False-positive control"], attack, PAPER)
            published = row_of(tables["False-positive control"], attack, "KeyBound")
            if "not run" in bits[f"{PAPER}: DA shipped"]:
                continue
            yield [
                attack,
                bits[f"{PAPER}: DA 1 %"],
                bits[f"{PAPER}: BA"],
                rule[f"{PAPER}: V_A 1 %"],
                alarms["set beforehand: FPR 1 %"],
                bits["KeyBound, paper: DA"],
                bits["KeyBound, paper: BA"],
                rule["KeyBound, paper: V_A"],
                published["KeyBound, paper: FPR"],
            ]

    return markdown(heads.split(" | "), (list(map(figure, row)) for row in rows()))


def quality(tables: dict[str, Table], versions: dict[str, str]) -> str:
    """Return the quality of the marked clips of one second by method, with the weights."""
    names = {"KeyBound": "keybound", PAPER: "paper", "Perth": "perth"}
    heads = ["method", "weights", "clips", "PESQ", "STOI", "SNR", "ViSQOL", "Zimtohrli"]

    def rows() -> Iterator[list[str]]:
        for (heading, name), cells in tables["Quality of the marked clips"].items():
            if heading in ("", "Clips of 1 s"):
                version = versions.get(names.get(name, ""), "–").partition(",")[0]
            elif heading == "As the paper published them":
                version = "as published"
            else:
                continue
            heard = cells.get("ViSQOL: mean", cells.get("ViSQOL: marked", "–"))
            columns = ("clips", "PESQ: mean", "STOI: mean", "SNR")
            shown = (*(cells[column] for column in columns), heard)
            yield [name, version, *map(figure, shown), figure(cells.get("Zimtohrli: mean", "–"))]

    return markdown(heads, rows())


def without(tables: dict[str, Table]) -> str:
    """Return which clips of one second lack a figure that the table of quality shows."""
    shown = ("PESQ", "STOI", "SNR", "ViSQOL", "Zimtohrli")
    found = [
        f"{name} has no {measure} of {number} of its clips"
        for (heading, name), cells in tables["Quality of the marked clips"].items()
        if heading in ("", "Clips of 1 s")
        for measure, number in re.findall(r"(\S+) (\d+)", cells["left out"])
        if measure in shown
    ]
    told = f"\n\nMeans are over the clips that have the figure: {'; '.join(found)}."
    return told if found else ""


def other_attacks(tables: dict[str, Table]) -> str:
    """Return chains, channels that training never saw, and speeds."""
    held_out = "Held out of training: KeyBound"

    def rows() -> Iterator[list[str]]:
        for (_, chain), cells in tables["Compound attacks"].items():
            if "not run" not in cells["KeyBound: DA shipped"]:
                kinds = ("DA shipped", "BA", "V_A shipped")
                yield [chain, *(cells[f"KeyBound: {kind}"] for kind in kinds)]
        for name in ("hifigan", "speex-wb2", "gsm", "codec2-3200"):
            cells = row_of(tables["Re-synthesis"], name, held_out)
            yield [name, *(cells[f"mark: {kind}"] for kind in ("DA shipped", "BA", "V_A shipped"))]
        for name in ("speed@0.9", "speed@0.95", "speed@1.05", "speed@1.1"):
            cells = row_of(tables["What users meet"], name)
            kinds = ("DA shipped", "BA", "V_A shipped")
            yield [name, *(cells[f"KeyBound: {kind}"] for kind in kinds)]

    named = ([NAMES.get(name, name), *map(figure, rest)] for name, *rest in rows())
    return markdown(["attack", "DA", "BA", "V_A"], named)


def seals(tables: dict[str, Table]) -> str:
    """Return the share of recordings of ten seconds whose seal is found among 256 positions."""
    table = tables["Sealed evidence"]

    def rows() -> Iterator[list[str]]:
        for heading, attack in table:
            if heading == "KeyBound":
                pattern = row_of(table, attack, heading)
                shares = [pattern["10 s: of 256"]]
                if (IDENTIFIED, attack) in table:
                    shares.append(row_of(table, attack, IDENTIFIED)["10 s: of 256"])
                yield [NAMES.get(attack, attack), *map(figure, shares)]

    more = ["identifier, with its record"] if any(one == IDENTIFIED for one, _ in table) else []
    return markdown(["attack", "pattern alone", *more], rows())


def speed(tables: dict[str, Table]) -> str:
    """Return how fast files are marked and searched, beside AudioSeal."""
    table = tables["Speed"]
    columns = ("embed: ×", "embed: of AudioSeal", "detect: ×", "detect: of AudioSeal")
    shown = ("KeyBound", "KeyBound, files", "AudioSeal", "Perth")
    made = ([name, *(figure(row_of(table, name)[c]) for c in columns)] for name in shown)
    return markdown(
        ["method", "embed: × real time", "of AudioSeal", "detect: × real time", "of AudioSeal"],
        made,
    )


def section(tables: dict[str, Table], versions: dict[str, str]) -> str:
    """Return everything between the marks."""
    return f"""{BEGIN}

### After the paper's attacks

KeyBound, weights {versions["keybound"]}.
V_A and false positives (FPR) at the threshold that ships with the weights, which was calibrated on
attacked speech, and by the paper's rule: the threshold that 1 % of the clean unmarked test clips
pass.

{both_rules(tables)}

### The paper's own design, trained here

Weights {versions["paper"]}; by the paper's rule.

{own_design(tables)}

### Quality of the marked clips

PESQ is lenient with a mark that scales the host's own spectrum; ViSQOL says that there is still
something to hear. A perfect copy has ViSQOL 4.4 and Zimtohrli 5. A landmark is no mark: it is what
a codec at so many kbps, or noise at so many dB, does to the host itself.

{quality(tables, versions)}{without(tables)}

### Chains, held-out channels, speeds

KeyBound, the same weights, shipped threshold.

{other_attacks(tables)}

### Sealed evidence on ten seconds

KeyBound, the same weights: share of recordings with `p < 1e-6`, 256 positions searched.

{seals(tables)}

### Speed

Clips of ten seconds on two cores, all in one run; `KeyBound, files` reads and writes files too.
[Other runs](docs/recordings.md#length) differ by a fifth and more.

{speed(tables)}

{END}"""


def with_figures(readme: str) -> str:
    """Return the README with the figures of the tables."""
    results = ROOT / "results"
    tables = read_tables((results / "tables.md").read_text(encoding="utf-8"))
    versions = weights(read_rows(results / "rows.jsonl"))
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + section(tables, versions) + after


def main(check: bool) -> int:
    """Write the figures, or compare them; return the exit status."""
    path = ROOT / "README.md"
    readme = path.read_text(encoding="utf-8")
    made = with_figures(readme)
    if check and made != readme:
        print("the figures of README.md are not those of results/tables.md: run scripts/figures.py")
        return 1
    path.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
