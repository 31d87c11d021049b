"""Security suites: what readers, forgers and colluders get out of a mark, one JSON row each.

A suite is a function of a case: one marked clip, and what the attacker has beside it. Whether a
row verifies is left to the tables (presence at a threshold, errors within rho), so that one
measurement serves every threshold. All chance follows from (seed, clip).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.signal
import soundfile

from keybound.benchmark.measure import metrics
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import ENDINGS, Clip, Row, Secret, rng_of, secret_of
from keybound.errors import AudioError
from keybound.keys import Key

WRONG_KEYS = 10
COPIES = (2, 5)
FLOOR = 1e-5  # of a magnitude: far under the noise of 16-bit audio, so only silence meets it
LIBRISPEECH = re.compile(r"(\d+)-\d+-\d+$")  # speaker, chapter, utterance


@dataclass(frozen=True, eq=False)
class Case:
    """A marked clip, its secret, and another party's host beside it."""

    method: Method
    seed: int
    index: int
    host: Clip
    marked: Clip
    reading: Reading  # of the marked clip: what the public detector tells anyone
    secret: Secret
    partner: int  # the clip the other host is
    other: Clip

    def row(self, suite: str, **facts: Any) -> Row:
        """Begin a row with what names it."""
        row: Row = {"suite": suite, "method": self.method.name, "version": self.method.version}
        row |= {"clip": self.index, "seconds": len(self.host) / self.method.rate}
        return row | {"seed": self.seed, "bits": self.method.bits} | facts

    def fresh(self, purpose: str) -> Iterator[Secret]:
        """Draw further secrets, endlessly, in an order that (seed, clip, purpose) fixes."""
        rng = rng_of(self.seed, self.index, purpose)
        while True:
            payload = int.from_bytes(rng.bytes(32)) >> (256 - self.method.bits)
            yield Secret(Key(rng.bytes(32)), payload)

    def verify(self, heard: Clip, secret: Secret) -> Row:
        """Give what the rule V_A asks: the presence score and the wrong bits under a secret."""
        reading = self.method.read(heard)
        errors = self.method.errors(reading, secret)
        return {"presence": round(reading.presence, 5), "errors": errors}


Suite = Callable[[Case], list[Row]]


def keys(case: Case) -> list[Row]:
    """Count wrong bits under the right key, under none (a zero mask) and under wrong keys."""
    method, reading, payload = case.method, case.reading, case.secret.payload
    fresh = case.fresh("wrong keys")
    wrong = [method.errors(reading, Secret(next(fresh).key, payload)) for _ in range(WRONG_KEYS)]
    return [
        case.row(
            "keys",
            presence=round(reading.presence, 5),
            right=method.errors(reading, case.secret),
            zero=(method.decode(reading, None) ^ payload).bit_count(),
            wrong=wrong,
        )
    ]


def transplant(case: Case) -> list[Row]:
    """Move the mark to another host, as a residual and as gains; verify it as the original's.

    Both take the clean host beside the marked clip: an oracle stronger than the threat model,
    which gives the attacker the marked recording alone. `snr_db` tells how much came along.
    """
    forged = {
        "residual": case.other + (case.marked - case.host),
        "gain-field": move_gains(case.host, case.marked, case.other),
    }
    rows = []
    for name, heard in forged.items():
        snr = metrics.snr_db(case.other, heard)
        row = case.row("transplant", attack=name, other=case.partner)
        row |= {"snr_db": None if snr is None else round(snr, 3)}
        rows.append(row | case.verify(heard, case.secret))
    return rows


def reembed(case: Case) -> list[Row]:
    """Mark over the mark with another key and payload; read both."""
    method, second = case.method, next(case.fresh("re-embed"))
    reading = method.read(method.embed(case.marked, second))
    first_errors, second_errors = (method.errors(reading, s) for s in (case.secret, second))
    presence = round(reading.presence, 5)
    return [case.row("re-embed", presence=presence, first=first_errors, second=second_errors)]


def average(case: Case) -> list[Row]:
    """Average copies of one host marked with different payloads under one key.

    `errors` has one count for each copy: colluders win when none of them is within rho.
    """
    method, fresh = case.method, case.fresh("average")
    secrets, copies = [case.secret], [case.marked]
    while len(copies) < max(COPIES):
        secrets.append(Secret(case.secret.key, next(fresh).payload))
        copies.append(method.embed(case.host, secrets[-1]))
    rows = []
    for count in COPIES:
        reading = method.read(np.mean(copies[:count], axis=0, dtype=np.float32))
        errors = [method.errors(reading, secret) for secret in secrets[:count]]
        presence = round(reading.presence, 5)
        rows.append(case.row("average", copies=count, presence=presence, errors=errors))
    return rows


def known_payload(case: Case) -> list[Row]:
    """Forge a payload of the attacker's choice from one recording whose payload is known.

    Anyone reads the code with the public detector. Code XOR known payload is the victim's mask,
    wrong in as many bits (`mask_errors`) as the code was read wrong. With the mask the attacker
    knows the code of any payload and has the public embedder put it on another host; the victim's
    own key then verifies it. This is outside the paper's single-sample claim, and true of every
    mask that is used twice; a nonce for each recording ends it, and only it.
    """
    method, reading = case.method, case.reading
    chosen = next(case.fresh("known payload"))
    mask = method.decode(reading, None) ^ case.secret.payload
    truth = _mask(method, reading, case.secret.key)
    forged = mark_code(method, case.other, chosen.payload ^ mask, chosen.key, reading)
    row = case.row("known-payload", other=case.partner, mask_errors=(mask ^ truth).bit_count())
    return [row | case.verify(forged, Secret(case.secret.key, chosen.payload))]


def replay(case: Case) -> list[Row]:
    """Put the code as it was read on another host: attribution without knowing anything.

    Weaker than `known_payload` in what it says (the same payload) and stronger in what it needs
    (nothing but the recording). Nonces do not end it unless the verifier ties them to the host.
    """
    method, reading = case.method, case.reading
    own = next(case.fresh("replay")).key
    forged = mark_code(method, case.other, method.decode(reading, None), own, reading)
    return [case.row("replay", other=case.partner) | case.verify(forged, case.secret)]


SUITES: dict[str, Suite] = {
    "keys": keys,
    "transplant": transplant,
    "re-embed": reembed,
    "average": average,
    "known-payload": known_payload,
    "replay": replay,
}


def measure_clip(
    method: Method,
    clips: Sequence[Clip],
    index: int,
    partner: int,
    *,
    seed: int = 0,
    suites: Iterable[str] = tuple(SUITES),
) -> list[Row]:
    """Give the rows of one clip under the named suites."""
    secret = secret_of(seed, index, method.bits)
    marked = method.embed(clips[index], secret)
    reading, other = method.read(marked), clips[partner]
    case = Case(method, seed, index, clips[index], marked, reading, secret, partner, other)
    return [row for name in suites for row in SUITES[name](case)]


def measure(
    method: Method,
    clips: Sequence[Clip],
    names: Sequence[str] = (),
    *,
    seed: int = 0,
    suites: Iterable[str] = tuple(SUITES),
) -> Iterator[Row]:
    """Give the rows of all clips under the suites, then those of the carriers together."""
    for index, partner in enumerate(partners(len(clips), names)):
        yield from measure_clip(method, clips, index, partner, seed=seed, suites=suites)
    yield from carrier(method, clips, seed=seed)


def carrier(method: Method, clips: Sequence[Clip], *, seed: int = 0) -> list[Row]:
    """Compare the carriers of all hosts at one key and payload, pair by pair.

    Gain fields are compared as logarithms: gains themselves are all near one, hence alike.
    """
    secret = secret_of(seed, 0, method.bits)
    marked = [method.embed(clip, secret) for clip in clips]
    pairs = list(zip(clips, marked, strict=True))
    fields = {
        "waveform": [y - x for x, y in pairs],
        "gain-field": [np.log(gains(x, y)) for x, y in pairs],
    }
    rows = []
    for domain, vectors in fields.items():
        row: Row = {"suite": "carrier", "method": method.name, "version": method.version}
        row |= {"seed": seed, "seconds": len(clips[0]) / method.rate, "domain": domain}
        rows.append(row | similarity(vectors))
    return rows


def similarity(vectors: Sequence[npt.NDArray[Any]]) -> Row:
    """Give the mean correlation and the mean cosine over all pairs; a zero vector has neither."""
    flat = np.stack([vector.ravel() for vector in vectors]).astype(np.float64)
    flat = flat[np.ptp(flat, axis=1) > 0]
    count = len(flat)
    row: Row = {"correlation": None, "cosine": None, "hosts": count}
    if count > 1:
        centred = flat - flat.mean(1, keepdims=True)
        for name, values in (("correlation", centred), ("cosine", flat)):
            total = (values / np.linalg.norm(values, axis=1, keepdims=True)).sum(0)
            # |sum of unit vectors|^2 holds each pair twice, and each vector with itself once.
            row[name] = round(float((total @ total - count) / (count * (count - 1))), 5)
    return row


def gains(host: Clip, marked: Clip) -> npt.NDArray[np.float64]:
    """Give |X_w| / |X| of each bin of a 512/128 Hann spectrum: (bins, frames)."""
    before, after = (np.abs(_stft().stft(x.astype(np.float64))) for x in (host, marked))
    return np.asarray((after + FLOOR) / (before + FLOOR))


def move_gains(host: Clip, marked: Clip, other: Clip) -> Clip:
    """Scale another host's spectrum by |X_w| / |X|: the transplant in the carrier's own domain."""
    moved = _stft().stft(other.astype(np.float64)) * gains(host, marked)
    return np.asarray(_stft().istft(moved, k1=len(other)), np.float32)


def _stft() -> Any:
    return scipy.signal.ShortTimeFFT.from_window("hann", 1.0, 512, 384)


def mark_code(method: Method, host: Clip, code: int, own: Key, reading: Reading) -> Clip:
    """Mark a host with a code instead of a payload, by the public interface and one's own key.

    The embedder takes a payload and XORs it with the key's mask. The mask of one's own key shows
    in any reading, decoded with that key and without one, and XORed into the code it cancels.
    """
    return method.embed(host, Secret(own, code ^ _mask(method, reading, own)))


def _mask(method: Method, reading: Reading, key: Key) -> int:
    return method.decode(reading, key) ^ method.decode(reading, None)


def partners(count: int, names: Sequence[str] = ()) -> list[int]:
    """Give each clip the next one of another speaker, where LibriSpeech names tell, or the next."""
    if count < 2:
        raise AudioError("a transplant needs two clips", hint="give it more recordings")
    found = [LIBRISPEECH.search(Path(name).stem) for name in names]
    speakers = [match and match[1] for match in found] or [None] * count
    chosen = []
    for index in range(count):
        after = [(index + step) % count for step in range(1, count)]
        known = speakers[index] is not None
        others = (j for j in after if not known or speakers[j] != speakers[index])
        chosen.append(next(others, after[0]))
    return chosen


def names_of(folder: Path, seconds: float, limit: int | None = None) -> list[str]:
    """Name the recordings whose first clips `read_clips` gives, in its order."""
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in ENDINGS)
    long = (p.name for p in paths if soundfile.info(p).duration >= seconds)
    return list(long)[:limit]
