"""Verdicts: what holds of a recording for one party, as a grade and in words."""

from dataclasses import dataclass

from keybound.evidence import Span
from keybound.origin import UNTRACED, Origin
from keybound.search import NOTHING, Sealed

GRADES = ("none", "present", "attributed", "sealed")  # what holds, the least first


@dataclass(frozen=True)
class Verdict:
    """Whether a recording carries this party's mark, and the evidence.

    `verified` is the rule V_A: presence at or above its threshold and the decoded payload within
    `rho` bits of the registered one. `bound` is the probability that a wrong key passes, corrected
    for the `tries` parties and the `marks` that were tried; `spans` is where the marks are. `seal`
    is the evidence of the keyed pattern, which counts by itself: it outlives the mark. `roll` is
    that of a rolling code, which anyone can read second by second and write on other audio.
    `origin` says which of the party's records the recording is, where there are records: a seal on
    other audio than its record was copied there, and does not count; a rolling code counts as
    sealed only on the audio of its record. Where each recording has a mask of
    its own and nothing says which, `mask_known` is false and `distance` means nothing.
    """

    verified: bool
    present: bool
    presence: float
    threshold: float
    distance: int
    bits: int
    rho: int
    bound: float
    tries: int
    marks: int
    spans: tuple[Span, ...]
    seal: Sealed = NOTHING
    roll: Sealed = NOTHING
    origin: Origin = UNTRACED
    mask_known: bool = True

    @property
    def grade(self) -> str:
        """Say what holds: none, present, attributed (the rule V_A), or sealed."""
        if self.seal.holds and self.origin.match != "other":
            return "sealed"
        if self.roll.holds and self.origin.match == "same":
            return "sealed"
        if self.verified:
            return "attributed"
        return "present" if self.present else "none"

    @property
    def placed(self) -> Sealed:
        """Give the layer that says which record it is: the seal, or else a rolling code."""
        return self.seal if self.seal.holds else self.roll

    def reaches(self, grade: str) -> bool:
        """Say whether what holds is this grade or a higher one."""
        return GRADES.index(self.grade) >= GRADES.index(grade)

    @property
    def words(self) -> str:
        """Say the verdict in a sentence."""
        sealed = self.seal.holds or self.roll.holds
        return f"{self._evidence}{self.origin.words(sealed=sealed, marked=self.verified)}"

    @property
    def _evidence(self) -> str:
        agree = f"payload agrees in {self.bits - self.distance} of {self.bits} bits"
        if self.seal.holds:
            sealed = f"sealed evidence {self.seal.words}"
            if self.present:
                return f"marked, {agree}, {sealed}"
            return f"{sealed}, though no mark is left (presence {self.presence:.3f})"
        if self.roll.holds:
            doubt = "" if self.origin.match == "same" else ", which a record must confirm"
            return f"marked, {agree}, rolling code {self.roll.words}{doubt}"
        if self.verified:
            who = "a wrong key" if self.tries == 1 else f"one of {self.tries} wrong keys"
            return f"marked, {agree}; {who} passes with probability {self.bound:.2g}"
        if not self.present:
            return f"no mark found (presence {self.presence:.3f} under {self.threshold:.3f})"
        if not self.mask_known:
            return "marked, but by whom cannot be read: no seal and no record says with which mask"
        return f"marked, but not by this key and payload: {agree}, {self.bits - self.rho} needed"
