"""Who may only ask gets the grade alone, counted over all services, in fixed time; and the log."""

import dataclasses
import logging
import statistics
import time

import pytest
from made_registry import Kept, post
from made_service import LIMITS, Service, serving

from keybound.server.state import State

FIXED_S = 1.0
USUAL = dataclasses.replace(LIMITS, workers=1, fixed_s=FIXED_S)


def test_one_who_may_only_ask_gets_the_grade_alone(
    desk: Service, kept: Kept, marked_by_desk: bytes, speech: bytes
) -> None:
    token = kept.token("asking", "ask")
    assert post(desk, "/verify?party=alice", marked_by_desk, token).json == {"grade": "sealed"}
    assert post(desk, "/verify?party=bob", marked_by_desk, token).json == {"grade": "present"}
    assert post(desk, "/identify", marked_by_desk, token).json == {"grade": "sealed"}
    assert post(desk, "/identify", speech, token).json == {"grade": "none"}


def test_answers_are_counted_over_two_services(kept: Kept, marked_by_desk: bytes) -> None:
    few, many = kept.token("few", "ask", daily=3), kept.token("many", "ask", daily=50)
    with kept.open() as known:
        before = known.tokens.answered("")[0]
    limits = dataclasses.replace(USUAL, fixed_s=0.1, asked_total=before + 5)
    with (
        serving(State(limits, place=str(kept.place))) as one,
        serving(State(limits, place=str(kept.place))) as two,
    ):

        def ask(which: Service, token: str) -> int:
            answer = post(which, "/verify?party=alice", marked_by_desk, token)
            assert answer.status == 200 or 0 < int(answer.headers["retry-after"]) <= 86400
            return answer.status

        assert [ask(which, few) for which in (one, two, one, two)] == [200, 200, 200, 429]
        assert [ask(which, many) for which in (two, one, two)] == [200, 200, 429]
    with kept.open() as known:
        assert (known.tokens.answered("few"), known.tokens.answered("many")) == ((3, 3), (2, 2))


def test_the_time_of_a_grade_does_not_tell_what_it_is(
    desk: Service, kept: Kept, marked_by_desk: bytes, speech: bytes
) -> None:
    token = kept.token("timing", "ask")
    spent: dict[str, list[float]] = {"sealed": [], "none": []}
    for _ in range(2):
        for grade, body in (("sealed", marked_by_desk), ("none", speech)):
            begun = time.monotonic()
            assert post(desk, "/verify?party=alice", body, token).json == {"grade": grade}
            spent[grade].append(time.monotonic() - begun)
    assert min(spent["sealed"] + spent["none"]) >= FIXED_S
    assert 0.4 < statistics.mean(spent["sealed"]) / statistics.mean(spent["none"]) < 2.5


def test_the_log_holds_no_token_no_party_and_no_identifier(
    desk: Service, all_of_it: str, speech: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = post(desk, "/embed?party=alice", speech, all_of_it)
    identifier = answer.headers["keybound-identifier"]
    assert post(desk, "/identify?false_alarms=0.001234", answer.body, all_of_it).status == 200
    assert post(desk, "/verify?party=alice", answer.body, "kb_wrong").status == 401
    end = time.monotonic() + 10
    while "POST /verify 401" not in caplog.text and time.monotonic() < end:
        time.sleep(0.02)
    assert "POST /embed 200" in caplog.text
    for secret in (identifier, all_of_it, "kb_wrong", "alice", "127.0.0.1", "0.001234"):
        assert secret not in caplog.text
