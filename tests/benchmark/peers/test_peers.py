"""Peers: every adapter that can be built here is built, marks, reads, and repeats itself."""

import json

import numpy as np
import pytest

from keybound.attacks import attack
from keybound.audio.metrics import snr_db
from keybound.benchmark.measure import speed
from keybound.benchmark.measure.methods import Method, Reading, plain
from keybound.benchmark.measure.protocol import Secret, secret_of
from keybound.benchmark.peers import METHODS, PEERS, available, chosen, peer
from keybound.benchmark.report.summaries import gather
from keybound.benchmark.report.tables import make_table
from keybound.crypto.codes import to_bits
from keybound.errors import KeyBoundError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made():
    """Make each method once: with its weights if it carries them, otherwise with random ones."""
    kept = {}

    def give(name):
        if name not in kept:
            own = name in ("keybound", "keybound-unsealed", "perth")
            reason = available(name, trained=own)
            if reason:
                pytest.skip(f"{name}: {reason}")
            kept[name] = METHODS[name]() if own else METHODS[name](trained=False)
        return kept[name]

    return give


@pytest.mark.parametrize(
    "name", ["keybound", "keybound-unsealed", "audioseal", "wavmark", "silentcipher", "perth"]
)
def test_marks_and_reads_alike_every_time(made, clip, name):
    method = made(name)
    host = clip(method.rate, 1.1 if name == "wavmark" else 1.0)
    kept = host.copy()
    secret = secret_of(0, 0, method.bits)
    marked = method.embed(host, secret)
    np.testing.assert_array_equal(host, kept)
    assert marked.shape == host.shape
    assert marked.dtype == np.float32
    assert not np.array_equal(marked, host)
    assert np.isfinite(marked).all()
    reading = method.read(marked[: round(1.05 * method.rate)])  # one place for wavmark to look
    assert reading.logits.shape == (method.bits,)
    assert 0 <= reading.presence <= 1
    assert 0 <= method.errors(reading, secret) <= method.bits
    # Made anew, with the same random weights.
    again = METHODS[name](**{} if "random" not in method.version else {"trained": False})
    assert again.version == method.version
    np.testing.assert_array_equal(again.embed(host, secret), marked)


@pytest.mark.parametrize("name", ["perth", "silentcipher"])
def test_silence_bears_no_mark(made, name):
    method = made(name)
    reading = method.read(np.zeros(method.rate, np.float32))
    assert reading.presence == 0
    assert not reading.logits.any()


@pytest.mark.parametrize("which", range(3))
def test_perth_finds_its_mark_and_none_elsewhere(made, clip, which):
    method = made("perth")
    host = clip(method.rate, 1.0, which)
    marked = method.embed(host, secret_of(0, which, 0))
    assert method.read(marked).presence > 0.9 > 0.1 > method.read(host).presence
    quieter = attack("gain").apply(marked, method.rate, {"factor": 0.5})
    assert method.read(quieter).presence > 0.9
    odd = method.embed(host[:15999], secret_of(0, which, 0))
    assert odd.shape == (15999,)
    assert method.decode(method.read(odd), None) == 0


def test_bits_are_read_back_as_they_were_written():
    for payload in (0, 1, 0x5EED, 0xFFFF):
        logits = to_bits(payload, 16) - np.float32(0.5)
        assert plain(Reading(1.0, logits), None) == payload


AUDIOWMARK = """#!/bin/sh
case "$2" in
  add) cp "$3" "$4"; printf %s "$5" > "$(dirname "$0")/message" ;;
  get) echo '{"matches": [' > "$5"
       test -s "$(dirname "$0")/message" && printf '{"bits": "%s", "quality": 1.25},' \\
           "$(cat "$(dirname "$0")/message")" >> "$5"
       echo '{"bits": "ffffffffffffffffffffffffffffffff", "quality": 0.17}]}' >> "$5" ;;
  *) echo "audiowmark 0.6.5" ;;
esac
"""


def test_audiowmark_is_asked_for_the_message_it_was_given(monkeypatch, tmp_path, clip):
    command = tmp_path / "audiowmark"
    command.write_text(AUDIOWMARK)
    command.chmod(0o755)
    monkeypatch.setenv("KEYBOUND_AUDIOWMARK", str(command))
    method = METHODS["audiowmark"]()
    assert (method.version, method.bits, method.rho) == ("0.6.5", 128, 47)
    host, secret = clip(16000, 1.0), secret_of(0, 0, 128)
    assert method.read(host).presence == 0.17
    np.testing.assert_array_equal(method.embed(host, secret), host)
    reading = method.read(host)
    assert reading.presence == 1.25
    assert method.errors(reading, secret) == 0


def test_a_landmark_is_the_attacked_host(clip):
    method = chosen("landmark/noise@40", None)()
    host = clip(16000, 1.0)
    first, again, other = (method.embed(host, secret_of(0, n, 0)) for n in (0, 0, 1))
    assert snr_db(host, first) == pytest.approx(40, abs=0.01)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)  # the noise of another clip is another
    with pytest.raises(KeyBoundError, match="no attack"):
        chosen("landmark/nothing", None)()


def test_wavmark_wants_the_whole_pattern_for_a_payload(made, monkeypatch):
    method = made("wavmark")
    import wavmark

    pattern = wavmark.wm_add_util.fix_pattern[:16]
    message = np.array([*pattern, *to_bits(0x5EED, 16)], np.float32)
    hurt = message.copy()
    hurt[3] = 1 - hurt[3]
    host = np.zeros(17600, np.float32)  # two places

    def shows(*places):
        import torch

        values = torch.from_numpy(np.stack(places))
        monkeypatch.setattr(wavmark.my_model.Model, "decode", lambda _, batch: values[: len(batch)])
        return method.read(host)

    whole = shows(hurt, message)
    assert whole.presence == 1
    assert method.decode(whole, None) == 0x5EED
    assert method.errors(whole, Secret(None, 0x5EED)) == 0
    nearly = shows(hurt, 1 - message)
    assert nearly.presence == 15 / 16
    assert not nearly.logits.any()
    assert method.read(host[:16000]).presence == 0  # too short to look anywhere


def test_silentcipher_reads_bytes_and_the_want_of_them(made, monkeypatch, clip):
    method = made("silentcipher")
    import silentcipher.server as server

    answer = {"status": True, "messages": [[0xDE, 0xAD, 0xBE, 0xEF, 0x01]], "confidences": [0.75]}
    monkeypatch.setattr(server.Model, "decode_wav", lambda *_, **__: answer)
    reading = method.read(clip(method.rate, 1.0))
    assert reading.presence == 0.75
    assert method.decode(reading, None) == 0xDEADBEEF01
    answer["status"] = False
    assert method.read(clip(method.rate, 1.0)).presence == 0


def test_audioseal_reads_released_checkpoints(made, tmp_path, clip):
    made("audioseal")
    import torch
    from audioseal import builder
    from omegaconf import OmegaConf

    from keybound.benchmark.peers import audioseal

    paths = []
    torch.manual_seed(7)
    with peer.quiet():
        makes = {"WM": builder.create_generator, "Detector": builder.create_detector}
        for (kind, make), file in zip(makes.items(), audioseal.FILES, strict=True):
            settings = OmegaConf.create({"seed": 1, "list": [1.5, {"a": None}], "yes": True})
            state = make(audioseal._settings(builder, kind)).state_dict()
            paths.append(tmp_path / file)
            torch.save({"xp.cfg": settings, "model": state}, paths[-1])
    method = audioseal.PEER.make(tmp_path)
    assert "random" not in method.version
    host = clip(16000, 1.0)
    assert not np.array_equal(
        method.embed(host, secret_of(0, 0, 16)), made("audioseal").embed(host, secret_of(0, 0, 16))
    )
    paths[0].write_bytes(b"no checkpoint")
    with pytest.raises(KeyBoundError, match="no checkpoint of audioseal"):
        audioseal.PEER.make(tmp_path)


def test_reasons_are_named(monkeypatch, tmp_path):
    with pytest.raises(KeyBoundError, match="no method is named 'audioseel'"):
        available("audioseel")
    assert available("keybound") is None
    with monkeypatch.context() as without:
        without.setattr("keybound.attacks.packages.find_spec", lambda _: None)
        without.setenv("PATH", str(tmp_path))
        for name in PEERS:
            assert "not installed" in available(name)
    monkeypatch.setattr(peer, "package", lambda *_: tmp_path)
    with pytest.raises(KeyBoundError, match="wavmark: weights absent"):
        PEERS["wavmark"].needs(tmp_path)


def test_speed_has_rows_for_what_runs(monkeypatch):
    made = []

    def maker(name, bits):
        def make(trained=True):
            made.append((name, trained))
            return Method(
                name=name,
                rate=8000,
                bits=bits,
                rho=0,
                seconds=1.1,
                keyed=False,
                threshold=None,
                embed=lambda clip, _: clip,
                read=lambda _: Reading(0.0, np.zeros(bits)),
                decode=plain,
            )

        return make

    def reason(name, trained=True):
        return {"absent": "not installed", "random": "weights absent" if trained else None}.get(
            name
        )

    names = ("whole", "absent", "random")
    monkeypatch.setattr(speed, "METHODS", {name: maker(name, len(name) - 5) for name in names})
    monkeypatch.setattr(speed, "available", reason)
    rows = speed.measure(1.0, turns=2, names=names)
    assert made == [("whole", True), ("random", False)]
    assert [(row["method"], row["verb"], row["trained"]) for row in rows] == [
        ("whole", "embed", True),
        ("whole", "detect", True),
        ("random", "embed", False),
        ("random", "detect", False),
    ]
    for row in rows:
        assert set(row) == {"suite", "method", "verb", "seconds", "times_real_time", "trained"}
        assert row["seconds"] == 1.1
        assert row["times_real_time"] > 0
    json.dumps(rows)
    table = make_table(gather(rows), "speed")
    assert table is not None
    random, whole = table.rows
    assert [cell.text for cell in whole[3::2]] == ["–", "–"]  # no AudioSeal beside it
    assert [line[-1].text for line in (whole, random)] == [
        "trained",
        "random: speed needs no training",
    ]
