"""Detections and verdicts as plain values: the JSON of the command line and of the server."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from keybound.identity.reading import Reading
from keybound.types import Detection
from keybound.watermark.agreement import Compared
from keybound.watermark.identification import Identified
from keybound.watermark.verdict import Verdict


def as_plain(
    found: Detection,
    claims: Sequence[Reading],
    manifest: Compared | None = None,
    *,
    frames: bool = False,
) -> dict[str, Any]:
    """Return a detection, the public identifiers that it claims and the manifest as plain values.

    With `frames` those of every frame are added.
    """
    result: dict[str, Any] = {
        "present": found.present,
        "presence": found.presence,
        "threshold": found.threshold,
        "evidence_s": found.evidence_s,
        "evidence_threshold_s": found.evidence_threshold_s,
        "false_alarms": found.false_alarms,
        "speed": found.speed,
        "speeds_tried": found.speeds_tried,
        "channel": found.channel,
        "channels_tried": found.channels_tried,
        "spans": [dataclasses.asdict(span) for span in found.spans],
        "claimed": [{"identifier": one.name, "issuer": one.issuer} for one in claims],
        "manifest": None if manifest is None else manifest.as_plain(),
    }
    if frames:
        result |= {
            "frame_s": found.frame_s,
            "frame_presence": found.frame_presence.tolist(),
            "frame_logits": found.frame_logits.tolist(),
        }
    return result


def verdict_as_plain(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain values."""
    return dataclasses.asdict(verdict) | {"grade": verdict.grade, "words": verdict.words}


def identified_as_plain(one: Identified) -> dict[str, Any]:
    """Return what was identified as plain values, without the evidence of the verdict."""
    row = dataclasses.asdict(one)
    del row["verdict"]
    return row
