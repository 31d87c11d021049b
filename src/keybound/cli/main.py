"""The command line: the group of verbs, `detect` and `demo`. Verbs import heavy rooms inside.

Results go to standard output (`--json` for machines). Messages go to standard error, in lower
case without a full stop, with a hint in brackets where there is one; a refusal is one such line.
Keys come from files or from standard input, never from an argument. Exit status: 0 yes, 1 no,
2 error.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keybound.cli import (
    batch,
    bench,
    credentials,
    embed,
    identify,
    lab,
    parties,
    pipes,
    proxy,
    records,
    registry,
    serve,
    tokens,
    verify,
)
from keybound.cli.terminal import (
    as_json,
    emit,
    false_alarms,
    in_one_line,
    model,
    options,
    progress_bar,
    refuse,
    reworded,
    speed,
    stopping,
    tell,
    tell_rate,
    warned,
)
from keybound.errors import KeyBoundError, missing

if TYPE_CHECKING:
    from keybound.identity.reading import Reading
    from keybound.types import Detection


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.version_option(package_name="keybound", message="%(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Embed a keyed watermark in speech, detect it, verify whose it is."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path())
@click.option(
    "--frames", is_flag=True, help="With --json: add presence and logits of every frame of 20 ms."
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(),
    help="Plot presence over time to a .svg, .png or .pdf file.",
)
@options(speed, false_alarms, credentials.trusted, model, as_json)
def detect(
    recordings: tuple[str, ...],
    frames: bool,
    picture: str | None,
    speed: float,
    false_alarms: float,
    trusted: str | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Detect whether RECORDINGS carry a mark, and where. No key is needed.

    A public identifier is read too. Anyone can write one: its issuer can tell whether it is theirs.
    Of a C2PA manifest in the file it is said whether it and the mark agree.

    A folder stands for all recordings in it and its subfolders, - for standard input. Each of
    several recordings has one line, and so has each audio track of a video that has several.
    Exit status 0 if any is marked, 1 if none is, 2 if any could not be read.
    """
    from keybound.batch.manifest import expand
    from keybound.cli import plot
    from keybound.identity.reading import read_public
    from keybound.watermark import agreement, files
    from keybound.watermark.options import DetectOptions
    from keybound.watermark.plain import as_plain
    from keybound.watermark.watermarker import Watermarker

    if frames and not as_json:
        raise click.UsageError("--frames needs --json")
    pipes.check(recordings)
    paths = expand(recordings)
    if picture is not None:
        if len(paths) > 1:
            raise click.UsageError("--plot draws one recording")
        plot.check(Path(picture))
    marker, how = Watermarker(model), DetectOptions(false_alarms, speed / 100)
    marked = failed = 0
    for path in paths:
        about = f"detecting in {Path(path).name}" if len(paths) > 1 else "detecting"
        try:
            with pipes.tracks(path) as (source, numbers):
                if picture is not None and len(numbers) > 1:
                    raise click.UsageError("--plot draws one recording, not several tracks")
                found = []
                for n in numbers:
                    own = files.detect(marker, source, how, track=n, progress=progress_bar(about))
                    claims = read_public(own) if own.present else []
                    beside = agreement.of_file(source, own, claims, trusted=trusted)
                    found.append((own, claims, beside))
        except (KeyBoundError, OSError) as error:
            failed += 1
            line = tell(error)
            if as_json and len(paths) > 1:
                emit({"path": path, "error": line}, "", as_json)
            continue
        for number, (own, claims, beside) in enumerate(found, 1):
            marked += own.present
            tell_rate(own.false_alarms, false_alarms)
            if picture is not None:
                plot.draw(own, Path(picture), Path(path).name)
            alone = len(paths) == len(found) == 1
            name = pipes.named(path, number, len(found))
            text = in_lines(own) if alone else in_a_line(own, name)
            lines = [*map(in_words, claims), *([] if beside is None else [beside.words])]
            text = "\n".join([text, *(f"  {line}" for line in lines)])
            which = {"path": path} | ({"track": number} if len(found) > 1 else {})
            emit(which | as_plain(own, claims, beside, frames=frames), text, as_json)
    sys.exit(2 if failed else 0 if marked else 1)


def in_words(claimed: "Reading") -> str:
    """Return a public identifier for people."""
    where = ", ".join(f"{one.start_s:.1f} to {one.end_s:.1f} s" for one in claimed.spans)
    return f"claims identifier {claimed.name} of issuer {claimed.issuer}: {where}"


def in_lines(found: "Detection") -> str:
    """Return a detection for people, a line for each span."""
    what = "marked" if found.present else "no mark found"
    lines = [f"{what} (presence {found.presence:.3f})"]
    lines += [f"  {s.start_s:8.2f} s to {s.end_s:8.2f} s  {s.score:.3f}" for s in found.spans]
    return "\n".join(lines)


def in_a_line(found: "Detection", path: str) -> str:
    """Return a detection of one recording among several, for people."""
    what = "marked" if found.present else "no mark found"
    spans = ", ".join(f"{s.start_s:.2f} to {s.end_s:.2f} s" for s in found.spans)
    where = f": {spans}" if spans else ""
    return f"{path}: {what} (presence {found.presence:.3f}){where}"


@cli.command()
@click.option(
    "--out", default="demo", show_default=True, help="Folder for the audio and the picture."
)
@model
def demo(out: str, model: str | None) -> None:
    """Mark, attack, verify and plot a clip that the package carries.

    Needs the extra demo: pip install 'keybound[demo]'
    """
    try:
        from keybound.demo.show import run
    except ModuleNotFoundError as error:
        raise missing(error.name, "demo") from error
    from keybound.watermark.watermarker import Watermarker

    run(Watermarker(model), Path(out))


cli.add_command(embed.embed)
cli.add_command(verify.verify)
cli.add_command(identify.identify)
cli.add_command(parties.keygen)
cli.add_command(parties.party)
cli.add_command(batch.batch)
cli.add_command(records.record)
cli.add_command(registry.registry)
cli.add_command(tokens.token)
cli.add_command(lab.attack)
cli.add_command(lab.train)
cli.add_command(lab.export)
cli.add_command(bench.bench)
cli.add_command(serve.serve)
cli.add_command(serve.page)
cli.add_command(proxy.proxy)


def main() -> None:
    """Run the command line; every error is one line and exit status 2."""
    if "_KEYBOUND_COMPLETE" in os.environ:  # asked by a shell
        cli.main(prog_name="keybound")
    with in_one_line(), stopping(), warned():
        try:
            # Not cli.main, which ends in status 1, a "no", when a pipe breaks.
            with cli.make_context("keybound", sys.argv[1:]) as context:
                cli.invoke(context)
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except click.ClickException as error:
            refuse(*reworded(error))
