"""Identifiers in a corpus, and what the records of a party say of each recording."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_corpus import RATE, done, rows, times

from keybound.audio import recordings
from keybound.batch import corpus, journal, manifest, worker
from keybound.batch.job import Claimant, Job, Task
from keybound.crypto.keys import Key
from keybound.provenance.registry import Registry
from keybound.watermark.options import DetectOptions
from keybound.watermark.watermarker import Watermarker

Run = Callable[..., Any]  # to the outcome of `run` in conftest
Samples = np.ndarray[Any, Any]

DATA = Path(__file__).parents[1] / "data"
SECRET, PAYLOAD = bytes(range(32)), 0x5EED  # of alice
MARKING = ("batch", "embed", "in", "--out", "out", "--party", "alice", "--jobs", 1)
MARKING += ("--results", "e.parquet", "--excerpt", "1")
VERIFYING = ("batch", "verify", "heard", "--party", "alice", "--jobs", 1, "--results", "v.parquet")


@pytest.fixture(scope="session")
def hosts() -> dict[str, Samples]:
    """Ten seconds of each of two voices."""
    names = ("flite-rms", "espeak-ng-gb")
    read = {name: recordings.read(DATA / f"{name}.flac") for name in names}
    once = {n: recordings.resample(r.samples[:, 0], r.sample_rate, RATE) for n, r in read.items()}
    return {name: np.resize(samples, 10 * RATE) for name, samples in once.items()}


@pytest.fixture
def corpus_of_alice(run: Run, home: Path, hosts: dict[str, Samples]) -> None:
    """Two recordings in the folder in; alice is registered."""
    (home / "in").mkdir()
    (home / "heard").mkdir()
    for name, samples in hosts.items():
        sf.write(f"in/{name}.wav", samples, RATE)
    assert run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD).code == 0


def interrupted(samples: Samples) -> Samples:
    """Leave 30 ms out of every second: the pattern is lost, and the code is not."""
    kept = int(0.97 * RATE)
    return np.concatenate([samples[n : n + kept] for n in range(0, len(samples), RATE)])


def replayed(marker: Watermarker, marked: Samples, onto: Samples) -> Samples:
    """Read the codes with the public networks and write them on other audio."""
    logits = marker.detect(marked, RATE).frame_logits
    seconds = [logits[50 * s : 50 * s + 50].mean(axis=0) > 0 for s in range(len(marked) // RATE)]
    read = np.stack(seconds).astype(np.uint8)
    carrier = marker.networks.carrier(onto, lambda b: read[np.clip(b // 50, 0, len(read) - 1)])
    return np.asarray(onto + carrier)


def copies(marker: Watermarker, hosts: dict[str, Samples], row: dict[str, Any]) -> None:
    """Make what may have become of a marked recording, and copies of its mark."""
    marked = sf.read(row["output"], dtype="float32")[0]
    other = hosts["flite-rms"][::-1].copy()
    sf.write("heard/interrupted.wav", interrupted(marked), RATE)
    sf.write("heard/replayed.wav", replayed(marker, marked, other), RATE)
    secret: Any = {"key": Key(SECRET), "payload": PAYLOAD, "position": row["position"]}
    sf.write("heard/moved.wav", marker.embed(other, RATE, **secret, check=False), RATE)
    sf.write("heard/bare.wav", hosts["flite-rms"], RATE)


@pytest.mark.usefixtures("corpus_of_alice")
def test_records_say_what_is_sealed_and_what_was_copied(
    run: Run, home: Path, hosts: dict[str, Samples], marker: Watermarker
) -> None:
    assert run(*MARKING).code == 0
    marked = {Path(row["path"]).stem: row for row in rows("e.parquet")}
    copies(marker, hosts, marked["flite-rms"])
    outcome = run(*VERIFYING)
    assert outcome.code == 0, outcome.err
    assert "1 sealed, 1 attributed, 2 on other audio; results in v.parquet" in outcome.out
    found = {Path(row["path"]).stem: row for row in rows("v.parquet")}
    told = {name: (row["grade"], row["origin"]) for name, row in found.items()}
    assert told == {
        "bare": ("none", None),
        "moved": ("attributed", "other"),
        "interrupted": ("sealed", "same"),
        "replayed": ("present", "other"),
    }
    assert found["interrupted"]["record"] == marked["flite-rms"]["record"]
    for name in ("interrupted", "replayed"):
        assert found[name]["identifier"] == marked["flite-rms"]["identifier"]
    assert found["interrupted"]["seal_p"] > 1e-6  # the record was needed
    assert found["moved"]["seal_p"] < 1e-6
    for name in ("moved", "interrupted", "replayed"):  # as it is of one recording
        alone = run("verify", f"heard/{name}.wav", "--party", "alice", "--json").json
        assert (alone["grade"], alone["origin"]["match"]) == told[name]
        assert alone["origin"]["record"] == found[name]["record"]

    assert "done before: 4 of 4" in run(*VERIFYING).err
    every = run("batch", "verify", "heard", "--any", "--jobs", 1, "--results", "any.jsonl")
    assert ", 1 sealed, 1 attributed, 2 on other audio" in every.out
    naming = run("batch", "identify", "heard", "--jobs", 1, "--results", "i.jsonl")
    assert ", 1 sealed, 0 attributed, 1 on other audio" in naming.out
    named = map(json.loads, (home / "i.jsonl").read_text().splitlines())
    told = {Path(row["path"]).stem: (row["grade"], row["party"], row["record"]) for row in named}
    record = marked["flite-rms"]["record"]
    assert told["interrupted"], told["replayed"] == (
        ("sealed", "alice", record),
        ("present", "alice", record),
    )
    assert (told["bare"], told["moved"]) == (("none", None, None), ("present", None, None))
    key = ("--key", "alice.key", "--payload", PAYLOAD, "--results", "key.jsonl", "--jobs", 1)
    run("batch", "verify", "heard/interrupted*", *key)
    (row,) = map(json.loads, (home / "key.jsonl").read_text().splitlines())
    assert (row["grade"], row["party"], row["record"]) == ("present", None, None)


@pytest.mark.usefixtures("corpus_of_alice")
def test_each_mark_of_a_joined_recording_is_in_its_row(run: Run) -> None:
    assert run("party", "add", "bob", "--key", "alice.key", "--payload", 7).code == 0
    made, parts = [], []
    for name, who in (("flite-rms", "alice"), ("espeak-ng-gb", "bob")):
        asked = ("embed", f"in/{name}.wav", f"{name}.wav", "--party", who, "--json")
        made.append((who, (own := run(*asked).json)["record"], own["identifier"]))
        parts.append(sf.read(f"{name}.wav")[0])
    sf.write("heard/joined.wav", np.concatenate(parts), RATE)
    sf.write("heard/silence.wav", np.zeros(RATE), RATE)
    naming = ("batch", "identify", "heard", "--jobs", 1, "--results")
    for table in ("i.jsonl", "i.parquet"):
        assert run(*naming, table).code == 0
    plain = [json.loads(line) for line in Path("i.jsonl").read_text().splitlines()]
    for row, other in zip(plain, rows("i.parquet"), strict=True):
        assert row | {"took_s": 0} == other | {"took_s": 0}
    joined, silent = plain
    assert silent["identified"] == []
    told = {(one["party"], one["record"], one["identifier"]) for one in joined["identified"]}
    assert told == set(made)
    assert {one["grade"] for one in joined["identified"]} == {"sealed"}
    best = joined["identified"][0]
    for name in ("party", "record", "identifier", "grade", "spans", "bound"):
        assert joined[name] == best[name]
    Path("i.jsonl").unlink()
    assert "done before: 2 of 2" in run(*naming, "i.jsonl").err  # made anew from the journal
    assert json.loads(Path("i.jsonl").read_text().splitlines()[0]) == joined


@pytest.mark.usefixtures("corpus_of_alice")
def test_a_record_that_was_changed_fails_the_row(
    run: Run, change_records: Callable[[bytes, bytes], None]
) -> None:
    assert run(*MARKING).code == 0
    change_records(b"alice", b"alicf")
    outcome = run(*(arg if arg != "heard" else "out" for arg in VERIFYING))
    assert outcome.code == 2
    assert "2 failed, 0 left, 0 sealed, 0 attributed" in outcome.out
    assert "record 1: the record was changed" in outcome.err


@pytest.mark.usefixtures("corpus_of_alice")
def test_what_workers_hear_travels_as_text(run: Run, home: Path) -> None:
    """Ray carries entries as JSON: so does this executor, which is all that it shares with Ray."""
    assert run(*MARKING).code == 0

    def by_text(job: Job, tasks: Iterable[Task]) -> Iterator[tuple[str, journal.Row]]:
        for task in tasks:
            yield task.name, json.loads(json.dumps(worker.Worker(job)(task)))

    items = manifest.read("out")
    ended: list[journal.Row] = []
    with Registry(home / "registry.sqlite") as known, journal.Journal(home / "j", {}) as book:
        place = str(home / "registry.sqlite")
        job = Job("verify", None, corpus.everyone(known, 16)[0], registry=place)
        planned = corpus.plan(job, items, [None] * len(items), book, force=False)
        corpus.run(job, planned, book, by_text, ended.append, known)
        count = corpus.conclude(planned, items, book, home / "r.jsonl")
    assert [(row["origin"], row["party"]) for row in ended] == [("same", "alice")] * 2
    assert (count["sealed"], count["other"]) == (2, 0)


@pytest.mark.usefixtures("corpus_of_alice")
def test_an_output_that_a_kill_left_is_taken_if_it_has_the_identifier(
    run: Run, home: Path, hosts: dict[str, Samples], marker: Watermarker
) -> None:
    assert run(*MARKING).code == 0
    assert "done before: 2 of 2" in run(*MARKING).err
    fixed = run(*(arg if arg != "1" else "3" for arg in MARKING))
    assert fixed.code == 2  # another choice is other work
    assert "exist already" in fixed.err
    book = home / "e.parquet.journal"
    noted = {Path(row["output"]).stem: row for row in rows("e.parquet")}
    lines = [line for line in book.read_text().splitlines(True) if '"done"' not in line]
    book.write_text("".join(lines))
    # One of the two has since been marked for the same party, without an identifier.
    secret: Any = {"key": Key(SECRET), "payload": PAYLOAD}
    secret["position"] = noted["flite-rms"]["position"]
    sf.write(
        "out/flite-rms.wav", marker.embed(hosts["flite-rms"], RATE, **secret, check=False), RATE
    )
    before = times(home / "out")
    outcome = run(*MARKING)
    assert outcome.code == 2
    assert "out/flite-rms.wav exists (--force replaces it)" in outcome.err
    assert times(home / "out") == before
    (taken,) = [entry["row"] for entry in done(book) if entry["row"]["status"] == "ok"]
    assert taken["grade"] == "sealed"
    assert taken["record"] == noted["espeak-ng-gb"]["record"]  # the one it has: no second is made
    assert run(*MARKING, "--force").code == 0
    assert (
        times(home / "out")[home / "out/espeak-ng-gb.wav"] == before[home / "out/espeak-ng-gb.wav"]
    )


def test_the_names_of_tasks_cover_what_decides_their_results() -> None:
    """Journals of runs that would give another result are not taken up again."""
    one = Claimant("alice", "k", "ab" * 8, 1, 2)
    seen = Claimant("alice", "k", "ab" * 8, 1, 2, recorded=True)
    item = manifest.Item("a.wav", "/a.wav", "/b.wav")

    def name(verb: str, who: Claimant, **how: Any) -> str:
        return corpus.digest(Job(verb, None, (who,), **how), item, who, "m")

    assert name("embed", one) == name("embed", seen) == "3a9821c1e0a0f8091332a9f3"
    assert name("embed", one) != name("embed", one, excerpt=1.0)
    reading = [{}, {"how": DetectOptions(1e-4)}, {"how": DetectOptions(speed=0.1)}]
    assert len({name("verify", one, **how) for how in reading}) == 3
    assert name("verify", seen) != name("verify", one)  # then nothing was compared


# Whose it is, among many


@pytest.mark.usefixtures("corpus_of_alice")
def test_an_identifier_tells_whose_it_is_among_many(run: Run, home: Path) -> None:
    for number in range(21):
        Key(bytes([number]) * 32).write(home / f"{number}.key")
        run("party", "add", f"{number}", "--key", f"{number}.key", "--payload", number)
    assert run(*MARKING).code == 0
    outcome = run("batch", "verify", "out/flite*", "--any", "--jobs", 1, "--results", "v.jsonl")
    assert outcome.code == 0, outcome.err
    (row,) = map(json.loads, (home / "v.jsonl").read_text().splitlines())
    assert (row["party"], row["grade"], row["tries"]) == ("alice", "sealed", 22)
    assert (row["untried"], row["searched"]) == (0, "start")


def test_a_party_without_its_key_keeps_no_other_from_a_batch(
    run: Run, home: Path, hosts: dict[str, Samples], marker: Watermarker
) -> None:
    (home / "heard").mkdir()
    secret: Any = {"key": Key(SECRET), "payload": PAYLOAD, "position": 7}
    sf.write("heard/a.wav", marker.embed(hosts["flite-rms"], RATE, **secret, check=False), RATE)
    Key(bytes(32)).write(home / "bob.key")
    run("party", "add", "bob", "--key", "bob.key", "--payload", 1)
    (home / "bob.key").unlink()
    verifying = ("batch", "verify", "heard", "--any", "--jobs", 1, "--results", "v.jsonl")
    alone = run(*verifying)
    assert alone.code == 2  # nobody can be tried
    assert "bob.key' does not exist" in alone.err
    run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD)
    outcome = run(*verifying)
    assert outcome.code == 0, outcome.err
    assert "not tried: party 'bob': key file" in outcome.err
    (row,) = map(json.loads, (home / "v.jsonl").read_text().splitlines())
    assert (row["party"], row["grade"], row["untried"]) == ("alice", "sealed", 1)


@pytest.mark.usefixtures("corpus_of_alice")
def test_short_recordings_are_found_by_their_audio(run: Run, hosts: dict[str, Samples]) -> None:
    sf.write("in/short.wav", hosts["flite-rms"][: 3 * RATE], RATE)
    assert run(*MARKING).code == 0
    made = {Path(row["path"]).stem: row for row in rows("e.parquet")}
    assert (made["short"]["identifier"], made["short"]["grade"]) == (None, "sealed")
    assert len(made["flite-rms"]["identifier"]) == 10
    outcome = run(*(arg if arg != "heard" else "out" for arg in VERIFYING))
    assert outcome.code == 0, outcome.err
    for row in rows("v.parquet"):
        assert (row["grade"], row["origin"], row["distance"]) == ("sealed", "same", 0)
        assert row["rule_holds"]
