"""Corpora as a user meets them: manifests, runs killed in the middle, rows for what failed."""

import csv
import importlib.util
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound import audio, files, fingerprint
from keybound.corpora import corpus, engines, journal, manifest, worker
from keybound.errors import CorpusError
from keybound.keys import Key
from keybound.registry import Registry
from keybound.watermark import Watermarker

DATA = Path(__file__).parents[1] / "data"
PAYLOAD = "0x5eed"
RATE = 16_000
SECRET = bytes(range(32))

pa = pytest.importorskip("pyarrow", reason="results in Parquet need pyarrow")
parquet = pytest.importorskip("pyarrow.parquet", reason="results in Parquet need pyarrow")


Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with a registry and a key of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "registry.sqlite"))
    monkeypatch.setenv("PYTHONPATH", str(Path(manifest.__file__).parents[2]))
    Key(SECRET).write(tmp_path / "alice.key")
    return tmp_path


WHOSE = ("--key", "alice.key", "--payload", PAYLOAD)


@pytest.fixture(scope="session")
def speech() -> np.ndarray[Any, Any]:
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    return audio.resample(samples, rate, RATE)[: 2 * RATE]


@pytest.fixture(scope="session")
def marked(speech: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return Watermarker().embed(speech, RATE, key=Key(SECRET), payload=0x5EED)


def fill(folder: Path, samples: np.ndarray[Any, Any], count: int) -> list[Path]:
    """Make a corpus of recordings, the same names in two folders."""
    made = [folder / "ab"[n % 2] / f"{n // 2}.wav" for n in range(count)]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        sf.write(path, samples, RATE)
    return made


def rows(path: str) -> list[dict[str, Any]]:
    return list(parquet.read_table(path).to_pylist())


def entries(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a journal that are there by now."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def done(path: Path) -> list[dict[str, Any]]:
    return [entry for entry in entries(path) if "done" in entry]


def times(folder: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in folder.rglob("[!.]*.wav") if ".keybound" not in str(p)}


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".keybound-*"))


# Manifests


NAMES = st.text(st.characters(exclude_categories=["C"], exclude_characters="/\\"), min_size=1)
ROW = st.fixed_dictionaries(
    {"path": NAMES.filter(lambda name: name not in (".", ".."))},
    optional={
        "payload": st.integers(0, 0xFFFF),
        "nonce": st.binary(min_size=1, max_size=4).map(bytes.hex),
        "party": NAMES,
        "speaker": st.text(st.characters(exclude_categories=["C"])),
    },
)
CLAIM = ("party", "payload", "nonce")


def write_manifest(path: Path, table: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in table for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")
    elif path.suffix == ".parquet":
        whole = [{name: row.get(name) for name in names} for row in table]
        parquet.write_table(pa.Table.from_pylist(whole), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(table)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=5))
def test_every_format_of_manifest_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, table: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("m")
    read = []
    for kind in ("csv", "tsv", "jsonl", "parquet"):
        write_manifest(folder / f"corpus.{kind}", table)
        items = manifest.read(str(folder / f"corpus.{kind}"), columns=CLAIM)
        read.append([(i.path, i.source, i.payload, i.nonce, i.party) for i in items])
        assert [i.extra.get("speaker") or "" for i in items] == [
            row.get("speaker", "") for row in table
        ]
    assert all(other == read[0] for other in read)
    for row, (path, source, payload, nonce, party) in zip(table, read[0], strict=True):
        assert (path, source) == (row["path"], str(folder / row["path"]))
        assert (payload, party) == (row.get("payload"), row.get("party"))
        assert nonce == (bytes.fromhex(row["nonce"]) if "nonce" in row else None)


PARTS = st.lists(st.sampled_from(["a", "b", "c.wav", "..", "d.wav"]), min_size=1, max_size=4)


@given(st.lists(PARTS.map("/".join).filter(lambda p: p.endswith("wav")), min_size=1, unique=True))
def test_outputs_are_mirrored_or_refused(paths: list[str]) -> None:
    root = Path("/corpus/x/y/z/w")
    items = [manifest.Item(p, os.path.normpath(root / p)) for p in paths]
    sources = [item.source for item in items]
    try:
        made = manifest._with_outputs(items, str(root), "/marked")
    except CorpusError:
        assert len(set(sources)) < len(sources)  # two names of one recording
        return
    assert len({item.output for item in made}) == len(items)
    for item in made:
        assert item.output is not None
        assert Path(item.output).is_relative_to("/marked")
        assert ".." not in Path(item.output).parts
        assert Path(item.output).name == Path(item.source).name


def test_a_folder_and_a_glob_leave_out_what_is_no_input(home: Path) -> None:
    for name in ("in/a/1.wav", "in/b/1.FLAC", "in/notes.txt", "in/.old/2.wav", "in/._3.wav",
                 "in/marked/a/1.wav"):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    found = manifest.read("in", "in/marked", columns=["out"])
    assert [(i.path, i.output) for i in found] == [
        ("in/a/1.wav", "in/marked/a/1.wav"),
        ("in/b/1.FLAC", "in/marked/b/1.FLAC"),
    ]
    found = manifest.read("in/*/*.wav", "in/marked", columns=["out"])
    assert [(i.path, i.output) for i in found] == [("in/a/1.wav", "in/marked/a/1.wav")]
    assert [i.path for i in manifest.read("in/**/*.wav")] == ["in/a/1.wav", "in/marked/a/1.wav"]


def test_a_linked_recording_keeps_its_place_and_elsewhere_is_mirrored_whole(home: Path) -> None:
    (home / "store.wav").touch()
    (home / "in").mkdir()
    (home / "in" / "1.wav").symlink_to(home / "store.wav")
    (item,) = manifest.read("in", "out", columns=["out"])
    assert item.output == "out/1.wav"
    (home / "m.csv").write_text("path\n/else/where/1.wav\nhere/1.wav\n")
    far, near = manifest.read("m.csv", "out", columns=["out"])
    assert (far.output, near.output) == ("out/else/where/1.wav", "out/here/1.wav")
    assert near.source == str(home / "here" / "1.wav")


MANIFESTS = {
    "path,out\na.wav,x.wav\nb.wav,./x.wav\n": "would be the output of a.wav and of b.wav (each",
    "path,out\na.wav,../b.wav\nb.wav,c.wav\n": "b.wav is an input and would be an output too (",
    "path,payload\na.wav,cat\n": "m.csv, line 2: 'cat' is not a payload (24301 or 0x5eed)",
    "path,payload\na.wav,65536\n": "a.wav: payload 0x10000 does not fit in 16 bits",
    "path,nonce\na.wav,xyz\n": "m.csv, line 2: 'xyz' is not a nonce in hexadecimal",
    "path,party\na.wav,bob\n": "no party is named 'bob' (",
    "path,key\na.wav,alice.key\n": "m.csv, line 2: a manifest holds no column key (register",
    "file\na.wav\n": "m.csv, line 2 has no path (every row needs a column path)",
    "path\na.wav,1\n": "m.csv, line 2 has more fields than the first line",
    "path\n": "no recordings in m.csv (",
}


@pytest.mark.parametrize("text", MANIFESTS)
def test_a_manifest_that_cannot_be_is_refused_before_any_work(
    run: Run, home: Path, text: str
) -> None:
    (home / "m.csv").write_text(text)
    outcome = run("batch", "embed", "m.csv", "--out", "out", *WHOSE)
    assert outcome.code == 2
    assert outcome.out == ""
    assert MANIFESTS[text] in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (home / "out").exists()
    assert not list(home.glob("keybound-*"))


USAGE = {
    ("embed", "in", *WHOSE): "nothing says where the marked in/a/0.wav goes (--out FOLDER",
    ("embed", "in", "--out", "o"): "nothing says whose mark in/a/0.wav is about (--party NAME",
    ("embed", "in", "--out", "o", "--key", "alice.key"): "there is no payload for in/a/0.wav (",
    ("embed", "in", "--out", "in", *WHOSE): "no recordings in in (",
    ("embed", "in", "--out", "o", "--key", "-", "--payload", "1"): "every process reads the key",
    ("embed", "in", "--out", "o", "--key", "env:NONE", "--payload", "1"): "'NONE' is not set (",
    ("detect", "in/a/0.wav"): "in/a/0.wav is a recording, not a manifest (",
    ("detect", "in/a", "in/b"): "a glob in quotes: 'calls/*.wav' (see keybound batch detect",
    ("detect", "nowhere"): "nowhere does not exist (a batch takes a csv, jsonl or parquet file",
    ("detect", "alice.key"): "alice.key is no manifest (",
    ("detect", "bad.jsonl"): "bad.jsonl cannot be read: ",
    ("detect", "bad.parquet"): "bad.parquet cannot be read: ",
    ("detect", "in", "--results", "r.xls"): "r.xls does not end in the name of a table's format",
    ("detect", "in", "--results", "bad.parquet"): "bad.parquet exists and has no journal beside",
    ("detect", "in", "--address", "auto"): "--address needs --engine ray (",
    ("verify", "in", "--any"): "no party is registered (",
    ("verify", "in", "--any", *WHOSE): "--any tries every party; name none (",
    ("verify", "in", "--party", "x", *WHOSE): "--party brings its own key and payload (",
    ("verify", "in", "--model", "nowhere", *WHOSE): "no card.json in nowhere (",
}


def test_what_cannot_be_is_refused_in_one_line(run: Run, home: Path) -> None:
    for name in ("in/a/0.wav", "in/b/0.wav"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    (home / "bad.jsonl").write_text("{")
    (home / "bad.parquet").write_text("not parquet")
    for arguments, message in USAGE.items():
        outcome = run("batch", *arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert message in outcome.err
        assert outcome.err.count("\n") == 1
    assert not list(home.glob("keybound-*"))


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
    assert outcome.code == 1
    assert outcome.out == (
        "6 files, 0.00 hours: 3 done, 3 failed, 0 left; results in keybound-embed.parquet\n"
    )
    found = rows("keybound-embed.parquet")
    assert [row["path"] for row in found] == [row["path"] for row in table]
    assert [row["speaker"] for row in found] == list(range(6))  # theirs, to join on
    assert [row["manifest_status"] for row in found] == order
    statuses = ["ok", "failed", "ok", "failed", "failed", "ok"]
    assert [row["status"] for row in found] == statuses
    good = found[0]
    assert good["output"] == "out/in/b/0.wav"
    assert good["error"] is None
    assert (good["verified"], good["present"], good["distance"]) == (True, True, 0)
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
    assert outcome.code == 1
    assert (count["done"], count["failed"], count["pending"]) == (4, 2, 0)
    assert "done before: 1 of 6" in outcome.err
    after = times(home / "out")
    changed = {p.relative_to(home / "out/in") for p in after if after[p] != before.get(p)}
    assert changed == {Path("gone.wav"), Path("a/0.wav"), Path("a/1.wav")}
    assert len(done(home / "keybound-embed.parquet.journal")) == 6 + 5

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
            assert one.fingerprint == fingerprint.take(files.listen(row["output"]))
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
    assert json.loads(every.out)["verified"] == 2

    heard = run("batch", "detect", "m.csv", "--results", "d.jsonl")
    assert heard.code == 0
    assert ", 0 marked; results in d.jsonl" in heard.out
    first = json.loads((home / "d.jsonl").read_text().splitlines()[0])
    assert (first["manifest_party"], first["out"]) == ("alice", "alice.wav")  # carried, not used
    secret = Key(SECRET).to_text().split(":")[1].strip()
    for path in home.iterdir():
        if path.name.endswith((".journal", ".jsonl", ".parquet")):
            assert SECRET.hex() not in path.read_text(errors="ignore"), secret


def test_no_key_travels(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", Key(SECRET).to_text())
    items = [manifest.Item("a.wav", "/a.wav", "/b.wav")]
    for reference in ("alice.key", "env:THE_KEY"):
        whose, who = corpus.claimants(
            items, name=None, key=reference, payload=1, registry=home / "r", bits=16
        )
        job = worker.Job("embed", None, whose)
        book = journal.Journal(home / "none", {})
        planned = corpus.plan(job, items, who, book, force=False)
        sent = pickle.dumps((job, planned.tasks))
        assert SECRET not in sent
        assert SECRET.hex().encode() not in sent
        assert worker.Worker(job)._key(whose[0]) == Key(SECRET)


# Kills


@pytest.fixture
def started(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program in a process of its own; whatever is left of it ends with the test."""
    programs = []

    def start(*args: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from keybound.cli import main; main()", *map(str, args)]
        programs.append(
            subprocess.Popen(
                command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
        return programs[-1]

    yield start
    for program in programs:
        if program.poll() is None:
            program.kill()
        program.communicate()


def wait_for(what: Callable[[], Any], limit_s: float = 60.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.005)
    raise AssertionError("it did not happen")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")


@linux
def test_a_killed_run_goes_on_and_redoes_and_loses_nothing(
    started: Callable[..., subprocess.Popen[str]],
    run: Run,
    home: Path,
    speech: np.ndarray[Any, Any],
) -> None:
    fill(home / "in", speech, 30)
    book = home / "r.parquet.journal"
    command = ("batch", "embed", "in", "--out", "in/marked", *WHOSE, "--results", "r.parquet")
    program = started(*command, "--jobs", 2)
    wait_for(lambda: len(done(book)) >= 5)
    for path in times(home / "in" / "marked"):  # what can be seen is whole at any moment
        assert sf.info(path).frames == len(speech)
    assert "another run is writing" in run(*command).err
    pids = children(program.pid)
    assert len(pids) >= 2
    program.kill()
    program.communicate()
    wait_for(lambda: not any(map(alive, pids)))  # its workers go with it
    before = times(home / "in" / "marked")
    finished = done(book)
    assert 5 <= len(finished) < 30
    with book.open("ab") as file:
        file.write(b'{"done":"cut sh')  # how a kill may leave it

    outcome = run(*command, "--jobs", 2)
    assert outcome.code == 0, outcome.err
    assert "30 done, 0 failed, 0 left" in outcome.out
    after = times(home / "in" / "marked")
    assert len(after) == 30
    assert {path: after[path] for path in before} == before  # not one was made again
    names = [entry["done"] for entry in done(book)]
    assert len(names) == len(set(names)) == 30  # each ended once
    assert done(book)[: len(finished)] == finished
    assert hidden(home) == []  # nor is anything left of what was in hand
    found = rows("r.parquet")
    assert len(found) == 30
    assert all(row["verified"] for row in found)
    assert run(*command).code == 0  # and a third time there is nothing to do
    assert times(home / "in" / "marked") == after


def test_an_output_whose_end_was_not_noted_is_taken_as_it_is(
    run: Run, home: Path, speech: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", speech, 3)
    book = home / "r.parquet.journal"
    command = ("batch", "embed", "in", "--out", "out", *WHOSE, "--results", "r.parquet")
    command += ("--jobs", "1")
    assert run(*command).code == 0
    # As if killed between the appearance of two outputs and their lines in the journal. In place
    # of the second one somebody has put a file of their own since.
    lines = [line for line in book.read_text().splitlines(True) if '"done"' not in line]
    book.write_text("".join(lines))
    sf.write("out/a/1.wav", speech, RATE)
    before = times(home / "out")
    outcome = run(*command)
    assert outcome.code == 1
    assert "out/a/1.wav exists (--force replaces it)" in outcome.err
    assert times(home / "out") == before
    statuses = {row["output"]: (row["status"], row["verified"]) for row in rows("r.parquet")}
    assert statuses == {
        "out/a/0.wav": ("ok", True), "out/b/0.wav": ("ok", True), "out/a/1.wav": ("failed", None)
    }  # fmt: skip
    assert run(*command, "--force").code == 0
    assert times(home / "out")[home / "out/a/0.wav"] == before[home / "out/a/0.wav"]


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_in_order(
    started: Callable[..., subprocess.Popen[str]],
    home: Path,
    marked: np.ndarray[Any, Any],
    number: signal.Signals,
) -> None:
    fill(home / "in", marked, 60)
    book = home / "r.parquet.journal"
    command = ("batch", "detect", "in", "--results", "r.parquet", "--jobs", 2)
    program = started(*command)
    wait_for(lambda: len(done(book)) >= 3)
    program.send_signal(number)
    out, err = program.communicate()
    assert program.returncode == 128 + number
    assert "keybound: finishing what is under way; once more stops at once\n" in err
    assert "keybound: stopped; the same command goes on from here\n" in err
    statuses = [row["status"] for row in rows("r.parquet")]
    ended = len(done(book))
    assert statuses.count("ok") == ended < 60
    assert statuses.count("pending") == 60 - ended
    assert f"{ended} done, 0 failed, {60 - ended} left" in out


POISON = """
import keybound.corpora.worker as worker
import os, signal
call = worker.Worker.__call__
def poisoned(self, task):
    if "poison" in task.source:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, task)
worker.Worker.__call__ = poisoned
"""


@pytest.fixture
def poisonous(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process that works on a file called poison die of it, as of too little memory."""
    (home / "site").mkdir()
    (home / "site" / "sitecustomize.py").write_text(POISON)
    monkeypatch.setenv("PYTHONPATH", f"{home / 'site'}{os.pathsep}{os.environ['PYTHONPATH']}")


@pytest.mark.usefixtures("poisonous")
def test_a_worker_that_dies_costs_one_row(
    run: Run, home: Path, marked: np.ndarray[Any, Any]
) -> None:
    fill(home / "in", marked, 4)
    sf.write("in/a/poison.wav", marked, RATE)
    outcome = run("batch", "detect", "in", "--jobs", 2, "--results", "r.parquet")
    assert outcome.code == 1
    assert "4 done, 1 failed, 0 left, 4 marked" in outcome.out
    (row,) = [row for row in rows("r.parquet") if row["status"] == "failed"]
    assert row["path"] == "in/a/poison.wav"
    assert row["error"].startswith("the process that worked on it died, signal 9 (")


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
    journal.write_results(home / "r.parquet", items, made)
    first, second = rows("r.parquet")
    assert first["path"] == "0\N{REPLACEMENT CHARACTER}.wav"
    assert first["spans"] == [{"start_s": 0.0, "end_s": 1.0, "score": 1.0}]
    assert (first["mixed"], second["mixed"], second["n"]) == ("1", '"x"', 2.5)
    assert hidden(home) == []


# Ray


absent = [name for name in ("ray", "pandas") if importlib.util.find_spec(name) is None]


def test_ray_and_pyarrow_are_left_alone_until_asked_for() -> None:
    program = (
        "import sys, keybound.corpora.batch, keybound.corpora.corpus, keybound.corpora.engines\n"
    )
    program += "print({'ray', 'pyarrow', 'pandas', 'torch', 'scipy'} & set(sys.modules))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_address_where_nobody_answers_is_refused_at_once() -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for name in (address, f"ray://{address}"):
            with pytest.raises(CorpusError, match=r"no ray cluster answers at .*: connection ref"):
                engines._knock(name)


@pytest.mark.skipif(bool(absent), reason=f"not installed, see keybound[ray]: {absent}")
def test_ray_does_the_same_and_outlives_its_workers(
    started: Callable[..., subprocess.Popen[str]],
    home: Path,
    speech: np.ndarray[Any, Any],
) -> None:
    fill(home / "in", speech, 36)
    (home / "in" / "text.wav").write_text("dear diary")
    book = home / "r.parquet.journal"
    engine = ("--engine", "ray", "--jobs", 3, "--results", "r.parquet")
    program = started("batch", "embed", "in", "--out", "out", *WHOSE, *engine)
    first = wait_for(lambda: done(book))
    os.kill(first[0]["pid"], signal.SIGKILL)  # an actor, in the middle of its next block
    before = times(home / "out")
    out, err = program.communicate(timeout=90)
    assert program.returncode == 1, err
    assert "36 done, 1 failed, 0 left" in out
    ended = done(book)
    assert len(ended) == len({entry["done"] for entry in ended}) == 37
    pids = {entry["pid"] for entry in ended}
    assert len(pids) >= 3
    found = rows("r.parquet")
    assert sum(bool(row["verified"]) for row in found) == 36
    assert [row["path"] for row in found if row["status"] == "failed"] == ["in/text.wav"]
    after = times(home / "out")
    assert {path: after[path] for path in before} == before
    assert hidden(home) == []
