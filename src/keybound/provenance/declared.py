"""What a provider declares of a recording, and the canonical JSON in which records hold it.

The law asks a provider of synthetic speech for its name, the system and its version, the time,
which every record has, and where to ask; whatever else is wanted goes into free fields. Knows text
and JSON: no keys, no audio, no registry.
"""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from keybound.errors import RecordError

Json = str | int | bool | None | list["Json"] | dict[str, "Json"]

TEXT_MAX = 200  # characters of a name
LINK_MAX = 2000
FIELDS_MAX = 4096  # bytes of the free fields, as JSON
DEPTH_MAX = 8  # of what is nested in them
INTEGER_MAX = (1 << 53) - 1  # that every reader of JSON keeps
SURROGATES = "\ud800"


@dataclass(frozen=True)
class Declared:
    """What a provider says of what it marks; None where it says nothing.

    `fields` is a JSON object of text, whole numbers, true, false, null, lists and objects.
    """

    provider: str | None = None
    system: str | None = None
    system_version: str | None = None
    link: str | None = None
    fields: Mapping[str, Json] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for what, text in self.texts().items():
            if text is not None and what != "link":
                check_text(what.replace("_", " "), text, TEXT_MAX)
        if self.link is not None:
            _check_link(self.link)
        if not isinstance(self.fields, dict):
            raise RecordError("the fields of a record are not a JSON object")
        _check_json(self.fields, DEPTH_MAX)
        if len(canonical(self.fields)) > FIELDS_MAX:
            raise RecordError(f"the fields of a record have more than {FIELDS_MAX} bytes")

    def texts(self) -> dict[str, str | None]:
        """Return all but the free fields, by their names."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "fields"}

    def members(self) -> dict[str, Json]:
        """Return what is declared as members of a JSON object."""
        return {**self.texts(), "fields": dict(self.fields)}

    def over(self, usual: "Declared") -> "Declared":
        """Return what is declared here, and of another what is not; fields are joined by name."""
        texts = {what: text or usual.texts()[what] for what, text in self.texts().items()}
        return Declared(**texts, fields={**usual.fields, **self.fields})


def parse(members: Mapping[str, Json]) -> Declared:
    """Return what the members of a JSON object declare; raise an error where they are not valid."""
    named: Any = {one.name: members[one.name] for one in fields(Declared)}  # checked there
    return Declared(**named)


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return JSON as RFC 8785 has it, for values whose numbers are all whole and below 2^53."""
    form: Any = {"ensure_ascii": False, "separators": (",", ":")}
    text = json.dumps(value, sort_keys=True, **form)
    if (
        not text.isascii() and max(text) >= SURROGATES
    ):  # above these the order of characters is not that of UTF-16
        text = json.dumps(_ordered(value), **form)
    return text.encode()


def check_text(what: str, text: object, longest: int) -> None:
    """Raise an error where a text is not a name of at most so many characters."""
    if not (isinstance(text, str) and _is_name(text, longest)):
        rule = f"1 to {longest} printable characters in form NFC, without spaces at their ends"
        raise RecordError(f"the {what} of a record is not a name", hint=rule)


@lru_cache  # many records have the same
def _is_name(text: str, longest: int) -> bool:
    good = 0 < len(text) <= longest and text.isprintable() and text == text.strip()
    return good and unicodedata.is_normalized("NFC", text)


def _check_link(link: object) -> None:
    if not (isinstance(link, str) and _is_link(link)):
        hint = f"https:// and a host, at most {LINK_MAX} characters without spaces"
        raise RecordError("the link of a record is not an https address", hint=hint)


@lru_cache
def _is_link(link: str) -> bool:
    try:
        parts = urlsplit(link)
    except ValueError:  # such as a bracket that is not closed
        return False
    plain = link.isascii() and link.isprintable() and " " not in link
    return plain and parts.scheme == "https" and bool(parts.hostname) and len(link) <= LINK_MAX


def _check_json(value: object, depth: int) -> None:
    """Raise an error where a value has no canonical form here."""
    if isinstance(value, dict | list):
        if depth == 0:
            raise RecordError(f"the fields of a record are nested deeper than {DEPTH_MAX}")
        names = value if isinstance(value, dict) else ()
        for one in (*names, *(value.values() if isinstance(value, dict) else value)):
            _check_json(one, depth - 1)
        if not all(isinstance(name, str) for name in names):
            raise RecordError("a name in the fields of a record is not text")
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RecordError("a text in the fields of a record is not Unicode") from None
    elif type(value) is int:
        if abs(value) > INTEGER_MAX:
            raise RecordError("a number in the fields of a record is too large", hint="use text")
    elif value is not None and not isinstance(value, bool):
        hint = "text, whole numbers, true, false, null, lists and objects; fractions go as text"
        raise RecordError(f"the fields of a record hold a {type(value).__name__}", hint=hint)


def _ordered(value: object) -> object:
    """Return the value with the members of each object in the order of RFC 8785."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return {name: _ordered(value[name]) for name in names}
    if isinstance(value, list):
        return [_ordered(one) for one in value]
    return value


NOTHING = Declared()
