"""Attacks: what happens to a recording between marking and verifying, each under a name.

An attack first draws its parameters and then applies them, so that a run can be logged and
repeated: all chance is in the parameters, which are plain numbers and fit in a JSON row.

    hit = attack("noise")
    parameters = hit.draw(rng, 15.0)  # {"snr_db": 15.0, "seed": 2357136044}
    attacked = hit.apply(samples, sample_rate, parameters)

`attack("noise@15")` has its strength in its name, `attack("mp3@64+griffin-lim")` applies one after
the other, and `available(name)` says what is missing on this machine. This room knows nothing of
marks, keys or networks of ours: mono float32 samples in, as many out, except where `keeps_length`
is False.
"""

import difflib

from keybound.attacks.catalogue import ATTACKS
from keybound.attacks.definition import Attack, Parameters, at_strength, in_order
from keybound.attacks.suites import SUITES
from keybound.errors import AttackError

__all__ = ["ATTACKS", "SUITES", "Attack", "Parameters", "attack", "available", "chain"]


def attack(name: str) -> Attack:
    """Return the attack of this name, or the chain of the names joined by `+`.

    A name may end in `@` and a strength, which sets the attack's dial: `noise@30`.
    """
    names = name.split("+")
    return _one(name) if len(names) == 1 else chain(names)


def chain(names: list[str]) -> Attack:
    """Compose known attacks in order; each part has its nominal strength or the one it names."""
    return in_order([_one(name) for name in names])


def available(name: str) -> str | None:
    """Return why an attack cannot run here ("weights absent"); None when it can.

    Looks for tools, packages and weights, and runs none of them.
    """
    hit = attack(name)
    try:
        hit.needs()
    except AttackError as error:
        return error.message.partition(": ")[2] or error.message
    return None


def _one(name: str) -> Attack:
    known, at, strength = (piece.strip() for piece in name.partition("@"))
    if known not in ATTACKS:
        near = difflib.get_close_matches(known, ATTACKS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(ATTACKS)}"
        raise AttackError(f"no attack is named {known!r}", hint=hint)
    if not at:
        return ATTACKS[known]
    try:
        return at_strength(ATTACKS[known], float(strength))
    except ValueError as error:
        raise AttackError(f"{strength!r} is no strength", hint="a number: noise@30") from error
