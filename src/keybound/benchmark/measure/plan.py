"""What every suite shares: a plan of what to measure, a case to measure it on, and a suite itself.

A suite measures one row at a time. What names a row, such as its attack, is given to it beside the
case: a recording with its secret, and the recordings beside it. All chance follows from (seed,
number of the recording). Knows no suite; `run` knows them all.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from keybound.attacks import attack
from keybound.benchmark.measure.methods import Method, Reading
from keybound.benchmark.measure.protocol import Clip, Secret, rng_of, secret_of
from keybound.benchmark.measure.rows import Row
from keybound.model.detection import FALSE_ALARMS
from keybound.watermark.watermarker import Watermarker

# Hosts of a suite: the first clip of each recording; pieces of each speaker's recordings, joined;
# the same with a key of its own for each length; none, for what reads folders by itself.
FIRST, JOINED, OWN_KEYS, NONE = "first", "joined", "own keys", "none"
LIBRISPEECH = re.compile(r"(\d+)-\d+-\d+$")  # speaker, chapter, utterance


@dataclass(frozen=True)
class Plan:
    """What to measure: suites of a method, on which speech, and how much of it."""

    make: Callable[[], Method]
    speech: tuple[Path, ...]  # folders; the suites of single clips take the first
    suites: tuple[str, ...]  # of `run.SUITES`
    attacks: tuple[str, ...] = ()
    lengths: Mapping[float, int | None] | None = None  # seconds, and most recordings of that length
    most: int | None = None  # recordings of any length
    seed: int = 0
    every: bool = False  # all clips of each recording, not only the first
    joined: bool = False  # clips of all recordings one after another, by speaker
    speech_set: str | None = None  # its name; None: the main set, which most tables are of
    opinion: bool = True  # DNSMOS too, which takes longer than all the rest
    damage: bool = True  # what each attack does to the speech
    detector: Callable[[], Any] | None = None  # of `gradient`: makes it as a torch network
    removers: tuple[Path, ...] = ()  # files of networks, named NETWORK-STEPS.safetensors
    wrong_keys: int = 350  # tried on each recording of `seal-null`
    noise: Path | None = None  # of `null`: a folder of noise, and one of synthetic speech
    synthetic: Path | None = None
    made_minutes: float = 10.0  # of `null`: the length of each of the made sounds
    files_s: tuple[float, ...] = ()  # of `false-alarms`: lengths of its files
    false_alarms: float = FALSE_ALARMS  # likewise: the rate that is asked for
    stereo: bool = False  # of `false-alarms`: two channels, and each view of them alone


@dataclass(frozen=True, eq=False)
class Case:
    """A recording, its secret, and the others of its length."""

    plan: Plan
    method: Method
    hosts: Sequence[Clip]
    seconds: float
    index: int = 0
    first: int = 0  # the number of the first recording of this length
    names: Sequence[str] = ()  # of the recordings, where one is the host of each

    @property
    def host(self) -> Clip:
        """Return the recording before marking."""
        return self.hosts[self.index]

    @property
    def number(self) -> int:
        """Return the number of the recording, which its secret and all chance follow from."""
        return self.first + self.index

    @property
    def marker(self) -> Watermarker:
        """Return KeyBound itself, for what no other method has."""
        assert self.method.marker is not None
        return self.method.marker

    @cached_property
    def secret(self) -> Secret:
        """Return key, payload and position."""
        return secret_of(self.plan.seed, self.number, self.method.bits)

    @cached_property
    def marked(self) -> Clip:
        """Return the recording as its party publishes it."""
        return self.method.embed(self.host, self.secret)

    @cached_property
    def reading(self) -> Reading:
        """Return what the public detector tells anyone of the marked recording."""
        return self.method.read(self.marked)

    @cached_property
    def partner(self) -> int:
        """Return the next recording, of another speaker where the names tell."""
        return partner(self.index, len(self.hosts), self.names)

    @property
    def other(self) -> Clip:
        """Return another party's host."""
        return self.hosts[self.partner]

    def chance(self, purpose: str) -> Any:
        """Return the generator of a purpose."""
        return rng_of(self.plan.seed, self.number, purpose)

    def draw(self, name: str) -> tuple[Row, Callable[[Clip], Clip]]:
        """Return the parameters that an attack draws, and the attack with them."""
        hit = attack(name)
        parameters = hit.draw(self.chance(name), None)
        return parameters, lambda samples: hit.apply(samples, self.method.rate, parameters)

    def attacked(self, name: str, samples: Clip | None = None) -> Clip:
        """Return samples, those of the marked recording if none are given, after an attack."""
        return self.draw(name)[1](self.marked if samples is None else samples)


def partner(index: int, count: int, names: Sequence[str] = ()) -> int:
    """Return the next clip of another speaker, where LibriSpeech names tell, or the next."""
    found = [LIBRISPEECH.search(Path(name).stem) for name in names]
    speakers = [match and match[1] for match in found] or [None] * count
    after = [(index + step) % count for step in range(1, count)] or [index]
    known = speakers[index] is not None
    return next((j for j in after if not known or speakers[j] != speakers[index]), after[0])


def one_row(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the name of the only row that a recording has."""
    return [{}]


def each(key: str, *values: Any, **more: Any) -> Callable[[Plan, int], list[Row]]:
    """Return what names a row for each value of a key."""
    return lambda plan, index: [{key: value, **more} for value in values]  # noqa: ARG005


def each_attack(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the name of a row for each attack of the plan."""
    return [{"attack": name} for name in plan.attacks]


@dataclass(frozen=True)
class Suite:
    """How a suite is measured, which rows each recording has, and of how many recordings."""

    measure: Callable[[Case, Row], Row]  # case and the row's name in, the rest of the row out
    rows: Callable[[Plan, int], list[Row]] = one_row
    lengths: Mapping[float, int | None] | None = None  # where the plan says nothing
    hosts: str = FIRST
    takes: int = 1  # recordings that one case takes
    whole: bool = False  # a row is of all recordings together
