"""The verbs of `keybound token`: who may ask a service what."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from keybound.cli.terminal import as_json, emit, open_registry, options, registry, say
from keybound.provenance.tokens import DAILY, SCOPES, Token


@click.group(no_args_is_help=False)
def token() -> None:
    """Add, list, rotate and revoke the tokens of a service."""


@token.command("add")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    required=True,
    help="What its holder may do: ask gives the grade alone; may be repeated.",
)
@click.option("--party", help="The only party that its holder may mark or verify for.")
@click.option(
    "--daily",
    type=click.IntRange(min=1),
    default=DAILY,
    show_default=True,
    help="Answers in a day to a holder who may only ask.",
)
@click.option("--days", type=click.IntRange(min=1), help="Days until it ends; else it stays.")
@registry
def token_add(
    name: str,
    scopes: tuple[str, ...],
    party: str | None,
    daily: int,
    days: int | None,
    registry: str | None,
) -> None:
    """Add the token NAME and print its secret, which is shown once.

    The registry keeps a hash of it. A service takes it from the next request on.
    """
    now = datetime.now(UTC)
    ends = None if days is None else now + timedelta(days=days)
    with open_registry(registry) as known:
        if party is not None:
            known.get(party)  # refused here where there is none
        named = tuple(one for one in SCOPES if one in scopes)
        secret = known.tokens.add(Token(name, named, now, party, daily, ends))
    say(f"added token {name}; keep it secret, it is not shown again")
    click.echo(secret)


@token.command("list")
@options(registry, as_json)
def token_list(registry: str | None, as_json: bool) -> None:
    """List the tokens.

    Each line has the name, the scopes, the party, the answers a day, since when and until when it
    holds, and how many answers it was given today and ever. A token that was rotated has a line for
    each secret that may still hold.
    """
    with open_registry(registry, reads=True) as known:
        found = [_plain(one, *known.tokens.answered(one.name)) for one in known.tokens.all()]
    if not found:
        say("there are no tokens (keybound token add makes one)")
    for one in found:
        values = [" ".join(v) if isinstance(v, list) else v for v in one.values()]
        emit(one, "\t".join("-" if value is None else str(value) for value in values), as_json)


@token.command("rotate")
@click.argument("name")
@click.option(
    "--hours",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Hours in which the old secret holds too.",
)
@registry
def token_rotate(name: str, hours: float, registry: str | None) -> None:
    """Give the token NAME another secret and print it.

    Its scopes stay, and its answers stay counted.
    """
    with open_registry(registry) as known:
        secret = known.tokens.rotate(name, datetime.now(UTC) + timedelta(hours=hours))
    say(f"rotated token {name}; the old secret " + (f"ends in {hours:g} h" if hours else "is void"))
    click.echo(secret)


@token.command("revoke")
@click.argument("name")
@registry
def token_revoke(name: str, registry: str | None) -> None:
    """Revoke the token NAME with all its secrets.

    The next request with one of them is refused.
    """
    with open_registry(registry) as known:
        known.tokens.revoke(name)
    say(f"revoked token {name}")


def _plain(one: Token, today: int, ever: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "scopes": list(one.scopes),
        "party": one.party,
        "daily": one.daily,
        "created": _moment(one.created),
        "ends": None if one.ends is None else _moment(one.ends),
        "answered_today": today,
        "answered": ever,
    }


def _moment(when: datetime) -> str:
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")
