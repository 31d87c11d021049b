"""From the values of frames to what they prove: spans, marks, presence. Knows no audio and no keys.

A frame's evidence is how much more likely it is marked than not, times its length: a stretch of a
second that is surely marked holds 1 s of evidence, one that surely is not holds -1 s. The strongest
stretch of an unmarked recording holds the more, the longer the recording is; how much more is
measured on unmarked speech and kept in the card (`Tail`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keybound.errors import KeyBoundError
from keybound.types import Detection, Floats, Mark, Span

Stretch = tuple[int, int]  # first frame, and the one after the last

FALSE_ALARMS = 0.001  # share of unmarked recordings that are found marked, unless asked otherwise
MOST_FALSE_ALARMS, LEAST_FALSE_ALARMS = 1e-2, 1e-6  # that can be asked for
# Shorter recordings may hold too little evidence, so their mean presence is judged too, which is
# calibrated for the most false alarms alone. It is also the length of the files of unmarked speech
# that evidence is calibrated on.
SHORT_S = 3.0
ABSENT = -5.0  # presence logit of silence
REACH_S = 0.25  # beyond a span, whose frames also say a little about its bits
GAP_S = 0.5  # frames that waver do not end a span, a pause of half a second does
AGREEMENT = 0.7  # of one code; two codes of chance agree in half, give or take an eighth
# Of one code in two channels: parties that speak in a channel each are not taken for one.
AGREEMENT_OF_VIEWS = 0.9
MOST_MARKS = 8  # that one view of a recording is taken to hold


@dataclass(frozen=True)
class Tail:
    """How evidence is distributed in unmarked recordings.

    Stretches that hold more than `above_s` come `rate_hz` times a second, and beyond it their
    evidence falls off exponentially with the mean `scale_s`.
    """

    above_s: float
    rate_hz: float
    scale_s: float

    def threshold(self, length_s: float, false_alarms: float = MOST_FALSE_ALARMS) -> float:
        """Return the evidence, in seconds, that this share of unmarked recordings reaches."""
        expected = self.rate_hz * length_s / -math.log1p(-false_alarms)
        return self.above_s + self.scale_s * math.log(max(1.0, expected))


def weigh(
    presence: Floats,
    logits: Floats,
    frame_s: float,
    end_s: float,
    threshold: float,
    tail: Tail,
    false_alarms: float = MOST_FALSE_ALARMS,
    tries: int = 1,
) -> Detection:
    """Judge a recording by presence logits (frames,) and code logits (frames, bits).

    It is marked if a stretch of it holds more evidence than this share of unmarked recordings of
    its length do. A recording under `SHORT_S` is marked too if its mean presence reaches the
    threshold, and its false alarms are the most. It ends at `end_s`, in its last frame. As one of
    several views at several speeds, `tries` in all, it is judged as if the recording were as long
    as all of them together.
    """
    chance = likelihood(presence)
    score = float(chance.mean())
    short = end_s < SHORT_S - frame_s
    held = MOST_FALSE_ALARMS if short else false_alarms
    # Of a short recording the ends are most. Evidence alone counts there from where it does in 3 s.
    rate = FALSE_ALARMS if short else held
    least_s = tail.threshold(tries * max(end_s, SHORT_S), rate)
    evidence_s, found = stretches(chance, frame_s, least_s)
    if not found and short and score >= threshold:
        found = [(0, len(chance))]
    parts = [part for stretch in found for part in split(chance, stretch, frame_s)]
    spans = tuple(_span(chance, part, frame_s, end_s) for part in parts)
    reach = round(REACH_S / frame_s)
    wider = [(max(0, a - reach), min(len(chance), b + reach)) for a, b in parts]
    marks = gather(spans, wider, presence, logits)
    return Detection(
        present=bool(found),
        presence=score,
        threshold=threshold,
        evidence_s=evidence_s,
        evidence_threshold_s=least_s,
        false_alarms=held,
        spans=spans,
        marks=marks,
        frame_s=frame_s,
        frame_presence=chance,
        frame_logits=logits,
        code_logits=marks[0].code_logits if marks else pool(presence, logits),
    )


def sounding(frames: Mapping[int | None, Floats]) -> dict[int | None, Floats]:
    """Return the views (frames, 1 + bits) that are not silent, or one of them if all are.

    A silent view raises no false alarm, so it is not counted among those tried. Its frames are the
    engine's for silence: presence is absent and no bit is read.
    """
    heard = {c: v for c, v in frames.items() if np.any(v[:, 0] != ABSENT) or v[:, 1:].any()}
    return heard or dict(list(frames.items())[:1])


def weigh_views(
    frames: Mapping[int | None, Floats],
    frame_s: float,
    end_s: float,
    *,
    threshold: float,
    tail: Tail,
    false_alarms: float,
    tries: int,
) -> Detection:
    """Return the detection in a recording from the frames (frames, 1 + bits) of each view.

    `tries` counts the views at all speeds.
    """
    views = []
    for channel, rows in frames.items():
        presence = rows[:, 0].astype(np.float32, copy=False)
        own = weigh(
            presence,
            rows[:, 1:],
            frame_s,
            end_s,
            threshold=threshold,
            tail=tail,
            false_alarms=false_alarms,
            tries=tries,
        )
        views.append(replace(own, channel=channel, channels_tried=len(frames)))
    found = strongest(views) if len(views) > 1 else views[0]
    return replace(found, frame_logits=found.frame_logits.astype(np.float32, copy=False))


def check_false_alarms(rate: float) -> float:
    """Return a rate of false alarms; raise an error for one that cannot be held."""
    if not LEAST_FALSE_ALARMS <= rate <= MOST_FALSE_ALARMS:
        hint = f"{LEAST_FALSE_ALARMS:g} to {MOST_FALSE_ALARMS:g}"
        raise KeyBoundError(f"false alarms cannot be held to {rate:g}", hint=hint)
    return rate


def likelihood(presence: Floats) -> Floats:
    """Return the sigmoid of presence logits."""
    chance: Floats = (1 / (1 + np.exp(-np.clip(presence, -80, 80)))).astype(np.float32)
    return chance


def strongest(views: Sequence[Detection]) -> Detection:
    """Return the detection of the view with the most evidence, with the marks of all of them.

    All have one threshold, so the most evidence is the most beyond it.
    """
    by_strength = sorted(views, key=lambda one: (-one.present, -one.evidence_s, -one.presence))
    first, others = by_strength[0], tuple(one for one in by_strength[1:] if one.present)
    marks: list[Mark] = []
    for view in (first, *others):
        for mark in view.marks:
            own = replace(mark, channel=view.channel)
            near = [i for i, m in enumerate(marks) if m.channel != own.channel and _same(m, own)]
            if near:
                marks[near[0]] = _extended(marks[near[0]], own)
            else:
                marks.append(own)
    spans = sorted({span for mark in marks for span in mark.spans}, key=lambda one: one.start_s)
    return replace(first, marks=tuple(marks), spans=tuple(spans), others=others)


def _same(known: Mark, other: Mark) -> bool:
    """Return whether a mark of another view carries a known code."""
    return _agreement(other.code_logits, known.code_logits) >= AGREEMENT_OF_VIEWS


def _extended(known: Mark, other: Mark) -> Mark:
    """Add the spans of a mark in another view that mostly lie where it was not found."""
    apart = []
    for span in other.spans:
        shared = (min(span.end_s, o.end_s) - max(span.start_s, o.start_s) for o in known.spans)
        if sum(max(0.0, one) for one in shared) < (span.end_s - span.start_s) / 2:
            apart.append(span)
    spans = sorted([*known.spans, *apart], key=lambda one: one.start_s)
    return replace(known, spans=tuple(spans))


def _agreement(own: Floats, known: Floats) -> float:
    """Return the share of bits in which two codes agree, weighted by how sure the first is."""
    sure = np.abs(own) / (np.abs(own).sum() + 1e-30)
    return float(sure[(known > 0) == (own > 0)].sum())


def stretches(chance: Floats, frame_s: float, least_s: float) -> tuple[float, list[Stretch]]:
    """Find the stretches that hold `least_s` of evidence, and the most that any stretch holds.

    Going on from its start, a stretch ends where its evidence was highest, once it has fallen from
    there by `least_s` or to nothing.
    """
    found: list[Stretch] = []
    most = total = best = 0.0
    start = stop = 0
    for frame, gain in enumerate(_gains(chance, frame_s), 1):
        total += gain
        if total > best:
            best, stop = total, frame
        elif total <= max(0.0, best - least_s):
            if best >= least_s:
                found.append((start, stop))
            most, total, best, start = max(most, best), 0.0, 0.0, frame
    if best >= least_s:
        found.append((start, stop))
    return max(most, best), found


def _gains(chance: Floats, frame_s: float) -> Iterator[float]:
    for first in range(0, len(chance), 4096):  # numbers of Python's own take four times the room
        part = chance[first : first + 4096].astype(np.float64)
        yield from ((2 * part - 1) * frame_s).tolist()


def split(chance: Floats, stretch: Stretch, frame_s: float) -> list[Stretch]:
    """Trim a stretch to frames that are more likely marked than not, and cut it at long pauses."""
    first, last = stretch
    likely = np.flatnonzero(chance[first:last] >= 0.5) + first
    if not len(likely):  # its mean reached the threshold without any such frame
        return [stretch]
    cuts = np.flatnonzero(np.diff(likely) - 1 >= GAP_S / frame_s)
    starts = [likely[0], *likely[cuts + 1]]
    stops = [*likely[cuts], likely[-1]]
    return [(int(a), int(b) + 1) for a, b in zip(starts, stops, strict=True)]


def gather(
    spans: Sequence[Span], parts: Sequence[Stretch], presence: Floats, logits: Floats
) -> tuple[Mark, ...]:
    """Put the spans together that carry one code, so that their evidence adds up.

    The longest comes first. A span joins the first mark with whose code it agrees, bits weighted
    by how sure the span is of them, else it is a mark of its own. No key enters, so none profits.
    """
    weight = np.exp(presence - presence.max())
    groups: list[list[int]] = []
    totals: list[Floats] = []  # of each group: (bits,)
    for index in sorted(range(len(parts)), key=lambda i: parts[i][0] - parts[i][1]):
        frames = slice(*parts[index])
        own: Floats = weight[frames] @ logits[frames]
        near = [i for i, total in enumerate(totals) if _agreement(own, total) >= AGREEMENT]
        if near:
            groups[near[0]].append(index)
            totals[near[0]] += own
        elif len(groups) < MOST_MARKS:
            groups.append([index])
            totals.append(own)
    marks = []
    for group, total in zip(groups, totals, strict=True):
        mass = sum(weight[slice(*parts[i])].sum() for i in group)
        marks.append(Mark(tuple(spans[i] for i in sorted(group)), total / mass))
    return tuple(marks)


def pool(presence: Floats, logits: Floats) -> Floats:
    """Average payload logits over frames by the softmax of the presence logits: (bits,)."""
    weight = np.exp(presence - presence.max())
    pooled: Floats = (weight / weight.sum()) @ logits
    return pooled


def _span(chance: Floats, part: Stretch, frame_s: float, end_s: float) -> Span:
    start, stop = part
    mean = float(chance[start:stop].mean())
    return Span(float(start * frame_s), min(float(stop * frame_s), end_s), mean)
