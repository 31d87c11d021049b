"""The verb `embed`: mark one recording, for a registered party or for a key and a payload."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keybound.cli.declared import declaring, no_fingerprint
from keybound.cli.parties import claim, lone_key
from keybound.cli.terminal import (
    ROLLING,
    as_json,
    emit,
    excerpt,
    from_host,
    key_file,
    model,
    nonce,
    open_registry,
    options,
    own_mask,
    party_name,
    payload,
    position,
    progress_bar,
    registry,
    say,
)
from keybound.cli.verify import as_plain
from keybound.provenance.declared import NOTHING, Declared
from keybound.watermark.claims import Claim

if TYPE_CHECKING:
    from keybound.output import Part
    from keybound.watermark.files import Written


@click.command()
@click.argument("host", type=click.Path())
@click.argument("output", type=click.Path())
@options(party_name, key_file, payload, from_host, nonce, own_mask, position)
@click.option("--no-seal", is_flag=True, help="Embed the learned mark alone, without the seal.")
@click.option("--rolling", is_flag=True, help=ROLLING)
@options(excerpt, declaring, no_fingerprint)
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
    from_host: bool,
    nonce: bytes,
    own_mask: bool,
    position: int | None,
    no_seal: bool,
    rolling: bool,
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
    and keeps a record of what was marked (keybound record). Without a party the position is a
    random one of 256, unless --position gives one.
    """
    from keybound import output as outputs
    from keybound import stages
    from keybound.crypto import codes, keystream
    from keybound.provenance import content_tag
    from keybound.watermark import files
    from keybound.watermark.options import EmbedOptions
    from keybound.watermark.watermarker import Watermarker

    if no_seal and (rolling or position is not None):
        raise click.UsageError("--no-seal excludes --rolling and --position")
    if own_mask and (nonce or no_seal or from_host):
        what = "--nonce, --no-seal and --payload-from-host"
        raise click.UsageError(f"--nonce-from-position excludes {what}")
    if rolling and (own_mask or from_host):
        what = "--nonce-from-position and --payload-from-host"
        raise click.UsageError(f"--rolling excludes {what}")
    if name is None and (no_fingerprint or declared != NOTHING):
        raise click.UsageError("there is a record, with what is declared, only with --party")
    outputs.check(output, source=host, replace=force)
    stages.sweep(Path(output).parent)
    marker = Watermarker(model)
    facts: dict[str, Any] = {}
    with open_registry(registry) if name is not None else nullcontext() as known:
        if from_host:
            key = lone_key(key_file, name, payload)
            tag = content_tag.payload(files.levels_of(host), key, marker.card.bits, nonce)
            whose = Claim("", key, tag, None)
        else:
            whose = claim(name, key_file, payload, known, marker.card.bits)
        recurs = known is None and position is None and not no_seal
        if known is not None and not no_seal:
            position = known.reserve(whose.key.id, position)
        if own_mask:
            position = keystream.choose_position(position)
            nonce = codes.position_nonce(position)
        asked = EmbedOptions(
            whose.key, whose.payload, nonce, position, not no_seal, rolling, excerpt
        )

        def appear(part: "Part", made: "Written") -> None:
            if known is None:
                part.publish()
            else:
                stamped = files.record(
                    marker,
                    made,
                    asked,
                    party=whose.name,
                    declared=declared.over(known.provider),
                    fingerprint=not no_fingerprint,
                )
                facts["record"] = known.appear(stamped, part)

        made = files.embed(
            marker,
            host,
            output,
            asked,
            rho=whose.rho,
            check=not no_check,
            replace=force,
            progress=progress_bar("embedding"),
            appear=appear,
        )
    _tell(made, recurs, facts.get("record"))
    facts |= {"output": output, "clipped": made.clipped, "position": made.position}
    facts |= {"position_recurs": recurs, "not_carried": made.not_carried}
    if made.verdict is None:
        emit(facts, "marked, not read back", as_json)
    else:
        emit(as_plain(made.verdict) | facts, made.verdict.words, as_json)


def _tell(made: "Written", recurs: bool, record: int | None) -> None:
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
        say(f"record {record}")
