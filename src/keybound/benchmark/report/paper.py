"""The paper's published figures, read from `paper.toml`, so that tables print them beside ours."""

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

Figures = dict[str, dict[str, Any]]  # line -> column -> figure, or the words in its place


def _figures(table: Mapping[str, Any]) -> Figures:
    lines = {line: values for line, values in table.items() if line != "columns"}
    return {k: dict(zip(table["columns"], values, strict=True)) for k, values in lines.items()}


def _by_name(tables: Mapping[str, Any]) -> dict[str, Figures]:
    return {name: _figures(table) for name, table in tables.items()}


DATA = tomllib.loads((files(__package__) / "paper.toml").read_text(encoding="utf-8"))
FAMILIES: dict[str, str] = {a: family for family, own in DATA["suite"].items() for a in own}
LABELS: dict[str, str] = {a: text for own in DATA["suite"].values() for a, text in own.items()}
ATTACKS = tuple(LABELS)  # the rows of the robustness table in their order
STAND_IN: dict[str, str] = DATA["stand_in"]  # ours for the paper's
BY_METHOD = {"attacks": _by_name(DATA["attacks"]), "compound": _by_name(DATA["compound"])}
ROBUSTNESS = BY_METHOD["attacks"]  # method -> attack -> DA, BA, V_A
PEERS = tuple(method for method in ROBUSTNESS if method != "keybound")
TABLES = _by_name(DATA["tables"])
CONFIGURATION: dict[str, str] = DATA["configuration"]
INTERVALS: list[list[Any]] = DATA["intervals"]


def column(figures: Figures, name: str) -> dict[str, Any]:
    """Return one column of a table of figures, by line."""
    return {line: values[name] for line, values in figures.items()}


def stands_for(attack: str) -> str:
    """Return the attack of the paper that an attack or a chain stands in for, or itself."""
    return "+".join(STAND_IN.get(part, part) for part in attack.split("+"))


def suite_of(attacks: Iterable[str]) -> list[str]:
    """Return those of the attacks that the paper's table has, in its order."""
    wanted = set(attacks)
    return [attack for attack in ATTACKS if attack in wanted]
