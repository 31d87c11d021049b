"""The script that teaches the end of a detector: what it hears, and that nothing else changes."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from keybound.training import nets
from keybound.training.recipe import Recipe, to_tree

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
FILES = [[ROOT / "tests" / "data" / "flite-rms.flac"]]
BLOCKS = 4

pytestmark = pytest.mark.skipif(not SCRIPTS.exists(), reason="no scripts here")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("detector_end")


@pytest.fixture
def clips(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("heard_clips")


@pytest.fixture
def run(tmp_path):
    """Write a small run of random weights."""
    model = replace(Recipe("small").model, width=16, presence_spans=(49,))
    torch.manual_seed(1)
    pair = zip(("embedder", "detector"), nets.build(model), strict=True)
    save_file(
        {
            f"{name}.{key}": value.contiguous()
            for name, net in pair
            for key, value in net.state_dict().items()
        },
        tmp_path / "weights.safetensors",
    )
    tree = {"recipe": to_tree(Recipe("small", model=model))}
    (tmp_path / "state.json").write_text(json.dumps(tree))
    return tmp_path


def made(clips, run, share, count):
    asked = {"run": run, "files": FILES, "share": share, "seed": 0, "blocks": BLOCKS}
    return [clips.example(n, **asked) for n in range(count)]


def changed(before, network):
    return {name for name, one in network.state_dict().items() if not one.equal(before[name])}


def copy_of(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def test_the_head_learns_and_the_rest_stays(script, clips, run):
    examples = made(clips, run, "speech", 8) + made(clips, run, "voices", 8)
    assert {one.kind for one in examples} > {clips.UNMARKED}
    assert all(one.features.shape == (16, 150) for one in examples)
    detector = clips.networks(run)[1]
    before, kept = copy_of(detector.heads), script.keep(examples)
    with torch.no_grad():
        kept = kept._replace(features=script.ended(detector, kept.features.float(), BLOCKS))
        first = script.price(detector.heads, kept, kept.features, single=False)
    script.teach_head(detector.heads, kept, 150)
    with torch.no_grad():
        last = script.price(detector.heads, kept, kept.features, single=False)
    assert last < first - 0.3  # of 12.4, of which the bits, that are of chance here, are 7
    touched = {name.partition(".")[0] for name in changed(before, detector.heads)}
    assert touched == {"mix", "presence"}
    assert load_file(run / "weights.safetensors")  # what was read is as it was


def test_the_last_blocks_learn_and_the_first_ones_stay(script, clips, run):
    long, short = made(clips, run, "speech", 6), made(clips, run, "short", 12)
    assert {one.strength for one in short} == {1.0}
    assert {len(one.where) for one in short} <= set(clips.LENGTHS)
    detector = clips.networks(run)[1]
    before, count = copy_of(detector), len(detector.blocks)
    by_length = {
        n: script.keep(some)
        for n in clips.LENGTHS
        if (some := [one for one in short if len(one.where) == n])
    }
    script.teach_blocks(detector, script.keep(long), by_length, 3, BLOCKS)
    touched = changed(before, detector)
    blocks = {name.split(".")[1] for name in touched if name.startswith("blocks.")}
    assert blocks == {str(count - n) for n in range(1, BLOCKS + 1)}
    assert {name.split(".")[0] for name in touched} == {"blocks", "heads"}
    half = script.mixed(detector.state_dict(), before, 0.5)
    name = sorted(touched)[0]
    torch.testing.assert_close(half[name], (detector.state_dict()[name] + before[name]) / 2)


@pytest.mark.parametrize("blocks", [BLOCKS, 10])
def test_what_the_beginning_gives_is_what_the_end_takes(script, clips, run, blocks):
    (one,) = made(clips, run, "short", 1)
    detector = clips.networks(run)[1]
    assert len(detector.blocks) == 10
    sound = 0.1 * torch.randn(1, 48000)
    with torch.no_grad():
        heard = script.ended(detector, clips.begun(run, blocks).trunk(sound), blocks)
        torch.testing.assert_close(heard, detector.trunk(sound), atol=1e-4, rtol=1e-4)
    assert one.features.shape == (16, len(one.where))


def test_a_longer_span_starts_from_the_same_answer_without_the_old_one(script, clips, run):
    heads = clips.networks(run)[1].heads
    longer = script.with_span(heads, 149)
    assert longer.spans == (heads.spans[0], 149)
    with torch.no_grad():
        heads.mix.weight[:, -heads.logits.out_channels :] = 0  # what the old span adds
        features = torch.randn(1, 16, 150)
        for old, new in zip(heads(features), longer(features), strict=True):
            torch.testing.assert_close(new, old)


def test_frames_near_an_edge_are_known(script):
    where = torch.zeros(2, 60)
    where[0, 30:] = 1
    near = script.near_edges(where)
    assert near[0].nonzero().ravel().tolist() == list(range(18, 43))
    assert not near[1].any()


def test_marks_in_part_are_frames_to_find_and_nothing_else(clips, run):
    where = clips.part_of(150, np.random.default_rng(3))
    assert 30 <= where.sum() < 150
    assert np.count_nonzero(np.diff(where)) in (1, 2)
    examples = made(clips, run, "speech", 24)
    marked = [one for one in examples if one.kind == clips.MARKED]
    assert {0 < one.where.mean() < 1 for one in marked} == {True, False}
    assert not any(one.where.any() for one in examples if one.kind != clips.MARKED)


def test_sounds_are_never_marked_and_beats_repeat_a_piece(clips, run):
    assert {one.kind for one in made(clips, run, "sounds", 6)} == {clips.UNMARKED}
    rng = np.random.default_rng(0)
    clip = clips.draw_clip(FILES[0], rng)
    beat = clips.beaten(clip, np.random.default_rng(1))
    length = int(np.random.default_rng(1).uniform(*clips.BEAT_S) * clips.RATE)
    assert len(beat) == clips.LENGTH
    assert np.array_equal(beat[: 2 * length], np.tile(clip[:length], 2))
