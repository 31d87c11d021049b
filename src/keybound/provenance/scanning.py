"""Scanning: which of very many fingerprints a recording may match, before it is compared with each.

Fingerprints of one length are correlated with the recording together, by FFT. What is left out here
would not be called the same by `matching`. Knows fingerprints and sketches: no keys, no records.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from keybound.provenance.fingerprint import BITS, COLUMN_STEPS, WHOLE, Fingerprint
from keybound.provenance.matching import FALSE_MATCH, LEAST_COLUMNS, SPREAD, Sketch, p_normal
from keybound.types import Floats, Levels

AT_ONCE = 64  # fingerprints that are correlated together
MARGIN = 0.99  # of z, for the rounding of the FFT


def likely(prints: Iterable[tuple[int, Fingerprint]], sketch: Sketch, tries: int) -> list[int]:
    """Return the numbers of the fingerprints that a recording may match at its own speed.

    `tries` is that of `matching.match`. Fingerprints of which columns were left out are all given.
    Few of them are held at a time.
    """
    sounds = (sketch, *sketch.others)
    chosen = set[int]()
    scans = dict[int, list[_Scan]]()  # by columns
    waiting = dict[int, list[tuple[int, Fingerprint]]]()

    def scan(columns: int) -> None:
        some = waiting.pop(columns)
        for one in scans[columns]:
            z = one.best([own for _, own in some])
            passed = (one.passes(at, tries * len(sounds)) for at in z)
            chosen.update(number for (number, _), ok in zip(some, passed, strict=True) if ok)

    for number, one in prints:
        if one.columns > WHOLE:
            chosen.add(number)
            continue
        if one.columns not in scans:
            made = [_Scan(sound.whole, one.columns) for sound in sounds]
            scans[one.columns] = [own for own in made if own.tests]
        waiting.setdefault(one.columns, []).append((number, one))
        if len(waiting[one.columns]) == AT_ONCE:
            scan(one.columns)
    for columns in list(waiting):
        scan(columns)
    return sorted(chosen)


class _Scan:
    """One sound, prepared to be correlated with fingerprints of so many columns."""

    def __init__(self, soft: Levels, columns: int) -> None:
        count = -(-len(soft) // COLUMN_STEPS)
        least = max(LEAST_COLUMNS, min(columns, count) // 2)
        self.tests = 0
        if min(columns, count) < least:
            return
        self.size = 1 << math.ceil(math.log2(columns + count))
        flat = np.zeros((BITS, count * COLUMN_STEPS), np.float32)
        flat[:, : len(soft)] = soft.T
        rows = flat.reshape(BITS, count, COLUMN_STEPS)
        spectra = np.conj(np.fft.rfft(rows, self.size, axis=1))  # (bits, bins, phases)
        self.spectra = np.ascontiguousarray(spectra.transpose(1, 0, 2)).astype(np.complex64)
        mask = np.fft.rfft(np.ones(columns), self.size)
        over = np.fft.irfft(mask * np.conj(np.fft.rfft(np.ones(count), self.size)), self.size)
        power = np.conj(np.fft.rfft(np.square(rows).sum(axis=0), self.size, axis=0).T)
        norms = np.fft.irfft(mask * power, self.size)  # (phases, offsets)
        good = (over > least - 0.5) & (norms > 1e-3 * norms.max(axis=1, keepdims=True) + 1e-6)
        self.tests = int(good.sum())
        self.scale: Floats = np.where(good, 1 / np.sqrt(np.maximum(norms, 1e-9)), 0.0).astype(
            np.float32
        )

    def best(self, prints: Sequence[Fingerprint]) -> list[float]:
        """Return the largest z of each fingerprint."""
        data = np.frombuffer(b"".join(one.data for one in prints), np.uint8)
        bits = np.unpackbits(data).reshape(len(prints), -1, BITS).transpose(0, 2, 1)
        signs = np.ascontiguousarray(bits).astype(np.float32) * 2 - 1  # (prints, bits, columns)
        pattern = np.fft.rfft(signs, self.size).astype(np.complex64).transpose(2, 0, 1)
        sums = np.ascontiguousarray(pattern) @ self.spectra  # (bins, prints, phases)
        found = np.fft.irfft(sums.transpose(1, 2, 0), self.size)  # (prints, phases, offsets)
        best: list[float] = (found * self.scale).max(axis=(1, 2)).tolist()
        return best

    def passes(self, z: float, share: int) -> bool:
        """Return whether so good a fit may be called the same."""
        return self.tests * share * p_normal(MARGIN * z / SPREAD) < FALSE_MATCH
