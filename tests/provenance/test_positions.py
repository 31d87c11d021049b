"""Positions of a key's stream: each is given once, whoever asks, whatever happens."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from test_registry_file import KEY as SECRET
from test_registry_file import RECORD

from keybound.crypto.keys import Key
from keybound.crypto.keystream import POSITIONS
from keybound.errors import CodeError, RegistryError
from keybound.provenance import records
from keybound.provenance.parties import Party
from keybound.provenance.positions import Reserved
from keybound.provenance.registry import Registry

Run = Callable[..., Any]  # to the outcome of `run` in conftest

KEY = SECRET.id
OTHER = Key(bytes(32)).id


# In the registry


def placed(given: dict[str, Reserved]) -> dict[str, int]:
    """Give the positions of tasks."""
    return {task: one.position for task, one in given.items()}


def test_positions_belong_to_the_key(place: Path | str, party: Party) -> None:
    with Registry(place) as one, Registry(place) as two:
        one.add(party)
        one.add(replace(party, name="bob"))  # with the same key
        assert [one.reserve(KEY), two.reserve(KEY), one.reserve(KEY)] == [0, 1, 2]
        assert one.reserve(OTHER) == 0
        assert [two.get(name).next_position for name in ("alice", "bob")] == [3, 3]
        assert (two.next_position(KEY), two.next_position(OTHER), two.next_position("0" * 16)) == (
            3,
            1,
            0,
        )
        one.remove("alice")
        one.add(party)
        assert one.get("alice").next_position == 3
        assert one.reserve(KEY) == 3


def test_positions_that_no_record_has_are_told(place: Path | str) -> None:
    with Registry(place) as known:
        assert known.unrecorded(KEY, 256) == []
        known.reserve(KEY, 6)
        assert [known.reserve(KEY) for _ in range(5)] == [0, 1, 2, 3, 4]
        for position in (1, 3):
            known.append(records.stamp(replace(RECORD, position=position), SECRET))
        assert known.unrecorded(KEY, 256) == [0, 2, 4, 6]
        assert known.unrecorded(KEY, 3) == [0, 2]
        assert known.unrecorded(OTHER, 256) == []


def test_a_position_that_is_asked_for_is_given_once(place: Path | str) -> None:
    with Registry(place) as known:
        assert known.reserve(KEY, 2) == 2
        assert [known.reserve(KEY) for _ in range(3)] == [0, 1, 3]  # without the one that is taken
        for taken in (0, 2, 3):
            with pytest.raises(RegistryError, match=f"position {taken} of key .* was given before"):
                known.reserve(KEY, taken)
        assert known.reserve(KEY, POSITIONS - 1) == POSITIONS - 1
        with pytest.raises(RegistryError, match="was given before"):
            known.reserve(KEY, POSITIONS - 1)
        with pytest.raises(CodeError, match="does not exist"):
            known.reserve(KEY, POSITIONS)
        assert known.reserve(KEY) == 4  # a refusal leaves nothing locked
        assert known.reserve(OTHER, 2) == 2
        assert known.next_position(KEY) == 5


def test_tasks_keep_their_positions_until_they_end(place: Path | str) -> None:
    with Registry(place) as known:
        first = known.reserve_for(KEY, ["a", "b"])
        assert placed(first) == {"a": 0, "b": 1}
    with Registry(place) as known:
        again = known.reserve_for(KEY, ["b", "c", "a"])
        assert placed(again) == {"b": 1, "c": 2, "a": 0}
        assert {task: again[task] for task in first} == first  # serials too
        known.void(KEY, 1)
        other = known.reserve_for(KEY, ["b"])
        assert placed(other) == {"b": 3}  # what failed is void
        assert placed(known.reserve_for(OTHER, ["a"])) == {"a": 0}
        assert len({one.serial for one in (*again.values(), *other.values())}) == 4
        known.reserve(KEY, 9)
        known.void(KEY, 9)  # no task had it
        with pytest.raises(RegistryError, match="was given before"):
            known.reserve(KEY, 9)


def test_many_at_once_never_get_the_same(place: Path | str) -> None:
    start = threading.Barrier(8)

    def draw(number: int) -> list[int]:
        start.wait()
        with Registry(place) as known:
            mine = [known.reserve(KEY) for _ in range(5)]
            tasks = [f"{number} {n}" for n in range(5)]
            return mine + list(placed(known.reserve_for(KEY, tasks)).values())

    with ThreadPoolExecutor(8) as pool:
        given = [place for mine in pool.map(draw, range(8)) for place in mine]
    assert sorted(given) == list(range(80))


def test_the_last_position_is_the_last(place: Path | str) -> None:
    with Registry(place) as known:
        known.reserve(KEY)
        known._database.execute("UPDATE stream SET next = ?", (POSITIONS - 1,))
        assert known.reserve(KEY) == POSITIONS - 1
        with pytest.raises(RegistryError, match="has no position left"):
            known.reserve(KEY)


# On the command line


@pytest.fixture
def parties(run: Run, key: Path) -> None:
    """Two parties with one key."""
    for name, payload in (("alice", "0x5eed"), ("bob", "7")):
        assert run("party", "add", name, "--key", key, "--payload", payload).code == 0


@pytest.mark.usefixtures("parties")
def test_no_position_is_used_twice(run: Run, key: Path, host: Path, refused: Run) -> None:
    def position(name: str, *more: object) -> Any:
        made = run("embed", host, f"{name}.wav", "--no-check", "--json", *more)
        assert made.code == 0, made.err
        assert made.json["position_recurs"] is False
        return made.json["position"]

    assert position("a", "--party", "alice") == 0
    assert position("b", "--party", "bob") == 1
    run("party", "remove", "alice")
    run("party", "add", "alice", "--key", key, "--payload", "0x5eed")
    assert position("c", "--party", "alice") == 2
    assert position("d", "--party", "bob", "--position", "4") == 4
    again = refused("embed", host, "e.wav", "--party", "alice", "--position", "4")
    assert f"position 4 of key {KEY} was given before (" in again.err
    again = refused("embed", host, "e.wav", "--party", "alice", "--position", "1")
    assert f"position 1 of key {KEY} was given before (" in again.err
    sf.write("silence.wav", np.zeros(32_000), 16_000)
    failed = refused("embed", "silence.wav", "f.wav", "--party", "alice")  # which leaves 3 void
    assert "the recording is silent" in failed.err
    assert position("f", "--party", "alice") == 5
    listed = run("party", "list", "--json").out.splitlines()
    assert [json.loads(row)["next_position"] for row in listed] == [6, 6]


@pytest.mark.usefixtures("home")
def test_without_a_registry_positions_are_said_to_recur(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", "0x5eed", "--no-check", "--json")
    made = run("embed", host, "a.wav", *whose)
    assert made.json["position_recurs"] is True
    assert made.json["position"] < 256
    said = f"keybound: sealed at position {made.json['position']}, one of 256 that recur ("
    assert made.err.startswith(said)
    chosen = run("embed", host, "b.wav", *whose, "--position", "3")
    assert chosen.json["position_recurs"] is False
    assert chosen.err == "keybound: sealed at position 3\n"
    assert run("embed", host, "c.wav", *whose, "--no-seal").json["position_recurs"] is False
