"""The odds of tiles: what they say of a sealed recording, of silence, and of long ones."""

import numpy as np
import pytest
from made_seal import CODE, KEY, Floats, heard, sealed, six_seconds

from keybound.seal import odds, pattern


@pytest.fixture(scope="module")
def levels() -> Floats:
    return heard(sealed(six_seconds()))


def test_odds_are_log_likelihood_ratios(levels: Floats) -> None:
    """Of tiles that are said to have gone up with a chance of p, about as many did."""
    said = odds.odds_of(levels)[:: pattern.COLUMN_STEPS]
    up = pattern.signs(KEY, CODE, 3, 0, len(said)) > 0
    chance = 1 / (1 + np.exp(-said))
    for low, high in ((0, 0.35), (0.35, 0.65), (0.65, 1)):
        inside = (chance >= low) & (chance < high)
        assert inside.sum() > 100
        assert up[inside].mean() == pytest.approx(chance[inside].mean(), abs=0.12)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_few_levels_have_odds(levels: Floats, steps: int) -> None:
    assert odds.odds_of(levels[:steps]).shape == (steps, pattern.BANDS)


def test_silence_has_odds() -> None:
    still = odds.odds_of(heard(np.zeros(16_000, np.float32)))
    assert np.isfinite(still).all()


def test_a_long_recording_is_heard_in_parts_that_fit(levels: Floats) -> None:
    """What lies in the middle of a part does not hang on where the parts begin."""
    long = np.concatenate([levels] * 8)
    whole = odds.odds_of(long)
    assert whole.shape == long.shape
    assert np.isfinite(whole).all()
    first = odds.odds_of(long[: odds.PART_STEPS + odds.EDGE_STEPS])
    assert np.allclose(whole[: odds.PART_STEPS], first[: odds.PART_STEPS], atol=1e-5)
