"""The documents name what is there: commands, options, public names, labels, files, figures."""

import ast
import math
import re
import runpy
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

import keybound
from keybound import errors
from keybound.cli.main import cli
from keybound.crypto.keys import Key
from keybound.provenance import schema
from keybound.provenance.parties import Party
from keybound.seal import pattern
from keybound.watermark.registered import Registry

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *(ROOT / "results").glob("*.md")])
PRESENT = [page for page in PAGES if page.name not in ("CHANGELOG.md", "training-log.md")]
PAPER = ROOT.parent / "shared" / "paper" / "keybound.tex"
NAMED_FILES = r"`((?:src|tests|recipes|models|scripts|results|examples|docs)/[\w./-]*\w)[`#]"
STRENGTHS = r"own spectrum by at most ([\d.]+) dB|`g` lies between 0 and ([\d.]+) dB"
reference = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
figures = runpy.run_path(str(ROOT / "scripts" / "figures.py"))


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


def test_every_label_of_a_derivation_is_in_the_specification_and_none_beside() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "src" / "keybound").rglob("*.py"))
    labels = set(re.findall(r'"(keybound-\d/[a-z-]+)"', sources))
    _, _, section = (DOCS / "spec.md").read_text().partition("### 1.2 Derivation")
    section, _, _ = section.partition("\n### ")
    rows = re.findall(r"^\| `(keybound-\d/[a-z-]+)` \|", section, re.MULTILINE)
    assert len(labels) >= 6
    assert sorted(rows) == sorted(labels)


def test_the_specification_says_how_far_a_tile_of_the_seal_moves() -> None:
    spec = (DOCS / "spec.md").read_text()
    said = [float(one) for pair in re.findall(STRENGTHS, spec) for one in pair if one]
    most_db = float(pattern.STRENGTH.max()) * (1 + pattern.TILT)
    assert said == [math.ceil(10 * most_db) / 10] * 2


def test_the_specification_has_the_tables_of_the_registry() -> None:
    spec = (DOCS / "spec.md").read_text()
    (block,) = re.findall(r"^```sql\n(.*?)^```", spec, re.MULTILINE | re.DOTALL)
    said = [" ".join(one.split()) for one in block.split(";")]
    assert said == [" ".join(one.split()) for one in schema.NEW]
    assert f"the schema version, now {schema.VERSION}." in spec


# Links and names


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    kept = ("".join(c for c in head.lower() if c.isalnum() or c in " -_") for head in heads)
    return {head.replace(" ", "-") for head in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_documents_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^):]+)\)", page.read_text()):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: page.name)
def test_every_file_that_a_document_names_exists(page: Path) -> None:
    for path in re.findall(NAMED_FILES, page.read_text()):
        assert (ROOT / path).exists(), path


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of every `keybound` command in code of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    for line in lines:
        for part in re.split(r"&&|;", line.partition("#")[0]):
            words = part.replace("'", "").split()
            names = [at for at, word in enumerate(words) if Path(word).name == "keybound"]
            if names and words[names[0] - 1 : names[0]] in ([], ["-m"]) and words[names[0] + 1 :]:
                yield words[names[0] + 1 :]


@pytest.mark.parametrize("page", PRESENT, ids=lambda page: page.name)
def test_every_command_in_a_document_has_the_options_that_it_shows(page: Path) -> None:
    for words in commands_in(page.read_text()):
        command: click.Command = cli
        rest = list(words)
        while rest and isinstance(command, click.Group) and not rest[0].startswith("-"):
            named = [command.commands.get(one) for one in rest.pop(0).split("|")]
            assert all(named), words
            command = named[0]  # type: ignore[assignment]
        known = {one for option in command.params for one in (*option.opts, *option.secondary_opts)}
        wanted = {word.partition("=")[0].rstrip(",") for word in rest if word.startswith("--")}
        assert wanted <= known | {"--version", "--help"}, words


def test_the_python_of_the_readme_runs(
    clip: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    key = Key(bytes(range(32)))
    key.write("maker.key")
    maker = Party("maker", 0x5EED, 16, 2, Path("maker.key"), key.id, datetime.now(UTC))
    with Registry("registry.sqlite") as known:
        known.add(maker)
        known.rotate_key(tmp_path / "registry.key")
    played: list[Any] = []
    names: dict[str, Any] = {"samples": clip, "sample_rate": 16000, "play": played.append}
    names["speech"] = [clip[:4000], clip[4000:9000], clip[9000:]]
    exec("\n".join(blocks), names)
    assert names["verdict"].grade == "sealed"
    assert sum(map(len, played)) == len(clip)
    assert capsys.readouterr().out == "None maker 1 sealed\n"  # the clip is short


# The paper


def defined(path: Path) -> set[str]:
    """Return the functions, classes and constants of a source file."""
    names = set()
    for one in ast.walk(ast.parse(path.read_text())):
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            names.add(one.name)
        elif isinstance(one, ast.Assign):
            names |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            names.add(one.target.id)
    return names


def test_every_source_that_the_page_of_the_paper_names_exists() -> None:
    text = (DOCS / "paper.md").read_text()
    named = re.findall(r"`([a-z_0-9/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 50
    for file, name in named:
        path = ROOT / file if file.startswith("tests/") else ROOT / "src" / "keybound" / file
        assert path.is_file(), file
        assert not name or name in defined(path), f"{file}::{name}"


def test_every_entry_of_a_recipe_that_the_page_of_the_paper_names_exists() -> None:
    named = re.findall(r"`(recipes/[a-z/-]+\.toml)#([a-z_.]+)`", (DOCS / "paper.md").read_text())
    assert len(named) > 15
    for file, entry in named:
        found: Any = tomllib.loads((ROOT / file).read_text())
        for word in entry.split("."):
            assert word in found, f"{file}#{entry}"
            found = found[word]


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper is not here")
def test_every_label_of_the_paper_is_on_its_page() -> None:
    labels = set(re.findall(r"\\label\{([^}]+)\}", PAPER.read_text()))
    assert len(labels) > 25
    missing = {one for one in labels if f"`{one}`" not in (DOCS / "paper.md").read_text()}
    assert not missing


# Figures, and what is shipped


def test_the_figures_of_the_readme_are_those_of_the_tables() -> None:
    readme = (ROOT / "README.md").read_text()
    assert figures["with_figures"](readme) == readme


def test_another_figure_in_the_tables_changes_the_readme() -> None:
    tables = (ROOT / "results" / "tables.md").read_text()
    made = figures["read_tables"](tables)
    line = next(line for line in tables.splitlines() if line.startswith("| Noise (10 dB) |"))
    cells = line.split(" | ")
    changed = tables.replace(line, " | ".join([*cells[:3], "0.123", *cells[4:]]), 1)
    before, after = (figures["both_rules"](one) for one in (made, figures["read_tables"](changed)))
    assert before != after
    assert ".123" in after


def test_the_readme_says_which_clips_have_no_figure_of_quality() -> None:
    told = "that have the figure: Perth has no Zimtohrli of 117 of its clips."
    title = "Quality of the marked clips"
    cells = {"left out": "Zimtohrli 117, DNSMOS 3"}
    assert figures["without"]({title: {("Clips of 1 s", "Perth"): cells}}).endswith(told)
    assert figures["without"]({title: {("Clips of 3 s", "Perth"): cells}}) == ""
    assert figures["without"]({title: {("", "Perth"): {"left out": "none"}}}) == ""


def test_the_sdist_holds_everything_that_is_not_hidden() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    held = set(settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    ignored = {"build", "dist", "demo", "gpu", "runs", "pyproject.toml"}  # as in .gitignore
    there = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert there - ignored <= held | {"PKG-INFO"}
