"""The verb `proxy`: mark what a server of speech says, on its way to whoever asked for it."""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from keybound.cli import listening, pipes
from keybound.cli.declared import check_party, declaring, excerpt, no_fingerprint, no_seal, public
from keybound.cli.parties import claim
from keybound.cli.terminal import (
    key_file,
    model,
    nonce,
    open_registry,
    options,
    party_name,
    payload,
    registry,
    say,
)
from keybound.provenance.declared import Declared


@click.command()
@click.option(
    "--upstream",
    required=True,
    metavar="URL",
    help="Server that speaks: its address as clients of OpenAI's take it, up to /v1.",
)
@options(party_name, key_file, payload, nonce)
@options(no_seal, public, excerpt, declaring, no_fingerprint)
@click.option(
    "--unmarked-ok",
    is_flag=True,
    help="Pass on what cannot be marked, with the header KeyBound-Mark: none.",
)
@click.option(
    "--pcm-rate",
    type=click.IntRange(8_000, 192_000),
    default=24_000,
    show_default=True,
    help="Rate of raw samples (pcm) in Hz, where the upstream does not say it.",
)
@options(listening.host, listening.port)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes that mark whole files, with a thread each; by default one for each core.",
)
@options(listening.streams, listening.max_mib, listening.max_seconds)
@click.option(
    "--max-wait",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Longest time until the upstream begins to answer, in seconds.",
)
@options(registry, model)
def proxy(
    upstream: str,
    name: str | None,
    key_file: str | None,
    payload: int | None,
    nonce: bytes,
    no_seal: bool,
    public: bool,
    excerpt: float,
    declared: Declared,
    no_fingerprint: bool,
    unmarked_ok: bool,
    pcm_rate: int,
    host: str,
    port: int,
    workers: int | None,
    streams: int,
    max_mib: int,
    max_seconds: float,
    max_wait: float,
    registry: str | None,
    model: str | None,
) -> None:
    """Mark what a server of speech says, on its way.

    It answers POST /v1/audio/speech as OpenAI does, and asks the server at --upstream for it.

    At its start it marks speech and reads the mark back. Then each reply is marked and read back;
    what cannot be marked, such as less than a second, is refused with status 502. Authorization is
    passed on to the upstream and not logged. Any other route is 404 (docs/proxy.md).
    Needs the extra serve: pip install 'keybound[serve]'
    """
    try:
        from keybound.server import run
        from keybound.server.limits import Limits
        from keybound.server.makers import Maker
        from keybound.server.proxy.app import make
        from keybound.server.proxy.state import State
        from keybound.server.proxy.upstream import Upstream
    except ModuleNotFoundError as error:
        raise listening.absent(error) from error
    from keybound.demo import SPEECH
    from keybound.model.networks import SHIPPED, read_card
    from keybound.provenance.registry import default_place

    check_party(name, public=public, declared=declared, no_fingerprint=no_fingerprint)
    if key_file == pipes.STANDARD:
        raise click.UsageError("the processes that mark read the key: --key needs a file")
    where = Upstream.at(upstream)
    card = read_card(SHIPPED if model is None else Path(model))
    place = None if name is None else registry or str(default_place())
    with nullcontext() if place is None else open_registry(place) as known:
        claim(name, key_file, payload, known, card.bits)  # what is wrong with it ends it here
        if known is not None and public and known.issuer is None:
            raise click.UsageError("this registry issues no public identifiers")
    maker = Maker(
        party=name,
        key_file=None if key_file is None else str(Path(key_file).resolve()),
        payload=payload,
        nonce=nonce.hex(),
        seal=not no_seal,
        public=public,
        excerpt=excerpt,
        says=declared.members(),
        fingerprint=not no_fingerprint,
    )
    processes = workers or os.cpu_count() or 1
    limits = replace(
        Limits(),
        workers=processes,
        queue=32 * processes,
        body_bytes=max_mib << 20,
        longest_s=max_seconds,
        streams=streams,
        upstream_s=max_wait,
    )
    own = State(limits, where, maker, SPEECH, unmarked_ok, pcm_rate, model, place)
    with run.listen(host, port) as socket:
        address = listening.address(host, socket.getsockname()[1])
        say(f"marking what {where.host} says, on {address}/v1")
        run.run(make(own), socket)
