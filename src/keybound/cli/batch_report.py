"""What the verbs of `keybound batch` print: counts, plans and failures."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound.cli.terminal import say

if TYPE_CHECKING:
    from keybound.batch.corpus import Plan
    from keybound.batch.journal import Row
    from keybound.batch.manifest import Item

SHOWN = 10  # failures that are named on the terminal; all are in the results


def tell_counts(verb: str, count: "Row", table: Path, as_json: bool) -> None:
    """Print the counts of a run."""
    if count["recurring"]:
        hint = "a registered party has one for each recording"
        say(f"sealed at one of 256 positions that recur: {count['recurring']} files ({hint})")
    if count["unbound"]:
        say(f"too short for an identifier, signed without a soft binding: {count['unbound']} files")
    told = {"detect": "{present} marked"}
    told["verify"] = "{sealed} sealed, {attributed} attributed, {other} on other audio"
    told["identify"] = told["verify"]
    text = (
        f"{count['files']} files, {count['seconds'] / 3600:.2f} hours: {count['done']} done, "
        f"{count['failed']} failed, {count['pending']} left"
        + (f", {told[verb].format_map(count)}" if verb in told else "")
        + f"; results in {table}"
    )
    click.echo(json.dumps(count) if as_json else text)


def tell_plan(items: "Sequence[Item]", planned: "Plan", as_json: bool) -> None:
    """Print what would be done, and which inputs are not there."""
    remaining = {task.name for task in planned.tasks}
    missing = sum(not Path(item.source).exists() for item in items)
    for item, name in zip(items, planned.names, strict=True):
        there = Path(item.source).exists()
        if name in remaining:
            row = {"path": item.path, "output": item.output, "exists": there}
            words = filter(None, [item.path, item.output, "" if there else "(missing)"])
            click.echo(json.dumps(row) if as_json else "\t".join(words))
    say(f"{len(items)} files: {len(remaining)} to do, {missing} missing; nothing was done")


def tell_failures(items: "Sequence[Item]", rows: "Iterator[Row]", failed: int) -> None:
    """Print the errors of the first few files that failed."""
    if not failed:
        return
    wrong = ((item, row) for item, row in zip(items, rows, strict=True) if row.get("error"))
    for item, row in islice(wrong, SHOWN):
        named = item.source in row["error"] or item.path in row["error"]
        say(row["error"] if named else f"{item.path}: {row['error']}")
    if failed > SHOWN:
        say(f"and {failed - SHOWN} more")
