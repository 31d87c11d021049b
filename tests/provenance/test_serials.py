"""Serials: each is drawn once, belongs to one record, and stays void when that is gone."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_registry_file import KEY, RECORD

from keybound.errors import RegistryError
from keybound.identity import identifier
from keybound.provenance import records
from keybound.provenance.records import Stamped
from keybound.provenance.registry import Registry


def stamped(serial: int, position: int = 0) -> Stamped:
    one = replace(RECORD, serial=serial, registry_key=KEY.id, position=position)
    return records.stamp(one, KEY)


def test_a_record_is_found_by_its_serial(place: Path | str) -> None:
    with Registry(place) as known:
        serials = [known.draw_serial() for _ in range(5)]
        assert len(set(serials)) == 5
        assert all(0 <= one < 1 << identifier.SERIAL_BITS for one in serials)
        for position, serial in enumerate(serials[:4]):
            known.append(stamped(serial, position))
        assert known.append(records.stamp(RECORD, KEY)) == 5  # without one
        found = known.of_serial(serials[2])
        assert found is not None
        assert (found.number, found.stamped) == (3, stamped(serials[2], 2))
        assert known.of_serial(serials[4]) is None  # drawn, and never used


def test_two_records_cannot_have_one_serial(place: Path | str) -> None:
    with Registry(place) as known:
        known.append(stamped(7))
        with pytest.raises(RegistryError, match="a record with serial 0000000007 already"):
            known.append(stamped(7, 1))
        assert len(known.records()) == 1


def test_a_serial_that_was_drawn_is_not_drawn_again(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.chain([1, 1, 2, 1, 2, 3, 2, 3, 4, 5, 1, 2, 6, 7], itertools.count(8))
    monkeypatch.setattr(identifier, "draw", lambda: next(numbers))
    with Registry(place) as known:
        known.append(stamped(4))  # of an import: its serial is taken too
        assert [known.draw_serial() for _ in range(4)] == [1, 2, 3, 5]
        given = known.reserve_for(KEY.id, ["a", "b", "c"])
        assert sorted(one.serial for one in given.values()) == [6, 7, 8]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12))
def test_whatever_is_drawn_in_whichever_way_is_new(steps: list[tuple[bool, int]]) -> None:
    import tempfile

    drawn: list[int] = []
    rng = iter(range(10**6))

    def few() -> int:  # so few numbers that they recur
        return next(rng) * 7919 % 53

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(identifier, "draw", few)
        with Registry(Path(folder) / "registry.sqlite") as known:
            for number, (by_task, count) in enumerate(steps):
                if len(drawn) + count > 50:
                    break
                if by_task:
                    tasks = [f"{number} {n}" for n in range(count)]
                    drawn += [one.serial for one in known.reserve_for(KEY.id, tasks).values()]
                else:
                    drawn += [known.draw_serial() for _ in range(count)]
    assert len(set(drawn)) == len(drawn)


def test_many_at_once_never_draw_the_same(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, numbers = threading.Barrier(6), itertools.count()
    monkeypatch.setattr(identifier, "draw", lambda: next(numbers) * 31 % 83)

    def draw(_: int) -> list[int]:
        start.wait()
        with Registry(place) as known:
            return [known.draw_serial() for _ in range(10)]

    with ThreadPoolExecutor(6) as pool:
        drawn = [one for mine in pool.map(draw, range(6)) for one in mine]
    assert len(set(drawn)) == 60
