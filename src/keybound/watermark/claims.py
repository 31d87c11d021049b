"""Claims: the party, key and payload to verify, and where its seal may be.

Knows keys, codes and records: no audio, no networks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from keybound.crypto import codes
from keybound.crypto.keys import KEYGEN_HINT, Key
from keybound.errors import KeyBoundError, KeyFileError
from keybound.provenance.parties import Party
from keybound.provenance.records import Entry
from keybound.seal.rolling import Roll
from keybound.seal.search import Ask, SealSearch
from keybound.seal.tiles import Spot

KNOWN_REACH_S = 3600.0  # where the position is known, cuts are searched further
LAYERS = 2  # of sealed evidence that share the chance of a false answer: pattern, rolling code
Masks = Mapping[str, Sequence[tuple[int, bytes]]]  # by party: positions, and nonces of their masks
NOBODY = "no party is registered (keybound party add)"
Made = TypeVar("Made")


class Claim(NamedTuple):
    """A registered party, or a key and payload without a registry."""

    name: str
    key: Key
    payload: int
    rho: int | None  # None: the model's
    next_position: int = 0  # of the key's stream: those below it may be in use


class Untried(NamedTuple):
    """A registered party that could not be tried, and why, in a line."""

    name: str
    error: str


@dataclass(frozen=True)
class Options:
    """What is known of a recording beside the claim.

    `nonce` selects the mask, `position` is that of the seal; with `own_mask` each recording has the
    mask of its position. `speed` is the largest change of speed to search for: 0.05 for 5 %.
    """

    nonce: bytes = b""
    position: int | None = None
    speed: float = 0.0
    own_mask: bool = False

    @property
    def reach_s(self) -> float:
        """Return the seconds cut off the start up to which is searched."""
        return SealSearch().reach_s if self.position is None else KNOWN_REACH_S

    def nonce_at(self, position: int) -> bytes:
        """Return the nonce of a recording at a position of which no record is known."""
        return self.nonce or (codes.position_nonce(position) if self.own_mask else b"")


USUAL = Options()


@dataclass(frozen=True)
class Case:
    """A claim on a recording, with the records of the party."""

    claim: Claim
    entries: Sequence[Entry]
    spots: Sequence[tuple[int, bytes]]  # positions to look at, each with the nonce of its mask
    bits: int
    rho: int
    tries: int  # parties

    @cached_property
    def ask(self) -> Ask:
        """Return the patterns to search for. Half of the chance is kept for records' starts."""
        key, payload = self.claim.key, self.claim.payload
        made = {
            nonce: codes.encode(payload, key, self.bits, nonce)
            for nonce in dict.fromkeys(nonce for _, nonce in self.spots)
        }
        spots = [Spot(key, made[nonce], position) for position, nonce in self.spots]
        return Ask(spots, self.share)

    @property
    def share(self) -> int:
        """Return the number of searches that share the chance of a false answer."""
        return LAYERS * self.tries * (2 if self.entries else 1)

    def rolls(self, spots: Sequence[tuple[int, bytes]]) -> list[Roll]:
        """Return the rolling codes of some spots."""
        claim = self.claim
        return [Roll(claim.key, claim.payload, self.bits, nonce, at) for at, nonce in spots]


def positions_of(claim: Claim) -> range:
    """Return the positions that a party's seals may have: the usual ones and all in use."""
    return range(max(claim.next_position, len(SealSearch().positions)))


def spots_of(
    claim: Claim,
    entries: Sequence[Entry],
    options: Options = USUAL,
    masks: Sequence[tuple[int, bytes]] = (),
) -> list[tuple[int, bytes]]:
    """Return the positions at which a party's seal may be, each with the nonce of its mask.

    Records give the nonce of their positions, unless the options give one.
    """
    positions = positions_of(claim) if options.position is None else [options.position]
    spots = [(at, options.nonce_at(at)) for at in positions]
    if not options.nonce:
        kept = (entry.stamped.record for entry in entries)
        known = [*masks, *((one.position, one.nonce) for one in kept if one.position is not None)]
        spots += [(at, nonce) for at, nonce in known if options.position in (None, at)]
    return list(dict.fromkeys(spots))


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
        return Claim(one.name, one.key(), one.payload, one.rho, one.next_position)
    except KeyFileError as error:
        lost = error.hint in (None, KEYGEN_HINT)  # a new key would not help here
        hint = "restore the key file, or remove the party" if lost else error.hint
        raise KeyFileError(f"party {one.name!r}: {error.message}", hint=hint) from error
