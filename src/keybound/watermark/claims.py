"""Claims: the party, key and payload to verify, and what is known of a recording beside them.

Knows keys, codes and parties: no audio, no networks.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from keybound.crypto.keys import KEYGEN_HINT, Key
from keybound.errors import KeyBoundError, KeyFileError, KeyFileWarning
from keybound.provenance.parties import Party

NOBODY = "no party is registered (keybound party add)"
Made = TypeVar("Made")


class Claim(NamedTuple):
    """A registered party, or a key and payload without a registry."""

    name: str
    key: Key
    payload: int
    rho: int | None  # None: the model's


class Untried(NamedTuple):
    """A registered party that could not be tried, and why, in a line."""

    name: str
    error: str


@dataclass(frozen=True)
class Options:
    """What is known of a recording beside the claim.

    `nonce` selects the mask, `position` is that of the seal. `speed` is the largest change of speed
    to search for: 0.05 for 5 %.
    """

    nonce: bytes = b""
    position: int | None = None
    speed: float = 0.0


USUAL = Options()


def triable(
    known: Sequence[Party], make: Callable[[Party], Made]
) -> tuple[list[Made], list[Untried]]:
    """Return what `make` makes of each party, and the parties for which it raises an error.

    Raise the first error if it does for all.
    """
    if not known:
        raise KeyBoundError(NOBODY)
    made: list[Made] = []
    untried: list[Untried] = []
    reasons: list[KeyBoundError] = []
    for one in known:
        try:
            made.append(make(one))
        except KeyBoundError as error:
            reasons.append(error)
            untried.append(Untried(one.name, error.message))
    if not made:
        raise reasons[0]
    return made, untried


def party_claim(one: Party, bits: int) -> Claim:
    """Return the claim of a registered party; raise an error where the model has other bits."""
    if one.bits != bits:
        raise KeyBoundError(
            f"party {one.name!r} has a payload of {one.bits} bits, and this model carries {bits}",
            hint="--model names the weights it was registered for",
        )
    try:
        return Claim(one.name, one.key(), one.payload, one.rho)
    except KeyFileError as error:
        lost = error.hint in (None, KEYGEN_HINT)  # a new key would not help here
        hint = "restore the key file, or remove the party" if lost else error.hint
        raise KeyFileError(f"party {one.name!r}: {error.message}", hint=hint) from error


def readable_claim(versions: Sequence[Party], bits: int, key_id: str | None = None) -> Claim:
    """Return the claim of a party with its key of this id, else with its newest that can be read.

    `versions` is the party with each of its keys, the newest first. Those that cannot be read are
    named in a `KeyFileWarning`; raise the error of the newest if none can.
    """
    for one in versions:
        if one.key_id == key_id:
            return party_claim(one, bits)
    reasons: list[KeyBoundError] = []
    for one in versions:
        try:
            made = party_claim(one, bits)
        except KeyBoundError as error:
            reasons.append(error)
            continue
        for reason in reasons:
            warn_untried(reason)
        return made
    raise reasons[0]


def warn_untried(error: KeyBoundError) -> None:
    """Give a `KeyFileWarning` that a key is not tried."""
    warnings.warn(f"not tried: {error.message}", KeyFileWarning, stacklevel=1)  # each shown once
