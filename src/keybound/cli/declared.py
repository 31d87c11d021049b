"""The options that say what a provider declares of a recording, in one value."""

import functools
from collections.abc import Callable
from typing import Any

import click

from keybound.cli.terminal import options
from keybound.provenance.declared import Declared


def named(text: str) -> tuple[str, str]:
    """Return the name and the value of a field from NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def declaring(verb: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a verb, which gets what they declare as `declared`."""

    @functools.wraps(verb)
    def gathered(
        *arguments: Any,
        provider: str | None,
        system: str | None,
        system_version: str | None,
        link: str | None,
        fields: tuple[tuple[str, str], ...],
        **others: Any,
    ) -> None:
        made = Declared(provider, system, system_version, link, dict(fields))
        verb(*arguments, declared=made, **others)

    return options(
        click.option("--provider", help="Who provides the speech: its name, for the record."),
        click.option("--system", help="System that made the speech, for the record."),
        click.option("--system-version", help="Version of that system, for the record."),
        click.option("--link", help="Address for questions, https://..., for the record."),
        click.option(
            "--field",
            "fields",
            type=named,
            multiple=True,
            metavar="NAME=VALUE",
            help="Any other text for the record; may be given several times.",
        ),
    )(gathered)


no_fingerprint = click.option(
    "--no-fingerprint",
    is_flag=True,
    help="Keep no fingerprint in the record: it cannot be found by its audio.",
)
