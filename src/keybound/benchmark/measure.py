"""Measure a watermark on clips: robustness, quality, and what a forger gets.

Keys and payloads follow from (seed, clip), attacks from (seed, clip, attack), so a measurement
repeats. Rows are plain dicts; summaries are pure functions of rows.
"""

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.signal

from keybound import audio
from keybound.attacks import attack
from keybound.keys import Key
from keybound.watermark import Watermarker

Clip = npt.NDArray[np.float32]
Row = dict[str, Any]
RATE = 16000

PAPER = (  # the rows of the paper's robustness table, with Lyra in EnCodec's place
    "clean", "noise-20", "noise-10", "lowpass", "highpass", "resample", "gain", "quantize", "mp3",
    "smoothing", "echo", "lyra-6", "griffin-lim", "denoiser",
)  # fmt: skip


def read_clips(folder: Path, seconds: float, *, every: bool) -> list[Clip]:
    """Cut 16 kHz clips from the recordings of a folder in the order of their names.

    `every` takes all whole clips of each recording, otherwise only the first.
    """
    clips, length = [], round(seconds * RATE)
    for path in sorted(folder.glob("*.flac")):
        recording = audio.read(path)
        mono = audio.resample(audio.to_mono(recording.samples), recording.sample_rate, RATE)
        ends = range(length, len(mono) + 1, length)
        clips += [mono[e - length : e].astype(np.float32) for e in (ends if every else ends[:1])]
    return clips


def key_of(seed: int, clip: int) -> Key:
    """Give the key of a clip. It is no secret: a benchmark repeats."""
    return Key(hashlib.sha256(f"keybound benchmark key {seed} {clip}".encode()).digest())


def payload_of(seed: int, clip: int, bits: int) -> int:
    """Give the payload of a clip."""
    digest = hashlib.sha256(f"keybound benchmark payload {seed} {clip}".encode()).digest()
    return int.from_bytes(digest, "big") >> (8 * len(digest) - bits)


def suffer(name: str, samples: Clip, seed: int, clip: int) -> Clip:
    """Apply an attack with the parameters that (seed, clip, attack) draw."""
    if name == "clean":
        return samples
    rng = np.random.default_rng([seed, clip, zlib.crc32(name.encode())])
    hit = attack(name)
    return hit.apply(samples, RATE, hit.draw(rng, None))


def mark(marker: Watermarker, clip: Clip, seed: int, index: int) -> Clip:
    """Mark a clip with its key and payload."""
    payload = payload_of(seed, index, marker.card.bits)
    marked: Clip = marker.embed(clip, RATE, key=key_of(seed, index), payload=payload, check=False)
    return marked


def robustness(
    marker: Watermarker,
    clips: Sequence[Clip],
    attacks: Iterable[str],
    *,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Give a row for each clip and attack: scores marked and unmarked, wrong bits, verdict."""
    names = list(attacks)

    def one(index: int) -> list[Row]:
        key, payload = key_of(seed, index), payload_of(seed, index, marker.card.bits)
        marked = mark(marker, clips[index], seed, index)
        rows = []
        for name in names:
            found = marker.detect(suffer(name, marked, seed, index), RATE)
            verdict = marker.judge(found, key=key, payload=payload)
            null = marker.detect(suffer(name, clips[index], seed, index), RATE)
            row = {"clip": index, "attack": name, "seed": seed, "bits": verdict.bits}
            row |= {"marked": found.presence, "unmarked": null.presence}
            rows.append(row | {"errors": verdict.distance, "verified": verdict.verified})
            progress()
        return rows

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [row for rows in pool.map(one, range(len(clips))) for row in rows]


def summary(rows: Iterable[Row], threshold: float) -> dict[str, dict[str, float]]:
    """Give DA, FPR, BA and V_A of each attack at a presence threshold."""
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row["attack"], []).append(row)
    return {
        name: {
            "da": float(np.mean([r["marked"] >= threshold for r in part])),
            "fpr": float(np.mean([r["unmarked"] >= threshold for r in part])),
            "ba": float(np.mean([1 - r["errors"] / r["bits"] for r in part])),
            "va": float(np.mean([r["marked"] >= threshold and r["errors"] <= 2 for r in part])),
            "clips": len(part),
        }
        for name, part in kinds.items()
    }


def quality(marker: Watermarker, clips: Sequence[Clip], *, seed: int = 0) -> dict[str, float]:
    """Give SNR, and PESQ and STOI where their packages are installed, of the marked clips.

    Clips that a measure cannot score (pauses) are left out of its mean and counted.
    """
    marked = [mark(marker, clip, seed, i) for i, clip in enumerate(clips)]
    pairs = list(zip(clips, marked, strict=True))
    loud = [(x, y) for x, y in pairs if np.mean(x**2) > 1e-9]
    snr = [10 * np.log10(np.mean(x**2) / (np.mean((y - x) ** 2) + 1e-20)) for x, y in loud]
    result = {"snr_db": float(np.mean(snr))}
    for name, measure in _measures().items():
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            scores = [s for s in pool.map(lambda p, m=measure: m(*p), pairs) if s is not None]
        result[name] = float(np.mean(scores))
        result[f"{name}_worst"] = float(np.min(scores))
        result[f"{name}_unscored"] = len(pairs) - len(scores)
    return result


def _measures() -> dict[str, Callable[[Clip, Clip], float | None]]:
    try:
        import pesq
        import pystoi
    except ImportError:
        return {}

    def pesq_wb(x: Clip, y: Clip) -> float | None:
        try:
            return float(pesq.pesq(RATE, x, y, "wb"))
        except pesq.PesqError:
            return None

    def stoi(x: Clip, y: Clip) -> float | None:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            score = float(pystoi.stoi(x, y, RATE))
        return score if score > 1e-4 else None  # 1e-5 is how pystoi says that it cannot

    return {"pesq": pesq_wb, "stoi": stoi}


def transplants(marker: Watermarker, clips: Sequence[Clip], *, seed: int = 0) -> dict[str, float]:
    """Give how often a mark moved to the next clip's host still verifies, for both attacks."""
    hits: dict[str, list[bool]] = {"residual": [], "gain_field": []}
    for index, clip in enumerate(clips):
        marked = mark(marker, clip, seed, index)
        other = clips[(index + 1) % len(clips)]
        forged = {
            "residual": other + (marked - clip),
            "gain_field": move_gains(clip, marked, other),
        }
        for name, samples in forged.items():
            payload = payload_of(seed, index, marker.card.bits)
            verdict = marker.verify(samples, RATE, key=key_of(seed, index), payload=payload)
            hits[name].append(verdict.verified)
    return {name: float(np.mean(values)) for name, values in hits.items()}


def move_gains(host: Clip, marked: Clip, other: Clip) -> Clip:
    """Scale another host's spectrum by |X_w| / |X|: the transplant in the carrier's own domain."""
    window = scipy.signal.ShortTimeFFT.from_window("hann", RATE, 512, 384, fft_mode="onesided")
    before, after = np.abs(window.stft(host)), np.abs(window.stft(marked))
    gain = (after + 1e-5) / (before + 1e-5)
    moved = window.istft(window.stft(other) * gain, k1=len(other))
    return np.asarray(moved, np.float32)


def wrong_keys(
    marker: Watermarker, clips: Sequence[Clip], *, seed: int = 0, keys: int = 10
) -> dict[str, float]:
    """Give bit accuracy with the right key, a zero mask and wrong keys on clean marked clips."""
    right, zero, wrong, passed = [], [], [], []
    for index, clip in enumerate(clips):
        found = marker.detect(mark(marker, clip, seed, index), RATE)
        bits, payload = marker.card.bits, payload_of(seed, index, marker.card.bits)
        verdict = marker.judge(found, key=key_of(seed, index), payload=payload)
        right.append(1 - verdict.distance / bits)
        spelled = [payload >> (bits - 1 - i) & 1 for i in range(bits)]
        zero.append(float(np.mean((found.code_logits > 0) == np.array(spelled))))
        for other in range(keys):
            key = key_of(seed + 1, index * keys + other)
            verdict = marker.judge(found, key=key, payload=payload)
            wrong.append(1 - verdict.distance / bits)
            passed.append(verdict.verified)
    return {
        "right_key": float(np.mean(right)),
        "zero_mask": float(np.mean(zero)),
        "wrong_key": float(np.mean(wrong)),
        "wrong_key_va": float(np.mean(passed)),
    }
