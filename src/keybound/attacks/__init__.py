"""Attacks: what happens to a recording between marking and verifying, each under a name.

An attack first draws its parameters and then applies them, so that a run can be logged and
repeated: all chance is in the parameters, which are plain numbers and fit in a JSON row.

    hit = attack("noise")
    parameters = hit.draw(rng, 15.0)  # {"snr_db": 15.0, "seed": 2357136044}
    attacked = hit.apply(samples, sample_rate, parameters)

`attack("mp3+griffin-lim")` applies one after the other. This room knows nothing of marks, keys or
networks of ours: mono float32 samples in, as many out.
"""

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from keybound.attacks import codecs, neural, signal, spectral
from keybound.attacks.rates import LOWEST_RATE_HZ, Samples, fit
from keybound.errors import AttackError

__all__ = ["ATTACKS", "Attack", "Parameters", "attack", "chain"]

Parameters = dict[str, Any]


class Draw(Protocol):
    """Draw parameters; `strength` is None for the nominal ones."""

    def __call__(self, rng: np.random.Generator, strength: float | None = None) -> Parameters: ...


class Apply(Protocol):
    """Apply drawn parameters to mono samples at a rate of 8 kHz or more; pure, length kept."""

    def __call__(self, samples: Samples, sample_rate: int, parameters: Parameters) -> Samples: ...


@dataclass(frozen=True)
class Attack:
    """One attack: its family, one line about it, and the two functions.

    `dial` names the parameter that a strength sets, its unit in the name (`snr_db`,
    `bitrate_kbps`); None when the attack has no strength to choose.
    """

    family: str
    summary: str
    draw: Draw
    apply: Apply
    dial: str | None = None


def attack(name: str) -> Attack:
    """Give the attack of this name, or the chain of the names joined by `+`."""
    names = [part.strip() for part in name.split("+")]
    for part in names:
        if part not in ATTACKS:
            near = difflib.get_close_matches(part, ATTACKS, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(ATTACKS)}"
            raise AttackError(f"no attack is named {part!r}", hint=hint)
    return ATTACKS[names[0]] if len(names) == 1 else chain(names)


def chain(names: list[str]) -> Attack:
    """Compose known attacks in order; each part draws its own nominal parameters."""
    parts = [ATTACKS[name] for name in names]

    def draw(rng: np.random.Generator, strength: float | None = None) -> Parameters:
        if strength is not None:
            raise AttackError(
                f"the chain {'+'.join(names)} has no strength", hint="its parts are nominal"
            )
        return {"parts": [part.draw(rng) for part in parts]}

    def apply(samples: Samples, sample_rate: int, parameters: Parameters) -> Samples:
        for part, part_parameters in zip(parts, parameters["parts"], strict=True):
            samples = part.apply(samples, sample_rate, part_parameters)
        return samples

    return Attack("compound", ", then ".join(part.summary for part in parts), draw, apply)


def _define(
    family: str,
    summary: str,
    transform: Callable[..., Samples],
    *,
    dial: str | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
    seeded: bool = False,
    **nominal: float,
) -> Attack:
    """Make an attack of a pure function and its nominal parameters, one of them on the dial.

    A dial whose nominal value is an int takes whole numbers only.
    """

    def draw(rng: np.random.Generator, strength: float | None = None) -> Parameters:
        parameters: Parameters = dict(nominal)
        if strength is not None:
            if dial is None:
                raise AttackError(f"this attack has no strength to choose: {summary}")
            low, high = limits
            whole = isinstance(nominal[dial], int)
            if not low <= strength <= high or (whole and strength != int(strength)):
                kind = "a whole number" if whole else "a number"
                raise AttackError(
                    f"{dial} cannot be {strength:g}", hint=f"{kind} from {low:g} to {high:g}"
                )
            parameters[dial] = int(strength) if whole else float(strength)
        if seeded:
            parameters["seed"] = int(rng.integers(2**32))
        return parameters

    def apply(samples: Samples, sample_rate: int, parameters: Parameters) -> Samples:
        clip = np.asarray(samples, dtype=np.float32)
        if clip.ndim != 1:
            raise AttackError("an attack takes mono samples", hint="apply it to each channel")
        if sample_rate < LOWEST_RATE_HZ:
            raise AttackError(f"{sample_rate} hz is too low", hint=f"{LOWEST_RATE_HZ} hz or more")
        if not np.isfinite(clip).all():
            raise AttackError("the samples hold nan or infinity")
        if clip.size == 0:
            return clip.copy()
        attacked = fit(transform(clip, sample_rate, **parameters), clip.size)
        return attacked.astype(np.float32)  # always a copy: an attack may give back its input

    return Attack(family, summary, draw, apply, dial)


def _noise(snr_db: float, dial: str | None = None) -> Attack:
    return _define(
        "signal",
        f"white gaussian noise, {snr_db:g} db" + (" unless told" if dial else ""),
        signal.noise,
        dial=dial,
        limits=(-20, 100),
        seeded=True,
        snr_db=snr_db,
    )


def _opus(bitrate_kbps: float, dial: str | None = None) -> Attack:
    return _define(
        "codec",
        f"opus at about {bitrate_kbps:g} kbps" + (" unless told" if dial else ""),
        codecs.opus,
        dial=dial,
        limits=codecs.OPUS_KBPS,
        bitrate_kbps=bitrate_kbps,
    )


def _lyra(bitrate_kbps: float) -> Attack:
    summary = f"lyra v2 speech codec at {bitrate_kbps:g} kbps"
    return _define("neural-codec", summary, neural.lyra, bitrate_kbps=bitrate_kbps)


# Nominal parameters are the paper's where it has the attack (its Table attackcfg).
ATTACKS: dict[str, Attack] = {
    "noise": _noise(20.0, dial="snr_db"),
    "noise-20": _noise(20.0),
    "noise-10": _noise(10.0),
    "pink": _define(
        "signal",
        "pink noise, 20 db unless told",
        signal.pink,
        dial="snr_db",
        limits=(-20, 100),
        seeded=True,
        snr_db=20.0,
    ),
    "lowpass": _define(
        "signal",
        "second-order low-pass, 4 khz",
        signal.lowpass,
        dial="cutoff_hz",
        limits=(1, 96000),
        cutoff_hz=4000.0,
    ),
    "highpass": _define(
        "signal",
        "second-order high-pass, 500 hz",
        signal.highpass,
        dial="cutoff_hz",
        limits=(1, 96000),
        cutoff_hz=500.0,
    ),
    "resample": _define(
        "signal",
        "to 0.8 of the rate and back",
        signal.resample,
        dial="factor",
        limits=(0.05, 4),
        factor=0.8,
    ),
    "gain": _define(
        "signal", "half the amplitude", signal.gain, dial="factor", limits=(0, 10), factor=0.5
    ),
    "polarity": _define("signal", "the waveform upside down", signal.polarity),
    "quantize": _define(
        "signal", "8-bit samples", signal.quantize, dial="bits", limits=(2, 24), bits=8
    ),
    "smoothing": _define(
        "signal",
        "moving average over 7 samples at 16 khz",
        signal.smoothing,
        dial="window",
        limits=(1, 1000),
        window=7,
    ),
    "echo": _define(
        "signal",
        "one echo after 0.1 s, 0.4 as loud",
        signal.echo,
        dial="decay",
        limits=(0, 1),
        delay_s=0.1,
        decay=0.4,
    ),
    "mp3": _define(
        "codec",
        "lame mp3 at 32 kbps",
        codecs.mp3,
        dial="bitrate_kbps",
        limits=(8, 320),
        bitrate_kbps=32.0,
    ),
    "opus": _opus(16.0, dial="bitrate_kbps"),
    "opus-12": _opus(12.0),
    "opus-16": _opus(16.0),
    "opus-24": _opus(24.0),
    "opus-32": _opus(32.0),
    "vorbis": _define(
        "codec",
        "vorbis at quality 0.6, about 48 kbps",
        codecs.vorbis,
        dial="quality",
        limits=(0, 1),
        quality=0.6,
    ),
    "griffin-lim": _define(
        "re-synthesis",
        "magnitudes kept, phase found again in 32 iterations",
        spectral.griffin_lim,
        dial="iterations",
        limits=(1, 1000),
        seeded=True,
        iterations=32,
    ),
    "mel": _define(
        "re-synthesis",
        "80 mel bands kept, the rest found again",
        spectral.mel,
        dial="bands",
        limits=(10, 128),
        seeded=True,
        bands=80,
        iterations=32,
    ),
    "denoiser": _define("re-synthesis", "spectral gate above the noise floor", spectral.denoiser),
    "lyra-3.2": _lyra(3.2),
    "lyra-6": _lyra(6.0),
    "lyra-9.2": _lyra(9.2),
}
