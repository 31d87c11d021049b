"""The verbs of `keybound batch`: a whole corpus, on all cores or on Ray."""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keybound.cli import credentials
from keybound.cli.batch_report import tell_counts, tell_failures, tell_plan
from keybound.cli.declared import NEEDS_PARTY, declaring, excerpt, no_fingerprint, public
from keybound.cli.terminal import (
    Stop,
    as_json,
    counting,
    false_alarms,
    finishing,
    model,
    nonce,
    open_registry,
    options,
    party_name,
    payload,
    registry,
    say,
    speed,
)
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.registry import default_place

if TYPE_CHECKING:
    from keybound.batch.corpus import Plan
    from keybound.batch.job import Job
    from keybound.batch.journal import Journal
    from keybound.batch.manifest import Item
    from keybound.provenance.registry import Registry
    from keybound.watermark.signing import Credentials

CLAIM = ["party", "payload", "nonce"]  # columns of a manifest that name the party or its payload


@dataclass(frozen=True)
class Asked:
    """The arguments and options of a verb of `batch`."""

    manifest: tuple[str, ...]
    results: str | None
    jobs: int | None
    executor: str
    address: str | None
    dry_run: bool
    model: str | None
    as_json: bool
    out: str | None = None
    force: bool = False
    declared: Declared = NOTHING
    no_fingerprint: bool = False
    public: bool = False
    signs: "Credentials | None" = None
    excerpt: float = 3.0
    speed: float = 0.0
    false_alarms: float = 1e-3
    name: str | None = None
    key: str | None = None
    payload: int | None = None
    nonce: bytes = b""
    anyone: bool = False
    registry: str | None = None


@click.group(no_args_is_help=False)
def batch() -> None:
    """Embed, detect, identify or verify in a whole corpus.

    MANIFEST is a CSV, JSONL or Parquet file with a column path (and optional columns out, party,
    payload, nonce), or a folder, or a glob in quotes. A run that was stopped or killed continues
    when the same command is started again. Exit status 0 if every file was done, 2 if some failed.
    """


manifest = click.argument("manifest", nargs=-1, required=True)
key_reference = click.option(
    "--key", "key", help="Key file, or env:NAME for a key in an environment variable."
)
how = options(
    click.option(
        "--results",
        type=click.Path(),
        help="Results table, .parquet or .jsonl; by default named after verb and corpus.",
    ),
    click.option(
        "--jobs", type=click.IntRange(min=1), help="Number of processes; by default one per core."
    ),
    click.option(
        "--executor",
        type=click.Choice(["processes", "ray"]),
        default="processes",
        show_default=True,
        help="Run in processes of this machine, or on Ray.",
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
    *(public, credentials.signing("the marked files")),
    excerpt,
    *(declaring, no_fingerprint),
    click.option("--force", is_flag=True, help="Replace existing output files."),
    registry,
    how,
)
def batch_embed(**given: Any) -> None:
    """Embed a mark in every recording of MANIFEST.

    Marked files go to --out, in subfolders like those of the corpus, or to the path in column out.
    """
    _batch("embed", Asked(**given))


@batch.command("detect")
@manifest
@options(speed, false_alarms, how)
def batch_detect(**given: Any) -> None:
    """Detect in every recording of MANIFEST whether it carries a mark."""
    _batch("detect", Asked(**given))


@batch.command("verify")
@manifest
@options(
    party_name,
    key_reference,
    payload,
    nonce,
    click.option("--any", "anyone", is_flag=True, help="Try every registered party."),
    speed,
    false_alarms,
    registry,
    how,
)
def batch_verify(**given: Any) -> None:
    """Verify in every recording of MANIFEST whether it carries a party's mark.

    A recording with the mark is compared with the party's records, to tell whether its audio is
    the one that was marked.
    """
    _batch("verify", Asked(**given))


@batch.command("identify")
@manifest
@options(speed, false_alarms, registry, how)
def batch_identify(**given: Any) -> None:
    """Tell of every recording of MANIFEST which recording it is, and whose.

    A row is that of the best mark; its column `identified` lists all of them.
    Every process opens the registry: on other machines that is one on PostgreSQL.
    """
    _batch("identify", Asked(**given))


def _batch(verb: str, asked: Asked) -> None:
    """Read the manifest, do what remains of it, write the results and exit."""
    _check(asked)
    from keybound.batch import corpus, journal, results
    from keybound.batch.manifest import absolute, read

    manifest = asked.manifest[0]
    table = Path(asked.results or results.default_results(verb, manifest))
    path = table.with_name(f"{table.name}.journal")
    results.check_results(table, path)
    book = journal.Journal(path, {"verb": verb, "manifest": absolute(manifest)})
    columns = {"embed": ["out", *CLAIM], "verify": CLAIM}.get(verb, [])
    items = read(manifest, asked.out, columns=["nonce"] if asked.anyone else columns)
    if asked.nonce:
        items = [item if item.nonce else replace(item, nonce=asked.nonce) for item in items]
    parties = asked.anyone or asked.name is not None or any(item.party for item in items)
    parties = parties or verb == "identify"
    opening = partial(open_registry, asked.registry, reads=verb != "embed")
    with opening() if parties else contextlib.nullcontext() as known:
        job, who = _job(verb, items, asked, known)
        if asked.dry_run:
            planned = corpus.plan(job, items, who, book, force=asked.force)
            tell_plan(items, planned, asked.as_json)
            return
        with book:
            planned = corpus.plan(job, items, who, book, force=asked.force)
            with finishing() as stop:
                _run(job, planned, book, asked, known, stop)
            count = corpus.conclude(planned, items, book, table)
            tell_failures(items, book.rows(planned.names), count["failed"])
    tell_counts(verb, count, table, asked.as_json)
    if stop.number:
        say("stopped; the same command continues from here")
    sys.exit(128 + stop.number if stop.number else 2 if count["failed"] else 0)


def _check(asked: Asked) -> None:
    """Raise a usage error where options exclude each other."""
    named = asked.name is not None
    keyed = asked.key is not None or asked.payload is not None
    if len(asked.manifest) > 1:
        raise click.UsageError("name one manifest, folder or glob, a glob in quotes: 'calls/*.wav'")
    if asked.address is not None and asked.executor != "ray":
        raise click.UsageError("--address needs --executor ray")
    if named and keyed:
        raise click.UsageError("--party brings its own key and payload")
    if asked.anyone and (named or keyed):
        raise click.UsageError("--any tries every party; name none")
    if asked.payload is not None and asked.key is None:
        raise click.UsageError("--payload needs --key")


def _job(
    verb: str, items: "Sequence[Item]", asked: Asked, known: "Registry | None"
) -> "tuple[Job, list[int | None]]":
    """Return the job and the claimant of each item; None: all of them, or none is needed."""
    from keybound.batch import corpus
    from keybound.batch.job import Job
    from keybound.batch.manifest import absolute
    from keybound.watermark.options import DetectOptions
    from keybound.watermark.watermarker import Watermarker

    bits = Watermarker(asked.model).card.bits
    folder = absolute(asked.model) if asked.model else None
    how = DetectOptions(asked.false_alarms, asked.speed / 100)
    if verb == "detect":
        return Job(verb, folder, (), how=how), [None] * len(items)
    place = None if known is None else os.fspath(asked.registry or default_place())
    if verb == "identify":
        return Job(verb, folder, (), how=how, registry=place), [None] * len(items)
    if asked.anyone and known is not None:
        every, untried = corpus.everyone(known, bits)
        for one in untried:
            say(f"not tried: {one.error}")
        job = Job(verb, folder, every, untried=len(untried), how=how, registry=place)
        return job, [None] * len(items)
    whose, who = corpus.claimants(
        items, name=asked.name, key=asked.key, payload=asked.payload, known=known, bits=bits
    )
    job = Job(verb, folder, whose, asked.excerpt, how, registry=place)
    told = asked.declared.over(known.provider) if known is not None else NOTHING
    job = replace(job, declared=told, fingerprint=not asked.no_fingerprint)
    return _public(job, asked, known), list(who)


def _public(job: "Job", asked: Asked, known: "Registry | None") -> "Job":
    """Return the job with public identifiers and signatures where they are asked for."""
    from keybound.batch.manifest import absolute
    from keybound.watermark.reservation import issuer_of

    if not asked.public and asked.signs is None:
        return job
    if known is None or not all(one.name for one in job.claimants):
        raise click.UsageError(NEEDS_PARTY)
    signs = asked.signs
    if signs is not None:
        signs.tried()  # what is wrong with it ends it here
        files = {"certificates": absolute(signs.certificates), "key": absolute(signs.key)}
        signs = signs._replace(**files)
    return replace(job, issuer=issuer_of(known), signs=signs)


def _run(
    job: "Job", planned: "Plan", book: "Journal", asked: Asked, known: "Registry | None", stop: Stop
) -> None:
    """Do the tasks that remain, with a progress bar."""
    from keybound.batch import corpus, executors

    if before := len(planned.names) - len(planned.tasks):
        say(f"done before: {before} of {len(planned.names)}")
    # A thread for each process: two in one process take more from two cores than they give.
    most = asked.jobs or executors.cores()
    workers = max(1, min(most, len(planned.tasks)))
    spread = partial(executors.processes, jobs=workers, threads=most // workers, stop=stop)
    if asked.executor == "ray":
        spread = partial(executors.on_ray, jobs=asked.jobs, address=asked.address, stop=stop)
    with counting(job.verb, len(planned.names), before) as ended:
        if planned.tasks:
            corpus.run(job, planned, book, spread, ended, known)
