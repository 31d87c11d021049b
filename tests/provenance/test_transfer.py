"""Whole registries: exported as JSONL and imported again; records that are forgotten."""

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_registry_file import KEY, RECORD

from keybound import stages
from keybound.errors import KeyBoundError, RegistryError
from keybound.identity import identifier
from keybound.provenance import records
from keybound.provenance.declared import Declared
from keybound.provenance.parties import Party
from keybound.provenance.records import Record, Stamped
from keybound.provenance.registry import Registry
from keybound.provenance.transfer import Imported


def stamped(**change: Any) -> Stamped:
    if change.get("serial") is not None:
        change["registry_key"] = KEY.id
    return records.stamp(replace(RECORD, **change), KEY)


def fill(known: Registry, party: Party, folder: Path) -> list[Stamped]:
    """Fill a registry with something of everything."""
    known.add(party)
    known.rotate_key(folder / "registry.key")
    known.set_issuer(7)
    known.set_provider(Declared("Example Ltd", fields={"lang": "en"}))
    known.reserve(KEY.id, 9)
    made = []
    for number in range(3):
        serial = known.draw_serial() if number else None
        sha256 = f"{number:064x}" if number else None
        made.append(stamped(position=known.reserve(KEY.id), serial=serial, sha256=sha256))
        known.append(made[-1])
    known.draw_serial()  # of an embedding that failed
    return made


def test_a_registry_comes_back_as_it_was(place: Path | str, party: Party, tmp_path: Path) -> None:
    with Registry(place) as known:
        made = fill(known, party, tmp_path)
        lines = list(known.exported())
        keys = known.key_files()
    with Registry(tmp_path / "other.sqlite") as other:
        assert other.import_lines(lines) == Imported(3, 0, 1, 1)
        assert [entry.stamped for entry in other.records()] == made
        assert other.list() == (replace(party, next_position=3),)
        assert (other.key_files(), other.issuer) == (keys, 7)
        assert other.provider == Declared("Example Ltd", fields={"lang": "en"})
        assert other.counts() == {"parties": 1, "records": 3, "serials": 3, "void": 1}
        assert list(other.exported()) == lines
        assert other.reserve(KEY.id) == 3  # and 9 is used up too
        with pytest.raises(RegistryError, match="was given before"):
            other.reserve(KEY.id, 9)
    assert not any(KEY.secret.hex().encode() in line for line in lines)


def test_a_second_import_is_refused_and_changes_nothing(
    place: Path | str, party: Party, tmp_path: Path
) -> None:
    with Registry(tmp_path / "other.sqlite") as other:
        fill(other, party, tmp_path)
        lines = list(other.exported())
    with Registry(place) as known:
        known.import_lines(lines)
        before = list(known.exported())
        with pytest.raises(RegistryError, match="line 4: record 1 is the same one"):
            known.import_lines(lines)
        assert list(known.exported()) == before


def test_what_is_changed_or_cut_short_is_refused(
    place: Path | str, party: Party, tmp_path: Path
) -> None:
    with Registry(tmp_path / "other.sqlite") as other:
        fill(other, party, tmp_path)
        lines = list(other.exported())
    first = next(at for at, line in enumerate(lines) if line.startswith(b'{"mac"'))
    changed = lines[first].replace(b'"rate":48000', b'"rate":44100')
    with Registry(place) as known:
        for wrong, words in (
            (lines[:-1], "cut short"),
            ([*lines[:-2], lines[-1]], "lines are missing"),
            ([*lines[:first], *lines[first + 1 :]], "lines are missing"),
            (lines[1:], "line 1: this is no line of a registry"),
            ([*lines[:first], changed, *lines[first + 1 :]], f"line {first + 1}: .*was changed"),
            ([lines[0], b'{"more":1}\n'], "line 2: this is no line"),
            ([lines[0], b'{"serial":-1}\n'], "line 2: this is no line"),
            ([lines[0], b'{"stream":{"key":"a","next":"1"}}\n'], "line 2: this is no line"),
            ([b"\xff\xfe"], "line 1: this is no line"),
            ([], "cut short"),
        ):
            with pytest.raises(KeyBoundError, match=words):
                known.import_lines(wrong)
        assert known.counts() == {"parties": 0, "records": 0, "serials": 0, "void": 0}
        assert known.issuer is None


def test_records_whose_key_is_not_here_are_counted(
    place: Path | str, party: Party, tmp_path: Path
) -> None:
    with Registry(tmp_path / "other.sqlite") as other:
        fill(other, party, tmp_path)
        lines = list(other.exported())
    party.key_file.unlink()
    with Registry(place) as known:
        assert known.import_lines(lines) == Imported(3, 3, 1, 1)


def test_two_registries_can_become_one(place: Path | str, party: Party, tmp_path: Path) -> None:
    with Registry(tmp_path / "other.sqlite") as other:
        fill(other, party, tmp_path)
        lines = list(other.exported())
    with Registry(place) as known:
        known.add(party)
        known.set_issuer(7)
        own = known.rotate_key(tmp_path / "own.key")
        for _ in range(20):
            known.reserve(KEY.id)
        known.append(stamped(position=19, serial=known.draw_serial()))
        assert known.import_lines(lines) == Imported(3, 0, 0, 1)
        assert len(known.records()) == 4
        assert known.key_files()[0] == own  # it is newer
        assert len(known.key_files()) == 2
        assert known.next_position(KEY.id) == 20
    with Registry(tmp_path / "third.sqlite") as third:
        third.add(replace(party, payload=1))
        with pytest.raises(RegistryError, match="another party 'alice' is here already"):
            third.import_lines(lines)
        third.remove("alice")
        third.set_issuer(8)
        with pytest.raises(RegistryError, match="the issuer's number of this registry is 8"):
            third.import_lines(lines)


@st.composite
def made(draw: st.DrawFn) -> Record:
    return replace(
        RECORD,
        position=draw(st.none() | st.integers(0, 99)),
        sha256=draw(st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex)),
        serial=draw(st.integers(0, 2**40 - 1)),
        registry_key=KEY.id,
        created=draw(st.datetimes(timezones=st.just(UTC))),
        declared=Declared(fields=draw(st.dictionaries(st.text("aé\n€", max_size=3), st.none()))),
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(made(), max_size=6, unique_by=lambda one: one.serial),
    st.sets(st.integers(0, 2**40 - 1), max_size=4),
    st.datetimes(timezones=st.just(UTC)),
)
def test_any_registry_comes_back(kept: list[Record], void: set[int], before: datetime) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with Registry(Path(folder) / "one.sqlite") as one:
            for record in kept:
                one.append(records.stamp(record, KEY))
            draws = iter(sorted(void - {record.serial for record in kept}))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(identifier, "draw", lambda: next(draws))
                for _ in range(len(void - {record.serial for record in kept})):
                    one.draw_serial()
            forgotten = [record for record in kept if record.created < before]
            assert one.forget(before, dry_run=True) == len(forgotten)
            assert one.forget(before) == len(forgotten)
            lines = list(one.exported())
            drawn = one.counts()["serials"]
        with Registry(Path(folder) / "two.sqlite") as two:
            told = two.import_lines(lines)
            assert told.records == told.unchecked == len(kept) - len(forgotten)
            assert list(two.exported()) == lines
            assert two.counts()["serials"] == drawn == len(void | {one.serial for one in kept})
            for record in forgotten:
                assert record.serial is not None
                assert two.of_serial(record.serial) is None


# Records that are forgotten


def test_a_forgotten_record_is_gone_and_its_serial_void(
    place: Path | str, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [RECORD.created + timedelta(days=day) for day in range(4)]
    with Registry(place) as known:
        known.add(party)
        for number, created in enumerate(times):
            position = known.reserve(KEY.id)
            known.append(stamped(position=position, serial=100 + number, created=created))
        lines = list(known.exported())
        assert known.forget(times[2]) == 2  # those before it, and not itself
        assert known.forget(times[2]) == 0
        assert [entry.number for entry in known.records()] == [3, 4]
        assert known.of_serial(100) is None
        assert known.of_serial(102) is not None
        numbers = iter([100, 101, 102, 103, 104])
        monkeypatch.setattr(identifier, "draw", lambda: next(numbers))
        assert known.draw_serial() == 104
        assert known.reserve(KEY.id) == 4
        assert known.append(stamped(position=4, serial=104)) == 5  # no number is used twice
    void = "serial 0000000064 is void here"
    with Registry(place) as known, pytest.raises(RegistryError, match=void):
        known.import_lines(lines)


def test_what_was_forgotten_is_not_left_in_the_file(path: Path) -> None:
    with Registry(path) as known:
        for number in range(50):
            known.append(stamped(position=number, nonce=b"to be forgotten"))
        assert b"to be forgotten" in path.read_bytes()
        known.forget(datetime(2027, 1, 1, tzinfo=UTC))
    assert b"to be forgotten" not in path.read_bytes()


# What machines left


def test_what_a_machine_left_can_be_settled_from_another(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYBOUND_MACHINE", "gone")
    with Registry(place) as known:
        tasks = known.reserve_for(KEY.id, ["a", "b"])
        waiting = stamped(position=0, serial=tasks["a"].serial, sha256="ab" * 32)
        values = (waiting.to_bytes(), "gone", b"/of/gone/out.bin", b"/of/gone/.keybound-0")
        insert = "INSERT INTO pending (data, machine, output, stage) VALUES (?, ?, ?, ?)"
        known._database.execute(insert, values)
    monkeypatch.setenv("KEYBOUND_MACHINE", "here")
    with Registry(place) as known:
        known.reserve_for(KEY.id, ["a"])
        left = [tuple(one) for one in known.unfinished()]
        assert left == [("gone", 1, 2), ("here", 0, 1)]
        assert tuple(known.settle("gone")) == ("gone", 1, 2)
        assert [entry.stamped for entry in known.records()] == [waiting]
        assert [one.machine for one in known.unfinished()] == ["here"]
        assert tuple(known.settle(stages.machine())) == ("here", 0, 1)
        assert known.unfinished() == ()
        assert known.reserve(KEY.id) == 3
