"""The page says what the C2PA manifest of a file says beside its mark."""

from pathlib import Path
from typing import Any

import soundfile as sf
from made_page import Page

import made_certificates
from keybound.provenance.certificates import read
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING


def test_a_manifest_that_disagrees_with_the_mark_is_told(
    page: Page, tmp_path: Path, marked: Any
) -> None:
    signer = read(*made_certificates.make(tmp_path).pair)
    sf.write(tmp_path / "a.wav", marked, 16_000)
    how = (signer, FORMATS["WAV"], SOURCE_TYPES[0], NOTHING, (7, 0x0123456789))
    Signing(*how)(tmp_path / "a.wav")
    (card,) = page.check(tmp_path / "a.wav")
    said = card.locator(".manifest").inner_text()
    assert said.startswith("The file carries a C2PA manifest signed by one that calls itself")
    assert said.endswith("which the mark does not spell: they disagree.")
    sf.write(tmp_path / "b.wav", marked, 16_000)
    (plain,) = page.check(tmp_path / "b.wav")
    assert not plain.locator(".manifest").is_visible()
