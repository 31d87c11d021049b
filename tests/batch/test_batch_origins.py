"""Rolling codes in a corpus, and what the records of a party say of each recording."""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from made_corpus import RATE, done, rows, times

from keybound.audio import recordings
from keybound.batch import corpus, journal, manifest, worker
from keybound.batch.origins import candidates
from keybound.crypto.keys import Key
from keybound.provenance.registry import Registry
from keybound.seal.search import NOTHING, Sealed
from keybound.watermark.options import DetectOptions
from keybound.watermark.watermarker import Watermarker

Run = Callable[..., Any]  # to the outcome of `run` in conftest
Samples = np.ndarray[Any, Any]

DATA = Path(__file__).parents[1] / "data"
SECRET, PAYLOAD = bytes(range(32)), 0x5EED  # of alice
MARKING = ("batch", "embed", "in", "--out", "out", "--party", "alice", "--jobs", 1, "--rolling")
MARKING += ("--results", "e.parquet")
VERIFYING = ("batch", "verify", "heard", "--party", "alice", "--jobs", 1, "--results", "v.parquet")


@pytest.fixture(scope="session")
def hosts() -> dict[str, Samples]:
    """Six seconds of each of two voices."""
    names = ("flite-rms", "espeak-ng-gb")
    read = {name: recordings.read(DATA / f"{name}.flac") for name in names}
    once = {n: recordings.resample(r.samples[:, 0], r.sample_rate, RATE) for n, r in read.items()}
    return {name: np.resize(samples, 6 * RATE) for name, samples in once.items()}


@pytest.fixture
def corpus_of_alice(run: Run, home: Path, hosts: dict[str, Samples]) -> None:
    """Two recordings in the folder in; alice is registered."""
    (home / "in").mkdir()
    (home / "heard").mkdir()
    for name, samples in hosts.items():
        sf.write(f"in/{name}.wav", samples, RATE)
    assert run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD).code == 0


def noisy(samples: Samples) -> Samples:
    """Add noise in which the pattern is lost, and the code is not."""
    level = np.sqrt(np.mean(samples**2)) * 10 ** (-10 / 20)
    noise = np.random.default_rng(0).normal(size=len(samples))
    return np.asarray((samples + level * noise) * 0.5)


def replayed(marker: Watermarker, marked: Samples, onto: Samples) -> Samples:
    """Read a rolling code with the public networks and write it on other audio."""
    logits = marker.detect(marked, RATE).frame_logits
    seconds = [logits[50 * s : 50 * s + 50].mean(axis=0) > 0 for s in range(len(marked) // RATE)]
    read = np.stack(seconds).astype(np.uint8)
    carrier = marker.networks.carrier(onto, lambda b: read[np.clip(b // 50, 0, len(read) - 1)])
    return np.asarray(onto + carrier)


def copies(marker: Watermarker, hosts: dict[str, Samples], row: dict[str, Any]) -> None:
    """Make what may have become of a marked recording, and copies of its mark."""
    marked = sf.read(row["output"], dtype="float32")[0]
    other = hosts["flite-rms"][::-1].copy()
    sf.write("heard/noisy.wav", noisy(marked), RATE)
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
    assert "1 sealed, 2 attributed, 2 on other audio; results in v.parquet" in outcome.out
    found = {Path(row["path"]).stem: row for row in rows("v.parquet")}
    told = {name: (row["grade"], row["origin"]) for name, row in found.items()}
    assert told == {
        "bare": ("none", None),
        "moved": ("attributed", "other"),
        "noisy": ("sealed", "same"),
        "replayed": ("attributed", "other"),
    }
    assert found["noisy"]["record"] == marked["flite-rms"]["record"]
    assert found["noisy"]["position"] == marked["flite-rms"]["position"]
    assert found["noisy"]["roll_p"] < 1e-6 < found["noisy"]["seal_p"]  # the record was needed
    assert found["moved"]["seal_p"] < 1e-6
    for name in ("moved", "noisy", "replayed"):  # as it is of one recording
        alone = run("verify", f"heard/{name}.wav", "--party", "alice", "--json").json
        assert (alone["grade"], alone["origin"]["match"]) == told[name]
        assert alone["origin"]["record"] == found[name]["record"]

    assert "sketch" not in (home / "v.parquet.journal").read_text()
    assert "done before: 4 of 4" in run(*VERIFYING).err
    every = run("batch", "verify", "heard", "--any", "--jobs", 1, "--results", "any.jsonl")
    assert ", 1 sealed, 2 attributed, 2 on other audio" in every.out
    key = ("--key", "alice.key", "--payload", PAYLOAD, "--results", "key.jsonl", "--jobs", 1)
    run("batch", "verify", "heard/noisy*", *key)
    (row,) = map(json.loads, (home / "key.jsonl").read_text().splitlines())
    assert (row["grade"], row["origin"], row["record"]) == ("attributed", "none", None)


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

    def by_text(job: worker.Job, tasks: Iterable[worker.Task]) -> Iterator[tuple[str, journal.Row]]:
        for task in tasks:
            yield task.name, json.loads(json.dumps(worker.Worker(job)(task)))

    items = manifest.read("out")
    ended: list[journal.Row] = []
    with Registry(home / "registry.sqlite") as known, journal.Journal(home / "j", {}) as book:
        job = worker.Job("verify", None, corpus.everyone(known, 16)[0])
        planned = corpus.plan(job, items, [None] * len(items), book, force=False)
        corpus.run(job, planned, book, by_text, ended.append, known)
        count = corpus.conclude(planned, items, book, home / "r.jsonl")
    assert [(row["origin"], row["party"]) for row in ended] == [("same", "alice")] * 2
    assert (count["sealed"], count["other"]) == (2, 0)


@pytest.mark.usefixtures("corpus_of_alice")
def test_an_output_that_a_kill_left_is_taken_if_its_code_rolls(
    run: Run, home: Path, hosts: dict[str, Samples], marker: Watermarker
) -> None:
    assert run(*MARKING).code == 0
    assert "done before: 2 of 2" in run(*MARKING).err
    fixed = run(*(arg for arg in MARKING if arg != "--rolling"))
    assert fixed.code == 2  # another choice is other work
    assert "exist already" in fixed.err
    book = home / "e.parquet.journal"
    noted = {Path(row["output"]).stem: row for row in rows("e.parquet")}
    lines = [line for line in book.read_text().splitlines(True) if '"done"' not in line]
    book.write_text("".join(lines))
    # One of the two has since been marked for the same party, by a code that does not roll.
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
    one = worker.Claimant("alice", "k", "ab" * 8, 1, 2)
    seen = worker.Claimant("alice", "k", "ab" * 8, 1, 2, next_position=7, recorded=True)
    item = manifest.Item("a.wav", "/a.wav", "/b.wav")

    def name(verb: str, who: worker.Claimant, **how: Any) -> str:
        return corpus.digest(worker.Job(verb, None, (who,), **how), item, who, "m")

    assert name("embed", one) == name("embed", seen) == "3a9821c1e0a0f8091332a9f3"
    marking = [{}, {"rolling": True}, {"excerpt": 1.0}]
    assert len({name("embed", one, **how) for how in marking}) == 3
    reading = [{}, {"how": DetectOptions(1e-4)}, {"how": DetectOptions(speed=0.1)}]
    assert len({name("verify", one, **how) for how in reading}) == 3
    assert name("verify", seen) != name("verify", one)  # then nothing was compared


def test_records_are_found_by_position_and_a_bounded_number_is_compared() -> None:
    sealed = Sealed(1e-9, 9.0, 3, 0.0, 1.0, 1)
    few = {3: array("q", [5, 9]), None: array("q", [2])}
    many = few | {4: array("q", range(10, 1000))}
    assert candidates(few, sealed) == candidates(many, sealed) == array("q", [5, 9])
    assert candidates(few, NOTHING) == [2, 5, 9]
    assert candidates(many, NOTHING) is None
    assert candidates({}, sealed) == []


# Whose it is, among many


def test_all_of_many_parties_are_searched(
    run: Run, home: Path, hosts: dict[str, Samples], marker: Watermarker
) -> None:
    """A code that rolls agrees with no payload: its seal is looked for of more than twenty too."""
    (home / "heard").mkdir()
    secret: Any = {"key": Key(SECRET), "payload": PAYLOAD, "position": 7, "rolling": True}
    rolled = marker.embed(hosts["flite-rms"], RATE, **secret, check=False)
    sf.write("heard/rolled.wav", rolled[: 4 * RATE], RATE)
    for number in range(21):
        Key(bytes([number]) * 32).write(home / f"{number}.key")
        run("party", "add", f"{number}", "--key", f"{number}.key", "--payload", number)
    run("party", "add", "alice", "--key", "alice.key", "--payload", PAYLOAD)
    outcome = run("batch", "verify", "heard", "--any", "--jobs", 1, "--results", "v.jsonl")
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
def test_records_say_which_mask_in_a_batch_too(run: Run) -> None:
    for how in (("--nonce", "0102"), ("--nonce-from-position",)):
        name = f"heard/{how[0]}.wav"
        assert run("embed", "in/flite-rms.wav", name, "--party", "alice", *how).code == 0
    assert run(*VERIFYING).code == 0
    for row in rows("v.parquet"):
        assert (row["grade"], row["origin"], row["distance"]) == ("sealed", "same", 0)
        assert row["rule_holds"]
