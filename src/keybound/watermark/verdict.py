"""Verdicts: what holds of a recording for one party, as a grade and in words."""

from dataclasses import dataclass

from keybound.crypto import codes
from keybound.identity.identifier import written
from keybound.provenance.origin import UNTRACED, Origin
from keybound.seal.search import NOTHING, SEALED_P, Sealed
from keybound.types import GRADES as GRADES
from keybound.types import Detection, Span

LAYERS = 2  # of sealed evidence that share the chance of a false answer: pattern, identifier


@dataclass(frozen=True)
class Spelled:
    """The identifier of a record, as a recording spells it.

    `bound` is the probability that a recording without it names any record of the registry: blocks
    that were opened, times keys and records, in 2^64. `start_s` is how far into the recording that
    was marked it begins, up to a multiple of 32 s. Anyone can write a `public` one.
    """

    serial: int
    public: bool
    bound: float
    start_s: float
    spans: tuple[Span, ...]
    fit: float
    channel: int | None = None

    @property
    def name(self) -> str:
        """Return the serial as it is written."""
        return written(self.serial)

    @property
    def holds(self) -> bool:
        """Return whether this is sealed evidence on the audio of its record."""
        return not self.public and LAYERS * self.bound < SEALED_P


@dataclass(frozen=True)
class Verdict:
    """Whether a recording carries this party's mark, and the evidence.

    `grade` decides. `rule_holds` is the rule V_A alone: a mark is present (`Detection`) and its
    decoded payload is within `rho` bits of the registered one; a seal counts without the mark,
    which it can outlast. `bound` is the probability that a wrong key passes the rule, corrected for
    the `tries` parties and the `marks` that were read; `spans` is where the marks are. `seal` is
    the evidence of the keyed pattern, `spelled` the identifier that was read, which anyone can copy
    to other audio. `origin` tells which of the party's records the recording is, where there are
    records: a seal on other audio than its record is a copy attack, and does not count; an
    identifier counts as sealed only on the audio of its record. `marks` is 0, and `distance` and
    `bound` mean nothing, where no code is known but the one that gave the record, or none at all.
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
    origin: Origin = UNTRACED
    spelled: Spelled | None = None

    @property
    def grade(self) -> str:
        """Return what holds: none, present, attributed (the rule V_A), or sealed."""
        if self.seal.holds and self.origin.match != "other":
            return "sealed"
        if self.spelled is not None and self.spelled.holds and self.origin.match == "same":
            return "sealed"
        if self.rule_holds:
            return "attributed"
        return "present" if self.present else "none"

    @property
    def verified(self) -> bool:
        """Return whether the recording is the party's: attributed or sealed."""
        return self.reaches("attributed")

    def reaches(self, grade: str) -> bool:
        """Return whether what holds is this grade or a higher one."""
        return GRADES.index(self.grade) >= GRADES.index(grade)

    @property
    def words(self) -> str:
        """Return the verdict as a sentence."""
        spelled = self.spelled is not None
        told = self.origin.words(sealed=self.seal.holds, marked=self.rule_holds, spelled=spelled)
        doubt = ", and anyone can copy an identifier" if self.copied else ""
        return f"{self._evidence}{told}{doubt}"

    @property
    def copied(self) -> bool:
        """Return whether an identifier was read on audio that nothing shows to be its record's."""
        held = self.seal.holds and self.origin.match != "other"
        return self.spelled is not None and not held and self.origin.match != "same"

    @property
    def _evidence(self) -> str:
        agree = f"code agrees in {self.bits - self.distance} of {self.bits} bits"
        agree = agree if self.marks else "the code was not compared"
        if self.spelled is not None:
            how = "claims the public" if self.spelled.public and self.copied else "spells the"
            sealed = f", sealed evidence {self.seal.words}" if self.seal.holds else ""
            return f"{how} identifier {self.spelled.name}{sealed}"
        if self.seal.holds:
            sealed = f"sealed evidence {self.seal.words}"
            if self.present:
                return f"marked, {agree}, {sealed}" if self.marks else f"marked, {sealed}"
            return f"{sealed}, though no mark is left (presence {self.presence:.3f})"
        if self.rule_holds:
            who = "a wrong key" if self.tries == 1 else f"one of {self.tries} wrong keys"
            return f"marked, {agree}; {who} passes with probability {self.bound:.2g}"
        if not self.present:
            return f"no mark found ({self.lacks}){self.unsearched}"
        short = f"{agree}, {self.bits - self.rho} needed" if self.marks else agree
        if self.unsearched:
            return f"marked, {short}{self.unsearched}"
        if not self.marks:
            return f"marked, but without a seal of this key; {short}"
        return f"marked, but not by this key and payload: {short}"

    @property
    def lacks(self) -> str:
        """Return in words what an unmarked recording lacks of a mark."""
        return f"evidence {self.evidence_s:.2f} s of {self.evidence_threshold_s:.2f} s"

    @property
    def unsearched(self) -> str:
        """Return in words what was not searched for; empty where everything was."""
        seal = self.seal.searched
        if seal == "none":
            return "; no seal was searched for"
        if seal == "some":
            return "; the seal was not searched for everywhere in so long a recording (--position)"
        if seal == "short":
            return "; too short for a seal"
        if seal == "start":
            return "; too short to find the seal if it was cut"
        return ""


@dataclass(frozen=True)
class Evidence:
    """The evidence for one party, of which its verdict is made."""

    passes: bool  # whether the payload agrees, where there is a mark
    distance: int
    rho: int
    readings: int  # of the payload, of which the nearest counts
    chance: float  # that a wrong key passes, among these readings
    seal: Sealed = NOTHING
    origin: Origin = UNTRACED
    spelled: Spelled | None = None


def weigh(distance: int, readings: int, bits: int, rho: int) -> Evidence:
    """Return the evidence of the rule V_A on the nearest of several readings of a payload.

    The chance of a wrong key is at most multiplied by their number.
    """
    chance = min(1.0, readings * codes.bound(bits, rho))
    return Evidence(readings > 0 and distance <= rho, distance, rho, readings, chance)


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
        origin=own.origin,
        spelled=own.spelled,
    )
