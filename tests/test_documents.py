"""The documents name what is there: every command, option and public name, and every label."""

import re
import runpy
from pathlib import Path

import click
import pytest

import keybound
from keybound import errors
from keybound.cli.main import cli

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
reference = runpy.run_path(str(ROOT / "scripts" / "reference.py"))


def test_the_reference_is_what_the_program_says() -> None:
    assert (DOCS / "commands.md").read_text() == reference["command_page"]()
    assert (DOCS / "api.md").read_text() == reference["api_page"]()


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (DOCS / "commands.md").read_text()
    seen = 0
    for name, command in reference["commands"](cli, "keybound"):
        assert re.search(rf"^##+ {name}$", page, re.MULTILINE), name
        assert command.help, name
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help or option.name == "version", (name, option.name)
                assert option.opts[0] in page
                seen += 1
    assert seen > 80


def test_every_public_name_is_in_the_reference_and_says_what_it_is() -> None:
    page = (DOCS / "api.md").read_text()
    for name in keybound.__all__:
        assert f"## {name}\n" in page
        assert getattr(keybound, name).__doc__, name


def test_every_error_is_a_public_name() -> None:
    own = [one for one in vars(errors).values() if isinstance(one, type)]
    assert all(issubclass(one, keybound.KeyBoundError | Warning) for one in own)
    assert {one.__name__ for one in own} <= set(keybound.__all__)


def test_every_label_of_a_derivation_is_in_the_specification() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src" / "keybound").rglob("*.py"))
    labels = set(re.findall(r'"(keybound-1/[a-z-]+)"', sources))
    assert len(labels) >= 4
    spec = (DOCS / "spec.md").read_text()
    rows = set(re.findall(r"^\\| `(keybound-1/[a-z-]+)`", spec, re.MULTILINE))
    assert rows == labels


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(DOCS.glob("*.md")))
def test_every_link_between_documents_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
