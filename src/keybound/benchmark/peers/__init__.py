"""Peers: other people's watermarks as methods, through their own packages and weights.

None of their code is here. A package is imported when its method is made; weights lie where the
user has them (`KEYBOUND_AUDIOSEAL` and so on, or the cache of the hub they come from). Without
weights `trained=False` builds the same networks with random ones, which serve to test the plumbing
and to measure speed, and nothing else.

How each scores presence, and whether the score comes from decoding:

    audioseal     a head of its own: mean probability of a mark over all samples
    wavmark       decoding: share of its 16-bit pattern in the best place; its decoder wants all
    silentcipher  decoding: share of symbols that agree over the repetitions of its message
    timbre        decoding: mean size of its ten outputs, which are trained to be 1 or -1
    perth         a head of its own: confidence of a mark; there is no payload, `bits` is 0
    audiowmark    the sync score of the best block of its default key
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from keybound.benchmark.measure.methods import Method, keybound
from keybound.benchmark.peers import (
    audioseal,
    audiowmark,
    landmarks,
    perth,
    silentcipher,
    timbre,
    wavmark,
)
from keybound.errors import KeyBoundError

PEERS = {
    one.PEER.name: one.PEER for one in (audioseal, wavmark, timbre, silentcipher, perth, audiowmark)
}
OWN: dict[str, Callable[..., Method]] = {
    "keybound": keybound,
    "keybound-unsealed": partial(keybound, name="keybound-unsealed", seal=False),
    "excerpt/3": partial(keybound, name="excerpt/3", excerpt=3.0),
    "excerpt/10": partial(keybound, name="excerpt/10", excerpt=10.0),
}
METHODS = OWN | {name: peer.make for name, peer in PEERS.items()}


def available(name: str, *, trained: bool = True) -> str | None:
    """Return why a method cannot run here ("weights absent"); None when it can.

    `trained=False` asks for its networks with random weights. Nothing is imported or loaded.
    """
    if name not in METHODS:
        raise KeyBoundError(f"no method is named {name!r}", hint=f"known: {', '.join(METHODS)}")
    try:
        if name in PEERS:
            PEERS[name].needs(trained=trained)
        elif not trained:
            return "comes with its weights"
    except KeyBoundError as error:
        return error.message.partition(": ")[2] or error.message
    return None


def chosen(method: str, model: str | None, *, issued: bool = False) -> Callable[[], Method]:
    """Return what makes a known method, or KeyBound with other weights as a method of its own.

    Under one name the newest rows would hide the others. A name that is given, such as
    `ablation/no-anchor` or `paper`, is that of a study of the learned layer: no seal then.
    """
    if method.startswith(landmarks.PREFIX):
        return partial(landmarks.make, method.removeprefix(landmarks.PREFIX))
    if issued or (model and method == "keybound"):
        name = "keybound-identifier" if issued else method
        name += f"/{Path(model).name}" if model else ""
        return partial(keybound, Path(model) if model else None, name, issued=issued)
    if model and method not in METHODS:
        return partial(keybound, Path(model), method, seal=False)
    if model:
        raise KeyBoundError(f"{method} has no other weights", hint="--model is for keybound")
    if (why := available(method)) is not None:
        raise KeyBoundError(f"{method} cannot run here: {why}")
    made: Callable[[], Method] = METHODS[method]
    return made
