"""A registry to mark and identify recordings with, and two recordings."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keybound.crypto.keys import Key
from keybound.provenance.parties import Party
from keybound.watermark.registered import Registry
from keybound.watermark.watermarker import Watermarker

Samples = NDArray[Any]
RATE = 16_000


@pytest.fixture(scope="module")
def host(clips: dict[str, Samples]) -> Samples:
    return np.resize(clips["flite-rms"], 10 * RATE).astype(np.float32)


@pytest.fixture(scope="module")
def voice(clips: dict[str, Samples]) -> Samples:
    return np.resize(clips["espeak-ng-gb"], 10 * RATE).astype(np.float32)


@pytest.fixture
def known(tmp_path: Path, marker: Watermarker) -> Iterator[Registry]:
    """Return a registry of alice and bob, with a key of its own."""
    with Registry(tmp_path / "registry.sqlite") as opened:
        opened.marker = marker
        opened.rotate_key(tmp_path / "registry.key")
        for number, name in enumerate(("alice", "bob")):
            key = Key(bytes([number + 1]) * 32)
            key.write(tmp_path / f"{name}.key")
            path = tmp_path / f"{name}.key"
            opened.add(Party(name, 0x5EED + number, 16, 2, path, key.id, datetime.now(UTC)))
        yield opened
