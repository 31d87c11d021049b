"""The weights of the paper's design: small, made by their recipe, read, and of no use elsewhere."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from keybound.crypto.keys import Key
from keybound.training.recipe import from_tree, load
from keybound.watermark.watermarker import Watermarker

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "models" / "paper"


@pytest.fixture(scope="module")
def marker():
    return Watermarker(MODEL)


def test_they_are_what_the_card_says():
    card = json.loads((MODEL / "card.json").read_text())
    for name, sha256 in card["sha256"].items():
        assert hashlib.sha256((MODEL / name).read_bytes()).hexdigest() == sha256
    assert from_tree(card["recipe"]) == load(ROOT / "recipes" / "paper-quality.toml")
    assert sum(path.stat().st_size for path in MODEL.iterdir()) < 10e6


def test_a_mark_reads_on_its_host_and_is_no_mark_on_another(marker, speech):
    key, host = Key(bytes(32)), speech[0].numpy()
    marked = marker.embed(host, 16000, key=key, payload=0xBEEF, seal=False, check=False)
    carrier = marked - host
    assert 17 < 10 * np.log10(np.sum(host**2) / np.sum(carrier**2)) < 35
    found = marker.detect(marked, 16000)
    assert found.presence > marker.card.clean_threshold
    assert (marker.decode(found, key=key) ^ 0xBEEF).bit_count() <= 2
    moved = marker.detect(speech[2].numpy() + carrier, 16000)
    assert moved.presence < found.presence / 2
