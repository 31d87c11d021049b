"""Sealed evidence of one recording: after attacks and removers, under wrong keys, forged, averaged.

Each function measures one face of a case. A case is a recording of some length with a key and a
position of its own; a face is a row's name: which attack, remover or collusion it is to measure.
`seals_run` says which faces there are. All chance follows from (seed, recording).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.ndimage
import scipy.signal

from keybound import fingerprint, likeness
from keybound.attacks import SUITES, attack
from keybound.benchmark.measure import metrics
from keybound.benchmark.measure.methods import Method, keybound
from keybound.benchmark.measure.protocol import P_LEVELS, Clip, Row, Secret, rng_of, secret_of
from keybound.benchmark.measure.security import move_gains
from keybound.evidence import Detection
from keybound.keys import Key
from keybound.origin import Origin
from keybound.search import Places
from keybound.verdict import Verdict
from keybound.watermark import Watermarker

ATTACKS = SUITES["sealed"]
LENGTHS = {3.0: 60, 10.0: 80, 30.0: 10}  # seconds, and how many recordings are taken at most
SHORT_S, USUAL_S = 3.0, 10.0
SOURCES = ("unmarked", "sealed by others", "attacked")
COPIES = 5
COPYINGS = ("gain-field", "residual", "residual-levelled")
COLLUSIONS = ("copies", "mixture", "estimate", "reused")
AROUND = (15, 15)  # bins and frames, half a kilohertz and an eighth of a second
MEASURES = (metrics.pesq, metrics.stoi, metrics.visqol)
MOST_DB = 3.0  # that a colluder takes for a seal
FLOOR = 1e-5  # of a magnitude: far under the noise of 16-bit audio


@dataclass(frozen=True)
class Plan:
    """What to measure, on recordings of how many lengths, and how much of each."""

    speech: tuple[Path, ...]
    parts: tuple[str, ...]  # of seals_run.PARTS
    lengths: dict[float, int] = field(default_factory=LENGTHS.copy)
    attacks: tuple[str, ...] = ATTACKS
    removers: tuple[Path, ...] = ()  # files of networks, named NETWORK-STEPS.safetensors
    hosts: int = 300  # of null trials
    keys: int = 350  # wrong ones for each of them
    forgeries: int = 300
    scored: int = 40  # recordings of a length whose quality is measured: ViSQOL takes long
    seed: int = 0
    model: Path | None = None
    rolling: bool = False  # the code too follows the key's stream

    def make(self) -> Method:
        """Give the method. Other weights, and a rolling code, are methods of other names."""
        name = "keybound-rolling" if self.rolling else "keybound"
        name += f"/{self.model.name}" if self.model else ""
        return keybound(self.model, name, rolling=self.rolling)


@dataclass(frozen=True, eq=False)
class Case:
    """A recording, its secret, and the others of its length."""

    plan: Plan
    method: Method
    pieces: Sequence[Clip]
    seconds: float
    index: int

    @property
    def marker(self) -> Watermarker:
        """Give KeyBound itself."""
        assert self.method.marker is not None
        return self.method.marker

    @property
    def host(self) -> Clip:
        """Give the recording before marking."""
        return self.pieces[self.index]

    @property
    def number(self) -> int:
        """Number the recordings of all lengths, so that each has a key of its own."""
        return 1000 * round(self.seconds) + self.index

    @cached_property
    def secret(self) -> Secret:
        """Give key, payload and position."""
        return secret_of(self.plan.seed, self.number, self.method.bits)

    @cached_property
    def marked(self) -> Clip:
        """Give the recording as its party publishes it."""
        return self.method.embed(self.host, self.secret)

    def hit(self, name: str, samples: Clip) -> Clip:
        """Let an attack happen to some samples."""
        by = attack(name)
        drawn = by.draw(rng_of(self.plan.seed, self.number, name), None)
        return by.apply(samples, self.method.rate, drawn)

    def judge(self, heard: Clip, secret: Secret, *, search: bool = True) -> Row:
        """Give a row's evidence: at the secret's position, and searched for in the usual ones."""
        found = self.marker.detect(heard, self.method.rate, levels=True)
        whose: Any = {"key": secret.key, "payload": secret.payload}
        known = self.marker.judge(found, **whose, places=Places((secret.position,)))
        row: Row = {"presence": known.presence, "errors": known.distance, "bits": known.bits}
        row |= {"verified": known.verified} | self.told(known, found)
        if search:
            wide = self.marker.judge(found, **whose, places=Places())
            row |= {f"{name}_256": value for name, value in self.told(wide, found).items()}
        return row

    def told(self, verdict: Verdict, found: Detection) -> Row:
        """Say whether a verdict is sealed evidence, and by what; a rolling code has a record."""
        seal, sealed = verdict.seal, verdict.seal.holds
        if self.plan.rolling:
            assert found.levels is not None
            same = likeness.match(self.record, found.levels).decision
            sealed = replace(verdict, origin=Origin(same)).grade == "sealed"
            seal = seal if seal.holds else verdict.roll
        row: Row = {"holds": sealed, "z": seal.z, "log10_p": math.log10(max(seal.p, 1e-300))}
        return row | {"layer": "pattern" if seal is verdict.seal else "code"}

    @cached_property
    def record(self) -> fingerprint.Fingerprint:
        """Give the fingerprint that the party keeps of what it marked."""
        return fingerprint.take(fingerprint.hear(self.marked))


def attacked(case: Case, face: Row) -> Row:
    """Attack the marked recording and look for its seal."""
    return case.judge(case.hit(face["attack"], case.marked), case.secret)


def removed(case: Case, face: Row) -> Row:
    """Give the marked recording to a trained remover."""
    from keybound.benchmark.measure import removers

    name = f"{face['network']}-{face['budget']}"
    (path,) = (path for path in case.plan.removers if path.stem == name)
    heard = removers.apply(_remover(path), case.marked)
    row = case.judge(heard, case.secret)
    return row | {"pesq": metrics.pesq(case.host, heard, case.method.rate)}


@cache
def _remover(path: Path) -> Any:
    from keybound.benchmark.measure import removers

    return removers.load(path)


def null(case: Case, face: Row) -> Row:
    """Try wrong keys, at the position that the right one has; count how low p comes.

    The recording is heard once. What the keys are tried on is unmarked, sealed by somebody else, or
    one of both under an attack.
    """
    heard = case.marked
    if face["source"] == SOURCES[0] or (face["source"] == SOURCES[2] and case.index % 2):
        heard = case.host
    heard = case.hit(face["attack"], heard)
    found = case.marker.detect(heard, case.method.rate, levels=True)
    rng = rng_of(case.plan.seed, case.number, "wrong keys")
    where, payload = Places((case.secret.position,)), case.secret.payload
    wrong = (Key(rng.bytes(32)) for _ in range(case.plan.keys))
    p = np.array(
        [case.marker.judge(found, key=k, payload=payload, places=where).seal.p for k in wrong]
    )
    below = [int(np.sum(p < level)) for level in P_LEVELS]
    return {"keys": len(p), "below": below, "least_log10_p": math.log10(max(p.min(), 1e-300))}


def forged(case: Case, face: Row) -> Row:
    """Forge from one marked recording: its code on another host, sealed by the forger's own key.

    The public detector reads the code. With a `known-payload` that gives the mask, and so the code
    of any other payload; a `replay` keeps the payload. A rolling code is read and written second by
    second, at the position that it came from.
    """
    method, rate = case.method, case.method.rate
    rng = rng_of(case.plan.seed, case.number, "forgery")
    chosen, own = int.from_bytes(rng.bytes(32)) >> (256 - method.bits), Key(rng.bytes(32))
    payload = case.secret.payload if face["attack"] == "replay" else chosen
    starts = range(0, len(case.marked), rate if case.plan.rolling else len(case.marked))
    parts = [case.marked[a : a + rate] if case.plan.rolling else case.marked for a in starts]
    readings = [method.read(part) for part in parts]
    own_mask = method.decode(readings[0], own) ^ method.decode(readings[0], None)
    change = case.secret.payload ^ payload ^ own_mask
    other = case.pieces[(case.index + 1) % len(case.pieces)]
    forgery = np.empty_like(other)
    for start, reading in zip(starts, readings, strict=True):
        how: Any = {"key": own, "payload": method.decode(reading, None) ^ change}
        made = case.marker.mark(other, rate, **how, position=case.secret.position)
        forgery[start:] = made.samples[start:]
    return case.judge(forgery, Secret(case.secret.key, payload, case.secret.position))


def copied(case: Case, face: Row) -> Row:
    """Copy a mark and its seal to the next recording, as who has the clean host can.

    The gains are laid on the other's spectrum, or the residual is added as it is, or as loud
    beside the other as it was. The record's fingerprint says whether this is the recording it
    was taken of; the seal alone may well hold.
    """
    other, change = case.pieces[(case.index + 1) % len(case.pieces)], case.marked - case.host
    if face["attack"] == "gain-field":
        moved = move_gains(case.host, case.marked, other)
    else:
        louder = float(np.std(other) / (np.std(case.host) + FLOOR))
        moved = other + (louder if face["attack"] == "residual-levelled" else 1.0) * change
    heard = np.clip(moved, -1, 1).astype(np.float32)
    found = likeness.match(case.record, fingerprint.hear(heard))
    row: Row = {"decision": found.decision, "agreement": found.agreement}
    return row | {"holds": case.judge(heard, case.secret, search=False)["holds"]}


def averaged(case: Case, face: Row) -> Row:
    """Let colluders average what one party marked; look for each of the seals.

    `copies`: copies of one host with other payloads and positions, averaged. `mixture`: different
    recordings, averaged. `estimate`: what different recordings have in common by level is taken for
    the seal and out of each of them. They share no position, so there is nothing in common; where
    they do, against the rules, and the payload too, it is `reused`.
    """
    method, party, count, kind = case.method, case.secret, face["copies"], face["attack"]
    rng = rng_of(case.plan.seed, case.number, "average")
    secrets = [
        Secret(party.key, int(rng.integers(1 << method.bits)), (party.position + i) % 256)
        for i in range(count)
    ]
    secrets = [party] * count if kind == "reused" else secrets
    others = [case.pieces[(count * case.index + i) % len(case.pieces)] for i in range(count)]
    hosts = [case.host] * count if kind == "copies" else others
    marked = [method.embed(host, secret) for host, secret in zip(hosts, secrets, strict=True)]
    if kind in ("estimate", "reused"):
        common = in_common(marked)
        heard = [without(one, common) for one in marked]
    else:
        heard = [np.mean(marked, axis=0, dtype=np.float32)] * count
    rows = [case.judge(h, s, search=False) for h, s in zip(heard, secrets, strict=True)]
    return {key: [row[key] for row in rows] for key in ("holds", "z", "log10_p", "verified")}


def in_common(marked: Sequence[Clip]) -> npt.NDArray[np.float64]:
    """Average how levels stand out from those around them, in nepers: (bins, frames)."""
    levels = [np.log(np.abs(_stft().stft(one.astype(np.float64))) + FLOOR) for one in marked]
    mean = np.mean(levels, axis=0)
    most = MOST_DB * math.log(10) / 20
    return np.asarray(np.clip(mean - scipy.ndimage.uniform_filter(mean, AROUND), -most, most))


def without(marked: Clip, gains: npt.NDArray[np.float64]) -> Clip:
    """Take gains out of a recording."""
    spectrum = _stft().stft(marked.astype(np.float64)) * np.exp(-gains)
    return np.asarray(_stft().istft(spectrum, k1=len(marked)), np.float32)


def _stft() -> Any:
    return scipy.signal.ShortTimeFFT.from_window("hann", 1.0, 512, 384)


def cost(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Measure the quality of the marked recording with its seal and without."""
    whose: Any = {"key": case.secret.key, "payload": case.secret.payload}
    bare = case.marker.mark(case.host, case.method.rate, **whose, seal=False).samples
    row: Row = {}
    for which, heard in (("", case.marked), ("_unsealed", bare)):
        for measure in MEASURES if find_spec("visqol") else MEASURES[:-1]:
            row[measure.__name__ + which] = measure(case.host, heard, case.method.rate)
        row[f"snr_db{which}"] = metrics.snr_db(case.host, heard)
    return row
