"""The routes of the resolution API answer as they are described, whatever they are sent."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from made_service import LIMITS, Service, serving
from test_openapi import CHECKS

from keybound.server.app import describe
from keybound.server.state import State

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

OWN = "^/(matches|manifests|services)/"
schema = schemathesis.openapi.from_dict(describe(State(LIMITS, place="none.sqlite")).openapi())


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with an empty registry that answers without an end, and at once."""
    place = tmp_path_factory.mktemp("registry") / "registry.sqlite"
    limits = replace(LIMITS, workers=1, fixed_s=0.0, public_by_address=10**9, public_total=10**9)
    with serving(State(limits, place=str(place))) as running:
        yield running


@pytest.mark.filterwarnings("ignore:Skipped test cases")  # of audio/*: octets are sent
@schema.include(path_regex=OWN).parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case: Any, registered: Service) -> None:
    case.call_and_validate(base_url=registered.url, checks=CHECKS)
