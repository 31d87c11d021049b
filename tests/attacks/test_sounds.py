"""Made sounds: of their length, finite, different each time."""

import numpy as np
import pytest

from keybound.attacks import sounds


@pytest.mark.parametrize("name", sounds.MADE)
@pytest.mark.parametrize("rate", [16000, 22050])
def test_made_sounds_are_sound(name, rate):
    made = [sounds.MADE[name](np.random.default_rng(i), rate) for i in range(10)]
    for sound in made:
        assert sound.dtype == np.float32
        assert sound.shape == (round(sounds.PIECE_S * rate),)
        assert np.isfinite(sound).all()
        assert np.abs(sound).max() <= 1
    assert len({sound.tobytes() for sound in made}) > 5
