"""What an attack is, and the checks that hold for every one of them.

`define` makes an attack of a pure function and its nominal parameters. Knows no attack by name,
nor marks, keys or networks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from keybound.attacks.rates import LOWEST_RATE_HZ, Samples, fit
from keybound.errors import AttackError

Parameters = dict[str, Any]


class Draw(Protocol):
    """Draw parameters; `strength` is None for the nominal ones."""

    def __call__(self, rng: np.random.Generator, strength: float | None = None) -> Parameters: ...


class Apply(Protocol):
    """Apply drawn parameters to mono samples at a rate of 8 kHz or more; pure."""

    def __call__(self, samples: Samples, sample_rate: int, parameters: Parameters) -> Samples: ...


def nothing() -> None:
    """Need nothing that could be absent."""


@dataclass(frozen=True)
class Attack:
    """One attack: its family, one line about it, and the two functions.

    `dial` names the parameter that a strength sets, its unit in the name (`snr_db`,
    `bitrate_kbps`); None when the attack has no strength to choose. `keeps_length` is False where
    as many samples come out as the summary says, not as went in. `needs` raises `AttackError`
    where a tool, a package or weights are absent, without running anything.
    """

    family: str
    summary: str
    draw: Draw
    apply: Apply
    dial: str | None = None
    keeps_length: bool = True
    needs: Callable[[], object] = nothing


def define(
    family: str,
    summary: str,
    transform: Callable[..., Samples],
    *,
    dial: tuple[str, float, float] | None = None,
    seeded: bool = False,
    keeps_length: bool = True,
    needs: Callable[[], object] = nothing,
    **nominal: float,
) -> Attack:
    """Make an attack of a pure function and its nominal parameters.

    `dial` is the parameter that a strength sets, with the lowest and the highest value it takes;
    one whose nominal value is an int takes whole numbers only.
    """

    def draw(rng: np.random.Generator, strength: float | None = None) -> Parameters:
        parameters: Parameters = dict(nominal)
        if strength is not None:
            if dial is None:
                raise AttackError(f"this attack has no strength to choose: {summary}")
            parameter, low, high = dial
            whole = isinstance(nominal[parameter], int)
            if not low <= strength <= high or (whole and strength != int(strength)):
                kind = "a whole number" if whole else "a number"
                raise AttackError(
                    f"{parameter} cannot be {strength:g}", hint=f"{kind} from {low:g} to {high:g}"
                )
            parameters[parameter] = int(strength) if whole else float(strength)
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
        attacked = transform(clip, sample_rate, **parameters)
        if keeps_length:
            attacked = fit(attacked, clip.size)
        return attacked.astype(np.float32)  # always a copy: an attack may give back its input

    return Attack(family, summary, draw, apply, dial[0] if dial else None, keeps_length, needs)


def at_strength(hit: Attack, told: float) -> Attack:
    """Return the attack with a fixed strength; raise an error for an impossible one."""
    hit.draw(np.random.default_rng(0), told)

    def draw(rng: np.random.Generator, strength: float | None = None) -> Parameters:
        if strength is not None:
            raise AttackError(f"the strength is {told:g} already", hint="give it once")
        return hit.draw(rng, told)

    return replace(hit, summary=f"{hit.summary}; {hit.dial} {told:g}", draw=draw, dial=None)


def in_order(parts: list[Attack]) -> Attack:
    """Compose attacks into one; each part draws its own parameters, and none is left to choose."""

    def draw(rng: np.random.Generator, strength: float | None = None) -> Parameters:
        if strength is not None:
            raise AttackError("a chain has no strength", hint="give its parts theirs: mp3@64+gain")
        return {"parts": [part.draw(rng) for part in parts]}

    def apply(samples: Samples, sample_rate: int, parameters: Parameters) -> Samples:
        for part, part_parameters in zip(parts, parameters["parts"], strict=True):
            samples = part.apply(samples, sample_rate, part_parameters)
        return samples

    def needs() -> None:
        for part in parts:
            part.needs()

    summary = ", then ".join(part.summary for part in parts)
    keeps_length = all(part.keeps_length for part in parts)
    return Attack("compound", summary, draw, apply, None, keeps_length, needs)
