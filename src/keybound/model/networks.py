"""The two networks as arrays in, arrays out, on ONNX Runtime. Knows no keys and no files of audio.

A folder of weights holds `embedder.onnx`, `detector.onnx` and `card.json`; the card carries their
hashes, and weights that do not agree with it are refused. Recordings go through the networks in
chunks with context (`blocks`), which equals processing them whole.
"""

import hashlib
import json
import math
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from keybound.audio.streaming import Feeder, still
from keybound.errors import ModelError
from keybound.model.detection import ABSENT, Tail
from keybound.types import Floats

Bits = npt.NDArray[np.uint8]
Codes = Callable[[npt.NDArray[np.int64]], Bits]
"""Numbers of blocks (blocks,) to the code of each: (blocks, bits)."""

SHIPPED = Path(__file__).parent / "weights"
CARD_VERSION = 2
CAUTIOUS = Tail(above_s=0.2, rate_hz=0.05, scale_s=0.25)  # for cards without it
CAUTIOUS_EXCESS = 0.25  # likewise
FULL = ((1.0, 1.0),)  # strength by excerpt, likewise
CONTENTS_HINT = "a folder of weights holds embedder.onnx, detector.onnx and card.json"


@dataclass(frozen=True)
class Card:
    """The description of a folder of weights, from its card.json.

    `embed_context` and `detect_context` are the blocks of `hop` samples before and after a block
    that can change what the network gives for it. `threshold` holds presence to one false alarm
    in a hundred over clean and attacked speech, `clean_threshold` over clean speech alone; `tail`
    tells what a stretch within recordings of any length must hold. Of unmarked seconds whose
    presence is high, the share that is higher still falls by a factor of e for each `excess`.
    `strengths` are pairs of an excerpt in seconds and the strength of a mark that is read in it.
    """

    name: str
    rate: int
    hop: int
    bits: int
    rho: int
    threshold: float
    clean_threshold: float
    excess: float
    tail: Tail
    strengths: tuple[tuple[float, float], ...]
    embed_context: tuple[int, int]
    detect_context: tuple[int, int]
    sha256: dict[str, str]
    facts: dict[str, Any]  # the whole card, with recipe and figures

    @property
    def weights(self) -> str:
        """Return the beginnings of the hashes of detector and embedder: the name of the pair."""
        return f"{self.sha256['detector.onnx'][:8]}-{self.sha256['embedder.onnx'][:8]}"

    def threshold_of(self, views: int) -> float:
        """Return the presence that one of so many views passes as often as one passes its own."""
        return self.threshold + self.excess * math.log(views)

    def strength_of(self, excerpt_s: float) -> float:
        """Return the strength of a mark that can be attributed in an excerpt of this length."""
        seconds, strengths = zip(*self.strengths, strict=True)
        return float(np.interp(math.log(excerpt_s), np.log(seconds), strengths))


def read_card(folder: Path) -> Card:
    """Read and check the card of a folder of weights."""
    path = folder / "card.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["version"] != CARD_VERSION:
            newer = facts["version"] > CARD_VERSION
            raise ModelError(
                f"{path} is a card of version {facts['version']}",
                hint="update keybound" if newer else "get newer weights, or export them anew",
            )
        embed_left, embed_right = facts["context"]["embed"]
        detect_left, detect_right = facts["context"]["detect"]
        card = Card(
            name=str(facts["name"]),
            rate=operator.index(facts["rate"]),
            hop=operator.index(facts["hop"]),
            bits=operator.index(facts["bits"]),
            rho=operator.index(facts["rho"]),
            threshold=float(facts["thresholds"]["attacked"]),
            clean_threshold=float(facts["thresholds"]["clean"]),
            excess=float(facts["thresholds"].get("excess", CAUTIOUS_EXCESS)),
            tail=Tail(**facts["evidence"]) if "evidence" in facts else CAUTIOUS,
            strengths=tuple((float(s), float(a)) for s, a in facts.get("strengths", FULL)),
            embed_context=(operator.index(embed_left), operator.index(embed_right)),
            detect_context=(operator.index(detect_left), operator.index(detect_right)),
            sha256=dict(facts["sha256"]),
            facts=facts,
        )
        counts = (card.rho, *card.embed_context, *card.detect_context)
        if min(card.rate, card.hop, card.bits) < 1 or min(counts) < 0:
            raise ValueError("a count out of range")
        seconds, strengths = zip(*card.strengths, strict=True)
        if min(*seconds, *strengths) <= 0 or sorted(set(seconds)) != list(seconds):
            raise ValueError("strengths must be positive, the shortest excerpt first")
        limits = (card.threshold_of(2), card.clean_threshold, card.tail.threshold(1.0))
        if not math.isfinite(sum(limits)) or card.excess < 0:
            raise ValueError("a threshold that is no number")
        return card
    except OSError as error:
        raise ModelError(f"no card.json in {folder}", hint=CONTENTS_HINT) from error
    except (ValueError, KeyError, TypeError) as error:
        hint = "get the weights again, or export them anew"
        raise ModelError(f"{path} is not a model card", hint=hint) from error


class Networks:
    """A pair of networks, loaded when first used and checked against their card."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else SHIPPED
        self.card = read_card(self.folder)

    @cached_property
    def _embedder(self) -> Any:
        return self._session("embedder.onnx")

    @cached_property
    def _detector(self) -> Any:
        return self._session("detector.onnx")

    @cached_property
    def _takes_strength(self) -> bool:
        return any(given.name == "strength" for given in self._embedder.get_inputs())

    def _session(self, name: str) -> Any:
        path = self.folder / name
        try:
            model = path.read_bytes()
        except OSError as error:
            raise ModelError(f"no {name} in {self.folder}", hint=CONTENTS_HINT) from error
        if hashlib.sha256(model).hexdigest() != self.card.sha256.get(name):
            hint = "the file is damaged or of another model; get the weights again"
            raise ModelError(f"{path} does not have the hash on its card", hint=hint)
        import onnxruntime as ort  # a tenth of a second, which verbs without networks save

        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = int(os.environ.get("KEYBOUND_THREADS", "0"))  # 0: all cores
        try:
            return ort.InferenceSession(model, options, providers=ort.get_available_providers())
        except Exception as error:  # onnxruntime raises classes of its own binding
            hint = "export it anew, or update onnxruntime"
            raise ModelError(f"{path} cannot be loaded", hint=hint) from error

    def embedder(self, code: Bits | Codes, strength: float = 1.0) -> Feeder:
        """Return a feeder from the samples of a 16 kHz mono host to the carrier of a code.

        The code is (bits,), or a function of block numbers with a code for each: (blocks, bits).
        An embedder that takes a `strength` gives a carrier of that strength, any other is scaled.
        """
        hop, done = self.card.hop, 0  # blocks
        told = {"strength": np.array([strength], np.float32)} if self._takes_strength else {}
        scale = np.float32(1.0 if told else strength)

        def run(piece: Floats, keep: slice) -> Floats:
            nonlocal done
            count = len(piece) // hop
            if callable(code):
                own = code(np.arange(done - keep.start, done - keep.start + count))
            else:
                own = np.broadcast_to(code, (count, len(code)))
            bits = np.ascontiguousarray(own.T, np.float32)[None]  # (1, bits, blocks)
            (carrier,) = self._embedder.run(None, {"x": piece[None], "code": bits} | told)
            done += keep.stop - keep.start
            made: Floats = carrier[0, keep.start * hop : keep.stop * hop]
            return made if scale == 1.0 else scale * made

        return Feeder(run, hop, self.card.embed_context)

    def detector(self) -> Feeder:
        """Return a feeder from 16 kHz mono samples to logits (frames, 1 + bits): presence, code.

        In silence, a constant offset included, presence is absent and no bit is read; the network
        does not run where there is nothing else.
        """
        hop, (past, future) = self.card.hop, self.card.detect_context

        def run(piece: Floats, keep: slice) -> Floats:
            quiet = still(piece, hop, past, future)[keep]
            made = np.zeros((len(quiet), 1 + self.card.bits), np.float32)
            if not quiet.all():
                presence, logits = self._detector.run(None, {"x": piece[None]})
                made[:, 0], made[:, 1:] = presence[0, keep], logits[0, :, keep].T
            made[quiet] = [ABSENT, *[0.0] * self.card.bits]
            return made

        return Feeder(run, hop, self.card.detect_context)

    def carrier(self, samples: Floats, code: Bits | Codes) -> Floats:
        """Return the carrier of a code for a 16 kHz mono host: (samples,) to (samples,)."""
        return _whole(self.embedder(code), samples)[: len(samples)]

    def frames(self, samples: Floats) -> tuple[Floats, Floats]:
        """Return presence logits (frames,) and code logits (frames, bits) of 16 kHz mono audio.

        Frame j describes the block of `hop` samples that starts at j * hop.
        """
        made = _whole(self.detector(), samples)
        return made[:, 0], made[:, 1:]


def _whole(feeder: Feeder, samples: Floats) -> Floats:
    return np.concatenate([*feeder.push(samples), *feeder.flush()])


@cache
def shipped() -> Networks:
    """Return the networks of the package, loaded once."""
    return Networks()
