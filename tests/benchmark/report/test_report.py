"""The report and its figures: self-contained, repeatable, and readable by those who cannot see."""

import base64
import io
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import made_rows
import numpy as np
import pytest
import soundfile

from keybound.benchmark.report import figures, figures_summary, gallery
from keybound.benchmark.report.document import report, write_report
from keybound.benchmark.report.summaries import gather

VOID = {"meta", "br", "link", "img", "input"}


class Reader(HTMLParser):
    """Keep what a page holds; refuse tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def clips() -> dict[str, tuple[np.ndarray, int]]:
    tone = np.sin(np.arange(8000) / 9).astype(np.float32) / 4
    return {"host": (tone, 16000), "marked <b>": (np.stack([tone, tone], axis=1), 16000)}


@pytest.fixture(scope="module")
def text(clips: dict[str, tuple[np.ndarray, int]]) -> str:
    return report(made_rows.all_rows(8), clips)


@pytest.fixture(scope="module")
def page(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def test_nothing_comes_from_outside(text: str, page: Reader) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
        assert tag not in ("link", "iframe", "object")
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttp", text)
    assert "default-src 'none'" in text


def test_ids_are_unique_and_links_lead_somewhere(page: Reader) -> None:
    ids = Counter(str(a["id"]) for _, a in page.tags if "id" in a)
    assert [name for name, count in ids.items() if count > 1] == []
    links = [str(a["href"])[1:] for tag, a in page.tags if tag == "a"]
    assert len(links) > 30
    assert set(links) <= set(ids)


def test_pictures_have_words_and_tables_have_heads(page: Reader) -> None:
    drawings = [a for tag, a in page.tags if tag == "svg"]
    assert len(drawings) >= 8
    assert all(a.get("aria-label") and a.get("role") == "img" for a in drawings)
    scopes = Counter(a.get("scope") for tag, a in page.tags if tag == "th")
    assert None not in scopes
    assert scopes["row"] > 100
    assert all(a.get("aria-label") for tag, a in page.tags if tag == "audio")


def test_colours_are_the_pages(text: str) -> None:
    for colour in (figures.INK, figures.MARK, figures.HEAT):
        drawn = text.split("</style>", 1)[1]
        assert colour not in drawn


def test_clips_play(page: Reader, clips: dict[str, tuple[np.ndarray, int]]) -> None:
    sounds = [str(a["src"]) for tag, a in page.tags if tag == "audio"]
    assert len(sounds) == len(clips)
    heard, rate = soundfile.read(io.BytesIO(base64.b64decode(sounds[0].partition(",")[2])))
    assert rate == 16000
    np.testing.assert_allclose(heard, clips["host"][0], atol=1e-4)


def test_what_has_no_rows_is_named(text: str) -> None:
    assert "Every pair of the catalogue" in text.split("No rows yet")[-1]


def test_same_rows_same_page(text: str, clips: dict[str, tuple[np.ndarray, int]]) -> None:
    assert report(made_rows.all_rows(8), clips) == text


def test_no_rows_no_clips(tmp_path: Path) -> None:
    path = write_report([], tmp_path / "deep" / "report.html")
    text = path.read_text()
    assert "Made from 0 measured rows" in text
    assert "<table" not in text
    assert "<svg" not in text


def test_bytes_of_figures_repeat() -> None:
    evidence = gather(made_rows.all_rows(8))
    summed = (figures_summary.heat_map, figures_summary.frontier, figures_summary.excerpts)
    for draw in (*summed, figures.remover):
        first, second = draw(evidence), draw(evidence)
        assert first is not None
        assert second is not None
        assert figures.svg(first.figure, "a") == figures.svg(second.figure, "a")


def test_roc_curve_counts_both_sides() -> None:
    false, true = figures.roc_curve([0.9, 0.8, 0.4], [0.5, 0.1])
    at_half = dict(zip(false.tolist(), true.tolist(), strict=True))
    assert at_half[figures.LOWEST_RATE] == pytest.approx(2 / 3)
    assert at_half[0.5] == 1.0


def test_spectrograms_share_the_scale_of_the_first() -> None:
    tone = np.sin(np.arange(4000) / 5)
    loud, quiet = gallery.exhibits({"loud": (tone, 8000), "quiet": (tone / 10, 8000)})
    scales = [e.figure.axes[0].images[0].get_clim() for e in (loud, quiet)]
    assert scales[0] == scales[1]
    assert loud.seconds == 0.5
