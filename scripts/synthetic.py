"""Make the synthetic speech of the benchmark: one clip for each line of synthetic.tsv.

    pip install "hibari-tts[fast]==0.2.1" pyopenjtalk-plus==0.4.1.post10 soundfile
    apt install flite espeak-ng festival festvox-us-slt-hts festvox-kdlpc16k festvox-ca-ona-hts \
        festvox-czech-dita festvox-suopuhe-lj festvox-italp16k
    python scripts/synthetic.py FOLDER

Clips keep the rate and the level of their engine. Silence at their ends is cut, since the benchmark
takes the first second of a clip and most engines begin with a third of a second of nothing.
"""

import csv
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

Heard = tuple[Any, int]  # samples in [-1, 1], rate

SILENCE_DB = 35  # below the loudest 10 ms of a clip
MARGIN_S = 0.02
LENGTHS_S = (2.0, 5.0)

# Festival reads bytes, each voice in the charset of its language.
CHARSETS = {"czech_dita": "iso-8859-2"}


def hibari(text: str, voice: str, speed: float) -> Heard:
    return _hibari(voice)(text, speed=speed, seed=0), 24000


@cache
def _hibari(voice: str) -> Any:
    from hibari import Hibari

    return Hibari(voice=voice)


def openjtalk(text: str, _voice: str, speed: float) -> Heard:
    import pyopenjtalk

    samples, rate = pyopenjtalk.tts(text, speed=speed)
    return samples / 2**16, rate  # its peaks can lie just above 16 bits


def flite(text: str, voice: str, _speed: float) -> Heard:
    return heard_from(["flite", "-voice", voice, "-t", text, "-o"])


def espeak_ng(text: str, voice: str, _speed: float) -> Heard:
    return heard_from(["espeak-ng", "-v", voice, text, "-w"])


def festival(text: str, voice: str, _speed: float) -> Heard:
    typed = text.encode(CHARSETS.get(voice, "iso-8859-1"))
    return heard_from(["text2wave", "-eval", f"(voice_{voice})", "-o"], typed)


def heard_from(command: list[str], typed: bytes = b"") -> Heard:
    """Run a command that writes the file named last: none of them pipes a sound header right."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as wave:
        subprocess.run([*command, wave.name], input=typed, capture_output=True, check=True)
        samples, rate = soundfile.read(wave.name)
    return samples, rate


ENGINES = {
    "hibari": hibari,
    "openjtalk": openjtalk,
    "flite": flite,
    "festival": festival,
    "espeak-ng": espeak_ng,
}


def trimmed(samples: Any, rate: int) -> Any:
    """Cut silence at both ends, but for a short margin."""
    hop = rate // 100
    power = (samples[: len(samples) // hop * hop].reshape(-1, hop) ** 2).mean(axis=1)
    (loud,) = np.nonzero(power > power.max() * 10 ** (-SILENCE_DB / 10))
    margin = round(MARGIN_S * rate)
    return samples[max(loud[0] * hop - margin, 0) : (loud[-1] + 1) * hop + margin]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as lines:
        asked = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for number, line in enumerate(asked):
        engine, voice = line["engine"], line["voice"]
        samples, rate = ENGINES[engine](line["text"], voice, float(line["speed"]))
        clip = trimmed(np.asarray(samples, np.float64), rate)
        name = f"{number:03}-{engine}-{voice}.flac"
        if not LENGTHS_S[0] <= len(clip) / rate <= LENGTHS_S[1]:
            sys.exit(f"{name} lasts {len(clip) / rate:.2f} s")
        soundfile.write(folder / name, clip, rate, subtype="PCM_16")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
