"""The options of verbs that mark: what is declared of a recording, and what its mark holds."""

import functools
from collections.abc import Callable
from typing import Any

import click

from keybound.cli.terminal import options
from keybound.provenance.declared import NOTHING, Declared

NEEDS_PARTY = "a public identifier needs --party: a registry issues it"


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
        given = [name for name, _ in fields]
        twice = next((name for name in given if given.count(name) > 1), None)
        if twice is not None:
            raise click.UsageError(f"--field gives {twice!r} more than once")
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
            help="Any other text for the record; may be given several times, each NAME once.",
        ),
    )(gathered)


no_seal = click.option(
    "--no-seal", is_flag=True, help="Embed the learned mark alone, without the seal."
)
public = click.option(
    "--public",
    is_flag=True,
    help="Carry a public identifier: anyone reads it, and can ask who issued it (with --party).",
)
no_fingerprint = click.option(
    "--no-fingerprint",
    is_flag=True,
    help="Keep no fingerprint in the record: it cannot be found by its audio.",
)


def check_party(
    name: str | None, *, public: bool, declared: Declared, no_fingerprint: bool
) -> None:
    """Raise a usage error where options need a party that none names."""
    if public and name is None:
        raise click.UsageError(NEEDS_PARTY)
    if name is None and (no_fingerprint or declared != NOTHING):
        raise click.UsageError("there is a record, with what is declared, only with --party")


def _excerpt(seconds: float) -> float:
    from keybound.watermark.options import check_excerpt

    return check_excerpt(seconds)


excerpt = click.option(
    "--excerpt",
    type=float,
    callback=lambda _context, _option, value: _excerpt(value),
    default=3.0,
    show_default=True,
    help="Shortest excerpt, in seconds, that must be attributable; the longer, the quieter.",
)
