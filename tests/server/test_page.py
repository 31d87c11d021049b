"""The page in a real browser: both modes give the verdict and identifier of the command line.

$KEYBOUND_PAGE_FILES is the number of recordings that are compared, a dozen by default.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_registry
import numpy as np
import pytest
import soundfile as sf
from made_page import Page, found_on, static
from made_recordings import recordings
from made_service import LIMITS, Service, serving

from keybound.identity.reading import read_public
from keybound.server import site
from keybound.server.state import State
from keybound.watermark import files
from keybound.watermark.plain import as_plain
from keybound.watermark.registered import Registry

COUNT = int(os.environ.get("KEYBOUND_PAGE_FILES", "12"))
MICROPHONE_S = 4.0
needs_runtime = pytest.mark.skipif(
    not site.has_runtime(), reason="onnxruntime-web is not there (run scripts/page)"
)
MODES = ["service", pytest.param("private", marks=needs_runtime)]


# Who issued it


def test_the_page_says_what_the_issuer_says(
    chromium: Any, marker: Any, clip: Any, tmp_path: Path
) -> None:
    kept = made_registry.made(tmp_path)
    host = np.resize(clip, 10 * 16_000).astype(np.float32)
    with Registry(kept.place) as known:
        known.marker = marker
        own = known.embed(host, 16_000, party="alice", public=True)
    sf.write(tmp_path / "own.wav", own.samples, 16_000)
    sf.write(tmp_path / "made_up.wav", made_registry.spelling(marker, clip, 12345), 16_000)
    limits = dataclasses.replace(LIMITS, workers=1, fixed_s=0.2)
    with (
        serving(State(limits, place=str(kept.place))) as desk,
        chromium.new_context() as context,
    ):
        page = Page(context.new_page(), desk.url)
        cards = page.check(tmp_path / "own.wav", tmp_path / "made_up.wav")
        said = [card.locator(".claimed").inner_text() for card in cards]
        assert not page.problems
    assert f"carries the identifier {own.identifier} of issuer 7" in said[0]
    assert "confirms it: Example Ltd, Example Voice 3.1" in said[0]
    assert "the issuer has no record of it" in said[1]
    assert made_registry.FREE not in "".join(said)


@needs_runtime
def test_what_the_browser_reads_alone_is_claimed(
    page: Page, marker: Any, clip: Any, tmp_path: Path
) -> None:
    sf.write(tmp_path / "a.wav", made_registry.spelling(marker, clip, 12345), 16_000)
    page.choose("private")
    (card,) = page.check(tmp_path / "a.wav")
    said = card.locator(".claimed").inner_text()
    assert said.startswith(f"It claims the identifier 0000003039 of issuer {made_registry.ISSUER}.")
    assert {one.method for one in page.requests} == {"GET"}


# Agreement


@pytest.mark.parametrize("mode", MODES)
def test_both_modes_give_the_verdict_and_identifier_of_the_command_line(
    page: Page, mode: str, marker: Any, clips: Any, tmp_path: Path
) -> None:
    paths = list(recordings(tmp_path, clips, marker, COUNT))
    page.choose(mode)
    worst, verdicts, claims = [0.0, 0.0], [], 0
    for path, found in zip(paths, page.found(*paths), strict=True):
        own = files.detect(marker, path)
        known = as_plain(own, read_public(own) if own.present else [])
        if mode == "private":  # no browser reads manifests by itself
            del known["manifest"]
        assert list(found) == list(known)
        assert found["present"] is known["present"], (path.name, found, known)
        assert found["claimed"] == known["claimed"], (path.name, found, known)
        verdicts.append(found["present"])
        claims += len(found["claimed"])
        worst[0] = max(worst[0], abs(found["presence"] - known["presence"]))
        edges = [
            [v for s in one["spans"] for v in (s["start_s"], s["end_s"])] for one in (found, known)
        ]
        assert len(edges[0]) == len(edges[1]), (path.name, found, known)
        worst[1] = max([worst[1], *(abs(a - b) for a, b in zip(*edges, strict=True))])
        if path.suffix in (".wav", ".flac"):  # two decoders of another format differ in last bits
            assert found["channels_tried"] == known["channels_tried"]
    print(
        f"{mode}: {len(paths)} files, {sum(verdicts)} marked, {claims} identifiers, "
        f"worst presence, edge: {worst}"
    )
    assert {True, False} == set(verdicts)
    assert claims
    assert worst[0] <= 0.02
    assert worst[1] <= 0.1


def edges_of(found: dict[str, Any]) -> list[float]:
    return [span[name] for span in found["spans"] for name in ("start_s", "end_s")]


@needs_runtime
@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_resampling_agrees_with_the_library(page: Page, rate: int) -> None:
    from keybound.audio.resample import Resampler

    samples = np.random.default_rng(rate).uniform(-1, 1, rate // 4 + 7).astype(np.float32)
    own = Resampler(rate, 16_000, 1)
    known = np.concatenate([own.push(samples[:, None]), own.flush()])[:, 0]
    made = page.page.evaluate(
        """async ([samples, rate]) => {
          const { resample } = await import("/page/resample.js");
          const facts = (await (await fetch("/page/site.json")).json()).detector.resampler;
          return Array.from(resample(Float32Array.from(samples), rate, 16000, facts));
        }""",
        [samples.tolist(), rate],
    )
    assert len(made) == len(known)
    np.testing.assert_allclose(made, known, atol=1e-6)


@needs_runtime
def test_private_mode_sends_nothing(page: Page, tmp_path: Path, marked: Any) -> None:
    sf.write(tmp_path / "a.wav", marked, 16_000)
    page.choose("private")
    assert page.found(tmp_path / "a.wav")[0]["present"]
    assert {one.method for one in page.requests} == {"GET"}
    page.choose("service")
    assert page.found(tmp_path / "a.wav")[0]["present"]
    assert [one.url for one in page.requests if one.method == "POST"]


@needs_runtime
def test_the_written_site_works_by_itself(
    chromium: Any, run: Callable[..., Any], home: Path, marked: Any
) -> None:
    outcome = run("page", "--out", "site")
    assert outcome.code == 0, outcome
    assert "exists" in run("page", "--out", "site").err
    assert "cannot be written" in run("page", "--out", "none/site").err
    assert {path.name for path in home.iterdir()} == {"site"}
    sf.write(home / "a.flac", marked, 44_100)
    with static(home / "site") as url, chromium.new_context() as context:
        made = Page(context.new_page(), url)
        assert made.found(home / "a.flac")[0]["channels_tried"] == 1
        assert all(one.url.startswith((url, "blob:")) for one in made.requests)
        assert not made.page.locator("#modes").is_visible()
        assert not made.page.locator("#link").is_visible()
        assert not made.problems


def test_a_package_without_the_runtime_says_what_to_run(
    refused: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "has_runtime", lambda: False)
    assert "scripts/page" in refused("page", "--out", "site").err
    assert site.facts(None, links=False)["private"] is False


# What is not a recording


@pytest.mark.parametrize("mode", MODES)
def test_bad_files_end_in_a_sentence(page: Page, mode: str, tmp_path: Path, marked: Any) -> None:
    whole = tmp_path / "a.wav"
    sf.write(whole, marked, 16_000)
    bodies = {
        "empty.wav": b"",
        "garbage.wav": bytes(range(256)) * 40,
        "text.txt": b"no recording",
        "cut.wav": whole.read_bytes()[:30_000],
        "large.wav": bytes(LIMITS.body_bytes + 1),
    }
    paths = [tmp_path / name for name in bodies]
    for path, body in zip(paths, bodies.values(), strict=True):
        path.write_bytes(body)
    sf.write(tmp_path / "short.wav", marked[:800], 16_000)
    page.choose(mode)
    for card in page.check(*paths, tmp_path / "short.wav"):
        assert card.get_attribute("data-state") == "failed", card.inner_text()
        said = card.locator(".where").inner_text()
        assert re.fullmatch(r"[A-Z\d].*\.", said), said
        assert "rror:" not in said
    assert page.found(whole)[0]["present"]  # and the page goes on


def test_a_format_that_the_browser_cannot_decode_is_checked_by_the_service(
    page: Page, tmp_path: Path, marked: Any
) -> None:
    sf.write(tmp_path / "a.aiff", marked, 16_000)
    (card,) = page.check(tmp_path / "a.aiff")
    assert found_on(card)["present"]
    assert not card.locator("canvas").is_visible()


def test_a_link_is_given_to_the_service(page: Page) -> None:
    page.page.fill("#url", "http://127.0.0.1/a.wav")
    page.page.press("#url", "Enter")
    (card,) = page.cards(1)
    assert "does not lead to a public address" in card.inner_text()


# Use


@pytest.mark.parametrize("mode", MODES)
def test_the_microphone_is_heard(page: Page, mode: str) -> None:
    page.choose(mode)
    button = page.page.locator("#microphone")
    button.click()
    page.page.get_by_text(f"Stop and check (0:0{MICROPHONE_S:.0f}").wait_for(timeout=30_000)
    button.click()
    (card,) = page.cards(1)
    found = found_on(card)
    assert found["present"]
    assert found["spans"][-1]["end_s"] > MICROPHONE_S / 2
    assert button.inner_text() == "Use the microphone"


def test_a_result_can_be_seen_read_and_played(page: Page, tmp_path: Path, marked: Any) -> None:
    sf.write(tmp_path / "a.wav", marked, 16_000)
    (card,) = page.check(tmp_path / "a.wav")
    assert card.locator(".verdict").inner_text() == "Marked"
    assert len(re.findall(r"\.(?:\s|$)", card.locator(".meaning").inner_text())) == 2
    assert "marked" in card.locator("canvas").get_attribute("aria-label")
    audio = card.locator("audio")
    card.locator("canvas").click()
    page.page.wait_for_timeout(300)
    assert audio.evaluate("audio => audio.currentTime") > 1
    pixels = "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, 400, 60).data).size"
    assert card.locator("canvas").evaluate(pixels) > 4


def test_the_keyboard_reaches_everything(page: Page) -> None:
    reached = []
    name = "document.activeElement.id || document.activeElement.type"
    for _ in range(5):
        page.page.keyboard.press("Tab")
        reached.append(page.page.evaluate(name))
    wanted = ["files", "microphone", "url", "submit"]
    assert reached == wanted + (["service"] if site.has_runtime() else reached[4:])


@pytest.mark.parametrize("width", [320, 390, 1000])
def test_nothing_is_wider_than_the_screen(chromium: Any, served: Service, width: int) -> None:
    with chromium.new_context(viewport={"width": width, "height": 800}) as context:
        made = Page(context.new_page(), served.url)
        assert made.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_and_the_headers_have_one_policy() -> None:
    html = (site.PAGE / "index.html").read_text()
    assert f'http-equiv="Content-Security-Policy" content="{site.POLICY}"' in html
    for path in (*site.PAGE.glob("*.*"), *site.PAGE.glob("identity/*")):
        text = path.read_text()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", text), path
        assert len(text.splitlines()) <= 300
