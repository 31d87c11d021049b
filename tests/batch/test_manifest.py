"""Manifests say what a batch is about, each format the same, or are refused before any work."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_corpus import WHOSE, write_manifest

from keybound.batch import manifest
from keybound.errors import CorpusError

Run = Callable[..., Any]  # to the outcome of `run` in conftest

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
    ("embed", "in", "--out", "in", *WHOSE): "--out in is the corpus itself, or a folder",
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
    ("detect", "in", "--address", "auto"): "--address needs --executor ray (",
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
