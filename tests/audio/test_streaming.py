"""Blocks without sound: an offset is no mark, however a recording is cut."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keybound.audio import recordings, streaming
from keybound.model.detection import ABSENT
from keybound.model.networks import Networks

SPEECH = Path(__file__).parents[1] / "data" / "flite-rms.flac"


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 6), st.integers(0, 6))
def test_blocks_are_still_where_no_sound_is_near(
    sounds: list[bool], past: int, future: int
) -> None:
    samples = np.concatenate([[0.1, 0.2 if loud else 0.1] for loud in sounds]).astype(np.float32)
    near = [any(sounds[max(0, i - past) : i + future + 1]) for i in range(len(sounds))]
    assert streaming.still(samples, 2, past, future).tolist() == [not n for n in near]


@pytest.mark.parametrize("offset", [0.0, 1e-4, 0.01, -0.1])
def test_an_offset_is_no_mark(offset: float) -> None:
    presence, _ = Networks().frames(np.full(48000, offset, np.float32))
    assert (presence == ABSENT).all()


@pytest.mark.parametrize("size", [60, 77])
def test_a_pause_is_as_still_in_chunks_as_in_the_whole(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nets, speech = Networks(), recordings.read(SPEECH).samples[:16000, 0].astype(np.float32)
    recording = np.concatenate([speech, np.full(48000, 0.01, np.float32), speech])
    whole, _ = nets.frames(recording)
    still = np.flatnonzero(streaming.still(recording, 320, *nets.card.detect_context))
    past, future = nets.card.detect_context
    assert still.tolist() == list(range(50 + past, 200 - future))
    assert (whole[still] == ABSENT).all()
    monkeypatch.setattr(streaming, "CHUNK_BLOCKS", size)
    assert np.array_equal(nets.frames(recording)[0], whole)
