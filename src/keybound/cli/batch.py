"""The verbs of `keybound batch`: a whole corpus, over all cores or on Ray."""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keybound.cli.terminal import (
    ROLLING,
    as_json,
    counting,
    model,
    nonce,
    options,
    party_name,
    payload,
    registry,
    say,
)
from keybound.provenance.registry import default_path

if TYPE_CHECKING:
    from keybound.batch.corpus import Plan
    from keybound.batch.journal import Row
    from keybound.batch.manifest import Item
    from keybound.batch.worker import Job

CLAIM = ["party", "payload", "nonce"]  # the columns that say whose mark it is
SHOWN = 10  # failures that are named on the terminal; all are in the results


@click.group(no_args_is_help=False)
def batch() -> None:
    """Mark, detect or verify a whole corpus.

    MANIFEST is a CSV, JSONL or Parquet file with a column path (and, where wanted, out, party,
    payload, nonce), or a folder, or a glob in quotes. A run that was stopped or killed goes on
    where it was when it is started again. Exit status 0 if every file was done, 2 if some failed.
    """


manifest = click.argument("manifest", nargs=-1, required=True)
key_reference = click.option(
    "--key", "key", help="Key file, or env:NAME for an environment variable."
)
how = options(
    click.option(
        "--results",
        type=click.Path(),
        help="Results table, .parquet or .jsonl; by default named after verb and corpus.",
    ),
    click.option("--jobs", type=click.IntRange(min=1), help="Processes; by default one a core."),
    click.option(
        "--engine",
        type=click.Choice(["processes", "ray"]),
        default="processes",
        show_default=True,
        help="Where the work is done.",
    ),
    click.option("--address", help="Address of a Ray cluster; by default one is started here."),
    click.option("--dry-run", is_flag=True, help="List what would be done, and do nothing."),
    model,
    as_json,
)


@batch.command("embed")
@manifest
@options(
    click.option("--out", type=click.Path(), help="Folder for the marked files."),
    party_name,
    key_reference,
    payload,
    nonce,
    click.option("--rolling", is_flag=True, help=ROLLING),
    click.option("--force", is_flag=True, help="Replace existing output files."),
    registry,
    how,
)
def batch_embed(manifest: tuple[str, ...], out: str | None, force: bool, **rest: Any) -> None:
    """Mark every recording of MANIFEST.

    Copies go to the folder --out, in folders like their own, or where a column out says.
    """
    _batch("embed", manifest, out=out, force=force, **rest)


@batch.command("detect")
@manifest
@how
def batch_detect(manifest: tuple[str, ...], **rest: Any) -> None:
    """Say of every recording of MANIFEST whether it carries a mark."""
    _batch("detect", manifest, **rest)


@batch.command("verify")
@manifest
@options(
    party_name,
    key_reference,
    payload,
    nonce,
    click.option("--any", "anyone", is_flag=True, help="Try every registered party."),
    registry,
    how,
)
def batch_verify(manifest: tuple[str, ...], **rest: Any) -> None:
    """Say of every recording of MANIFEST whether it carries this party's mark.

    Where it does, the party's records say whether the audio is the one that was marked.
    """
    _batch("verify", manifest, **rest)


def _batch(
    verb: str,
    manifest: tuple[str, ...],
    *,
    results: str | None,
    jobs: int | None,
    engine: str,
    address: str | None,
    dry_run: bool,
    model: str | None,
    as_json: bool,
    out: str | None = None,
    force: bool = False,
    nonce: bytes = b"",
    **claims: Any,
) -> None:
    """Do what the three verbs have in common."""
    if len(manifest) > 1:
        raise click.UsageError("name one manifest, folder or glob, a glob in quotes: 'calls/*.wav'")
    if address is not None and engine != "ray":
        raise click.UsageError("--address needs --engine ray")
    from keybound.batch import corpus, executors, journal
    from keybound.batch.manifest import absolute, read

    table = Path(results or journal.default_results(verb, manifest[0]))
    path = table.with_name(f"{table.name}.journal")
    journal.check_results(table, path)
    about = {"verb": verb, "manifest": absolute(manifest[0])}
    book = journal.Journal(path, about)
    columns = {"embed": ["out", *CLAIM], "verify": CLAIM, "detect": []}[verb]
    if claims.get("anyone"):
        columns = ["nonce"]
    items = read(manifest[0], out, columns=columns)
    if nonce:
        items = [item if item.nonce else replace(item, nonce=nonce) for item in items]
    where = Path(claims.get("registry") or default_path())
    job, who = _whose(verb, model, items, **claims)
    if dry_run:
        _list(items, corpus.plan(job, items, who, book, force=force), as_json)
        return
    with book:
        planned = corpus.plan(job, items, who, book, force=force)
        if before := len(items) - len(planned.tasks):
            say(f"done before: {before} of {len(items)}")
        # A thread for each process: two in one process take more from two cores than they give.
        most = jobs or executors.cores()
        workers = max(1, min(most, len(planned.tasks)))
        with _stopping() as stop, counting(verb, len(items), before) as ended:
            spread = partial(executors.processes, jobs=workers, threads=most // workers, stop=stop)
            if engine == "ray":
                spread = partial(executors.on_ray, jobs=jobs, address=address, stop=stop)
            if planned.tasks:
                corpus.run(job, planned, book, spread, ended, where)
        count = corpus.conclude(planned, items, book, table)
        _tell_failures(items, book.rows(planned.names), count["failed"])
    if count["recurring"]:
        hint = "a registered party has one for each recording"
        say(f"sealed at one of 256 positions that recur: {count['recurring']} files ({hint})")
    told = {"detect": "{present} marked"}
    told["verify"] = "{sealed} sealed, {attributed} attributed, {other} on other audio"
    text = (
        f"{count['files']} files, {count['seconds'] / 3600:.2f} hours: {count['done']} done, "
        f"{count['failed']} failed, {count['pending']} left"
        + (f", {told[verb].format_map(count)}" if verb in told else "")
        + f"; results in {table}"
    )
    click.echo(json.dumps(count) if as_json else text)
    if stop.number:
        say("stopped; the same command goes on from here")
        sys.exit(128 + stop.number)
    sys.exit(2 if count["failed"] else 0)


def _whose(
    verb: str,
    model: str | None,
    items: "Sequence[Item]",
    *,
    name: str | None = None,
    key: str | None = None,
    payload: int | None = None,
    anyone: bool = False,
    registry: str | None = None,
    rolling: bool = False,
) -> "tuple[Job, list[int | None]]":
    """Find the claimant of each item: its own, or the one that the options name."""
    from keybound.batch import corpus
    from keybound.batch.manifest import absolute
    from keybound.batch.worker import Job
    from keybound.watermark.watermarker import Watermarker

    bits = Watermarker(model).card.bits
    folder, where = absolute(model) if model else None, Path(registry or default_path())
    if verb == "detect":
        return Job(verb, folder, ()), [None] * len(items)
    if name is not None and (key is not None or payload is not None):
        raise click.UsageError("--party brings its own key and payload")
    if anyone and (name is not None or key is not None or payload is not None):
        raise click.UsageError("--any tries every party; name none")
    if payload is not None and key is None:
        raise click.UsageError("--payload needs --key")
    if anyone:
        every, untried = corpus.everyone(where, bits)
        for one in untried:
            say(f"not tried: {one.error}")
        return Job(verb, folder, every, untried=len(untried)), [None] * len(items)
    whose, who = corpus.claimants(
        items, name=name, key=key, payload=payload, registry=where, bits=bits
    )
    return Job(verb, folder, whose, rolling), list(who)


def _list(items: "Sequence[Item]", planned: "Plan", as_json: bool) -> None:
    """Print what would be done, and which inputs are not there."""
    remaining = {task.name for task in planned.tasks}
    missing = 0
    for item, name in zip(items, planned.names, strict=True):
        there = Path(item.source).exists()
        missing += not there
        if name in remaining:
            row = {"path": item.path, "output": item.output, "exists": there}
            words = [
                item.path,
                *([item.output] if item.output else []),
                *([] if there else ["(missing)"]),
            ]
            click.echo(json.dumps(row) if as_json else "\t".join(words))
    say(f"{len(items)} files: {len(remaining)} to do, {missing} missing; nothing was done")


class _Stop:
    """Whether a signal asked to stop, and which."""

    number = 0

    def __call__(self) -> bool:
        return bool(self.number)

    def hear(self, number: int, _: object) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
        say("finishing what is under way; once more stops at once")


@contextlib.contextmanager
def _stopping() -> Iterator[_Stop]:
    """Let the first SIGINT or SIGTERM end the run in order, and a second one at once."""
    stop = _Stop()
    before = {n: signal.signal(n, stop.hear) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_failures(items: "Sequence[Item]", rows: "Iterator[Row]", failed: int) -> None:
    """Name the first few that failed."""
    if not failed:
        return
    wrong = ((item, row) for item, row in zip(items, rows, strict=True) if row.get("error"))
    for item, row in islice(wrong, SHOWN):
        named = item.source in row["error"] or item.path in row["error"]
        say(row["error"] if named else f"{item.path}: {row['error']}")
    if failed > SHOWN:
        say(f"and {failed - SHOWN} more")
