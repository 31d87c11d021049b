"""Stretches of a recording: what of it a record explains, what is left, a recording cut to one.

Knows detections, levels, fingerprints and records: no audio, no keys, no registry.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from keybound.identity.reading import AROUND
from keybound.model import detection
from keybound.provenance.fingerprint import COLUMN_S, COLUMN_STEPS, STEP_S, unpack
from keybound.provenance.matching import Match
from keybound.seal.search import Sealed
from keybound.types import Analysis, Detection, Floats, Span
from keybound.watermark.candidates import Candidate, Prepared

Place = tuple[float, float]  # seconds of a recording: from, to

LEAST_S = 1.5  # of a mark that is looked for by itself
PAUSE_S = 3.0  # a longer one between two spans parts them
BLURRED_S = AROUND // 2  # by which an identifier may seem to reach beyond its recording
UNRELATED = 0.25  # agreement of a column below which it speaks against the record
AGREES_S = 1.0  # of agreement that makes a stretch the record's, and whose loss ends it
TOUCH_S = 0.1  # between spans of one record that are one
LIMIT = 1e-6  # presence this near to 0 or 1 is as sure as it gets


def left(spans: Sequence[Span], taken: Sequence[Place]) -> list[Place]:
    """Return the marked stretches outside of what is taken. Short pauses do not part one."""
    marked = [(one.start_s, one.end_s) for one in spans]
    rest = without(_joined(marked, PAUSE_S), taken)
    return [one for one in rest if sum(map(length, within(marked, [one]))) >= LEAST_S]


def length(one: Place) -> float:
    """Return the seconds of a place."""
    return one[1] - one[0]


def without(places: Sequence[Place], taken: Sequence[Place]) -> list[Place]:
    """Return places without what is taken."""
    edges = [(-np.inf, -np.inf), *_joined(taken), (np.inf, np.inf)]
    return within(places, [(a[1], b[0]) for a, b in pairwise(edges)])


def within(places: Sequence[Place], others: Sequence[Place]) -> list[Place]:
    """Return what places have in common with others."""
    both = [(max(a, c), min(b, d)) for a, b in places for c, d in others]
    return sorted(one for one in both if one[0] < one[1])


def marked(spans: Sequence[Span], places: Sequence[Place]) -> tuple[Span, ...]:
    """Return the spans as far as they lie in these places; those of several views as one."""
    cut = [replace(one, start_s=a, end_s=b) for one in spans for a, b in _own(one, places)]
    return together(cut)


def together(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return spans in order, those that touch as one, which has the score of the longer."""
    made: list[Span] = []
    for one in sorted(spans, key=lambda one: one.start_s):
        if made and one.start_s <= made[-1].end_s + TOUCH_S:
            longer = max(made[-1], one, key=lambda own: own.end_s - own.start_s)
            made[-1] = Span(made[-1].start_s, max(made[-1].end_s, one.end_s), longer.score)
        else:
            made.append(one)
    return tuple(made)


def _own(span: Span, places: Sequence[Place]) -> list[Place]:
    return within([(span.start_s, span.end_s)], _joined(places))


def _joined(places: Sequence[Place], gap_s: float = 0.0) -> list[Place]:
    """Return places in order, those that overlap or lie this near to each other as one."""
    made: list[Place] = []
    for start_s, end_s in sorted(places):
        if made and start_s <= made[-1][1] + gap_s:
            made[-1] = made[-1][0], max(made[-1][1], end_s)
        else:
            made.append((start_s, end_s))
    return made


def explained(prepared: Prepared, one: Candidate, seal: Sealed) -> list[Place]:
    """Return where a recording is that of a record: its audio, its codes or its seal say so.

    Where audio agrees well, it alone decides in the part that was compared: codes are told apart in
    seconds only.
    """
    read = [] if one.spelled is None else [(s.start_s, s.end_s) for s in one.spelled.spans]
    if one.match is not None and one.is_same:
        narrow = [(a + BLURRED_S, b - BLURRED_S) for a, b in read if b - a > 2 * BLURRED_S]
        compared = [(one.match.from_s, one.match.to_s)] if one.match.settled else []
        speed = prepared.found.speed  # at which it is compared
        agreeing, compared = (
            [(a / speed, b / speed) for a, b in some]
            for some in (_agreeing(prepared, one, one.match), compared)
        )
        further = [one for one in without(narrow, compared) if length(one) >= LEAST_S]
        return _joined([*agreeing, *further])
    if seal.holds and seal.speed == 1.0:
        return within(read, [_lies(one, seal.start_s, 1.0)])
    return read


def _lies(one: Candidate, start_s: float, speed: float) -> Place:
    """Return where a whole record lies in a recording that begins so far into it."""
    length_s = one.record.samples / one.record.rate
    return -start_s / speed, (length_s - start_s) / speed


def _agreeing(prepared: Prepared, one: Candidate, match: Match) -> list[Place]:
    """Return the stretches of a recording, as it is compared, whose audio is that of the record."""
    whole = (0.0, prepared.seconds * prepared.found.speed)
    if match.speed != 1.0:  # a part of it was compared
        return without(within([_lies(one, match.start_s, match.speed)], [whole]), match.differs_s)
    sketch = prepared.sketch
    sound = next(s for s in (sketch, *sketch.others) if s.channel == match.channel)
    signs, _ = unpack(one.record.fingerprint)
    step = round(match.start_s / STEP_S)
    first = max(0, -(-step // COLUMN_STEPS))  # column of the fingerprint
    begin = first * COLUMN_STEPS - step
    laid = sound.whole[begin::COLUMN_STEPS][: len(signs) - first].astype(np.float32)
    own = signs[first : first + len(laid)]
    most = np.abs(own * laid).sum(axis=1)
    gain = ((own * laid).sum(axis=1) - UNRELATED * most) / (most.mean() / 2 + 1e-9)
    chance: Floats = (np.clip(gain, -1, 1) + 1).astype(np.float32) / 2
    _, found = detection.stretches(chance, COLUMN_S, AGREES_S)
    if not found:
        return []
    # What is quiet at its ends says nothing, and belongs to it.
    near, count = round(AGREES_S / COLUMN_S), len(laid)
    edges = [(0, 0)] * (found[0][0] <= near) + [(count, count)] * (count - found[-1][1] <= near)
    at = [(begin * STEP_S + a * COLUMN_S, begin * STEP_S + b * COLUMN_S) for a, b in found + edges]
    return within(_joined(at, AGREES_S), [whole])


def cut(analysis: Analysis, place: Place) -> tuple[Analysis, float]:
    """Return a part of a recording as a recording of its own, and where it begins."""
    found = analysis.detection
    first = max(0, round(place[0] / found.frame_s))
    frames = slice(first, max(first + 1, round(place[1] / found.frame_s)))
    start_s = first * found.frame_s
    steps = slice(round(start_s / STEP_S), round(frames.stop * found.frame_s / STEP_S))
    levels = {channel: own[steps] for channel, own in analysis.levels.items()}
    spans = found.spans
    if found.others:  # those of all views: here of the strongest
        theirs = [mark.spans for mark in found.marks if mark.channel == found.channel]
        spans = tuple(span for some in theirs for span in some)
    views = [_cut(replace(found, spans=spans, others=()), frames)]
    views += [_cut(one, frames) for one in found.others]
    own = detection.strongest(views) if found.others else views[0]
    return Analysis(own, levels), start_s


def _cut(view: Detection, frames: slice) -> Detection:
    """Return some frames of one view of a detection, their bits pooled anew."""
    chance, logits = view.frame_presence[frames], view.frame_logits[frames]
    sure = np.clip(chance, LIMIT, 1 - LIMIT)
    presence: Floats = np.log(sure / (1 - sure))
    start_s, end_s = frames.start * view.frame_s, frames.stop * view.frame_s
    there = [
        (s, s.start_s - start_s, s.end_s - start_s) for s in marked(view.spans, [(start_s, end_s)])
    ]
    spans = tuple(replace(s, start_s=a, end_s=b) for s, a, b in there if b - a > view.frame_s)
    reach = detection.REACH_S
    wider = [(max(0.0, one.start_s - reach), one.end_s + reach) for one in spans]
    parts = [(round(a / view.frame_s), round(b / view.frame_s)) for a, b in wider]
    marks = detection.gather(spans, parts, presence, logits)
    return replace(
        view,
        spans=spans,
        marks=marks,
        frame_presence=chance,
        frame_logits=logits,
        code_logits=marks[0].code_logits if marks else detection.pool(presence, logits),
    )
