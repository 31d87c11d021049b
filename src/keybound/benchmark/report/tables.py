"""Tables: every table that rows give, in order, and the two files that hold them.

A pure function of the rows: no dates, no machine, so the same rows always give the same bytes and
CI can make them again. A table without rows is left out and named in the index, never filled.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import (
    tables_attacks,
    tables_channels,
    tables_keys,
    tables_quality,
    tables_seals,
    tables_security,
    tables_studies,
)
from keybound.benchmark.report.layout import Table, check, latex, markdown
from keybound.benchmark.report.summaries import Evidence, gather

TABLES: dict[str, Callable[[Evidence], Table | None]] = {
    "At a glance": tables_studies.glance,
    "Robustness": tables_attacks.robustness,
    "Attribution": tables_attacks.attribution,
    "False-positive control": tables_attacks.false_positives,
    "False positives on other audio": tables_security.other_audio,
    "No-key reading and transplants": tables_keys.security,
    "Right key, no key, wrong keys": tables_keys.wrong_key,
    "V_A and β by tolerance": tables_keys.tolerance,
    "β by payload length": tables_keys.beta,
    "Marks over marks, averages, known payloads": tables_security.forgeries,
    "Learned remover": tables_security.remover,
    "Host binding": tables_security.host_binding,
    "Sealed evidence": tables_seals.sealed,
    "False acceptance of seals": tables_seals.false_acceptance,
    "Forgery and removal of seals": tables_seals.forgery,
    "Copied marks": tables_seals.copies,
    "Quality with and without a seal": tables_seals.cost,
    "Quality of the marked clips": tables_quality.quality,
    "Re-synthesis": tables_channels.resynthesis,
    "Compound attacks": tables_attacks.compound,
    "Every pair of the catalogue": tables_attacks.pairs,
    "What users meet": tables_channels.everyday,
    "RAW-Bench strict": tables_channels.raw_bench,
    "AudioMarkBench": tables_channels.audiomarkbench,
    "Longer clips": tables_attacks.lengths,
    "Other speech": tables_channels.other_speech,
    "Damage of each attack": tables_channels.damage,
    "Confidence intervals": tables_quality.intervals,
    "Confidence intervals by attack": tables_quality.attack_intervals,
    "Ablation": tables_studies.ablation,
    "Payload length": tables_studies.payload_length,
    "Operating point": tables_studies.operating_point,
    "Attack configuration": tables_channels.configuration,
    "Speed": tables_quality.speed,
    "Not run": tables_quality.missing,
}
FILES = ("tables.md", "tables.tex")
PREAMBLE = """% Made from the rows by `keybound bench tables`: do not edit.
% Needs booktabs, graphicx and amssymb."""


def make_tables(rows: Iterable[Row]) -> tuple[list[Table], list[str]]:
    """Make every table that the rows give, and name those that have no rows yet."""
    evidence = gather(rows)
    tables, empty = [], []
    for title, make in TABLES.items():
        table = make(evidence)
        if table is None:
            empty.append(title)
        else:
            tables.append(check(table))
    return tables, empty


def render(rows: Iterable[Row]) -> dict[str, str]:
    """Return the text of each file of tables."""
    rows = list(rows)
    tables, empty = make_tables(rows)
    older = gather(rows).older
    index = [f"- [{table.title}](#{anchor(table.title)})" for table in tables]
    index += [f"- {title}: no rows yet" for title in empty]
    head = "# Tables\n\nMade from the rows by `keybound bench tables`: do not edit.\n"
    if older:
        head += f"\n{older:,} rows of earlier versions are left out.\n"
    parts = [head, "\n".join(index) + "\n", *(markdown(table) for table in tables)]
    without = [f"% {title}: no rows yet" for title in empty]
    source = [*(latex(table) for table in tables)]
    return {
        "tables.md": "\n".join(parts),
        "tables.tex": "\n".join(["\n".join([PREAMBLE, *without]) + "\n", *source]),
    }


def anchor(title: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def write_tables(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Write the files of tables into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in render(rows).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        written.append(folder / name)
    return written


def check_tables(rows: Iterable[Row], folder: Path) -> list[str]:
    """Name the files of tables that differ from what the rows give, or are not there."""
    return [
        name
        for name, text in render(rows).items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    ]
