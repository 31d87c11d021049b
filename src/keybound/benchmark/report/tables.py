"""Tables: every table that rows give, in order, and the two files that hold them.

A pure function of the rows: no dates, no machine, so the same rows always give the same bytes and
CI can make them again. A table without rows is left out and named in the index, never filled.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from keybound.benchmark.measure.rows import Row
from keybound.benchmark.report import tables_adversaries as adversaries
from keybound.benchmark.report import tables_attacks as attacks
from keybound.benchmark.report import tables_channels as channels
from keybound.benchmark.report import tables_keys as keys
from keybound.benchmark.report import tables_quality as quality
from keybound.benchmark.report import tables_seals as seals
from keybound.benchmark.report import tables_security as security
from keybound.benchmark.report import tables_studies as studies
from keybound.benchmark.report.layout import Table, check, latex, markdown
from keybound.benchmark.report.summaries import Evidence, gather

# By title: the name in links, and what makes the table, or None where it has no rows.
TABLES: dict[str, tuple[str, Callable[[Evidence], Table | None]]] = {
    "At a glance": ("glance", studies.glance),
    "Robustness": ("robustness", attacks.robustness),
    "Attribution": ("attribution", attacks.attribution),
    "False-positive control": ("false-positives", attacks.false_positives),
    "False positives on other audio": ("other-audio", security.other_audio),
    "No-key reading and transplants": ("security", keys.security),
    "Right key, no key, wrong keys": ("wrong-key", keys.wrong_key),
    "V_A and β by tolerance": ("tolerance", keys.tolerance),
    "β by payload length": ("beta", keys.beta),
    "Marks over marks, averages, known payloads": ("forgeries", security.forgeries),
    "Learned remover": ("remover", security.remover),
    "Combined copies": ("collusion", adversaries.collusion),
    "Gradient steps": ("gradient", adversaries.gradient),
    "Host binding": ("host-binding", security.host_binding),
    "Sealed evidence": ("sealed", seals.sealed),
    "False acceptance of seals": ("false-acceptance", seals.false_acceptance),
    "Forgery and removal of seals": ("seal-forgery", seals.forgery),
    "Copied marks": ("seal-copy", seals.copies),
    "Quality with and without a seal": ("seal-quality", seals.cost),
    "Quality of the marked clips": ("quality", quality.quality),
    "Re-synthesis": ("resynthesis", channels.resynthesis),
    "Compound attacks": ("compound", attacks.compound),
    "Every pair of the catalogue": ("pairs", attacks.pairs),
    "What users meet": ("everyday", channels.everyday),
    "RAW-Bench strict": ("raw-bench", channels.raw_bench),
    "AudioMarkBench": ("audiomarkbench", channels.audiomarkbench),
    "Longer clips": ("lengths", attacks.lengths),
    "Other speech": ("other-speech", channels.other_speech),
    "Damage of each attack": ("damage", channels.damage),
    "Confidence intervals": ("intervals", quality.intervals),
    "Confidence intervals by attack": ("attack-intervals", quality.attack_intervals),
    "Ablation": ("ablation", studies.ablation),
    "Payload length": ("payload-length", studies.payload_length),
    "Operating point": ("operating-point", studies.operating_point),
    "Attack configuration": ("configuration", channels.configuration),
    "Speed": ("speed", quality.speed),
    "Weights measured": ("weights", quality.weights),
    "Not run": ("not-run", quality.missing),
}
PREAMBLE = """% Made from the rows by `keybound bench tables`: do not edit.
% Needs booktabs, graphicx and amssymb."""


def make_tables(rows: Iterable[Row]) -> tuple[list[Table], list[str]]:
    """Return every table that the rows have, and the titles of those without rows."""
    evidence = gather(rows)
    tables, empty = [], []
    for title, (name, make) in TABLES.items():
        if table := make(evidence):
            tables.append(check(replace(table, name=name, title=title)))
        else:
            empty.append(title)
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
    """Return the files of tables that are absent or differ from those of the rows."""
    return [
        name
        for name, text in render(rows).items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
    ]
