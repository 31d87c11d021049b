"""Bit accuracy by length: `python -m` this module with folders of speech.

Recordings of one speaker (named as in LibriSpeech, SPEAKER-CHAPTER-NUMBER) are joined and cut,
marked and attacked. What is read from a whole piece is the less often wrong, the longer it is.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from keybound import audio
from keybound.attacks import attack
from keybound.benchmark.measure.protocol import ENDINGS, Clip, Row, rng_of, secret_of
from keybound.errors import AudioError
from keybound.terminal import in_one_line
from keybound.watermark import Watermarker

SECONDS = (1.0, 2.0, 3.0, 10.0, 30.0)
ATTACKS = ("clean", "noise-10", "lyra-6")


def measure(
    marker: Watermarker,
    speech: Sequence[Path],
    *,
    seconds: Sequence[float] = SECONDS,
    attacks: Sequence[str] = ATTACKS,
    most: int = 100,
    seed: int = 0,
) -> Iterator[Row]:
    """Give a row for each attack and length: bit accuracy, verified and number of pieces."""
    rate, voices = marker.card.rate, list(speakers(speech, marker.card.rate))
    for length_s in seconds:
        pieces = cut(voices, round(length_s * rate))[:most]
        for name in attacks:
            right, verified = [], []
            for index, piece in enumerate(pieces):
                secret = secret_of(seed, index, marker.card.bits)
                whose: Any = {"key": secret.key, "payload": secret.payload}
                marked = marker.mark(piece, rate, **whose, position=secret.position).samples
                hit = attack(name)
                heard = hit.apply(marked, rate, hit.draw(rng_of(seed, index, name), None))
                verdict = marker.judge(marker.detect(heard, rate), **whose)
                right.append(1 - verdict.distance / verdict.bits)
                verified.append(verdict.verified)
            yield {
                "attack": name,
                "seconds": length_s,
                "ba": round(float(np.mean(right)), 4) if right else None,
                "verified": round(float(np.mean(verified)), 4) if right else None,
                "trials": len(pieces),
            }


def speakers(folders: Sequence[Path], rate: int) -> Iterator[Clip]:
    """Join the recordings of each speaker of some folders."""

    def speaker(path: Path) -> str:
        return path.stem.split("-")[-3] if path.stem.count("-") >= 2 else path.stem

    there = sorted(path for folder in folders for path in folder.iterdir())
    paths = sorted((path for path in there if path.suffix.lower() in ENDINGS), key=speaker)
    if not paths:
        raise AudioError("no recordings there", hint=f"files ending in {', '.join(ENDINGS)}")
    for _, own in groupby(paths, key=speaker):
        read = [audio.read(path) for path in own]
        mono = [audio.resample(audio.to_mono(r.samples), r.sample_rate, rate) for r in read]
        yield np.concatenate(mono).astype(np.float32)


def cut(voices: Sequence[Clip], length: int) -> list[Clip]:
    """Cut whole pieces, the first of each voice first."""
    ends = range(length, max(map(len, voices)) + 1, length)
    return [voice[end - length : end] for end in ends for voice in voices if end <= len(voice)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="bit accuracy by length")
    parser.add_argument("speech", type=Path, nargs="+", help="folders of recordings")
    parser.add_argument("--seconds", type=float, nargs="+", default=list(SECONDS))
    parser.add_argument("--model", type=Path, help="weights other than shipped")
    parser.add_argument("--attacks", nargs="+", default=list(ATTACKS))
    parser.add_argument("--most", type=int, default=100, help="pieces of each length")
    given = parser.parse_args()
    print("| attack | seconds | BA | verified | trials |\n| --- | --- | --- | --- | --- |")
    how = {"seconds": given.seconds, "attacks": given.attacks, "most": given.most}
    for row in measure(Watermarker(given.model), given.speech, **how):
        cells = (row["attack"], f"{row['seconds']:g}", row["ba"], row["verified"], row["trials"])
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    with in_one_line():
        main()
