"""What requests hold and what they are answered with, for the OpenAPI description."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from keybound.model.detection import LEAST_FALSE_ALARMS, MOST_FALSE_ALARMS

Grade = Literal["none", "present", "attributed", "sealed"]
FalseAlarms = Annotated[float, Query(ge=LEAST_FALSE_ALARMS, le=MOST_FALSE_ALARMS)]


class Span(BaseModel):
    """A stretch that is marked: from, to, and its presence."""

    start_s: float
    end_s: float
    score: float


class Issued(BaseModel):
    """What the registry that issued an identifier says of it to everybody."""

    model_config = ConfigDict(extra="forbid")

    provider: str | None
    system: str | None
    system_version: str | None
    created: str = Field(description="when it was marked, in UTC")
    link: str | None
    claimed: bool = Field(
        description="true: nothing but the identifier, which anyone can copy, speaks for it; "
        "false: the seal of the record holds, or the audio is that of the record"
    )


class Claimed(BaseModel):
    """A public identifier that the recording spells. Anyone can write one: its issuer can tell."""

    model_config = ConfigDict(extra="forbid")

    identifier: str = Field(description="the serial, as ten hex digits")
    issuer: int
    record: Issued | None = Field(
        None, description="of this service's registry, if it issued the identifier; null if not"
    )


class Named(BaseModel):
    """An identifier that a manifest names."""

    identifier: str
    issuer: int


class Manifest(BaseModel):
    """The C2PA manifest in the file, and whether it and the mark say the same."""

    model_config = ConfigDict(extra="forbid")

    id: str | None
    state: Literal["trusted", "valid", "expired", "changed", "broken", "unreadable", "unread"]
    signer: str | None = Field(description="as its certificate calls it; checked where trusted")
    source_type: str | None
    identifiers: list[Named]
    agreement: Literal["agrees", "disagrees", "open"]
    words: str


class Found(BaseModel):
    """Whether there is a mark, and where: as `keybound detect --json` prints it.

    Of a video with several audio tracks it is that of the track with the most evidence of a mark,
    and `tracks` holds all of them.
    """

    model_config = ConfigDict(extra="forbid")

    present: bool
    presence: float = Field(description="mean over frames, 0 to 1")
    threshold: float = Field(description="of presence, for recordings under 3 s")
    evidence_s: float = Field(description="of the strongest stretch")
    evidence_threshold_s: float
    false_alarms: float = Field(description="share of unmarked recordings that are found marked")
    speed: float
    speeds_tried: int
    channel: int | None = Field(description="with the most evidence; null: all channels mixed")
    channels_tried: int
    spans: list[Span]
    claimed: list[Claimed]
    manifest: Manifest | None
    track: int = Field(1, description="from 1; absent where there is only one, as tracks is")
    tracks: list["Found"] = []


class Error(BaseModel):
    """Why a request is not answered."""

    error: str
    hint: str | None


class Health(BaseModel):
    """Whether the service can detect, and with which weights."""

    status: str
    version: str
    weights: str


class Link(BaseModel):
    """A link to a recording."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2048)


class Identified(BaseModel):
    """A mark: which recording it was made in, and whose it is, as `keybound identify --json`."""

    model_config = ConfigDict(extra="forbid")

    identifier: str | None
    issuer: int | None
    party: str | None
    record: int | None
    grade: Grade
    claimed: bool
    spans: list[Span]
    start_s: float | None
    bound: float
    words: str
    track: int = Field(1, description="of several in a video, from 1; absent where there is one")


class Identification(BaseModel):
    """Which recording it is and whose; to one who may only ask, the highest grade alone."""

    model_config = ConfigDict(extra="forbid")

    grade: Grade
    marks: list[Identified] = Field([], description="absent for one who may only ask")
    manifest: Manifest | None = Field(None, description="absent for one who may only ask")


class Verification(BaseModel):
    """The verdict as `keybound verify --json` prints it; the grade alone for one who may only ask.

    Beside what is described here it holds all figures of the evidence.
    """

    grade: Grade
    party: str = Field("", description="absent for one who may only ask, as all that follows")
    words: str = ""
    present: bool = False
    bound: float = 1.0
    spans: list[Span] = Field([])
    track: int = Field(
        1, description="with the highest grade of several; absent where there is one"
    )


class SignedVerdict(BaseModel):
    """A signed verdict: save it as it is, byte by byte, for `keybound record check`."""

    model_config = ConfigDict(extra="forbid")

    public: str
    signature: str
    verdict: dict[str, Any]


RECORDING = {"schema": {"type": "string", "format": "binary"}}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": RECORDING,
            "application/json": {"schema": Link.model_json_schema()},
        },
    }
}
KINDS = {
    ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".opus": "audio/ogg",
    ".mp3": "audio/mpeg", ".aif": "audio/aiff", ".caf": "audio/x-caf", ".m4a": "audio/mp4",
    ".aac": "audio/aac", ".w64": "audio/x-w64", ".au": "audio/basic",
}  # fmt: skip
MARKED: dict[str, Any] = {
    "description": "The marked recording, in the format of the body.",
    "content": dict.fromkeys(sorted(set(KINDS.values())), RECORDING),
    "headers": {
        name: {"description": what, "schema": {"type": "string"}}
        for name, what in {
            "KeyBound-Record": "the number of its record; absent from a stream",
            "KeyBound-Identifier": "what it spells, as ten hex digits; absent if it is short",
            "KeyBound-Manifest": "the id of the C2PA manifest that it was signed with",
        }.items()
    },
}
WHY = {
    408: "The body came in too slowly.",
    413: "The recording has too many bytes.",
    415: "The body is a multipart form.",
    422: "The recording or the link cannot be read, or is too long.",
    429: "Too many answers from the registry; Retry-After says when there are more.",
    503: "Too many requests at once; Retry-After says when to try again.",
}
WHY_NOT = WHY | {
    401: "There is no token, or it does not hold.",
    403: "The token does not allow this.",
}
Responses = dict[int | str, dict[str, Any]]
REFUSALS: Responses = {status: {"model": Error, "description": why} for status, why in WHY.items()}
PRIVATE: Responses = {
    status: {"model": Error, "description": why} for status, why in sorted(WHY_NOT.items())
}
