"""The verbs of `keybound registry`: what a registry has of its own."""

from pathlib import Path
from typing import Any

import click

from keybound.cli.declared import declaring
from keybound.cli.terminal import as_json, emit, open_registry, options, say
from keybound.cli.terminal import registry as place
from keybound.errors import KeyBoundError
from keybound.provenance.declared import NOTHING, Declared
from keybound.provenance.key_files import KeyFile


@click.group(no_args_is_help=False)
def registry() -> None:
    """Show and set the keys, issuer and provider of a registry."""


@registry.command("show")
@options(place, as_json)
def registry_show(registry: str | None, as_json: bool) -> None:
    """Show keys, issuer's number, provider, counts, and what machines have not ended."""
    with open_registry(registry, reads=True) as known:
        shown: dict[str, Any] = {"registry": known.name, **known.counts()}
        shown |= {"issuer": known.issuer, **known.provider.members()}
        shown["keys"] = [_plain(one) for one in known.key_files()]
        shown["unfinished"] = [one._asdict() for one in known.unfinished()]
    lines = [
        f"{name:16}{value}"
        for name, value in shown.items()
        if name not in ("keys", "unfinished") and value not in (None, {})
    ]
    lines += [f"{'key':16}{one['id']} since {one['since']}  {one['file']}" for one in shown["keys"]]
    lines += [
        f"{'unfinished':16}{one['machine']}: {one['files']} files, {one['tasks']} tasks"
        for one in shown["unfinished"]
    ]
    emit(shown, "\n".join(lines), as_json)


@registry.command("rotate")
@click.option(
    "--key",
    "key_file",
    help="Key file to use, or to make; by default a new one beside an SQLite registry.",
)
@place
def registry_rotate(key_file: str | None, registry: str | None) -> None:
    """Add a key for identifiers: new ones are encrypted with it.

    Older keys stay and are tried too. On PostgreSQL the key file has the same name on every machine
    that marks or identifies.
    """
    if key_file == "-":
        raise click.UsageError("a registry needs a key file, not a key on standard input")
    with open_registry(registry) as known:
        made = known.rotate_key(None if key_file is None else Path(key_file))
    say(f"new identifiers use the key in {made.path}; keep it secret and keep a copy")
    click.echo(made.id)


@registry.command("issuer")
@click.argument("number", type=click.IntRange(0, (1 << 16) - 1))
@place
def registry_issuer(number: int, registry: str | None) -> None:
    """Set the issuer's NUMBER, which public identifiers carry. It is set once."""
    with open_registry(registry) as known:
        known.set_issuer(number)
    say(f"public identifiers carry the issuer's number {number}")


@registry.command("provider")
@declaring
@click.option("--clear", is_flag=True, help="Forget what was set before.")
@place
def registry_provider(declared: Declared, clear: bool, registry: str | None) -> None:
    """Set what records say of the provider, unless embed is given something else.

    What is not given stays as it was.
    """
    if declared == NOTHING and not clear:
        raise click.UsageError("nothing to set: --provider, --system, --link and others set it")
    with open_registry(registry) as known:
        known.set_provider(declared if clear else declared.over(known.provider))
    say("new records say so, unless embed is given something else")


@registry.command("settle")
@click.option("--machine", required=True, help="Name of the machine, as registry show has it.")
@place
def registry_settle(machine: str, registry: str | None) -> None:
    """Settle what a machine that does not come back left on PostgreSQL.

    Its records of files that were about to appear are kept, since nobody can see whether they did;
    the positions and serials of its tasks become void.
    """
    with open_registry(registry) as known:
        if machine not in {one.machine for one in known.unfinished()}:
            hint = "keybound registry show names those that did"
            raise KeyBoundError(f"machine {machine!r} left nothing", hint=hint)
        done = known.settle(machine)
    say(f"kept {done.files} records and ended {done.tasks} tasks of {machine}")


def _plain(kept: KeyFile) -> dict[str, str]:
    return {"id": kept.id, "file": str(kept.path), "since": kept.since.isoformat()}
