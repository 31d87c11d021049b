"""Verdicts: what holds of a recording for one party, as a grade and in words."""

from dataclasses import dataclass

from keybound.crypto import codes
from keybound.provenance.origin import UNTRACED, Origin
from keybound.seal.search import NOTHING, Sealed
from keybound.types import Detection, Span

GRADES = ("none", "present", "attributed", "sealed")  # what holds, the least first


@dataclass(frozen=True)
class Verdict:
    """Whether a recording carries this party's mark, and the evidence.

    `grade` decides. `rule_holds` is the rule V_A alone: a mark is present (`Detection`) and its
    decoded payload is within `rho` bits of the registered one; a seal counts without the mark,
    which it can outlast. `bound` is the probability that a wrong key passes the rule, corrected for
    the `tries` parties and the `marks` that were read; `spans` is where the marks are. `seal` is
    the evidence of the keyed pattern, `roll` that of a rolling code, which anyone can read second
    by second and embed in other audio. `origin` tells which of the party's records the recording
    is, where there are records: a seal on other audio than its record is a copy attack, and does
    not count; a rolling code counts as sealed only on the audio of its record. Where each recording
    has a mask of its own and nothing says which, `mask_known` is false and `distance` means
    nothing.
    """

    rule_holds: bool
    present: bool
    presence: float
    threshold: float
    evidence_s: float
    evidence_threshold_s: float
    false_alarms: float
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
        """Return what holds: none, present, attributed (the rule V_A), or sealed."""
        return self.grade_if(self.origin.match)

    def grade_if(self, match: str) -> str:
        """Return the grade if the comparison with the records gave this answer (`Origin.match`)."""
        if self.seal.holds and match != "other":
            return "sealed"
        if self.roll.holds and match == "same":
            return "sealed"
        if self.rule_holds:
            return "attributed"
        return "present" if self.present else "none"

    @property
    def verified(self) -> bool:
        """Return whether the recording is the party's: attributed or sealed."""
        return self.reaches("attributed")

    @property
    def placed(self) -> Sealed:
        """Return the layer that gives the keystream position: the seal, or else a rolling code."""
        return self.seal if self.seal.holds else self.roll

    def reaches(self, grade: str) -> bool:
        """Return whether what holds is this grade or a higher one."""
        return GRADES.index(self.grade) >= GRADES.index(grade)

    @property
    def words(self) -> str:
        """Return the verdict as a sentence."""
        sealed = self.seal.holds or self.roll.holds
        return f"{self._evidence}{self.origin.words(sealed=sealed, marked=self.rule_holds)}"

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
        if self.rule_holds:
            who = "a wrong key" if self.tries == 1 else f"one of {self.tries} wrong keys"
            return f"marked, {agree}; {who} passes with probability {self.bound:.2g}"
        if not self.present:
            return f"no mark found ({self.lacks}){self.unsearched}"
        if not self.mask_known:
            return "marked, but the payload cannot be read: no seal and no record gives its mask"
        short = f"{agree}, {self.bits - self.rho} needed"
        if self.unsearched:
            return f"marked, {short}{self.unsearched}"
        return f"marked, but not by this key and payload: {short}"

    @property
    def lacks(self) -> str:
        """Return in words what an unmarked recording lacks of a mark."""
        return f"evidence {self.evidence_s:.2f} s of {self.evidence_threshold_s:.2f} s"

    @property
    def unsearched(self) -> str:
        """Return in words what was not searched for; empty where everything was."""
        seal, roll = self.seal.searched, self.roll.searched
        if seal == "none":
            return "; no seal was searched for"
        if seal == "some":
            return "; the seal was not searched for everywhere in so long a recording (--position)"
        if seal == "short":
            return "; too short for a seal"
        if seal == "start":
            return "; too short to find the seal if it was cut"
        return "" if roll == "all" else "; too short to find a rolling code if it was cut"


@dataclass(frozen=True)
class Evidence:
    """The evidence for one party, of which its verdict is made."""

    passes: bool  # whether the payload agrees, where there is a mark
    distance: int
    rho: int
    readings: int  # of the payload, of which the nearest counts
    chance: float  # that a wrong key passes, among these readings
    seal: Sealed = NOTHING
    roll: Sealed = NOTHING
    origin: Origin = UNTRACED
    mask_known: bool = True


def weigh(
    distance: int,
    readings: int,
    bits: int,
    rho: int,
    *,
    seal: Sealed = NOTHING,
    roll: Sealed = NOTHING,
    origin: Origin = UNTRACED,
    mask_known: bool = True,
) -> Evidence:
    """Return the evidence of the rule V_A on the nearest of several readings of a payload.

    The chance of a wrong key is at most multiplied by their number.
    """
    chance = min(1.0, readings * codes.bound(bits, rho))
    passes = mask_known and distance <= rho
    return Evidence(passes, distance, rho, readings, chance, seal, roll, origin, mask_known)


def conclude(
    found: Detection, own: Evidence, bits: int, *, tries: int = 1, chance: float | None = None
) -> Verdict:
    """Build the verdict on one of `tries` parties: every verdict is built here.

    `chance` is the largest of their chances, where they differ.
    """
    return Verdict(
        rule_holds=found.present and own.passes,
        present=found.present,
        presence=found.presence,
        threshold=found.threshold,
        evidence_s=found.evidence_s,
        evidence_threshold_s=found.evidence_threshold_s,
        false_alarms=found.false_alarms,
        distance=own.distance,
        bits=bits,
        rho=own.rho,
        bound=codes.corrected(own.chance if chance is None else chance, tries),
        tries=tries,
        marks=own.readings,
        spans=found.spans,
        seal=own.seal,
        roll=own.roll,
        origin=own.origin,
        mask_known=own.mask_known,
    )
