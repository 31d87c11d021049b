"""The service answers as its description says, whatever it is sent."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from made_service import LIMITS, Service

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


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case: Any, service: Service) -> None:
    case.call_and_validate(base_url=service.url, checks=CHECKS)
