"""The C2PA soft binding resolution API: from a mark to the manifest that was signed with it.

Who has a recording that lost its metadata finds the manifest by the public identifier that its mark
spells. Answers are for public identifiers alone. They use a record: each is counted, and comes in
fixed time. They say what records say to everybody, and never their free fields.
"""

import base64
import binascii
from typing import Annotated, Any, NoReturn

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keybound.model.detection import FALSE_ALARMS
from keybound.provenance import manifest
from keybound.provenance.credentials import ALGORITHM, Named, parse_binding
from keybound.provenance.records import Entry
from keybound.provenance.registry import Registry
from keybound.server import bodies
from keybound.server.answers import REFUSALS, Error, Issued
from keybound.server.counting import in_fixed_time
from keybound.server.jobs import public_record
from keybound.server.limits import RefusedError
from keybound.server.state import State

VALUE_MAX = 200  # characters of a soft binding's value; ours has at most 24
MEDIA_TYPE = "application/c2pa"
OTHER_MEDIA = ("image/", "text/", "model/", "font/")
Described = dict[int | str, dict[str, Any]]
WRONG = "The algorithm, the value or the id is none of this service's."
INVALID: Described = {400: {"model": Error, "description": WRONG}}
UNKNOWN: Described = {404: {"model": Error, "description": "There is no such manifest here."}}
STORE: Described = {200: {"content": {MEDIA_TYPE: {}}}}
COUNTED: Described = {status: REFUSALS[status] for status in (422, 429, 503)}
AUDIO: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in ("audio/*", "video/*", "application/octet-stream")
        },
    }
}
JSON: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["alg", "value"],
                    "properties": {"alg": {"type": "string"}, "value": {"type": "string"}},
                }
            }
        },
    }
}
Most = Annotated[int, Query(alias="maxResults", ge=1, description="manifests in an answer")]


class Algorithm(BaseModel):
    """The name of a soft binding algorithm."""

    alg: str


class Algorithms(BaseModel):
    """The soft binding algorithms that are resolved here."""

    watermarks: list[Algorithm]


class Binding(BaseModel):
    """A soft binding: an algorithm, and in base64 the value that was read."""

    model_config = ConfigDict(extra="forbid")

    alg: str = Field(max_length=VALUE_MAX)
    value: str = Field(max_length=VALUE_MAX)


class Match(BaseModel):
    """A manifest, and what the record that keeps it says to everybody."""

    model_config = ConfigDict(extra="forbid")

    manifestId: str  # noqa: N815 (the name is C2PA's)
    record: Issued


class Matches(BaseModel):
    """The manifests that were found."""

    model_config = ConfigDict(extra="forbid")

    matches: list[Match]


def add(app: FastAPI, state: State) -> None:
    """Add the routes to a service that has a registry."""

    @app.get("/services/supportedAlgorithms")
    async def algorithms() -> Algorithms:
        """List the soft binding algorithms that are resolved here."""
        return Algorithms(watermarks=[Algorithm(alg=ALGORITHM)])

    @app.get("/matches/byBinding", responses=INVALID | COUNTED, response_model=Matches)
    async def by_binding(
        request: Request,
        alg: Annotated[str, Query(max_length=VALUE_MAX)],
        value: Annotated[str, Query(max_length=VALUE_MAX)],
        most: Most = 10,
    ) -> Response:
        """Return the manifest of a soft binding.

        The value is the base64 of issuer, point and identifier, as a manifest and `/detect` have
        them: of 7.0123456789 it is Ny4wMTIzNDU2Nzg5.
        """
        found = await _of_binding(request, state, Binding(alg=alg, value=value))
        return JSONResponse({"matches": found[:most]})

    @app.post(
        "/matches/byBinding",
        responses=INVALID | REFUSALS,
        response_model=Matches,
        openapi_extra=JSON,
    )
    async def by_large_binding(request: Request, most: Most = 10) -> Response:
        """Return the manifest of a soft binding that is sent as JSON."""
        bodies.check_kind(request)
        try:
            asked = Binding.model_validate_json(await bodies.small(request, state.limits))
        except ValidationError:
            hint = 'send {"alg": "…", "value": "…"}'
            raise RefusedError(400, "the JSON holds no soft binding", hint) from None
        found = await _of_binding(request, state, asked)
        return JSONResponse({"matches": found[:most]})

    @app.post(
        "/matches/byContent",
        responses=INVALID | REFUSALS,
        response_model=Matches,
        openapi_extra=AUDIO,
    )
    async def by_content(
        request: Request,
        alg: Annotated[str | None, Query(max_length=VALUE_MAX)] = None,
        most: Most = 10,
        hint_alg: Annotated[str | None, Query(alias="hintAlg", max_length=VALUE_MAX)] = None,
        hint_value: Annotated[str | None, Query(alias="hintValue", max_length=VALUE_MAX)] = None,
    ) -> Response:
        """Return the manifests of the public identifiers that a recording spells.

        Hints are not needed, and not used. Nothing is kept.
        """
        del hint_alg, hint_value
        if alg not in (None, ALGORITHM):
            _refuse_algorithm()
        found = await _of_content(request, state)
        return JSONResponse({"matches": found[:most]})

    @app.get(
        "/manifests/{manifestId}",
        responses=STORE | INVALID | UNKNOWN | COUNTED,
        response_class=Response,
    )
    async def by_id(
        request: Request,
        manifestId: str,
        only: Annotated[bool, Query(alias="returnActiveManifest")] = False,
    ) -> Response:
        """Return the manifest store of this id, or its active manifest alone."""
        if not manifest.ID.fullmatch(manifestId):
            raise RefusedError(400, "this is not the id of a manifest", "such as urn:c2pa:…")
        state.count_public(request)
        asked = state.registry.ask(lambda known: _shown(known.of_manifest(manifestId)))
        entry = await in_fixed_time(state.limits.fixed_s, asked)
        if entry is None or entry.stamped.record.manifest is None:
            raise RefusedError(404, "there is no such manifest here")
        data = entry.stamped.record.manifest.data
        return Response(manifest.active_only(data) if only else data, media_type=MEDIA_TYPE)


async def _of_binding(request: Request, state: State, asked: Binding) -> list[dict[str, Any]]:
    """Return the manifest of a soft binding. Nothing but its value speaks for it."""
    if asked.alg != ALGORITHM:
        _refuse_algorithm()
    named = _named(asked.value)
    state.count_public(request)
    found = state.registry.ask(lambda known: _of_identifier(known, named))
    entry = await in_fixed_time(state.limits.fixed_s, found)
    return [] if entry is None else [_match(entry)]


async def _of_content(request: Request, state: State) -> list[dict[str, Any]]:
    """Return the manifests of the identifiers that the recording of a request spells."""
    if bodies.check_kind(request).startswith(OTHER_MEDIA):
        raise RefusedError(415, "this is not a recording", "send audio")
    async with bodies.uploaded(request, state) as recording:
        said = await state.pool.ask("detect", *recording, false_alarms=FALSE_ALARMS)
        if not said["own"]:
            return []
        state.count_public(request)
        asked = state.pool.ask("look up", *recording, false_alarms=FALSE_ALARMS)
        told = await in_fixed_time(state.limits.fixed_s, asked, lambda one: one["seconds"])
    records: dict[str, dict[str, Any]] = {}
    for track in told["tracks"]:  # one in which the audio confirms it is enough
        for name, record in track.items():
            if name not in records or not record["claimed"]:
                records[name] = record
    manifests = told["manifests"]
    own = [(name, record) for name, record in records.items() if name in manifests]
    return [{"manifestId": manifests[name], "record": record} for name, record in own]


def _named(value: str) -> Named:
    """Return issuer and serial from a value in base64; refuse another."""
    try:
        named = parse_binding(base64.b64decode(value, validate=True).decode())
    except (binascii.Error, ValueError):
        named = None
    if named is None:
        hint = "the base64 of issuer, point and identifier, such as of 7.0123456789"
        raise RefusedError(400, "this value is no public identifier", hint)
    return named


def _of_identifier(known: Registry, named: Named) -> Entry | None:
    issuer, serial = named
    return _shown(known.of_serial(serial)) if issuer == known.issuer else None


def _shown(entry: Entry | None) -> Entry | None:
    """Return a record that has a manifest and a public identifier; else None."""
    if entry is None or not entry.stamped.record.public:
        return None
    return None if entry.stamped.record.manifest is None else entry


def _match(entry: Entry) -> dict[str, Any]:
    kept = entry.stamped.record.manifest
    assert kept is not None  # _shown
    return {"manifestId": kept.id, "record": public_record(entry, claimed=True)}


def _refuse_algorithm() -> NoReturn:
    raise RefusedError(400, "this algorithm is not resolved here", f"{ALGORITHM} is")
