"""The options of C2PA: what marked recordings are signed with, and which signers are trusted."""

import functools
from collections.abc import Callable
from typing import Any

import click

from keybound.cli.terminal import options, say
from keybound.provenance.credentials import SOURCE_TYPES

Verb = Callable[..., None]


def address(text: str) -> str:
    """Return the address of a time stamping authority."""
    if not text.startswith(("http://", "https://")):
        raise click.BadParameter(f"{text!r} is not an address such as http://tsa.example.org")
    return text


def signing(what: str) -> Callable[[Verb], Verb]:
    """Return what adds the options to a verb, which gets them as `signs`: `Credentials` or None.

    `what` says in the help what is signed.
    """

    def added(verb: Verb) -> Verb:
        @functools.wraps(verb)
        def gathered(
            *arguments: Any,
            pair: tuple[str, str] | None,
            source_type: str,
            stamped_by: str | None,
            **others: Any,
        ) -> None:
            made = None
            if pair is not None:
                from keybound.watermark.signing import Credentials

                made = Credentials(*pair, source_type, stamped_by)
            elif stamped_by is not None:
                raise click.UsageError("--timestamp needs --c2pa: signatures are stamped")
            verb(*arguments, signs=made, **others)

        return options(
            click.option(
                "--c2pa",
                "pair",
                nargs=2,
                type=click.Path(),
                metavar="CERT KEY",
                help=f"Sign {what} with C2PA, with these PEM files; its identifier is public.",
            ),
            click.option(
                "--source-type",
                type=click.Choice(SOURCE_TYPES),
                default=SOURCE_TYPES[0],
                show_default=True,
                help="With --c2pa: what the recording is, as IPTC's digital source type.",
            ),
            click.option(
                "--timestamp",
                "stamped_by",
                type=address,
                metavar="URL",
                help="With --c2pa: time stamping authority (RFC 3161), by whose stamp a signature "
                "outlives its certificate.",
            ),
        )(gathered)

    return added


def _trusted(_: click.Context, __: click.Parameter, path: str | None) -> str | None:
    from keybound.provenance import certificates

    return None if path is None else certificates.read_trusted(path)


trusted = click.option(
    "--trust",
    "trusted",
    type=click.Path(),
    callback=_trusted,
    help="PEM file of certificates under which signers of C2PA manifests are trusted.",
)


def tell(issued: str | None, manifest: str) -> None:
    """Print what was signed."""
    if issued is None:
        say("too short for an identifier: signed without a soft binding")
    say(f"signed, manifest {manifest}")
