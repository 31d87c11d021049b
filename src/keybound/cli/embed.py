"""The verb `embed`: mark one recording, for a registered party or for a key and a payload."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keybound.cli import credentials
from keybound.cli.declared import declaring, no_fingerprint
from keybound.cli.parties import claim
from keybound.cli.terminal import (
    as_json,
    emit,
    excerpt,
    key_file,
    model,
    nonce,
    open_registry,
    options,
    party_name,
    payload,
    position,
    progress_bar,
    registry,
    say,
)
from keybound.provenance.declared import NOTHING, Declared

if TYPE_CHECKING:
    from keybound.output import Part
    from keybound.watermark.files import Written


@click.command()
@click.argument("host", type=click.Path())
@click.argument("output", type=click.Path())
@options(party_name, key_file, payload, nonce, position)
@click.option("--no-seal", is_flag=True, help="Embed the learned mark alone, without the seal.")
@click.option(
    "--public",
    is_flag=True,
    help="Carry a public identifier: anyone reads it, and can ask who issued it (with --party).",
)
@options(credentials.signing, excerpt, declaring, no_fingerprint)
@click.option("--force", is_flag=True, help="Replace OUTPUT if it is an existing file.")
@click.option(
    "--no-check", is_flag=True, help="Do not read the mark back from OUTPUT (half the time)."
)
@options(registry, model, as_json)
def embed(
    host: str,
    output: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    nonce: bytes,
    position: int | None,
    no_seal: bool,
    public: bool,
    pair: tuple[str, str] | None,
    source_type: str,
    excerpt: float,
    declared: Declared,
    no_fingerprint: bool,
    force: bool,
    no_check: bool,
    registry: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Embed a mark in the recording HOST and write it to OUTPUT.

    OUTPUT is read back and verified before it appears; if its mark cannot be read, nothing is
    written. For a registered party the registry reserves a keystream position that is used once,
    and keeps a record of what was marked (keybound record); from 5 s on the recording carries an
    identifier, by which keybound identify finds its record. Without a party the position is a
    random one of 256, unless --position gives one.
    """
    from keybound import output as outputs
    from keybound import stages
    from keybound.watermark import files
    from keybound.watermark.options import EmbedOptions
    from keybound.watermark.plain import verdict_as_plain
    from keybound.watermark.reservation import LEAST_S, Reservation, reserve
    from keybound.watermark.watermarker import Watermarker

    if no_seal and position is not None:
        raise click.UsageError("--no-seal excludes --position")
    public = public or pair is not None
    if public and name is None:
        raise click.UsageError("a public identifier needs --party: a registry issues it")
    if name is None and (no_fingerprint or declared != NOTHING):
        raise click.UsageError("there is a record, with what is declared, only with --party")
    outputs.check(output, source=host, replace=force)
    prepared = None if pair is None else credentials.prepare(pair, source_type, host, output)
    stages.sweep(Path(output).parent)
    marker = Watermarker(model)
    facts: dict[str, Any] = {}
    with open_registry(registry) if name is not None else nullcontext() as known:
        whose = claim(name, key_file, payload, known, marker.card.bits)
        if known is None:
            asked = EmbedOptions(
                whose.key, whose.payload, nonce, position, not no_seal, excerpt=excerpt
            )
            given = Reservation("", asked, None)
        else:
            given = reserve(
                known,
                whose,
                short=files.seconds_of(host) < LEAST_S,
                nonce=nonce,
                position=position,
                seal=not no_seal,
                public=public,
                excerpt=excerpt,
                declared=declared,
                fingerprint=not no_fingerprint,
            )

        sign = None
        if prepared is not None and known is not None:
            sign = prepared.signing(given, known.issuer)

        def appear(part: "Part", made: "Written") -> None:
            if known is None:
                part.publish()
            else:
                facts["record"] = known.appear(given.stamped(marker.card, made), part)

        made = files.embed(
            marker,
            host,
            output,
            given.options,
            rho=whose.rho,
            check=not no_check,
            replace=force,
            progress=progress_bar("embedding"),
            sign=sign,
            appear=appear,
        )
    recurs = known is None and position is None and not no_seal
    issued = None if given.issued is None else given.issued.name
    if made.manifest is not None:
        credentials.tell(issued, made.manifest.id)
    elif public and issued is None:
        say("too short for an identifier: the recording has none")
    _tell(made, recurs, facts.get("record"), issued)
    facts |= {"output": output, "clipped": made.clipped, "position": made.position}
    facts |= {"position_recurs": recurs, "not_carried": made.not_carried, "identifier": issued}
    facts["manifest"] = None if made.manifest is None else made.manifest.id
    if made.verdict is None:
        emit(facts, "marked, not read back", as_json)
    else:
        emit(verdict_as_plain(made.verdict) | facts, made.verdict.words, as_json)


def _tell(made: "Written", recurs: bool, record: int | None, issued: str | None) -> None:
    """Print what is worth knowing of a file that was written."""
    from keybound.crypto import keystream

    if made.clipped:
        say(f"samples limited to full scale: {made.clipped}")
    if made.not_carried:
        say(f"not carried over: {', '.join(made.not_carried)}")
    if made.position is not None:
        also = f", one of {keystream.USUAL} that recur (--party reserves one for each recording)"
        say(f"sealed at position {made.position}{also if recurs else ''}")
    if record is not None:
        say(f"record {record}" + (f", identifier {issued}" if issued is not None else ""))
