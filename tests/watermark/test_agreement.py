"""What a C2PA manifest and a mark say of each other."""

import pytest

from keybound.provenance import credentials
from keybound.provenance.credentials import Found, binding, parse_binding
from keybound.watermark.agreement import STATES, Compared, compare

ONE, OTHER = (7, 0x0123456789), (7, 0xABCDEF0123)


@pytest.mark.parametrize(
    ("state", "named", "present", "spelled", "agreement", "words"),
    [
        ("valid", [ONE], True, [ONE], "agrees", "as the mark does"),
        ("changed", [ONE], True, [ONE], "agrees", "as the mark does"),
        ("valid", [ONE, OTHER], True, [OTHER, ONE], "agrees", "as the mark does"),
        ("valid", [ONE], True, [OTHER], "disagrees", "and the mark spells abcdef0123 of issuer 7"),
        ("changed", [ONE], True, [OTHER], "disagrees", "they disagree"),
        ("valid", [ONE], True, [ONE, OTHER], "disagrees", "spells 0123456789 of issuer 7 and abc"),
        ("valid", [ONE], True, [], "disagrees", "which the mark does not spell"),
        ("expired", [ONE], True, [], "disagrees", "which the mark does not spell"),
        ("trusted", [ONE], False, [], "disagrees", "no mark is found"),
        ("changed", [ONE], True, [], "open", "the mark spells none"),
        ("broken", [ONE], False, [], "open", "no mark is found"),
        ("valid", [], True, [OTHER], "open", "it names no mark, and there is one"),
        ("valid", [], False, [], "open", "it names no mark"),
    ],
)
def test_manifest_and_mark(
    state: str,
    named: list[tuple[int, int]],
    present: bool,
    spelled: list[tuple[int, int]],
    agreement: str,
    words: str,
) -> None:
    said = compare(Found(state, named=tuple(named)), present, spelled)
    assert said[0] == agreement
    assert words in said[1]


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_words(state: str) -> None:
    found = Found(state, "urn:c2pa:1", "Example Ltd", None, (ONE,))
    plain = Compared(found, *compare(found, True, [ONE]), record=3).as_plain()
    assert plain["words"].startswith("C2PA manifest ")
    assert ", the one that record 3 keeps: it names the identifier" in plain["words"]
    assert plain["identifiers"] == [{"identifier": "0123456789", "issuer": 7}]


@pytest.mark.parametrize(
    ("state", "failed", "read_as"),
    [
        ("Trusted", [], "trusted"),
        ("Valid", ["signingCredential.untrusted"], "valid"),
        ("Invalid", ["signingCredential.untrusted", "signingCredential.expired"], "expired"),
        ("Invalid", ["assertion.dataHash.mismatch", "signingCredential.expired"], "changed"),
        ("Invalid", ["assertion.bmffHash.mismatch"], "changed"),
        ("Invalid", ["assertion.hashedURI.mismatch", "assertion.dataHash.mismatch"], "broken"),
        ("Invalid", [], "broken"),
        ("", [], "broken"),
    ],
)
def test_what_c2pa_finds_is_a_state(state: str, failed: list[str], read_as: str) -> None:
    store = {"validation_state": state, "validation_status": [{"code": one} for one in failed]}
    assert credentials._found(store).state == read_as


def test_the_value_of_a_soft_binding() -> None:
    assert binding(0x0123456789, 7) == "7.0123456789"
    assert parse_binding("7.0123456789") == ONE
    assert parse_binding("65535.ffffffffff") == (65535, 2**40 - 1)
    wrong = ["", "7", "7.", "07.0123456789", "65536.0123456789", "7.012345678", "7.0123456789 "]
    for value in (*wrong, "7.01234567890", "7.ABCDEF0123", "-1.0123456789", "७.0123456789"):
        assert parse_binding(value) is None, value
