"""The verbs `serve` and `page`: the public detector as a service and as a folder of files."""

import ipaddress
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound.cli import credentials, listening
from keybound.cli.terminal import model, open_registry, options, say
from keybound.errors import KeyBoundError

if TYPE_CHECKING:
    from keybound.server.counting import Network
    from keybound.watermark.signing import Credentials


def network(text: str) -> "Network":
    """Return a network, or an address as one of a single address."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        what = f"{text!r} is not an address such as 127.0.0.1 or a network such as 10.0.0.0/8"
        raise click.BadParameter(what) from None


@click.command()
@listening.host
@listening.port
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes that detect, with a thread each; by default one for each core.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    help="Recordings that may wait for a process; by default 32 for each process.",
)
@listening.max_mib
@listening.max_seconds
@click.option(
    "--max-work",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Longest time to decode a recording and detect in it, in seconds.",
)
@click.option("--links/--no-links", default=True, help="Whether links are fetched.")
@click.option(
    "--registry",
    "place",
    metavar="PATH|ADDRESS",
    help="Answer from this registry too: an SQLite file or a postgresql:// address.",
)
@listening.streams
@click.option(
    "--by-address",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Public answers from the registry in an hour, to one address.",
)
@click.option(
    "--by-all",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Public answers from the registry in an hour, to all addresses together.",
)
@click.option(
    "--by-tokens",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Answers in a day to all tokens that may only ask, counted in the registry.",
)
@click.option(
    "--fixed-time",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds after which such answers come, for each minute of audio that is begun.",
)
@click.option(
    "--proxy",
    "proxies",
    type=network,
    multiple=True,
    metavar="ADDRESS",
    help="Proxy, or network of proxies, whose X-Forwarded-For is believed; may be repeated.",
)
@click.option(
    "--sign", "signer", type=click.Path(), help="Sign verdicts with the signing key in this file."
)
@options(credentials.signing("what /embed marks, where c2pa=true asks for it,"))
@options(credentials.trusted, model)
def serve(
    host: str,
    port: int,
    workers: int | None,
    queue: int | None,
    max_mib: int,
    max_seconds: float,
    max_work: float,
    links: bool,
    place: str | None,
    streams: int,
    by_address: int,
    by_all: int,
    by_tokens: int,
    fixed_time: float,
    proxies: "tuple[Network, ...]",
    signer: str | None,
    signs: "Credentials | None",
    trusted: str | None,
    model: str | None,
) -> None:
    """Serve a public detector: a page, and POST /detect for programs.

    With --registry it tells who issued a public identifier, and marks, identifies and verifies for
    the holders of tokens (keybound token). Nothing that is sent to it is kept, but the records of
    what it marks. Run it behind a proxy that does TLS (docs/server.md).
    Needs the extra serve: pip install 'keybound[serve]'
    """
    try:
        from keybound.server import run
        from keybound.server.app import make
        from keybound.server.limits import Limits
        from keybound.server.state import State
    except ModuleNotFoundError as error:
        raise listening.absent(error) from error
    from keybound.model.networks import SHIPPED, read_card

    read_card(SHIPPED if model is None else Path(model))  # weights that are missing end it here
    processes = workers or os.cpu_count() or 1
    limits = replace(
        Limits(),
        workers=processes,
        queue=queue or 32 * processes,
        body_bytes=max_mib << 20,
        longest_s=max_seconds,
        work_s=max_work,
        streams=streams,
        public_by_address=by_address,
        public_total=by_all,
        asked_total=by_tokens,
        fixed_s=fixed_time,
    )
    if place is None and signer is not None:
        raise click.UsageError("--sign needs --registry: verdicts are for holders of tokens")
    if place is None and signs is not None:
        raise click.UsageError("--c2pa needs --registry: files are marked for holders of tokens")
    if signs is not None:
        signs.tried()  # what is wrong with it ends it here
    if place is not None:
        _tell_registry(place, signer)
    with run.listen(host, port) as socket:
        say(f"serving on {listening.address(host, socket.getsockname()[1])}")
        own = State(
            limits,
            model,
            links,
            place=place,
            signer=signer,
            signs=signs,
            trusted=trusted,
            proxies=proxies,
        )
        run.run(make(own), socket)


def _tell_registry(place: str, signer: str | None) -> None:
    """Print what a service has to answer with; an error where it cannot be read ends it here."""
    from keybound.crypto.signing import SigningKey

    with open_registry(place) as known:
        counts, issuer = known.counts(), known.issuer
        tokens = len({one.name for one in known.tokens.all()})
        held = {"parties": counts["parties"], "records": counts["records"], "tokens": tokens}
        say(", ".join(f"{what}: {count}" for what, count in held.items()))
        for one in known.versions():
            try:
                one.key()
            except KeyBoundError as error:
                say(f"party {one.name} cannot be answered for: {error.message}")
    if issuer is None:
        say("public identifiers need an issuer's number (keybound registry issuer sets it)")
    if signer is not None:
        say(f"verdicts are signed as {SigningKey.read(signer).public.hex()}")


@click.command()
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder to write, a new one."
)
@options(model)
def page(out: Path, model: str | None) -> None:
    """Write a folder with a page that detects marks in the browser.

    Nothing leaves the browser of whoever uses it, and it needs nothing from elsewhere.
    Needs the extra serve: pip install 'keybound[serve]'
    """
    try:
        from keybound.server import site
    except ModuleNotFoundError as error:
        raise listening.absent(error) from error

    size = site.write(out, model)
    say(f"wrote {out}, {size / (1 << 20):.1f} MiB")
