"""The page's JavaScript reads the public identifiers that the library reads, run in Node.js."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_registry import ISSUER, spelling

from keybound.attacks import attack
from keybound.identity import identifier
from keybound.identity.reading import read_public
from keybound.server import site
from keybound.types import Detection

RATE = 16_000
SCRIPT = """
import { readFileSync } from "node:fs";
import { readPublic } from "./identity/reading.js";
const { facts, given } = JSON.parse(readFileSync(0));
const view = ({ present, chance, logits }) => ({
  present, chance: Float32Array.from(chance), logits: logits.map((row) => Float32Array.from(row)),
});
const read = ({ views, frame_s }) => readPublic(views.map(view), frame_s, facts);
process.stdout.write(JSON.stringify(given.map(read)));
"""


def in_node(found: Sequence[Detection], folder: Path) -> list[list[dict[str, Any]]]:
    """Return what the page's modules read from detections."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed (apt install nodejs)")
    page = shutil.copytree(site.PAGE, folder / "page", ignore=shutil.ignore_patterns("ort"))
    (page / "package.json").write_text('{"type": "module"}')
    (page / "run.js").write_text(SCRIPT)
    given = [
        {
            "frame_s": one.frame_s,
            "views": [
                {
                    "present": view.present,
                    "chance": view.frame_presence.tolist(),
                    "logits": view.frame_logits.tolist(),
                }
                for view in one.views
            ],
        }
        for one in found
    ]
    asked = json.dumps({"facts": site.identifier_facts(), "given": given})
    done = subprocess.run(
        [node, "run.js"], cwd=page, input=asked, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return told


def agree(found: Sequence[Detection], folder: Path) -> list[int]:
    """Compare what the page reads with what the library reads; return how many each spells."""
    counts = []
    for one, made in zip(found, in_node(found, folder), strict=True):
        known = read_public(one)
        assert [(own["identifier"], own["issuer"]) for own in made] == [
            (own.name, own.issuer) for own in known
        ]
        for name in ("start_s", "fit"):
            assert [own[name] for own in made] == pytest.approx(
                [getattr(own, name) for own in known], abs=1e-6
            )
        counts.append(len(known))
    return counts


def test_speech_is_read_as_the_library_reads_it(
    marker: Any, clips: Any, marked: Any, tmp_path: Path
) -> None:
    one, two = (spelling(marker, voice, n) for n, voice in enumerate(list(clips.values())[:2], 5))
    noise = attack("noise-20")
    heard = {
        "whole": one,
        "from the middle of a second": one[round(2.37 * RATE) :],
        "noisy": noise.apply(one, RATE, noise.draw(np.random.default_rng(0), None)),
        "joined": np.concatenate([one, two]),
        "a channel each": np.stack([one, two], axis=1),
        "another mark": np.resize(marked, 8 * RATE),
    }
    found = [marker.detect(samples, RATE) for samples in heard.values()]
    assert all(own.present for own in found)
    counts = dict(zip(heard, agree(found, tmp_path), strict=True))
    assert (counts["whole"], counts["a channel each"], counts["another mark"]) == (1, 2, 0)
    assert min(counts["from the middle of a second"], counts["noisy"], counts["joined"]) >= 1


def test_frames_at_the_limit_of_what_can_be_read_give_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(21)
    found = [drawn(rng, noise) for noise in (0.5, 1.5, 2.0, 2.5, 3.0, 6.0) for _ in range(3)]
    counts = agree(found, tmp_path)
    assert {0, 1, 2} == set(counts)


def drawn(rng: Any, noise: float) -> Detection:
    """Return a detection whose frames spell one identifier, then another, under noise."""
    frames, start_s = round(rng.uniform(6, 36) * 50), rng.uniform(0, 40)
    seconds = np.floor(start_s + np.arange(frames) / 50).astype(np.int64)
    first, second = (
        identifier.public(int(rng.integers(1 << 40)), ISSUER).codes(0, 80)[seconds]
        for _ in range(2)
    )
    codes = np.where(np.arange(frames)[:, None] < frames * rng.choice([0.5, 1.0]), first, second)
    logits = (2.0 * codes - 1 + noise * rng.standard_normal(codes.shape)).astype(np.float32)
    chance = (1 / (1 + np.exp(-rng.normal(1, 2, frames)))).astype(np.float32)
    usual = (True, 0.7, 0.5, 1.0, 0.5, 1e-3, (), ())
    return Detection(*usual, 0.02, chance, logits, logits.mean(axis=0))
