"""Write docs/commands.md from the command line and docs/api.md from the docstrings.

`scripts/reference.py` writes both; with --check it only says whether they are up to date, by its
exit status.
"""

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import keybound
from keybound.cli.main import cli

DOCS = Path(__file__).resolve().parents[1] / "docs"


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, with their whole names."""
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


def command_page() -> str:
    """Return the command reference."""
    parts = [
        "# Command reference",
        "Made from the command line itself by `scripts/reference.py`. Exit status: 0 yes, 1 no, 2 "
        "error. Results go to standard output, messages to standard error.",
    ]
    for name, command in commands(cli, "keybound"):
        parts += [f"{'##' if ' ' not in name else '###'} {name}", *described(name, command)]
    return "\n\n".join(parts) + "\n"


def described(name: str, command: click.Command) -> Iterator[str]:
    """Yield the usage, the help text and the options of a command."""
    context = click.Context(command, info_name=name, **cli.context_settings)  # click keeps its help
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```\n{name} {pieces}\n```"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield " ".join(paragraph.split())
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    rows = [record for option in options if (record := option.get_help_record(context))]
    if rows:
        lines = [f"| `{cell(left)}` | {cell(right)} |" for left, right in rows]
        yield "\n".join(["| option | |", "| --- | --- |", *lines])


def cell(text: str) -> str:
    """Return a text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def api_page() -> str:
    """Return the page of the public names."""
    parts = [
        "# Python interface",
        "Every public name of `keybound`, made from the docstrings by `scripts/reference.py`.",
    ]
    for name in sorted(keybound.__all__, key=str.lower):
        parts += list(documented(name, getattr(keybound, name)))
    return "\n\n".join(parts) + "\n"


def documented(name: str, thing: object) -> Iterator[str]:
    """Yield the heading, signature and docstring of a public name, then its public methods."""
    yield f"## {name}"
    if dataclasses.is_dataclass(thing):
        yield f"```python\n{fields(thing)}\n```"
    elif inspect.isfunction(thing):
        yield f"```python\n{name}{signature(thing)}\n```"
    elif inspect.isclass(thing) and "__init__" in vars(thing) and not is_error(thing):
        yield f"```python\n{name}{signature(thing.__init__)}\n```"
    yield prose(inspect.getdoc(thing) or "")
    for member, value in vars(thing).items() if inspect.isclass(thing) else ():
        if member.startswith("_"):
            continue
        text = prose(inspect.getdoc(value) or "")
        if isinstance(value, property):
            yield f"**`{name}.{member}`** {text}"
        elif isinstance(value, classmethod | staticmethod):
            yield f"**`{name}.{member}{signature(value.__func__)}`** {text}"
        elif inspect.isfunction(value):
            yield f"**`{name}.{member}{signature(value)}`** {text}"


def is_error(thing: type) -> bool:
    return issubclass(thing, BaseException)


def fields(thing: object) -> str:
    """Return the fields of a dataclass as they stand in its source, comments too."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body  # type: ignore[arg-type]
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()  # type: ignore[arg-type]
    assert isinstance(made, ast.ClassDef)
    named = [one for one in made.body if isinstance(one, ast.AnnAssign)]
    shown = [line[4:] for one in named for line in lines[one.lineno - 1 : one.end_lineno]]
    return "\n".join(shown)


def signature(thing: Callable[..., object]) -> str:
    """Return the signature of a function as it stands in its source, on one line."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(made, ast.FunctionDef)
    given = re.sub(r"^(self|cls)(, )?", "", ast.unparse(made.args))
    returned = f" -> {ast.unparse(made.returns)}" if made.returns is not None else ""
    return f"({given})" + ("" if made.name == "__init__" else returned)


def prose(text: str) -> str:
    """Return a docstring with its lines joined to paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def main(check: bool) -> int:
    """Write both pages, or compare them; return the exit status."""
    stale = []
    for name, text in (("commands.md", command_page()), ("api.md", api_page())):
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    for name in stale if check else ():
        print(f"docs/{name} is not what scripts/reference.py writes")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
