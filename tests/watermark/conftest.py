"""A registry to mark and identify recordings with."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keybound.crypto.keys import Key
from keybound.provenance.parties import Party
from keybound.watermark.registered import Registry
from keybound.watermark.watermarker import Watermarker


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
