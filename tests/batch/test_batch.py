"""Corpora as a user meets them: a row for each input, whose mark it is, journals and results."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from made_corpus import RATE, WHOSE, done, fill, hidden, rows, times, write_manifest

from keybound.batch import corpus, journal, manifest, results, worker
from keybound.batch.job import Job
from keybound.crypto.keys import Key
from keybound.errors import CorpusError
from keybound.provenance import fingerprint
from keybound.provenance.registry import Registry
from keybound.watermark import files

SECRET = bytes(range(32))  # of alice.key

Run = Callable[..., Any]  # to the outcome of `run` in conftest


# Whole runs


def test_a_run_has_a_row_for_each_input_and_goes_on_where_it_was(
    run: Run, home: Path, speech: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", speech, 3)
    sf.write("in/silence.wav", np.zeros(RATE), RATE)
    (home / "in" / "text.wav").write_text("dear diary")
    order = ["b/0.wav", "gone.wav", "a/0.wav", "silence.wav", "text.wav", "a/1.wav"]
    table = [{"path": f"in/{p}", "speaker": n, "status": p} for n, p in enumerate(order)]
    write_manifest(home / "m.jsonl", table)
    command = ("batch", "embed", "m.jsonl", "--out", "out", *WHOSE, "--jobs", 2)

    planned = run(*command, "--dry-run")
    assert planned.code == 0
    assert planned.out.splitlines()[:2] == [
        "in/b/0.wav\tout/in/b/0.wav", "in/gone.wav\tout/in/gone.wav\t(missing)"
    ]  # fmt: skip
    assert planned.err == "keybound: 6 files: 6 to do, 1 missing; nothing was done\n"
    assert not (home / "out").exists()
    assert not list(home.glob("keybound-*"))

    outcome = run(*command)
    assert outcome.code == 2
    (results,) = home.glob("keybound-embed-m-*.parquet")  # a default of this corpus's own
    assert outcome.out == (
        f"6 files, 0.00 hours: 3 done, 3 failed, 0 left; results in {results.name}\n"
    )
    found = rows(results)
    assert [row["path"] for row in found] == [row["path"] for row in table]
    assert [row["speaker"] for row in found] == list(range(6))  # theirs, to join on
    assert [row["manifest_status"] for row in found] == order
    statuses = ["ok", "failed", "ok", "failed", "failed", "ok"]
    assert [row["status"] for row in found] == statuses
    good = found[0]
    assert good["output"] == "out/in/b/0.wav"
    assert good["error"] is None
    assert (good["rule_holds"], good["present"], good["distance"]) == (True, True, 0)
    assert good["seconds"] == pytest.approx(2.0)
    assert "gone.wav cannot be read: no such file or directory" in found[1]["error"]
    assert "silence.wav does not hold a mark: the recording is silent" in found[3]["error"]
    assert ".keybound" not in str(found)
    assert found[1]["error"] in outcome.err
    assert len(times(home / "out")) == 3
    assert hidden(home) == []

    # Again, with one of the failed put right, one input changed, one output lost.
    before = times(home / "out")
    sf.write("in/gone.wav", speech, RATE)
    sf.write("in/a/0.wav", 0.5 * speech, RATE)
    (home / "out" / "in" / "a" / "1.wav").unlink()
    outcome = run(*command, "--json")
    count = json.loads(outcome.out)
    assert outcome.code == 2
    assert (count["done"], count["failed"], count["pending"]) == (4, 2, 0)
    assert "done before: 1 of 6" in outcome.err
    after = times(home / "out")
    changed = {p.relative_to(home / "out/in") for p in after if after[p] != before.get(p)}
    assert changed == {Path("gone.wav"), Path("a/0.wav"), Path("a/1.wav")}
    assert len(done(results.with_name(f"{results.name}.journal"))) == 6 + 5

    # Without its journal the outputs are somebody's, and are not replaced.
    for path in home.glob("keybound-embed*"):
        path.unlink()
    outcome = run(*command)
    assert outcome.code == 2
    assert "out/in/b/0.wav and 3 more exist already (--force replaces" in outcome.err
    assert times(home / "out") == after


def test_parties_payloads_and_nonces_by_row(
    run: Run, home: Path, speech: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home / "in", speech, 2)
    Key(bytes(32)).write(home / "bob.key")
    run("party", "add", "alice", "--key", "alice.key", "--payload", "1")
    run("party", "add", "bob", "--key", "bob.key", "--payload", "2")
    table = [
        {"path": "in/a/0.wav", "out": "alice.wav", "party": "alice"},
        {"path": "in/a/0.wav", "out": "bob.wav", "party": "bob"},
        {"path": "in/b/0.wav", "out": "own.wav", "payload": "0x3333"},
        {"path": "in/b/0.wav", "out": "once.wav", "payload": "0x3333", "nonce": "0102"},
    ]
    write_manifest(home / "m.csv", table)
    monkeypatch.setenv("THE_KEY", Key(SECRET).to_text())
    marking = ("batch", "embed", "m.csv", "--key", "env:THE_KEY", "--results", "e.parquet")
    marking += ("--jobs", "1")
    assert run(*marking).code == 0
    assert [row["party"] for row in rows("e.parquet")] == ["alice", "bob", None, None]
    noted = [row["record"] for row in rows("e.parquet")]
    assert (sorted(noted[:2]), noted[2:]) == ([1, 2], [None, None])  # parties alone have a registry
    with Registry(home / "registry.sqlite") as known:
        for row in rows("e.parquet")[:2]:
            one = known.record(row["record"]).stamped.record
            assert (one.party, one.position) == (row["party"], row["position"])
            assert one.fingerprint == fingerprint.take(files.levels_of(row["output"]))
    for name, options in {
        "alice": ("--party", "alice"),
        "bob": ("--party", "bob"),
        "own": ("--key", "alice.key", "--payload", "0x3333"),
        "once": ("--key", "alice.key", "--payload", "0x3333", "--nonce", "0102"),
    }.items():
        assert run("verify", f"{name}.wav", *options).code == 0

    every = run("batch", "verify", "*.wav", "--any", "--results", "v.parquet", "--json")
    assert every.code == 0
    found = {row["path"]: row for row in rows("v.parquet")}
    assert (found["alice.wav"]["party"], found["bob.wav"]["party"]) == ("alice", "bob")
    assert {row["tries"] for row in found.values()} == {2}
    assert found["once.wav"]["party"] is None
    assert json.loads(every.out)["sealed"] + json.loads(every.out)["attributed"] == 2

    heard = run("batch", "detect", "m.csv", "--results", "d.jsonl")
    assert heard.code == 0
    assert ", 0 marked; results in d.jsonl" in heard.out
    first = json.loads((home / "d.jsonl").read_text().splitlines()[0])
    assert (first["manifest_party"], first["out"]) == ("alice", "alice.wav")  # carried, not used
    secret = Key(SECRET).to_text().split(":")[1].strip()
    for path in home.iterdir():
        if path.name.endswith((".journal", ".jsonl", ".parquet")):
            text = path.read_text(errors="ignore")
            assert SECRET.hex() not in text
            assert secret not in text


def test_no_key_travels(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", Key(SECRET).to_text())
    items = [manifest.Item("a.wav", "/a.wav", "/b.wav")]
    for reference in ("alice.key", "env:THE_KEY"):
        whose, who = corpus.claimants(
            items, name=None, key=reference, payload=1, known=None, bits=16
        )
        job = Job("embed", None, whose)
        book = journal.Journal(home / "none", {})
        planned = corpus.plan(job, items, who, book, force=False)
        sent = pickle.dumps((job, planned.tasks))
        assert SECRET not in sent
        assert SECRET.hex().encode() not in sent
        assert worker.Worker(job)._key(whose[0]) == Key(SECRET)


# Journals


def test_a_journal_of_something_else_is_refused(home: Path) -> None:
    about = {"verb": "embed", "manifest": "/in"}
    with journal.Journal(home / "j", about) as book:
        book.finish("x", {"source": None, "size": None, "row": {"status": "ok"}})
        with (
            pytest.raises(CorpusError, match="another run is writing"),
            journal.Journal(home / "j", about),
        ):
            pass
    assert list(journal.Journal(home / "j", about).rows(["x", "y"])) == [
        {"status": "ok"}, {"status": "pending"}
    ]  # fmt: skip
    with pytest.raises(CorpusError, match="its manifest is /in"):
        journal.Journal(home / "j", about | {"manifest": "/other"})
    (home / "k").write_text("something\n")
    with pytest.raises(CorpusError, match="not the journal of a batch"):
        journal.Journal(home / "k", about)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1), st.integers(0, 400))
def test_a_journal_cut_anywhere_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, ends: list[tuple[str, bool]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("j") / "j"
    sizes = []
    with journal.Journal(path, {}) as book:
        for name, ok in ends:
            row = {"status": "ok" if ok else "failed"}
            book.finish(name, {"source": (1, 2), "size": 3, "row": row})
            sizes.append(path.stat().st_size)
    data = path.read_bytes()[: max(cut, len(path.read_bytes()) - cut)]
    path.write_bytes(data)
    kept = dict(end for end, size in zip(ends, sizes, strict=True) if size <= len(data))
    for _ in range(2):
        with journal.Journal(path, {}) as book:
            assert {name: entry.ok for name, entry in book.done.items()} == kept
            assert [row["status"] for row in book.rows(list(kept))] == [
                "ok" if ok else "failed" for ok in kept.values()
            ]


def test_results_keep_columns_of_any_type(home: Path) -> None:
    extras: list[dict[str, Any]] = [{"mixed": 1, "when": None}, {"mixed": "x", "n": 2.5}]
    items = [manifest.Item(f"{n}\udcff.wav", "/x", extra=e) for n, e in enumerate(extras)]
    made = iter([{"status": "ok", "spans": [{"start_s": 0, "end_s": 1, "score": 1}]}, {}])
    results.write_results(home / "r.parquet", items, made)
    first, second = rows("r.parquet")
    assert first["path"] == "0\N{REPLACEMENT CHARACTER}.wav"
    assert first["spans"] == [{"start_s": 0.0, "end_s": 1.0, "score": 1.0}]
    assert (first["mixed"], second["mixed"], second["n"]) == ("1", '"x"', 2.5)
    assert hidden(home) == []


def test_two_corpora_of_one_name_have_results_of_their_own(
    run: Run, home: Path, marked: np.ndarray[Any, Any]
) -> None:
    for place in ("mon/calls", "tue/calls"):
        (home / place).mkdir(parents=True)
        sf.write(home / place / "1.wav", marked, RATE)
        assert run("batch", "detect", place, "--jobs", 1).code == 0
    assert len(list(home.glob("keybound-detect-calls-*.parquet"))) == 2
    assert "done before: 1 of 1" in run("batch", "detect", "mon/calls", "--jobs", 1).err


@pytest.mark.parametrize("out", ["in", ".", "in/../in"])
def test_outputs_among_the_inputs_are_refused_by_name(
    run: Run, home: Path, speech: np.ndarray[Any, Any], out: str
) -> None:
    fill(home / "in", speech, 1)
    outcome = run("batch", "embed", "in", "--out", out, *WHOSE)
    assert outcome.code == 2
    assert f"--out {out} is the corpus itself, or a folder around it" in outcome.err
