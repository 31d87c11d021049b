"""Security and negatives: exact on a mark that can be reasoned about, whole on the real one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from keybound.audio.folders import named_clips
from keybound.benchmark.measure import negatives, run, security
from keybound.benchmark.measure.methods import Method, Reading, keybound
from keybound.benchmark.measure.plan import FIRST, Case, Plan, partner
from keybound.benchmark.measure.protocol import Secret, secret_of
from keybound.crypto.keys import Key
from keybound.errors import AudioError

DATA = Path(__file__).parents[2] / "data"
RATE, BITS, LOUD = 16000, 16, 0.01
PATTERNS = np.random.default_rng(7).choice([-1.0, 1.0], (BITS, RATE)).astype(np.float32)


def mask_of(key: Key | None) -> int:
    return 0 if key is None else int.from_bytes(key.derive("test/mask", 2))


def spell(code: int) -> np.ndarray:
    """Write a code as signs."""
    return np.array([1.0 if code >> (BITS - 1 - i) & 1 else -1.0 for i in range(BITS)], "f4")


def additive(keyed: bool = True) -> Method:
    """Make a mark that knows nothing of its host: one loud random pattern for each bit."""

    def mask(key: Key | None) -> int:
        return mask_of(key) if keyed else 0

    def embed(clip, secret):
        return clip + LOUD * (spell(secret.payload ^ mask(secret.key)) @ PATTERNS)

    def read(clip):
        logits = PATTERNS @ clip / (LOUD * RATE)  # about one for each bit of a mark
        return Reading(float(np.abs(logits).mean()), logits)

    def decode(reading, key):
        return int("".join("1" if v > 0 else "0" for v in reading.logits), 2) ^ mask(key)

    return Method("additive", RATE, BITS, 2, 1.0, keyed, 0.5, embed, read, decode, "1")


@pytest.fixture(scope="module")
def clips() -> list[np.ndarray]:
    files = [sf.read(path, dtype="float32")[0] for path in sorted(DATA.glob("*.flac"))]
    return [samples[s * RATE : (s + 1) * RATE] for samples in files for s in range(3)]


def rows_of(method: Method, clips: list[np.ndarray], *suites: str, seed: int = 0) -> list[dict]:
    """Measure suites on clips, without files or processes, in the order of the clips."""
    plan = Plan(lambda: method, (DATA,), suites, seed=seed)
    hosts = {(FIRST, 1.0): run.Hosts(clips)}
    jobs = run.jobs_of(method, plan, hosts)
    return [row for job in jobs for row in run.measure(method, plan, hosts, job)]


def negative_rows(method: Method, attacks: tuple[str, ...] = (), **options: object) -> list[dict]:
    plan = Plan(lambda: method, (DATA,), ("null",), attacks, **options)
    return list(run.collect(plan, workers=1))


def test_keys_read_with_the_right_one_alone(clips):
    rows = rows_of(additive(), clips, "keys")
    assert [row["right"] for row in rows] == [0] * len(clips)
    assert all(len(row["wrong"]) == security.WRONG_KEYS for row in rows)
    assert 6 < np.mean([row["wrong"] for row in rows]) < 10
    masks = [mask_of(secret_of(0, i, BITS).key).bit_count() for i in range(len(clips))]
    assert [row["zero"] for row in rows] == masks  # a zero mask leaves the mask's ones wrong


def test_without_a_key_any_key_reads(clips):
    for row in rows_of(additive(keyed=False), clips, "keys"):
        assert row["zero"] == row["right"] == max(row["wrong"]) == 0


def test_a_mark_that_ignores_its_host_is_always_transplanted(clips):
    rows = [r for r in rows_of(additive(), clips, "transplant") if r["attack"] == "residual"]
    assert [row["errors"] for row in rows] == [0] * len(clips)
    assert min(row["presence"] for row in rows) > 0.8
    assert [row["other"] for row in rows] == [1, 2, 3, 4, 5, 0]


def test_a_mark_that_depends_on_its_host_is_not(clips):
    def embed(clip, secret):
        flip = np.sign(np.roll(clip, 1) + 1e-9)  # the carrier has the signs of its host
        return clip + flip * (additive().embed(clip, secret) - clip)

    def read(clip):
        return additive().read(clip * np.sign(np.roll(clip, 1) + 1e-9))

    rows = rows_of(replace(additive(), embed=embed, read=read), clips, "transplant")
    assert max(row["presence"] for row in rows if row["attack"] == "residual") < 0.5


def test_a_second_mark_covers_the_first_bit_by_bit(clips):
    for row in rows_of(additive(), clips, "re-embed"):
        # Where both codes agree both are read; elsewhere they cancel and the host decides.
        assert row["first"] + row["second"] <= BITS
        assert row["presence"] > 0.3


def test_colluders_leave_what_most_of_their_copies_share(clips):
    for row in rows_of(additive(), clips, "average"):
        assert len(row["errors"]) == row["copies"]
        if row["copies"] == 5:  # odd: the majority of each bit is what is read
            case_secret = secret_of(0, row["clip"], BITS)
            case = Case(Plan(additive, (), ()), additive(), clips, 1.0, row["clip"])
            fresh = security.fresh(case, "average")
            payloads = [case_secret.payload, *(next(fresh).payload for _ in range(4))]
            most = np.sign(sum(spell(p) for p in payloads))
            assert row["errors"] == [int(np.sum(spell(p) != most)) for p in payloads]


def test_one_known_payload_forges_any_other_under_a_fixed_mask(clips):
    for suite in ("known-payload", "replay"):
        for row in rows_of(additive(), clips, suite):
            assert row["errors"] == 0
            assert row["presence"] > 0.8
            assert row.get("mask_errors", 0) == 0


def test_a_code_is_marked_by_the_public_interface(clips):
    method, own = additive(), Key(bytes(range(32)))
    reading = method.read(clips[0])  # no mark is needed to see one's own mask
    marked = security.mark_code(method, clips[1], 0xBEEF, own, reading)
    assert method.decode(method.read(marked), None) == 0xBEEF


def test_similarity_of_carriers(clips):
    wave, field = rows_of(additive(), clips, "carrier")
    assert (wave["domain"], field["domain"]) == ("waveform", "gain-field")
    assert wave["hosts"] == len(clips)
    assert wave["correlation"] == pytest.approx(1, abs=1e-4)
    assert wave["cosine"] == pytest.approx(1, abs=1e-4)
    assert abs(field["cosine"]) < 1


def test_similarity_is_the_mean_over_pairs():
    vectors = np.random.default_rng(1).standard_normal((5, 40)) + 0.5
    corr, pairs = np.corrcoef(vectors), np.triu_indices(5, 1)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = security.similarity([*vectors, np.zeros(40)])  # silence has no direction
    assert found["hosts"] == 5
    assert found["correlation"] == pytest.approx(corr[pairs].mean(), abs=1e-5)
    assert found["cosine"] == pytest.approx((unit @ unit.T)[pairs].mean(), abs=1e-5)
    assert security.similarity([np.zeros(3)])["cosine"] is None


def test_partners_are_other_speakers_where_names_tell():
    names = ["000-19-1-0001.flac", "001-19-2-0004.flac", "002-26-1-0002.flac"]
    same = ["19-1-0001.flac", "19-1-0002.flac", "19-1-0003.flac"]
    for told, wanted in (
        (names, [2, 2, 0]), (["a.wav", "b.wav", "c.wav"], [1, 2, 0]), (same, [1, 2, 0])
    ):  # fmt: skip
        assert [partner(index, 3, told) for index in range(3)] == wanted


def test_one_clip_has_no_other_host(clips):
    for suite in ("transplant", "known-payload", "replay"):
        with pytest.raises(AudioError, match="two clips"):
            rows_of(additive(), clips[:1], suite)


def test_names_are_those_of_the_clips():
    def names(seconds, limit=None):
        return [name for name, _ in named_clips(DATA, seconds, 16000, limit=limit)]

    assert names(1.0) == ["espeak-ng-gb.flac", "flite-rms.flac"]
    assert names(1.0, 1) == ["espeak-ng-gb.flac"]
    assert names(60.0) == []


def test_the_shipped_model_has_a_row_for_everything(clips):
    method = keybound()
    rows = rows_of(method, clips[:2], *security.SUITES)
    assert json.loads(json.dumps(rows)) == rows
    assert {row["suite"] for row in rows} == {*security.SUITES}
    assert len(rows) == 2 * 8 + 2
    (second,) = (row for row in rows if (row["suite"], row.get("clip")) == ("keys", 1))
    assert rows_of(method, clips[:2], "keys")[1] == second
    assert rows_of(method, clips[:2], "keys", seed=1)[1]["wrong"] != second["wrong"]


def test_the_shipped_model_yields_its_mask_to_one_known_payload(clips):
    method = keybound()
    reading = method.read(method.embed(clips[0], Secret(Key(bytes(32)), 0x1234)))
    own = Key(bytes(range(32)))
    marked = security.mark_code(method, clips[3], 0xBEEF, own, reading)
    direct = method.decode(reading, own) ^ method.decode(reading, None)
    assert np.array_equal(marked, method.embed(clips[3], Secret(own, 0xBEEF ^ direct)))


def test_negatives_score_every_source_in_whole_windows():
    options = {"noise": DATA, "synthetic": DATA, "attacks": ("clean", "gain"), "made_minutes": 0.2}
    rows = negative_rows(additive(), **options)
    named = [(row["source"], row["attack"]) for row in rows]
    assert named[:2] == [("noise", "clean"), ("synthetic-speech", "clean")]
    assert named[2:4] == [("attacked-speech", "clean"), ("attacked-speech", "gain")]
    assert [source for source, _ in named[4:]] == ["silence", "tones", "music"]
    assert [len(row["scores"]) for row in rows] == [6, 6, 6, 6, 16, 16, 16]
    assert {row["seconds"] for row in rows} == {1.0}
    assert rows[0]["scores"] == rows[1]["scores"] == rows[2]["scores"]  # the same recordings
    assert all(score == round(score, 3) for row in rows for score in row["scores"])
    assert rows == negative_rows(additive(), **options)


def test_an_attack_that_cannot_run_says_why(monkeypatch):
    monkeypatch.setattr(negatives, "available", lambda name: f"{name}: weights absent")
    rows = negative_rows(additive(), ("gain",), made_minutes=0)
    assert rows[0]["not_run"] == "gain: weights absent"
    assert rows[0]["scores"] == []


def test_longer_clips_make_longer_windows():
    method = replace(additive(), seconds=1.1, read=lambda clip: Reading(len(clip) / RATE, clip))
    (row,) = negative_rows(method, noise=DATA, made_minutes=0)[:1]
    assert row["seconds"] == 1.1
    assert row["scores"] == [1.1] * 6


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(AudioError, match="no recordings"):
        negative_rows(additive(), noise=tmp_path)
