"""Shared by all verbs: options, results, messages, progress, errors.

Results go to standard output (`--json` for machines). Messages go to standard error, in lower
case without a full stop, with a hint in brackets where there is one; a refusal is one such line.
"""

import json
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from keybound.errors import DEBUG, KeyFileWarning, RegistryError, SearchWarning, explain
from keybound.provenance.database import is_address
from keybound.provenance.registry import Registry, default_place

QUIET_S = 60.0  # between two messages where there is no terminal
F = TypeVar("F", bound=Callable[..., Any])


def number(text: str) -> int:
    """Return a payload from decimal text, or hexadecimal with 0x."""
    try:
        return int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number such as 24301 or 0x5eed") from None


def octets(text: str) -> bytes:
    """Return bytes from hexadecimal text."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not hexadecimal") from None


def say(message: str) -> None:
    """Print a message, which is not a result, as one line."""
    line = "".join(c if c.isprintable() else "?" for c in message)
    click.echo(f"keybound: {line}", err=True)


def emit(result: dict[str, Any], text: str, as_json: bool, *, err: bool = False) -> None:
    """Print a result for a person, or for a machine; with `err` on standard error.

    A file name that is not UTF-8 has question marks in the text; in JSON, which escapes it, every
    byte is kept.
    """
    plain = text.encode("utf-8", "replace").decode()
    click.echo(json.dumps(result, allow_nan=False) if as_json else plain, err=err)


def progress_bar(what: str) -> Callable[[int, int], None]:
    """Return a function of (done, of) that shows a progress bar on a terminal."""
    if not sys.stderr.isatty():
        return lambda *_: None
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    click.get_current_context().call_on_close(bar.stop)  # an error must not leave it there

    def update(done: int, of: int) -> None:
        bar.update(task, completed=done, total=of)
        if done == of:
            bar.stop()
        elif not bar.live.is_started:  # what is done at once needs no bar
            bar.start()

    return update


@contextmanager
def counting(verb: str, files: int, done: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show a bar on a terminal, elsewhere a line a minute; yield what to call with each row."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = Console(stderr=True)
    failed, told = 0, time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(verb, total=files, completed=done)

    def ended(row: dict[str, Any]) -> None:
        nonlocal done, failed, told
        done, failed = done + 1, failed + (row["status"] != "ok")
        words = f"{verb}, {failed} failed" if failed else verb
        bar.update(task, completed=done, description=words)
        if not console.is_terminal and time.monotonic() - told > QUIET_S:
            told = time.monotonic()
            say(f"{done} of {files} done, {failed} of them failed")

    with bar:
        yield ended


def tell_rate(held: float, asked: float) -> None:
    """Print that more false alarms are to be expected than were asked for, if so."""
    if held > asked:
        say(f"under 3 s the rate of false alarms is {held:g}, not {asked:g}")


def options(*made: Any) -> Callable[[F], F]:
    """Return a decorator that adds several options to a verb, listed in this order."""

    def dress(verb: F) -> F:
        for option in reversed(made):
            verb = option(verb)
        return verb

    return dress


speed = click.option(
    "--speed",
    type=click.FloatRange(0, 10),
    default=0.0,
    help="Try playing speeds changed by up to this many percent.",
)
false_alarms = click.option(
    "--false-alarms",
    type=click.FloatRange(1e-6, 1e-2),
    default=1e-3,
    show_default=True,
    help="Share of unmarked recordings that may be found marked; from 3 s on.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
model = click.option(
    "--model", type=click.Path(), help="Folder of weights other than the shipped ones."
)
require = click.option(
    "--require",
    type=click.Choice(["attributed", "sealed"]),
    default="attributed",
    show_default=True,
    help="Lowest grade for exit status 0.",
)
registry = click.option(
    "--registry",
    metavar="PATH|ADDRESS",
    help="SQLite file or postgresql:// address of parties and records; else $KEYBOUND_REGISTRY.",
)
party_name = click.option(
    "--party", "name", help="Name of a registered party, whose key and payload are used."
)
key_file = click.option("--key", "key_file", help="Key file, or - for standard input.")
payload = click.option(
    "--payload", type=number, help="Payload to embed or verify, such as 24301 or 0x5eed."
)
position = click.option(
    "--position",
    type=click.IntRange(0, (1 << 32) - 1),
    help="Keystream position of the seal.",
)
nonce = click.option(
    "--nonce",
    type=octets,
    default="",
    help="Nonce that selects the mask, in hex; by default the fixed mask.",
)


def open_registry(place: str | None, *, reads: bool = False) -> Registry:
    """Open the registry that --registry names, else the usual one; `reads` makes none."""
    if reads and place and not is_address(place) and not Path(place).exists():
        hint = "is --registry right? keybound party add makes one"
        raise RegistryError(f"registry {place!r} does not exist", hint=hint)
    return Registry(place or default_place())


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Print an error in one line and exit with status 2."""
    say(message + (f" ({hint})" if hint else ""))
    sys.exit(2)


def tell(error: BaseException) -> str:
    """Print an error in one line, after its traceback if that is asked for; return the line."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    message, hint = explain(error)
    line = message + (f" ({hint})" if hint else "")
    say(line)
    return line


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn every error, foreseen or not, into one line and exit status 2."""
    try:
        yield
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        sys.exit(128 + signal.SIGINT)
    except Terminated:
        say("stopped")
        sys.exit(128 + signal.SIGTERM)
    except BrokenPipeError:  # the reader of the results has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still held
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:  # whatever it is, it must not end in status 1, which is a "no"
        tell(error)
        sys.exit(2)


class Terminated(BaseException):
    """SIGTERM asked to stop: raised where the program is, so that it cleans up."""


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Terminated` inside at SIGTERM, as SIGINT raises KeyboardInterrupt."""

    def stop(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Stop:
    """Whether a signal asked to stop, and which."""

    number = 0

    def __call__(self) -> bool:
        return bool(self.number)

    def receive(self, number: int, _: object) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number
        say("finishing the files under way; a second signal stops at once")


@contextmanager
def finishing() -> Iterator[Stop]:
    """Finish the files under way at the first SIGINT or SIGTERM; stop at once at a second."""
    stop = Stop()
    before = {n: signal.signal(n, stop.receive) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def warned() -> Iterator[None]:
    """Show each warning about a key file or a search once, in one line."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def line(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, KeyFileWarning | SearchWarning):
                say(str(message))
            else:
                show(message, category, *rest, **more)

        for shown in (KeyFileWarning, SearchWarning):
            warnings.simplefilter("default", shown)
        warnings.showwarning = line
        yield


def reworded(error: click.ClickException) -> tuple[str, str | None]:
    """Return the message and hint of one of click's errors, in our form."""
    words = re.split(r"\.? \(?(?=Did you|Possible)", error.format_message(), maxsplit=1)
    message, *hints = [text[:1].lower() + text[1:].rstrip(".") for text in words]
    hints = [hint.removesuffix(")") for hint in hints]
    if not hints and isinstance(error, click.UsageError) and error.ctx:
        hints = [f"see {error.ctx.command_path} --help"]
    return message, hints[0] if hints else None
