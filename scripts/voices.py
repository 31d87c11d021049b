"""Make hours of unmarked speech by synthetic voices, from the sentences of any English text.

    apt install flite espeak-ng festival festvox-...
    python scripts/voices.py TEXT FOLDER --minutes 13 --voice flite/slt --voice espeak-ng/fr

Such voices teach the presence head (`scripts/detector_end.py --voices`), fit the evidence
(`keybound bench calibrate --others`) and count false alarms (`keybound bench false-alarms`). Each
gets a folder of its own, recordings of seven sentences as FLAC at 16 kHz. `--part K/N` takes the
K-th of N parts of the sentences, so that what is measured was not taught.
"""

import argparse
import random
import re
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import soundfile
import soxr
from synthetic import ENGINES

RATE = 16000
SENTENCES = 7  # of a recording
WORDS, LONGEST_WORD = (5, 25), 13


def sentences(text: str) -> list[str]:
    """Return the plain sentences of a text in an order that is always the same."""
    parts = (re.sub(r"[^A-Za-z ,]", " ", part) for part in re.split(r"(?<=[a-z])\.\s", text))
    plain = {" ".join(part.split()) for part in parts}
    fit = [
        line
        for line in sorted(plain)
        if WORDS[0] <= len(line.split()) <= WORDS[1] and max(map(len, line.split())) <= LONGEST_WORD
    ]
    random.Random(0).shuffle(fit)
    return fit


def recording(number: int, *, voice: str, lines: list[str], folder: Path) -> float:
    """Write one recording of a voice, and give its length in seconds."""
    engine, name = voice.split("/")
    chosen = random.Random(f"{voice} {number}").sample(lines, SENTENCES)
    samples, rate = ENGINES[engine](". ".join(chosen) + ".", name, 1.0)
    made = np.asarray(samples, np.float64)
    if rate != RATE:
        made = soxr.resample(made, rate, RATE)
    soundfile.write(folder / f"{number:04}.flac", made.clip(-1, 1), RATE, subtype="PCM_16")
    return len(made) / RATE


def main() -> None:
    """Write recordings of each voice until they last as long as was asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--voice", action="append", required=True)
    parser.add_argument("--minutes", type=float, default=13.0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    lines = sentences(asked.text.read_text(encoding="utf-8"))[part - 1 :: parts]
    for voice in asked.voice:
        if voice.count("/") != 1 or voice.split("/")[0] not in ENGINES:
            parser.error(f"no voice {voice}: an engine ({', '.join(ENGINES)}), /, and its voice")
    if len(lines) < SENTENCES:
        parser.error(f"only {len(lines)} sentences in this part of the text")
    with Pool(asked.workers) as pool:
        for voice in asked.voice:
            folder = asked.folder / voice.replace("/", "-")
            folder.mkdir(parents=True, exist_ok=True)
            make, seconds, number = (
                partial(recording, voice=voice, lines=lines, folder=folder),
                0.0,
                0,
            )
            while seconds < 60 * asked.minutes:
                seconds += sum(pool.map(make, range(number, number + 2 * asked.workers)))
                number += 2 * asked.workers
            print(f"{voice}: {number} recordings, {seconds / 60:.1f} minutes")


if __name__ == "__main__":
    main()
