"""The examples do what they say."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import soundfile as sf

from keybound.demo import SPEECH

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_speech_is_marked_as_it_is_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "marked.wav"
    monkeypatch.setattr(sys, "argv", ["live_speech.py", str(output), "0"])
    runpy.run_path(str(EXAMPLES / "live_speech.py"), run_name="__main__")
    latency, *seconds, slowest, verdict = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"each block comes out marked 1\d\d ms after it went in", latency)
    assert len(seconds) == 5  # one for each second of the clip but the last two, while it is spoken
    heard = [float(line.rsplit(maxsplit=1)[1]) for line in seconds]
    assert min(heard[1:]) > 0.9  # the first second is still on its way
    assert slowest.startswith("a block of 40 ms took ")
    assert verdict.startswith("sealed: marked, code agrees in 16 of 16 bits")
    made, host = sf.info(output), sf.info(SPEECH)
    assert (made.frames, made.samplerate) == (host.frames, host.samplerate)
