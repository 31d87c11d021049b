"""The page says what the C2PA manifest of a file says beside its mark, and of each track."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import soundfile as sf
from made_page import Page, found_on

import made_certificates
from keybound.provenance.certificates import read
from keybound.provenance.credentials import FORMATS, SOURCE_TYPES, Signing
from keybound.provenance.declared import NOTHING
from made_film import of_tracks


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


@pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")
def test_which_tracks_of_a_video_are_marked_is_told(
    page: Page, clip: Any, marked: Any, tmp_path: Path
) -> None:
    sounds = []
    for samples in (clip, marked):
        sf.write(tmp_path / "a.wav", samples, 16_000)
        sounds.append((tmp_path / "a.wav").read_bytes())
    (card,) = page.check(of_tracks(tmp_path, *sounds))
    assert card.locator(".verdict").inner_text() == "Marked"
    where = card.locator(".where").inner_text()
    assert where.startswith("The file has 2 audio tracks. Marked: 2. This is track 2. The mark is")
    assert [one["present"] for one in found_on(card)["tracks"]] == [False, True]
    assert not card.locator(".sound").is_visible()  # the browser decodes the first track alone
