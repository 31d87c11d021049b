"""The verb `embed`: mark one recording, for a registered party or for a key and a payload."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound.cli import credentials, pipes
from keybound.cli.declared import check_party, declaring, excerpt, no_fingerprint, no_seal, public
from keybound.cli.marking import Job, mark_file, mark_video, pass_on, show, tell
from keybound.cli.parties import claim
from keybound.cli.terminal import (
    as_json,
    key_file,
    model,
    nonce,
    open_registry,
    options,
    party_name,
    payload,
    position,
    registry,
    say,
)
from keybound.provenance.declared import Declared

if TYPE_CHECKING:
    from keybound.watermark.signing import Credentials


@click.command()
@click.argument("host", type=click.Path())
@click.argument("output", type=click.Path())
@options(party_name, key_file, payload, nonce, position)
@options(no_seal, public, credentials.signing("OUTPUT"), excerpt, declaring, no_fingerprint)
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
    signs: "Credentials | None",
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

    Of a video (mp4, mov, mkv, webm) every audio track is marked, each as a recording of its own,
    and everything else is copied. A track without sound is copied too.

    HOST and OUTPUT may be - for standard input and output; messages and results then go to standard
    error. From - to - a wav or flac is marked as it comes, however long it is, and the mark is read
    back from what has gone out: if it cannot be read, the exit status is 2 at the end.
    """
    from keybound import output as outputs
    from keybound import stages
    from keybound.audio.containers import count_tracks
    from keybound.identity.frame import PUBLIC
    from keybound.watermark.options import EmbedOptions
    from keybound.watermark.reservation import FOUND_S, LEAST_S, Reservation, reserve
    from keybound.watermark.signing import prepare
    from keybound.watermark.videos import is_video
    from keybound.watermark.watermarker import Watermarker

    if no_seal and position is not None:
        raise click.UsageError("--no-seal excludes --position")
    public = public or signs is not None
    check_party(name, public=public, declared=declared, no_fingerprint=no_fingerprint)
    if signs is not None and output == pipes.STANDARD:
        raise click.UsageError("--c2pa signs a whole file: name OUTPUT")
    pipes.check((host,), key_file)
    if output == pipes.STANDARD:
        pipes.audio_out()
    else:
        outputs.check(output, source=None if host == pipes.STANDARD else host, replace=force)
        stages.sweep(Path(output).parent)
    marker = Watermarker(model)
    with open_registry(registry) if name is not None else nullcontext() as known:
        whose = claim(name, key_file, payload, known, marker.card.bits)

        def give(seconds: float) -> Reservation:
            if known is None:
                asked = EmbedOptions(
                    whose.key, whose.payload, nonce, position, not no_seal, excerpt=excerpt
                )
                return Reservation("", asked, None)
            return reserve(
                known,
                whose,
                short=seconds < LEAST_S,
                found=seconds >= FOUND_S,
                nonce=nonce,
                position=position,
                seal=not no_seal,
                public=public,
                excerpt=excerpt,
                declared=declared,
                fingerprint=not no_fingerprint,
            )

        job = Job(marker, known, registry, give, whose.rho, not no_check, force)
        if host == output == pipes.STANDARD:
            marked = [pass_on(job)]
        else:
            with pipes.recording(host) as source, pipes.destination(output, source) as place:
                signature = None
                if signs is not None:
                    signature = prepare(signs.tried(), signs.source_type, source, place)
                if not is_video(place):
                    marked = [mark_file(job, source, place, signature)]
                elif position is not None and count_tracks(Path(source)) > 1:
                    what = "--position names one position, and several tracks need one each"
                    raise click.UsageError(what)
                else:
                    marked = mark_video(job, source, place)
    recurs = known is None and position is None and not no_seal
    for done in marked:
        if done.made.manifest is not None:
            credentials.tell(done.identifier, done.made.manifest.id)
        elif public and done.identifier is None:
            say("too short for an identifier: the recording has none")
        elif public and done.made.seconds < PUBLIC.least_seconds:
            say(f"under {PUBLIC.least_seconds} s a public identifier is hardly read")
        tell(done, recurs=recurs)
    for done in marked:
        show(done, output, recurs=recurs, as_json=as_json)
