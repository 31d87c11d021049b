"""What several rooms share: arrays, detections and analyses. Knows nothing of how one is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Levels = npt.NDArray[
    np.float16
]  # in dB: (steps, bands); seals and fingerprints are searched in them

GRADES = ("none", "present", "attributed", "sealed")  # what holds of a recording, the least first


@dataclass(frozen=True)
class Span:
    """A stretch that is marked: from, to, and its presence score."""

    start_s: float
    end_s: float
    score: float


@dataclass(frozen=True, eq=False)
class Mark:
    """Spans that carry one code, and their pooled logits."""

    spans: tuple[Span, ...]
    code_logits: Floats  # (bits,) pooled over the frames in and around the spans
    channel: int | None = None  # in which it was read; None: the mix of all channels


@dataclass(frozen=True, eq=False)
class Detection:
    """Whether there is a mark, and the values of each frame. No key was needed.

    A recording of several channels that differ is analysed in several views: each channel, and
    their mix. Presence, evidence and frames are those of the strongest view, `channel`; `spans` and
    `marks` are those of all views in which there is a mark.
    """

    present: bool
    presence: float  # mean over frames of the sigmoid of the presence logit
    threshold: float  # of presence, calibrated on recordings of a second
    evidence_s: float  # of the strongest stretch
    evidence_threshold_s: float  # for a recording of this length, and so many views and speeds
    false_alarms: float  # share of unmarked recordings that are found marked, at most
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]  # the spans by the code that they carry, the strongest first
    frame_s: float
    frame_presence: Floats  # (frames,) in [0, 1]
    frame_logits: Floats  # (frames, bits), of the code, not of the payload
    code_logits: Floats  # (bits,) of the strongest mark; of all frames if there is none
    channel: int | None = None  # the strongest view, from 0; None: the mix, or the only one
    channels_tried: int = 1  # views that are not silent
    speed: float = 1.0  # at which it is played, 1.1 for 10 % faster, if other speeds were tried
    speeds_tried: int = 1
    others: tuple["Detection", ...] = field(default=(), repr=False)  # marked views but this one

    @property
    def views(self) -> tuple["Detection", ...]:
        """Return the detections of all views to read: the strongest, then other marked ones."""
        return self, *self.others


@dataclass(frozen=True, eq=False)
class Analysis:
    """A detection, and the levels of the recording in which seals and records are searched.

    Levels are by channel, first those of all channels together (None). A single channel is there
    where it adds to them.
    """

    detection: Detection
    levels: Mapping[int | None, Levels] = field(repr=False)
