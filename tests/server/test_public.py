"""Public answers from a registry: who issued an identifier, claimed or confirmed, and no more."""

import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_registry import FREE, ISSUER, RATE, Kept, encoded, post, spelling
from made_service import LIMITS, Answer, Service, serving

from keybound.server.counting import Count
from keybound.server.limits import RefusedError
from keybound.server.state import State
from keybound.watermark.registered import Registry

FIXED_S = 1.0
USUAL = dataclasses.replace(LIMITS, workers=1, fixed_s=FIXED_S)
FEW = dataclasses.replace(USUAL, fixed_s=0.1, public_by_address=2, public_total=5)
SAID = {"provider", "system", "system_version", "created", "link", "claimed"}


@pytest.fixture(scope="module")
def recording(kept: Kept, marker: Any, clip: Any) -> tuple[Any, str]:
    """Ten seconds with a public identifier of the registry."""
    host = np.resize(clip, 10 * RATE).astype(np.float32)
    with Registry(kept.place) as known:
        known.marker = marker
        marked = known.embed(host, RATE, party="alice", public=True)
    assert marked.identifier is not None
    return marked.samples, marked.identifier


def claimed(answer: Answer) -> Any:
    assert answer.status == 200, answer
    (one,) = answer.json["claimed"]
    return one


def test_an_issued_identifier_is_confirmed_by_its_audio(
    desk: Service, recording: Any, tmp_path: Path
) -> None:
    one = claimed(post(desk, "/detect", encoded(recording[0], tmp_path)))
    assert (one["identifier"], one["issuer"]) == (recording[1], ISSUER)
    assert set(one["record"]) == SAID
    assert one["record"]["provider"] == "Example Ltd"
    assert one["record"]["claimed"] is False


def test_an_identifier_on_other_audio_stays_a_claim(
    desk: Service, recording: Any, marker: Any, clips: Any, tmp_path: Path
) -> None:
    other = next(voice for name, voice in clips.items() if name != "flite-rms")
    forged = spelling(marker, other, int(recording[1], 16))
    answer = post(desk, "/detect", encoded(forged, tmp_path))
    assert claimed(answer)["record"]["claimed"] is True
    assert claimed(answer)["record"]["system"] == "Example Voice"


def test_an_identifier_that_nobody_issued_has_no_record(
    desk: Service, marker: Any, clip: Any, tmp_path: Path
) -> None:
    one = claimed(post(desk, "/detect", encoded(spelling(marker, clip, 12345), tmp_path)))
    assert one == {"identifier": "0000003039", "issuer": ISSUER, "record": None}


def test_free_fields_party_and_place_are_in_no_public_answer(
    desk: Service, kept: Kept, recording: Any, tmp_path: Path
) -> None:
    body = encoded(recording[0], tmp_path)
    told = [post(desk, "/detect", body)]
    told += [desk.ask("GET", path) for path in ("/health", "/metrics", "/openapi.json")]
    text = b"".join(one.body for one in told).decode()
    key = bytes(range(32)).hex()
    for secret in (FREE, '"alice"', str(kept.folder), key, "fingerprint", "position", "5eed"):
        assert secret not in text


def test_other_recordings_are_neither_counted_nor_delayed(
    kept: Kept, clip: Any, marked: Any, tmp_path: Path
) -> None:
    with serving(State(FEW, place=str(kept.place))) as own:
        for samples in (clip, marked, clip, marked):
            begun = time.monotonic()
            assert post(own, "/detect", encoded(samples, tmp_path)).status == 200
        assert not own.state.count._given
        assert time.monotonic() - begun < 10


def test_answers_are_counted_by_address_and_in_total(
    kept: Kept, recording: Any, tmp_path: Path
) -> None:
    body = encoded(recording[0], tmp_path)
    proxies = State(FEW, place=str(kept.place), proxies=(_network("127.0.0.0/8"),))
    with serving(proxies) as own:

        def ask(address: str) -> Answer:
            return post(own, "/detect", body, headers={"X-Forwarded-For": address})

        assert [ask("198.51.100.1").status for _ in range(3)] == [200, 200, 429]
        spent = ask("203.0.113.9, 198.51.100.1")  # what stands before is the client's own word
        assert spent.status == 429
        assert 0 < int(spent.headers["retry-after"]) <= 3600
        assert set(spent.json) == {"error", "hint"}
        assert [ask("2001:db8::1").status, ask("2001:db8::2").status] == [200, 200]
        assert ask("2001:db8::3").status == 429  # one network of 64 bits
        assert [ask("198.51.100.2").status, ask("198.51.100.3").status] == [200, 429]


def test_a_header_is_not_believed_without_a_trusted_proxy(
    kept: Kept, recording: Any, tmp_path: Path
) -> None:
    body = encoded(recording[0], tmp_path)
    limits = dataclasses.replace(FEW, public_by_address=1)
    with serving(State(limits, place=str(kept.place))) as own:
        told = [
            post(own, "/detect", body, headers={"X-Forwarded-For": f"198.51.100.{n}"}).status
            for n in range(2)
        ]
    assert told == [200, 429]


def test_counts_begin_again_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("keybound.server.counting.time.monotonic", lambda: now[0])
    count = Count(dataclasses.replace(LIMITS, public_by_address=1))
    count.spend("a")
    with pytest.raises(RefusedError) as refused:
        count.spend("a")
    assert refused.value.retry_s == 3600
    now[0] += 3600
    count.spend("a")


def test_the_time_of_an_answer_does_not_tell_a_hit_from_a_miss(
    desk: Service, recording: Any, marker: Any, clip: Any, tmp_path: Path
) -> None:
    bodies = {
        "hit": encoded(recording[0], tmp_path),
        "miss": encoded(spelling(marker, clip, 54321), tmp_path),
    }
    spent: dict[str, list[float]] = {"hit": [], "miss": []}
    for _ in range(2):
        for which, body in bodies.items():
            begun = time.monotonic()
            assert (claimed(post(desk, "/detect", body))["record"] is not None) is (which == "hit")
            spent[which].append(time.monotonic() - begun)
    assert min(spent["hit"] + spent["miss"]) >= FIXED_S
    assert 0.4 < statistics.mean(spent["hit"]) / statistics.mean(spent["miss"]) < 2.5


def _network(text: str) -> Any:
    from keybound.cli.serve import network

    return network(text)
