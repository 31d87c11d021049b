"""The service answers as its description says, whatever it is sent, with a registry and without."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from made_registry import ALL, made
from made_service import LIMITS, Service, serving

from keybound.server.app import describe
from keybound.server.state import State

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

general = pytest.importorskip("schemathesis.checks")
openapi = pytest.importorskip("schemathesis.specs.openapi.checks")
CHECKS = [
    general.not_a_server_error,
    openapi.status_code_conformance,
    openapi.content_type_conformance,
    openapi.response_schema_conformance,
    openapi.negative_data_rejection,
    openapi.unsupported_method,
]
schema = schemathesis.openapi.from_dict(describe(State(LIMITS)).openapi())
with_registry = schemathesis.openapi.from_dict(describe(State(LIMITS, place="unused")).openapi())


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    """A service with a registry, and a token that allows everything."""
    kept = made(tmp_path_factory.mktemp("kept"))
    token = kept.token("all", *ALL)
    many = 1 << 30  # public answers, so that not all that is looked up is refused
    limits = replace(LIMITS, workers=1, fixed_s=0.01, public_by_address=many, public_total=many)
    with serving(State(limits, place=str(kept.place), signer=str(kept.signer))) as running:
        yield running, token


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case: Any, service: Service) -> None:
    case.call_and_validate(base_url=service.url, checks=CHECKS)


@pytest.mark.filterwarnings("ignore:Skipped test cases")  # of audio/*: octets are sent
@with_registry.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described_with_a_token(case: Any, desk: tuple[Service, str]) -> None:
    headers = {"Authorization": f"Bearer {desk[1]}"}
    case.call_and_validate(base_url=desk[0].url, headers=headers, checks=CHECKS)


@with_registry.include(path_regex="^/(embed|identify|verify)").parametrize()
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described_without_a_token(case: Any, desk: tuple[Service, str]) -> None:
    headers = {"Authorization": "Bearer kb_wrong"}
    answer = case.call(base_url=desk[0].url, headers=headers)
    assert answer.status_code in (401, 405, 422)
    case.validate_response(answer, checks=CHECKS[:4])
