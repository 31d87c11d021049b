"""Speech for the tests of peers."""

import numpy as np
import pytest

from keybound.audio.folders import read_clips


@pytest.fixture
def clip(pytestconfig):
    """Give the loudest seconds of a recording of synthetic speech, at a rate."""

    def cut(rate, seconds, which=0):
        folder = pytestconfig.rootpath / "tests" / "data"
        every = read_clips(folder, seconds, rate, every=True)
        return sorted(every, key=lambda c: -float(np.sum(c**2)))[which]

    return cut
