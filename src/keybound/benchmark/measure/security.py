"""Security suites: what readers, forgers and colluders get out of a mark.

Whether a row verifies is left to the tables (presence at a threshold, errors within rho), so that
one measurement serves every threshold.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.attacks import copying
from keybound.audio import metrics
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.plan import Case, Suite, each
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.measure.rows import Row
from keybound.crypto.keys import Key
from keybound.errors import AudioError

WRONG_KEYS = 334  # of each clip: 100,200 tries over 300 clips
COPIES = (2, 5)


def fresh(case: Case, purpose: str) -> Iterator[Secret]:
    """Draw further secrets, endlessly, in an order that (seed, clip, purpose) fixes."""
    rng = case.chance(purpose)
    while True:
        payload = int.from_bytes(rng.bytes(32)) >> (256 - case.method.bits)
        yield Secret(Key(rng.bytes(32)), payload)


def verify(case: Case, heard: Clip, secret: Secret) -> Row:
    """Return what the rule V_A asks: the presence score and the wrong bits under a secret."""
    reading = case.method.read(heard)
    errors = case.method.errors(reading, secret)
    return {"presence": reading.presence, "errors": errors, "bits": case.method.bits}


def elsewhere(case: Case) -> Row:
    """Return which clip is the other host, of which there must be one."""
    if case.partner == case.index:
        raise AudioError("a transplant needs two clips", hint="give it more recordings")
    return {"other": case.partner}


def keys(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Count wrong bits under the right key, under none (a zero mask) and under wrong keys."""
    method, reading, payload = case.method, case.reading, case.secret.payload
    others = fresh(case, "wrong keys")
    wrong = [method.errors(reading, Secret(next(others).key, payload)) for _ in range(WRONG_KEYS)]
    return {
        "bits": method.bits,
        "presence": reading.presence,
        "right": method.errors(reading, case.secret),
        "zero": (method.decode(reading, None) ^ payload).bit_count(),
        "wrong": wrong,
    }


def transplant(case: Case, face: Row) -> Row:
    """Copy the mark to another host, as a residual or as gains; verify it as the original's.

    Both take the clean host beside the marked clip: an oracle stronger than the threat model,
    which gives the attacker the marked recording alone. `snr_db` tells how much came along.
    """
    row = elsewhere(case)
    heard = copying.copied(case.host, case.marked, case.other, face["attack"])
    snr = metrics.snr_db(case.other, heard)
    row |= {"snr_db": None if snr is None else round(snr, 3)}
    return row | verify(case, heard, case.secret)


def reembed(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Mark over the mark with another key and payload; read both."""
    method, second = case.method, next(fresh(case, "re-embed"))
    reading = method.read(method.embed(case.marked, second))
    first_errors, second_errors = (method.errors(reading, s) for s in (case.secret, second))
    row: Row = {"bits": method.bits, "presence": reading.presence}
    return row | {"first": first_errors, "second": second_errors}


def average(case: Case, face: Row) -> Row:
    """Average copies of one host marked with different payloads under one key.

    `errors` has one count for each copy: colluders win when none of them is within rho.
    """
    method, others = case.method, fresh(case, "average")
    secrets, copies = [case.secret], [case.marked]
    while len(copies) < face["copies"]:
        secrets.append(Secret(case.secret.key, next(others).payload))
        copies.append(method.embed(case.host, secrets[-1]))
    reading = method.read(np.mean(copies, axis=0, dtype=np.float32))
    errors = [method.errors(reading, secret) for secret in secrets]
    return {"bits": method.bits, "presence": reading.presence, "errors": errors}


def known_payload(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Forge a payload of the attacker's choice from one recording whose payload is known.

    The public detector reads the code. Code XOR known payload is the victim's mask, wrong in as
    many bits (`mask_errors`) as the code was read wrong, and gives the code of any payload for
    another host. True of every mask that is used twice; a nonce for each recording ends it.
    """
    row, method, reading = elsewhere(case), case.method, case.reading
    chosen = next(fresh(case, "known payload"))
    mask = method.decode(reading, None) ^ case.secret.payload
    truth = _mask(method, reading, case.secret.key)
    forged = mark_code(method, case.other, chosen.payload ^ mask, chosen.key, reading)
    row |= {"mask_errors": (mask ^ truth).bit_count()}
    return row | verify(case, forged, Secret(case.secret.key, chosen.payload))


def replay(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Put the code as it was read on another host: attribution without knowing anything.

    It needs the recording alone. Nonces do not end it unless the verifier ties them to the host.
    """
    row, method, reading = elsewhere(case), case.method, case.reading
    own = next(fresh(case, "replay")).key
    forged = mark_code(method, case.other, method.decode(reading, None), own, reading)
    return row | verify(case, forged, case.secret)


def carrier(case: Case, face: Row) -> Row:
    """Compare the carriers of all hosts at one key and payload, pair by pair.

    Gain fields are compared as logarithms: gains themselves are all near one, hence alike.
    """
    pairs = [(clip, case.method.embed(clip, case.secret)) for clip in case.hosts]
    if face["domain"] == "waveform":
        return similarity([y - x for x, y in pairs])
    return similarity([np.log(copying.gains(x, y)) for x, y in pairs])


CLIPS: dict[float, int | None] = {1.0: 300}
SUITES = {
    "keys": Suite(keys, lengths=CLIPS),
    "transplant": Suite(transplant, each("attack", "residual", "gain-field"), CLIPS),
    "re-embed": Suite(reembed, lengths=CLIPS),
    "average": Suite(average, each("copies", *COPIES), CLIPS),
    "known-payload": Suite(known_payload, lengths=CLIPS),
    "replay": Suite(replay, lengths=CLIPS),
    "carrier": Suite(carrier, each("domain", "waveform", "gain-field"), CLIPS, whole=True),
}


def similarity(vectors: Sequence[npt.NDArray[Any]]) -> Row:
    """Return the mean correlation and the mean cosine over all pairs; a zero vector has neither."""
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


def mark_code(method: Method, host: Clip, code: int, own: Key, reading: Reading) -> Clip:
    """Mark a host with a code instead of a payload, by the public interface and one's own key.

    The mask of that key, which any reading shows, is XORed into the code and cancels.
    """
    return method.embed(host, Secret(own, code ^ _mask(method, reading, own)))


def _mask(method: Method, reading: Reading, key: Key) -> int:
    return method.decode(reading, key) ^ method.decode(reading, None)
