"""Records of embeddings: their form, their MAC, their signature."""

import hmac
import itertools
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError, RecordError
from keybound.provenance import records
from keybound.provenance.declared import Declared, canonical
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.records import Record

KEY = Key(bytes(range(32)))
few = settings(max_examples=40, deadline=None)
RECORD = Record(
    created=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC),
    party="alice",
    payload=0x5EED,
    bits=16,
    nonce=b"clip-1",
    position=7,
    key=KEY.id,
    detector="keybound 0.1.0",
    samples=4800,
    rate=48000,
    sha256="ab" * 32,
    fingerprint=Fingerprint(3, bytes(range(6))),
    serial=0x5EED5EED5E,
    registry_key="a5" * 8,
    declared=Declared(
        "Example Ltd", "Example Voice", "3.1", "https://example.org/ask", {"take": 3, "lang": "en"}
    ),
)
CANONICAL = (
    b'{"bits":16,"columns":3,"created":"2026-03-01T12:00:00.123456Z",'
    b'"detector":"keybound 0.1.0","fields":{"lang":"en","take":3},"fingerprint":"AAECAwQF",'
    b'"key":"0f254a1c050bdb5a","link":"https://example.org/ask","nonce":"636c69702d31",'
    b'"party":"alice","payload":"5eed","position":7,"provider":"Example Ltd","public":false,'
    b'"rate":48000,"registry_key":"a5a5a5a5a5a5a5a5","samples":4800,"serial":407709347166,'
    b'"sha256":"' + b"ab" * 32 + b'","system":"Example Voice","system_version":"3.1","version":2}'
)
MAC = "f8db22915b389f28b7d0d645d0a24c6025a788dd122172af24f866a26fac3e92"

texts = st.text(st.characters(codec="utf-8"), max_size=8)
free = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=20
).filter(lambda text: text.isprintable())


identifiers = st.fixed_dictionaries(
    {"serial": st.integers(0, 2**40 - 1), "registry_key": st.just("a5" * 8)},
    optional={"public": st.booleans()},
) | st.just({})


@st.composite
def some(draw: st.DrawFn) -> Record:
    bits = draw(st.integers(1, 256))
    columns = draw(st.integers(0, 40))
    try:
        return Record(
            created=draw(st.datetimes(timezones=st.just(UTC))),
            party=draw(names),
            payload=draw(st.integers(0, 2**bits - 1)),
            bits=bits,
            nonce=draw(st.binary(max_size=30)),
            position=draw(st.none() | st.integers(0, 2**32 - 1)),
            key=KEY.id,
            detector=draw(names),
            samples=draw(st.integers(0, 2**53 - 1)),
            rate=draw(st.integers(1, 192_000)),
            sha256=draw(st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex)),
            fingerprint=Fingerprint(
                columns, draw(st.binary(min_size=2 * columns, max_size=2 * columns))
            ),
            declared=Declared(
                provider=draw(st.none() | names),
                system=draw(st.none() | names),
                system_version=draw(st.none() | names),
                link=draw(st.none() | st.just("https://example.org/?a=b#c")),
                fields=draw(st.dictionaries(texts, free, max_size=4)),
            ),
            **draw(identifiers),
        )
    except RecordError:
        assume(False)  # a name that is not in form NFC
        raise


# The form


def test_known_answers() -> None:
    assert RECORD.to_bytes() == CANONICAL
    assert records.stamp(RECORD, KEY).mac.hex() == MAC


def test_mac_by_hand() -> None:
    info = (17).to_bytes(4, "big") + b"keybound-1/record" + (0).to_bytes(4, "big")
    key = hmac.new(KEY.secret, info + b"\x01", "sha256").digest()
    assert hmac.new(key, CANONICAL, "sha256").hexdigest() == MAC


@few
@given(some())
def test_what_is_written_is_read(record: Record) -> None:
    stamped = records.stamp(record, KEY)
    again = records.parse(stamped.to_bytes())
    assert again == stamped
    assert again.record.to_bytes() == record.to_bytes()
    again.check(KEY)


@few
@given(some())
def test_the_form_does_not_depend_on_who_writes_json(record: Record) -> None:
    loaded = json.loads(record.to_bytes())
    shuffled = dict(sorted(loaded.items(), reverse=True))
    assert canonical(shuffled) == record.to_bytes()


@few
@given(some(), st.data())
def test_any_changed_byte_is_refused(record: Record, data: st.DataObject) -> None:
    whole = bytearray(records.stamp(record, KEY).to_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RecordError):
        records.parse(bytes(whole)).check(KEY)


def test_every_byte_of_one_record_is_guarded() -> None:
    whole = records.stamp(RECORD, KEY).to_bytes()
    for at, bit in itertools.product(range(len(whole)), range(8)):
        changed = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        with pytest.raises(RecordError):
            records.parse(changed).check(KEY)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"bits":16', b'"bits":16.0'),
        lambda text: text.replace(b'"version":2', b'"version":true'),
        lambda text: text.replace(b'"version":2', b'"version":1'),
        lambda text: text.replace(b'"payload":"5eed"', b'"payload":"5EED"'),
        lambda text: text.replace(b'"payload":"5eed"', b'"payload":"15eed"'),
        lambda text: text.replace(b'"party":"alice"', b'"party":["a"]'),
        lambda text: text.replace(b'"party":"alice",', b""),
        lambda text: text.replace(b'"rate"', b'"ratd":1,"rate"'),
        lambda text: text.replace(b'"serial":407709347166', b'"serial":true'),
        lambda text: text.replace(b'"serial":407709347166', b'"serial":4.07709347166e11'),
        lambda text: text.replace(b'"public":false', b'"public":0'),
        lambda text: text.replace(b'"take":3', b'"take":3.0'),
        lambda text: text.replace(b'"take":3', b'"take":3,"take":3'),
        lambda text: text.replace(b'"lang":"en","take":3', b'"take":3,"lang":"en"'),
        lambda text: text.replace(b'"lang":"en"', b'"lang":"\\u0065n"'),
        lambda text: text.replace(b'"rate":48000', b'"rate":48000,"rate":48000'),
        lambda text: text.replace(b'"columns":3', b'"columns":4'),
        lambda text: text.replace(b".123456Z", b".123Z"),
        lambda text: text.replace(b":", b": "),
        lambda text: text.rstrip(),
        lambda text: text[:-2],
        lambda _: b"",
        lambda _: b"[" * 100_000,
        lambda _: b"\xff\xfe",
        lambda _: b"[]",
        lambda _: b'{"record":3}',
    ],
)
def test_other_forms_are_refused(change: Any) -> None:
    with pytest.raises(RecordError, match="not a record"):
        records.parse(change(records.stamp(RECORD, KEY).to_bytes()))


@pytest.mark.parametrize(
    "change",
    [
        {"party": ""},
        {"party": "e\u0301"},
        {"party": "a\nb"},
        {"detector": " x"},
        {"payload": 1 << 16},
        {"position": 1 << 32},
        {"key": "F4E5D0C58E1D1D66"},
        {"sha256": "ab"},
        {"samples": -1},
        {"rate": 0},
        {"nonce": bytes(2000)},
        {"created": datetime(2026, 1, 1)},
        {"serial": 1 << 40},
        {"serial": -1},
        {"serial": None},  # and still a registry's key
        {"registry_key": None},
        {"registry_key": "A5" * 8},
        {"serial": None, "registry_key": None, "public": True},
        {"version": 1},
    ],
)
def test_what_no_record_holds(change: dict[str, Any]) -> None:
    with pytest.raises(KeyBoundError):
        replace(RECORD, **change)


def test_times_are_of_one_zone() -> None:
    there = RECORD.created.astimezone(timezone(timedelta(hours=5)))
    assert replace(RECORD, created=there).to_bytes() == CANONICAL


# The MAC


def test_another_key_is_refused() -> None:
    other = Key(bytes(32))
    stamped = records.stamp(RECORD, KEY)
    with pytest.raises(RecordError, match="changed, or stamped with another key"):
        stamped.check(other)
    with pytest.raises(RecordError, match="names key"):
        records.stamp(RECORD, other)
    with pytest.raises(RecordError, match="did not stamp"):
        records.Stamped(RECORD, records._mac(RECORD, other)).check(other)


def test_files(tmp_path: Path) -> None:
    stamped = records.stamp(RECORD, KEY)
    stamped.write(tmp_path / "one.kbr")
    assert records.read(tmp_path / "one.kbr") == stamped
    with pytest.raises(RecordError, match="exists"):
        stamped.write(tmp_path / "one.kbr")
    with pytest.raises(RecordError, match="cannot be read"):
        records.read(tmp_path / "two.kbr")
    with pytest.raises(RecordError, match="no is not a folder"):
        stamped.write(tmp_path / "no" / "one.kbr")
    if os.name == "posix":
        assert (tmp_path / "one.kbr").stat().st_mode & 0o777 == 0o600
