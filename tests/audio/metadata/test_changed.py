"""What both formats can say goes over when the format changes; the rest is named."""

import base64
import json
from pathlib import Path

import made_metadata as made
import mutagen
import mutagen.aiff
import mutagen.flac
import mutagen.id3
import mutagen.mp4
import mutagen.wave
import numpy as np
import pytest

from keybound.audio import recordings
from keybound.audio.metadata import Metadata


def changed(path: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    output = path.with_name(name)
    with recordings.Reader(path) as host:
        (samples,) = host.blocks(1 << 20)
        with recordings.writing(output, host, host.frames, 1) as file:
            file.write(samples)
    assert len(recordings.read(output).samples) >= len(samples)
    return output, file.not_carried


def test_flac_to_mp3(tmp_path):
    output, lost = changed(made.flac(tmp_path / "a.flac"), "b.mp3")
    assert lost == ("APPLICATION", "CUESHEET")
    tag = mutagen.id3.ID3(output)
    assert tag["TIT2"].text == ["Ein Brüllen"]
    assert tag["TPE1"].text == ["one", "two"]
    assert tag["TPE2"].text == ["all of them"]
    assert tag["USLT::und"].text == "la\nla"
    assert tag["TXXX:own_tag"].text == ["mine"]
    front, back = tag.getall("APIC")
    assert (front.data, front.type, front.desc, front.mime) == (
        made.PICTURE, 3, "Titelbild", "image/png",
    )  # fmt: skip
    assert (back.type, back.desc) == (4, "Rückseite")


@pytest.mark.parametrize("version", [3, 4])
def test_mp3_to_flac(tmp_path, version):
    output, lost = changed(made.mp3(tmp_path / "a.mp3", version), "b.flac")
    assert lost == ("PRIV",)
    file = mutagen.flac.FLAC(output)
    people = ["one", "two"] if version == 4 else ["one/two"]
    said = {"title": ["Ein Brüllen"], "artist": people, "albumartist": ["all of them"]}
    said |= {"lyrics": ["la\nla"], "own_tag": ["mine"], "comment": ["said"]}
    said |= {"publisher": ["a house"]}
    assert dict(file.tags) == said
    (picture,) = file.pictures
    assert (picture.data, picture.type, picture.desc) == (made.PICTURE, 3, "Titel")


@pytest.mark.parametrize("name", ["b.ogg", "b.opus"])
def test_wav_to_ogg(tmp_path, name):
    output, lost = changed(made.riff(tmp_path / "a.wav"), name)
    assert lost == (
        "PRIV", "bext", "iXML", "odd", "cue", "LIST adtl", "ISBJ", "smpl", "zzzz",
    )  # fmt: skip
    tags = mutagen.File(output).tags
    assert tags["title"] == ["Ein Brüllen"]
    assert tags["albumartist"] == ["all of them"]
    picture = mutagen.flac.Picture(base64.b64decode(tags["metadata_block_picture"][0]))
    assert picture.data == made.PICTURE


@pytest.mark.parametrize(
    ("name", "reader"), [("b.wav", mutagen.wave.WAVE), ("b.aiff", mutagen.aiff.AIFF)]
)
def test_ogg_to_wav_and_aiff(tmp_path, name, reader):
    output, lost = changed(made.ogg(tmp_path / "a.ogg"), name)
    assert lost == ()
    tag = reader(output).tags
    assert tag["TIT2"].text == ["Ein Brüllen"]
    assert tag["USLT::und"].text == "la\nla"
    assert tag.getall("APIC")[0].data == made.PICTURE
    recordings.write(tmp_path / "c.wav", np.zeros(99), recordings.Recording(
        np.zeros(99), 16_000, "WAV", "PCM_16", Metadata.of({"title": "short", "genre": "Speech"})
    ))  # fmt: skip
    assert b"id3 " not in (tmp_path / "c.wav").read_bytes()  # where INFO says it all
    assert recordings.read(tmp_path / "c.wav").tags == {"title": "short", "genre": "Speech"}


def test_to_caf_w64_and_au(tmp_path):
    host = made.mp3(tmp_path / "a.mp3")
    output, lost = changed(host, "b.caf")
    assert lost == ("picture", "PRIV")
    assert recordings.read(output).tags["albumartist"] == "all of them"
    names = {"title", "artist", "albumartist", "lyrics", "own_tag", "comment", "publisher"}
    output, lost = changed(host, "b.w64")
    assert set(lost) == {*names, "picture", "PRIV"}
    output, lost = changed(host, "b.au")
    assert set(lost) == {*names, "picture", "PRIV"} - {"comment"}
    assert recordings.read(output).tags == {"comment": "said"}


@made.with_ffmpeg
def test_m4a_from_flac_and_back(tmp_path):
    output, lost = changed(made.flac(tmp_path / "a.flac"), "b.m4a")
    assert lost == ("APPLICATION", "CUESHEET")
    tags = mutagen.mp4.MP4(output).tags
    assert tags["\xa9nam"] == ["Ein Brüllen"]
    assert tags["\xa9ART"] == ["one", "two"]
    assert (tags["aART"], tags["\xa9lyr"]) == (["all of them"], ["la\nla"])
    assert tags["----:com.apple.iTunes:own_tag"] == [b"mine"]
    assert [bytes(one) for one in tags["covr"]] == [made.PICTURE] * 2
    file = mutagen.mp4.MP4(output)
    file["tmpo"] = [120]
    file["trkn"] = [(3, 12)]
    file.save()
    output, lost = changed(output, "c.flac")
    assert lost == ("tmpo",)
    back = mutagen.flac.FLAC(output)
    assert {name: back.tags[name] for name in ("title", "artist", "own_tag", "tracknumber")} == {
        "title": ["Ein Brüllen"], "artist": ["one", "two"], "own_tag": ["mine"],
        "tracknumber": ["3/12"],
    }  # fmt: skip
    assert back.pictures[0].data == made.PICTURE


def test_a_digest_of_the_hosts_samples_is_named(tmp_path):
    path = made.sound(tmp_path / "a.wav", "WAV")
    path.write_bytes(path.read_bytes() + made.chunk(b"MD5 ", bytes(16)))
    output, lost = changed(path, "b.wav")
    assert lost == ("MD5",)
    assert b"MD5 " not in output.read_bytes()


def test_a_batch_names_what_it_cannot_carry(run, home, key, clip):
    host = made.riff(home / "a.wav")
    recordings.write(host, clip, recordings.read(host))
    (home / "m.csv").write_text("path,out\na.wav,b.flac\na.wav,c.wav\n")
    whose = ("--key", key, "--payload", "24301", "--results", "r.jsonl", "--jobs", "1")
    assert run("batch", "embed", "m.csv", *whose).code == 0
    rows = [json.loads(line) for line in (home / "r.jsonl").read_text().splitlines()]
    assert rows[0]["not_carried"].startswith("PRIV, bext, iXML")
    assert rows[1]["not_carried"] is None


def test_embed_names_what_it_cannot_carry(run, home, key, clip):
    host = made.riff(home / "a.wav")
    recordings.write(host, clip, recordings.read(host))
    whose = ("--key", key, "--payload", "24301")
    outcome = run("embed", "a.wav", "b.flac", *whose, "--json")
    assert outcome.code == 0
    assert "keybound: not carried over: PRIV, bext, iXML" in outcome.err
    assert json.loads(outcome.out)["not_carried"][:2] == ["PRIV", "bext"]
    outcome = run("embed", "a.wav", "c.wav", *whose, "--json")
    assert "not carried" not in outcome.err
    assert json.loads(outcome.out)["not_carried"] == []
