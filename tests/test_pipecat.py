"""The processor for Pipecat marks what a bot says, in the real pipeline, or drops it."""

import asyncio
import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

with warnings.catch_warnings():  # of what it imports
    warnings.simplefilter("ignore")
    pytest.importorskip("pipecat", reason="pipecat-ai is not installed (docs/proxy.md)")
    from pipecat.frames.frames import (
        ErrorFrame,
        InterruptionFrame,
        OutputAudioRawFrame,
        TTSAudioRawFrame,
        TTSStartedFrame,
        TTSStoppedFrame,
    )
    from pipecat.tests.utils import SleepFrame, run_test

import keybound
from keybound.demo import SPEECH

KEY, PAYLOAD = keybound.Key(bytes(range(32))), 0x5EED
example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "pipecat_processor.py"))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
Frames = list[Any]


def spoken() -> tuple[Any, int]:
    return sf.read(SPEECH, dtype="int16")


def utterance(samples: Any, rate: int, name: str = "a") -> Frames:
    blocks = np.split(samples, range(rate // 25, len(samples), rate // 25))
    audio = [TTSAudioRawFrame(one.tobytes(), rate, 1, context_id=name) for one in blocks]
    return [TTSStartedFrame(), *audio, TTSStoppedFrame()]


def sent(frames: Frames, **options: Any) -> tuple[Frames, Frames]:
    processor = example["MarkSpeech"](key=KEY, payload=PAYLOAD, **options)
    down, up = asyncio.run(run_test(processor, frames_to_send=frames, start_timeout=30.0))
    return list(down), list(up)


def heard(frames: Frames, name: str = "a") -> Any:
    audio = [
        one.audio for one in frames if isinstance(one, TTSAudioRawFrame) and one.context_id == name
    ]
    return np.frombuffer(b"".join(audio), "<i2")


def test_each_utterance_is_marked_and_whole() -> None:
    samples, rate = spoken()
    half = len(samples) // 2
    frames = [*utterance(samples[:half], rate), *utterance(samples[half:], rate, "b")]
    down, up = sent(frames)
    for name, host in (("a", samples[:half]), ("b", samples[half:])):
        marked = heard(down, name)
        assert len(marked) == len(host)
        assert keybound.detect(marked, rate).present
        assert keybound.verify(marked, rate, key=KEY, payload=PAYLOAD).grade == "sealed"
    kinds = [type(one) for one in down if not isinstance(one, TTSAudioRawFrame)]
    assert kinds.count(TTSStoppedFrame) == 2
    assert not [one for one in up if isinstance(one, ErrorFrame)]
    last = [type(one) for one in down].index(TTSStoppedFrame)
    assert isinstance(down[last - 1], TTSAudioRawFrame)  # the rest comes before the end


def test_speech_that_is_too_short_is_dropped_unless_that_is_allowed() -> None:
    samples, rate = spoken()
    word = samples[rate : rate + rate // 2]
    down, up = sent(utterance(word, rate))
    assert len(heard(down)) == 0
    (error,) = [one for one in up if isinstance(one, ErrorFrame)]
    assert "cannot be marked" in error.error
    down, up = sent(utterance(word, rate), unmarked_ok=True)
    np.testing.assert_array_equal(heard(down), word)
    assert [one for one in up if isinstance(one, ErrorFrame)]


def test_an_interruption_drops_the_rest_and_the_next_utterance_is_marked() -> None:
    samples, rate = spoken()
    begun = utterance(samples[: 2 * rate], rate)[:-1]
    down, _ = sent([*begun, SleepFrame(1.0), InterruptionFrame(), *utterance(samples, rate, "b")])
    assert len(heard(down)) < 2 * rate
    marked = heard(down, "b")
    assert len(marked) == len(samples)
    assert keybound.detect(marked, rate).present


def test_other_audio_passes_as_it_is() -> None:
    sound = OutputAudioRawFrame(bytes(640), 16_000, 1)
    down, _ = sent([sound])
    assert sound in down


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(example["main"](str(tmp_path / "marked.wav")))
    assert "code agrees in 16 of 16 bits" in capsys.readouterr().out
    assert sf.info(tmp_path / "marked.wav").frames == sf.info(SPEECH).frames
