"""Descriptions of tables, read once from `tables.toml`: words, columns, where rows come from.

Knows nothing of rows and computes no figure.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from typing import Any

from keybound.benchmark.report.layout import Column

DATA = tomllib.loads((files(__package__) / "tables.toml").read_text(encoding="utf-8"))
METHODS: dict[str, str] = DATA["methods"]
METERS: dict[str, str] = DATA["meters"]
PHRASES: dict[str, str] = DATA["phrases"]


@dataclass(frozen=True)
class Head:
    """A column, the form in which it is printed, and its value; see `tables.toml`."""

    column: Column
    form: str = ""
    value: str = ""
    compared: str = ""  # the paper's column beside it


@dataclass(frozen=True)
class Part:
    """Where lines of a table come from: suites or a study, divided by keys of their rows."""

    suite: Sequence[str] = ()
    study: str = ""  # how the names of its methods begin
    by: Sequence[str] = ()  # a hyphen in front: the largest first
    told: str = ""
    heading: str = ""
    errors: str = "errors"  # what rows call them
    spread: Sequence[str] = ()  # lists in rows that become a row for each entry


@dataclass(frozen=True)
class Block:
    """Neighbouring columns of a table of attacks: of measures, or of a table of the paper."""

    of: str = ""  # whose: of the first method, the others, each length; else of each line's
    measures: Sequence[str] = ()
    group: str = ""
    compare: str = ""  # with this table of the paper
    printed: int = 3  # digits that the paper has
    paper: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)  # of the paper: label and help
    digits: Sequence[int] = ()  # of them; 3 each where nothing is said


@dataclass(frozen=True)
class Description:
    """What a table is called, what stands in it, and what is said of it."""

    name: str
    title: str
    caption: str
    columns: Sequence[Sequence[str]] = ()
    each: Sequence[Mapping[str, str]] = ()
    rows: Sequence[Part] = ()
    blocks: Sequence[Block] = ()
    first: str = "Attack"  # the head of a table of attacks
    notes: Sequence[str] = ()
    unmarked: bool = False  # no notes on the marks in it
    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of values in rows
    published: str = ""  # table of the paper beside it
    key: str = ""  # the line of that table, from the facts of a line
    ends: str = ""  # heading of the paper's own lines below ours

    def heads(self, each: Sequence[Mapping[str, str]] | None = None) -> list[Head]:
        """Return the columns; those with a key of `each` are repeated for each of its entries."""
        found: list[Head] = []
        for texts in repeated(self.columns, self.each if each is None else each):
            head, told, form, value, compared = (*texts, "", "", "")[:5]
            group, _, label = head.rpartition(": ")
            words = form == "words" or not found
            found.append(Head(Column(label, fill(told), group, words), form, value, compared))
        return found


def repeated(
    columns: Sequence[Sequence[str]], each: Sequence[Mapping[str, str]]
) -> Iterator[list[str]]:
    """Return columns, neighbours that hold a key of `each` together for each of its entries."""
    keys = {f"{{{key}}}" for one in each for key in one}
    held = groupby(columns, lambda texts: any(key in text for text in texts for key in keys))
    for several, neighbours in held:
        run = list(neighbours)
        for one in each if several else ({},):
            yield from ([fill(text, one) for text in texts] for texts in run)


def fill(text: str, words: Mapping[str, str] = PHRASES) -> str:
    """Return a text with words in the place of their keys in braces."""
    for key, said in words.items():
        text = text.replace(f"{{{key}}}", said)
    return text


def _described(name: str, told: dict[str, Any]) -> Description:
    told["rows"] = [Part(**part) for part in told.get("rows", ())]
    told["blocks"] = [Block(**block) for block in told.get("blocks", ())]
    return Description(name, **told)


def _measure(label: str, told: Sequence[str]) -> Head:
    help_text, form, value = told
    return Head(Column(label, help_text, words=form == "words"), form, value)


DESCRIPTIONS = {name: _described(name, dict(told)) for name, told in DATA["tables"].items()}
MEASURES = {label: _measure(label, told) for label, told in DATA["measures"].items()}
