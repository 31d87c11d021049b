"""Robustness: a clip under each attack, marked and not, and the quality of the marked clip."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from keybound.attacks import attack, available
from keybound.audio import metrics
from keybound.audio.folders import read_clips
from keybound.benchmark.measure.methods import Method
from keybound.benchmark.measure.plan import Case, Plan, each_attack
from keybound.benchmark.measure.protocol import Clip, secret_of
from keybound.benchmark.measure.rows import Row

QUALITY = "quality"  # stands in the place of an attack


def rows(plan: Plan, index: int) -> list[Row]:
    """Return the names of the rows of a clip: one for each attack, and one for the quality."""
    return [{"attack": QUALITY}, *each_attack(plan, index)]


def measure(case: Case, face: Row) -> Row:
    """Measure the clip under an attack, or the quality of its mark."""
    if face["attack"] == QUALITY:
        return quality(case.host, case.marked, case.method.rate, opinion=case.plan.opinion)
    method = case.method
    parameters, attacked = case.draw(face["attack"])
    heard = attacked(case.marked)
    reading = method.read(heard)
    row: Row = {"parameters": parameters, "marked": reading.presence}
    row |= {"unmarked": method.read(attacked(case.host)).presence, "bits": method.bits}
    # A method without a payload has no bits to be wrong.
    row |= {"errors": method.errors(reading, case.secret) if method.bits else None}
    if case.plan.damage and len(heard) == len(case.host):
        row |= damage(case.host, heard, method.rate)
    return row


def quality(host: Clip, marked: Clip, rate: int, *, opinion: bool) -> Row:
    """Measure what the mark costs, with the measures that are installed."""
    row: Row = {
        "snr_db": metrics.snr_db(host, marked),
        "si_snr_db": metrics.si_snr_db(host, marked),
    }
    row |= metrics.scores(host, marked, rate)
    if "visqol" in row:
        row["visqol_host"] = metrics.visqol(host, host, rate)
    if opinion and find_spec("speechmos"):
        row |= {"dnsmos": metrics.dnsmos(marked, rate), "dnsmos_host": metrics.dnsmos(host, rate)}
    return row


def damage(host: Clip, heard: Clip, rate: int) -> Row:
    """Measure what an attack leaves of the speech: an attack that ruins it has not won."""
    straight, lag = metrics.aligned(host, heard)
    return {
        "pesq": metrics.pesq(host, straight, rate),
        "stoi": metrics.stoi(host, straight, rate),
        "si_snr_raw_db": metrics.si_snr_db(host, heard),
        "si_snr_db": metrics.si_snr_db(host, straight),
        "lag": lag,
    }


def examples(method: Method, speech: Path) -> dict[str, tuple[Clip, int]]:
    """Return a clip of a folder as host, marked, carrier, and marked under some attacks."""
    (host,) = read_clips(speech, 3.0, method.rate, limit=1)
    marked = method.embed(host, secret_of(0, 0, method.bits))
    clips = {"host": host, "marked": marked, "carrier": marked - host}
    for name in ("lyra-6", "griffin-lim", "mp3", "noise-10"):
        if available(name) is None:
            hit = attack(name)
            drawn = hit.draw(np.random.default_rng(0), None)
            clips[f"marked, {name}"] = hit.apply(marked, method.rate, drawn)
    return {name: (samples, method.rate) for name, samples in clips.items()}
