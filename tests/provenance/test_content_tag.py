"""Content tags: payloads that are a keyed hash of their host."""

import hashlib
import hmac
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound import attacks
from keybound.audio import recordings
from keybound.crypto.keys import Key
from keybound.errors import CodeError
from keybound.provenance import content_tag
from keybound.types import Levels
from keybound.watermark import channels

KEY = Key(bytes(range(32)))
DATA = Path(__file__).parents[1] / "data"


def levels(name: str, attack: str = "clean") -> Levels:
    samples = recordings.read(DATA / f"{name}.flac").samples[: 3 * 16000, 0].astype(np.float32)
    hit = attacks.attack(attack)
    return channels.levels_of(hit.apply(samples, 16000, hit.draw(np.random.default_rng(1), None)))


def test_known_answer() -> None:
    step, band = np.arange(300)[:, None], np.arange(64)
    made_up = ((step * step * 3 + band * 13 + step * band * 5) % 41 - 40).astype(np.float16)
    assert content_tag.payload(made_up, KEY, 16) == 0x5F04


def test_by_hand() -> None:
    info = (15).to_bytes(4, "big") + b"keybound-1/host" + (3).to_bytes(4, "big") + b"one"
    seed = hmac.new(KEY.secret, info + b"\x01", "sha256").digest()
    tiles = content_tag._tiles(levels("flite-rms"))
    expected = 0
    for bit in range(16):
        stream = hashlib.shake_256(seed + bit.to_bytes(4, "big")).digest(tiles.size // 8 + 1)
        signs = [2 * (stream[i // 8] >> (7 - i % 8) & 1) - 1 for i in range(tiles.size)]
        expected = 2 * expected + (sum(s * t for s, t in zip(signs, tiles.flat, strict=True)) > 0)
    assert content_tag.payload(levels("flite-rms"), KEY, 16, b"one") == expected


@pytest.mark.parametrize("attack", ["clean", "mp3", "opus-16", "gain"])
def test_a_copy_has_the_tag(attack: str) -> None:
    tag = content_tag.payload(levels("flite-rms"), KEY, 16)
    assert content_tag.check(levels("flite-rms", attack), tag, KEY, 16).holds


def test_neither_another_host_nor_another_key_nor_nonce_is() -> None:
    tag = content_tag.payload(levels("flite-rms"), KEY, 16)
    assert not content_tag.check(levels("espeak-ng-gb"), tag, KEY, 16).holds
    assert not content_tag.check(levels("flite-rms"), tag, Key(bytes(32)), 16).holds
    assert not content_tag.check(levels("flite-rms"), tag, KEY, 16, b"another").holds


def test_chance_is_shared_by_tries() -> None:
    heard = levels("flite-rms")
    tag = content_tag.payload(heard, KEY, 16)
    assert content_tag.check(heard, tag, KEY, 16).p == 2**-16
    assert content_tag.check(heard, tag, KEY, 16, tries=1000).p == pytest.approx(1000 / 2**16)
    assert not content_tag.check(heard, tag, KEY, 16, tries=1000).holds


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9), st.floats(0, 40))
def test_the_share_is_that_of_all_payloads(weights: list[float], limit: float) -> None:
    sums = [
        sum(w for w, taken in zip(weights, chosen, strict=True) if taken)
        for chosen in itertools.product((False, True), repeat=len(weights))
    ]
    near = any(abs(total - limit) < 1e-6 for total in sums)
    share = content_tag._share_below(np.array(weights), limit)
    assert near or share == sum(total <= limit for total in sums) / len(sums)


def test_of_uniform_payloads_p_is_what_it_says() -> None:
    heard = levels("flite-rms")
    found = [content_tag.check(heard, payload, KEY, 10).p for payload in range(1024)]
    for p in (0.01, 0.1, 0.5):
        assert sum(one <= p for one in found) / 1024 <= p


def test_what_is_too_short_or_too_wide_is_refused() -> None:
    with pytest.raises(CodeError, match="too short"):
        content_tag.payload(levels("flite-rms")[:100], KEY, 16)
    with pytest.raises(CodeError, match="1 to 32"):
        content_tag.check(levels("flite-rms"), 0, KEY, 33)
