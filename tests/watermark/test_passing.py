"""What is marked on its way through pipes is what a file would be, and is read back."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray

from keybound.audio import pipes, recordings
from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.errors import AudioError
from keybound.identity import identifier
from keybound.watermark import files
from keybound.watermark.options import EmbedOptions
from keybound.watermark.pipes import Passing
from keybound.watermark.watermarker import Watermarker

KEY = Key(bytes(range(32)))
OPTIONS = EmbedOptions(KEY, 0x5EED, position=3)


class Trickle(io.BytesIO):
    """A pipe through which little comes at a time."""

    piece = 5_000

    def read1(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, self.piece))


def wav(samples: NDArray[Any], rate: int) -> bytes:
    file = io.BytesIO()
    sf.write(file, samples, rate, "PCM_16", format="WAV")
    return file.getvalue()


def passing(
    marker: Watermarker, data: bytes, options: EmbedOptions = OPTIONS, **more: Any
) -> tuple[Passing, io.BytesIO]:
    source, out = pipes.opened(Trickle(data)), io.BytesIO()
    return Passing(marker, source, source.output(out), options, **more), out


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_stream_is_what_a_file_is(
    marker: Watermarker, kind: str, channels: int, tmp_path: Path
) -> None:
    samples, rate = sf.read(SPEECH, frames=72_000)
    both = np.stack([samples, 0.5 * samples[::-1]], axis=1)[:, :channels]
    host, output = tmp_path / f"host.{kind.lower()}", tmp_path / f"out.{kind.lower()}"
    sf.write(host, both, rate, "PCM_16")
    expected = files.embed(marker, host, output, OPTIONS)
    run, out = passing(marker, host.read_bytes())
    run.run()
    made = run.finished()
    whole = sf.read(output, dtype="int16", always_2d=True)[0].astype(int)
    with pipes.spooled(io.BytesIO(out.getvalue())) as path:
        stream = np.rint(recordings.read(path).samples * 32768).astype(int)
    assert np.abs(stream - whole).max() <= 1  # blocks of other lengths are summed in another order
    assert np.mean(stream == whole) > 0.999
    assert made.verdict is not None
    assert expected.verdict is not None
    assert (made.verdict.grade, made.verdict.distance) == ("sealed", expected.verdict.distance)
    assert (made.samples, made.rate, made.position) == (72_000, rate, 3)
    assert made.sha256 == hashlib.sha256(out.getvalue()).hexdigest()
    assert made.fingerprint.columns == expected.fingerprint.columns
    bits = [np.frombuffer(one.fingerprint.data, np.uint8) for one in (made, expected)]
    assert np.unpackbits(bits[0] ^ bits[1]).mean() < 0.01


def test_a_long_stream_is_read_back_in_stretches(
    marker: Watermarker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keybound.watermark.pipes.STRETCH_S", 32.0)
    monkeypatch.setattr(Trickle, "piece", 1_000_001)  # larger blocks take less time in all
    samples, rate = sf.read(SPEECH)
    long = np.resize(samples, 100 * rate)
    long[round(32.2 * rate) : round(63.8 * rate)] = 0
    named = EmbedOptions(KEY, 0x5EED, position=3, identifier=identifier.keyed(77, KEY))
    told: list[tuple[float, float, str]] = []
    run, _ = passing(marker, wav(long, rate), named, unread=lambda *one: told.append(one))
    run.run()
    assert told == [(32.0, 64.0, told[0][2])]
    assert "silen" in told[0][2]
    assert run._readback is not None
    assert run._readback._begun == 96 * rate
    verdict = run.finished().verdict
    assert verdict is not None
    assert verdict.rule_holds


def test_a_stretch_that_holds_is_enough_and_none_is_too_little(
    marker: Watermarker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keybound.watermark.pipes.STRETCH_S", 32.0)
    monkeypatch.setattr(Trickle, "piece", 1_000_001)  # larger blocks take less time in all
    samples, rate = sf.read(SPEECH)
    late = np.concatenate([np.zeros(40 * rate), np.resize(samples, 20 * rate)])
    told: list[object] = []
    run, _ = passing(marker, wav(late, rate), unread=lambda *one: told.append(one))
    run.run()
    assert len(told) == 1
    run, out = passing(marker, wav(late[: 40 * rate], rate))
    with pytest.raises(AudioError, match="does not hold a mark: the recording is silent"):
        run.run()
    assert len(out.getvalue()) == len(wav(late[: 40 * rate], rate))  # it has gone out


def test_without_a_check_nothing_is_read_back(marker: Watermarker) -> None:
    run, out = passing(marker, wav(np.zeros(16_000), 16_000), check=False)
    run.run()
    assert run.finished().verdict is None
    assert len(out.getvalue()) == 32_044


def test_what_has_gone_out_is_known_when_the_pipe_breaks(marker: Watermarker) -> None:
    class Broken(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 200_000:
                raise BrokenPipeError
            return super().write(data)

    samples, rate = sf.read(SPEECH)
    source, out = pipes.opened(Trickle(wav(samples, rate))), Broken()
    run = Passing(marker, source, source.output(out), OPTIONS)
    with pytest.raises(BrokenPipeError):
        run.run()
    made = run.finished()
    gone = (len(out.getvalue()) - 44) // 2
    assert gone <= made.samples <= gone + rate
    assert made.fingerprint.columns * 0.04 == pytest.approx(made.seconds, abs=0.05)
    assert made.sha256 == ""


def test_too_short_and_cut_short_are_errors_at_the_end(marker: Watermarker) -> None:
    samples, rate = sf.read(SPEECH)
    run, _ = passing(marker, wav(samples[:1_000], rate))
    with pytest.raises(AudioError, match="too short for a mark"):
        run.run()
    run, out = passing(marker, wav(samples, rate)[:200_000])
    with pytest.raises(AudioError, match="standard input is cut short"):
        run.run()
    assert len(out.getvalue()) == 200_000
