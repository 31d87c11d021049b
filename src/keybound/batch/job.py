"""Jobs and tasks: what a worker is told, in any process, and nothing secret. Knows no audio."""

import os
from dataclasses import dataclass

from keybound.crypto.keys import Key
from keybound.errors import KeyFileError
from keybound.provenance.declared import NOTHING, Declared
from keybound.watermark.options import EXCERPT_S, USUAL, DetectOptions
from keybound.watermark.reservation import Issued
from keybound.watermark.signing import Credentials

ENV = "env:"


@dataclass(frozen=True)
class Claimant:
    """A claimant without its secret: `key` names a key file, or env: and a variable's name."""

    name: str
    key: str
    key_id: str
    payload: int | None  # None: each row has its own
    rho: int | None
    recorded: bool = False  # whether there are records of it to compare with


@dataclass(frozen=True)
class Job:
    """What is the same for every input: all that a worker needs, and nothing secret."""

    verb: str  # embed, detect, identify or verify
    model: str | None
    claimants: tuple[Claimant, ...]
    excerpt: float = EXCERPT_S  # that must be attributable
    how: DetectOptions = USUAL
    untried: int = 0  # registered parties that cannot be tried
    registry: str | None = None  # the place of the registry, where there is one
    declared: Declared = NOTHING  # of what is embedded, in its record
    fingerprint: bool = True  # whether records keep one
    issuer: int | None = None  # of identifiers, where those are public
    signs: Credentials | None = None  # what outputs are signed with


@dataclass(frozen=True)
class Task:
    """One input to work on. `who` is one of the job's claimants, None for all of them."""

    name: str  # a digest of all that decides the result
    source: str
    output: str | None
    who: int | None
    payload: int | None
    nonce: bytes
    fresh: bool  # the output did not exist when this was first begun
    replace: bool
    position: int | None = None  # of the seal, where the registry gave one
    issued: Issued | None = None  # its identifier, likewise
    record: int | None = None  # of the output, where it is there already
    manifest: str | None = None  # the id of its C2PA manifest, likewise


def read_key(reference: str) -> Key:
    """Read a key from its file, or from the environment variable NAME of `env:NAME`."""
    if not reference.startswith(ENV):
        return Key.read(reference)
    name = reference.removeprefix(ENV)
    text = os.environ.get(name)
    if text is None:
        hint = "it must hold the text of a key file wherever the work is done"
        raise KeyFileError(f"the environment variable {name!r} is not set", hint=hint)
    try:
        return Key.parse(text)
    except KeyFileError as error:
        message = error.message.replace("the key text", f"the environment variable {name!r}")
        raise KeyFileError(message, hint=error.hint) from None
