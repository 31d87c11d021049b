"""The routes that need a token: mark, identify, verify.

Whoever may only ask gets the grade alone, counted in the registry and in fixed time: figures of the
evidence, many answers and their times would help a forger (docs/security.md, the oracle).
"""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from keybound.errors import RecordError, RegistryError
from keybound.model.detection import FALSE_ALARMS
from keybound.provenance.declared import TEXT_MAX, Declared
from keybound.provenance.registry import Registry
from keybound.provenance.tokens import Token
from keybound.server import bodies, streaming
from keybound.server.answers import (
    BODY,
    KINDS,
    MARKED,
    PRIVATE,
    FalseAlarms,
    Identification,
    SignedVerdict,
    Verification,
)
from keybound.server.counting import in_fixed_time, spent
from keybound.server.limits import RefusedError
from keybound.server.makers import Maker
from keybound.server.sending import Sent
from keybound.server.state import State
from keybound.watermark.options import EXCERPT_S

DAY_S = 86400
bearer = HTTPBearer(auto_error=False, description="the secret that `keybound token add` prints")
Given = Annotated[HTTPAuthorizationCredentials | None, Security(bearer)]
PartyName = Annotated[str | None, Query(max_length=100, description="unless the token names it")]
Text = Annotated[str | None, Query(max_length=TEXT_MAX, description="for the record")]
Excerpt = Annotated[float, Query(gt=0, le=DAY_S, description="in seconds, that is attributable")]
AsItComes = Annotated[bool, Query(description="mark a wav or flac while it comes in")]
Short = Annotated[bool, Query(description="of a stream: under 5 s, too short for an identifier")]
Credited = Annotated[bool, Query(description="sign it with C2PA, where the service can")]
Signed = Annotated[bool, Query(description="answer with a signed verdict, where it signs")]


def add(app: FastAPI, state: State) -> None:
    """Add the routes to a service that has a registry."""

    @app.post(
        "/identify",
        responses=PRIVATE,
        response_model=Identification | SignedVerdict,
        openapi_extra=BODY,
    )
    async def identify(
        request: Request,
        given: Given,
        false_alarms: FalseAlarms = FALSE_ALARMS,
        signed: Signed = False,
    ) -> Response:
        """Tell which recording it is and whose, for each mark.

        Scope identify. With the scope ask the answer is the highest grade alone.
        """
        holder = await _holder(state, given, "identify", "ask")
        if holder.party is not None:
            raise RefusedError(403, "this token is for one party", "ask /verify")
        asked = {"false_alarms": false_alarms, "signed": signed}
        return await _answered(request, state, holder, "identify", asked)

    @app.post(
        "/verify",
        responses=PRIVATE,
        response_model=Verification | SignedVerdict,
        openapi_extra=BODY,
    )
    async def verify(
        request: Request,
        given: Given,
        party: PartyName = None,
        false_alarms: FalseAlarms = FALSE_ALARMS,
        signed: Signed = False,
    ) -> Response:
        """Verify that a recording carries a party's mark.

        Scope verify. With the scope ask the answer is the grade alone.
        """
        holder = await _holder(state, given, "verify", "ask")
        whose = await _party(state, holder, party)
        asked = {"false_alarms": false_alarms, "signed": signed, "party": whose}
        return await _answered(request, state, holder, "verify", asked)

    @app.post(
        "/embed",
        responses={200: MARKED, **PRIVATE},
        response_class=Response,
        openapi_extra=BODY,
    )
    async def embed(
        request: Request,
        given: Given,
        party: PartyName = None,
        public: bool = False,
        excerpt: Excerpt = EXCERPT_S,
        system: Text = None,
        system_version: Text = None,
        stream: AsItComes = False,
        short: Short = False,
        c2pa: Credited = False,
    ) -> Response:
        """Mark a recording for a party, and keep its record.

        Scope embed. The marked recording is read back and verified before it is sent; a stream is
        sent as it comes, and cut off at the end if its mark cannot be read back. One that is signed
        with C2PA has a public identifier.
        """
        holder = await _holder(state, given, "embed")
        whose = await _party(state, holder, party)
        if c2pa and state.signs is None:
            raise RefusedError(422, "this service does not sign with C2PA", "leave c2pa out")
        if c2pa and stream:
            raise RefusedError(422, "a stream cannot be signed with C2PA", "send a whole file")
        public = public or c2pa
        if public and await state.registry.ask(lambda known: known.issuer) is None:
            raise RefusedError(422, "this registry issues no public identifiers", "leave it out")
        says = _declared(system, system_version).members()
        maker = Maker(whose, public=public, excerpt=excerpt, says=says).plain()
        if stream:
            return await streaming.answered(request, state, {"maker": maker, "short": short})
        return await _marked(request, state, maker, c2pa=c2pa)


async def _holder(state: State, given: HTTPAuthorizationCredentials | None, *scopes: str) -> Token:
    """Return the token of a request; refuse one that has none of some scopes."""
    if given is None:
        raise RefusedError(401, "this needs a token", "Authorization: Bearer TOKEN")
    secret = given.credentials
    token = await state.registry.ask(lambda known: known.tokens.of_secret(secret))
    if token is None:
        raise RefusedError(401, "the token does not hold", "ask for a new one")
    if not token.may(*scopes):
        raise RefusedError(403, f"the token lacks the scope {scopes[0]}")
    return token


async def _party(state: State, holder: Token, asked: str | None) -> str:
    """Return the party that a request is about; refuse one that the token does not allow."""
    if holder.party is not None and asked not in (None, holder.party):
        raise RefusedError(403, f"this token is for the party {holder.party}")
    name = asked or holder.party
    if name is None:
        raise RefusedError(422, "no party is named", "?party=NAME names one")

    def is_known(known: Registry) -> bool:
        try:
            return known.get(name).name == name
        except RegistryError:
            return False

    if not await state.registry.ask(is_known):
        raise RefusedError(422, "there is no such party")
    return name


def _declared(system: str | None, system_version: str | None) -> Declared:
    try:
        return Declared(system=system, system_version=system_version)
    except RecordError as error:
        raise RefusedError(422, error.message, error.hint) from error


async def _answered(
    request: Request, state: State, holder: Token, scope: str, asked: dict[str, Any]
) -> Response:
    """Return the answer to a question about a recording."""
    only_asks = not holder.may(scope)
    if asked["signed"] and state.signer is None:
        raise RefusedError(422, "this service signs no verdicts", "leave signed out")
    async with bodies.uploaded(request, state) as recording:
        if only_asks:
            await _spend(state, holder)
        work = state.pool.ask(scope, *recording, grade_only=only_asks, **asked)
        if only_asks:
            work = in_fixed_time(state.limits.fixed_s, work, lambda one: one["seconds"])
        said = await work
    if asked["signed"]:  # byte by byte as it was signed
        return Response(said["signed"], media_type="application/json")
    return JSONResponse(said["answer"])


async def _spend(state: State, holder: Token) -> None:
    """Count an answer to a token in the registry; refuse one too many."""
    total = state.limits.asked_total
    if not await state.registry.ask(lambda known: known.tokens.spend(holder, total)):
        raise spent(DAY_S - int(time.time()) % DAY_S)


async def _marked(request: Request, state: State, maker: dict[str, Any], *, c2pa: bool) -> Response:
    """Return the marked recording of a request."""
    async with contextlib.AsyncExitStack() as undo:
        recording = await undo.enter_async_context(bodies.uploaded(request, state))
        said = await state.pool.ask("embed", *recording, maker=maker, c2pa=c2pa)
        output = Path(said["output"])
        recording.file.hold(output.stat().st_size)
        names = {"KeyBound-Record": said["record"], "KeyBound-Identifier": said["identifier"]}
        names |= {"KeyBound-Manifest": said["manifest"]}
        headers = {name: str(value) for name, value in names.items() if value is not None}
        made = Sent(output, KINDS[output.suffix], headers, state.limits, undo.pop_all())
    return made
