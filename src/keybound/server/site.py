"""The page: its files, the facts that it is given, and how it is served or written to a folder.

The page is plain HTML, CSS and ES modules. Private mode, detection in the browser, also needs
onnxruntime-web, which `scripts/page` puts beside them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.staticfiles import StaticFiles

import keybound
from keybound import output, stages
from keybound.audio import resample
from keybound.audio.streaming import CHUNK_BLOCKS, STEP
from keybound.errors import KeyBoundError
from keybound.identity import cells, frame, identifier, permutation, reading
from keybound.identity.frame import PUBLIC
from keybound.model import detection
from keybound.model.networks import SHIPPED, read_card
from keybound.server.limits import Limits
from keybound.watermark.channels import MOST_CHANNELS
from keybound.watermark.options import SHORTEST_S

PAGE = Path(__file__).parent / "page"
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
MISSING_HINT = "run scripts/page in a clone of the repository, then install it again"
# Nothing is loaded from elsewhere, nothing is in the HTML itself, and nobody may frame the page.
# 'wasm-unsafe-eval' allows WebAssembly to be compiled, and nothing else.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; "
    "media-src blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": f"{POLICY}; frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "permissions-policy": "microphone=(self), camera=(), geolocation=()",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",
    }.items()
]


def has_runtime() -> bool:
    """Return whether the package holds what private mode needs."""
    return all((PAGE / "ort" / name).is_file() for name in RUNTIME)


def facts(limits: Limits | None, *, links: bool, model: str | None = None) -> dict[str, Any]:
    """Return what the page must know; without limits there is no service behind it."""
    usual = limits or Limits()
    return {
        "version": keybound.__version__,
        "service": limits is not None,
        "links": links,
        "private": has_runtime(),
        "most_bytes": usual.body_bytes,
        "longest_s": usual.longest_s,
        "detector": detector_facts(model) if has_runtime() else None,
    }


def detector_facts(model: str | None = None) -> dict[str, Any]:
    """Return every number that detection uses, so that the page has none of its own."""
    card = read_card(_folder(model))
    return {
        "weights": card.weights,
        "sha256": card.sha256["detector.onnx"],
        "rate": card.rate,
        "hop": card.hop,
        "bits": card.bits,
        "context": card.detect_context,
        "threshold": card.threshold,
        "excess": card.excess,
        "tail": vars(card.tail),
        "false_alarms": detection.FALSE_ALARMS,
        "most_false_alarms": detection.MOST_FALSE_ALARMS,
        "short_s": detection.SHORT_S,
        "shortest_s": SHORTEST_S,
        "absent": detection.ABSENT,
        "reach_s": detection.REACH_S,
        "gap_s": detection.GAP_S,
        "agreement": detection.AGREEMENT,
        "agreement_of_views": detection.AGREEMENT_OF_VIEWS,
        "most_marks": detection.MOST_MARKS,
        "most_channels": MOST_CHANNELS,
        "chunk_blocks": CHUNK_BLOCKS,
        "still_step": STEP,
        "resampler": {
            "half_s": resample.HALF_S,
            "stop_db": resample.STOP_DB,
            "transition_hz": resample.TRANSITION_HZ,
        },
        "identifiers": identifier_facts(),
    }


def identifier_facts() -> dict[str, Any]:
    """Return what reading public identifiers uses; their key is published."""
    return {
        "sums": [f"{mask:0{PUBLIC.block_bits // 4}x}" for mask in PUBLIC.sums],
        "period": frame.PERIOD,
        "candidates": frame.CANDIDATES,
        "secret": identifier.PUBLISHED.derive(identifier.PUBLIC_LABEL, 32).hex(),
        "rounds": permutation.ROUNDS,
        "serial_bits": identifier.SERIAL_BITS,
        "issuer_bits": identifier.ISSUER_BITS,
        "grid_s": cells.GRID_S,
        "limit": cells.LIMIT,
        "surest": cells.SUREST,
        "edge": cells.EDGE,
        "leads": reading.LEADS,
        "from_start": reading.FROM_START,
        "uncut": reading.UNCUT,
        "most_blocks": reading.MOST_BLOCKS,
        "by_chance": reading.BY_CHANCE,
        "falls": reading.FALLS,
        "enough": reading.ENOUGH,
        "least_score": reading.LEAST_SCORE,
        "most_windows": reading.MOST_WINDOWS,
        "around": reading.AROUND,
        "agrees": reading.AGREES,
    }


def add(app: FastAPI, limits: Limits, *, links: bool, model: str | None = None) -> None:
    """Add the page to a service."""
    known = facts(limits, links=links, model=model)
    detector = _folder(model) / "detector.onnx"

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(PAGE / "index.html")

    @app.get("/page/site.json", include_in_schema=False)
    async def site() -> Response:
        return JSONResponse(known)

    @app.get("/page/weights/detector.onnx", include_in_schema=False)
    async def weights() -> Response:
        return FileResponse(detector, media_type="application/octet-stream")

    app.mount("/page", StaticFiles(directory=PAGE))


def write(folder: Path, model: str | None = None) -> int:
    """Write a site that detects in the browser alone, and return its size in bytes."""
    if not has_runtime():
        raise KeyBoundError("onnxruntime-web is not in this package", hint=MISSING_HINT)
    if folder.exists():
        raise KeyBoundError(f"{folder} exists", hint="name a new folder")
    known = json.dumps(facts(None, links=False, model=model))
    detector = _folder(model) / "detector.onnx"
    try:
        with stages.stage(folder.parent) as stage:  # it appears whole or not at all
            page = stage / "site" / "page"
            shutil.copytree(PAGE, page)
            (page / "index.html").rename(page.parent / "index.html")
            (page / "site.json").write_text(known, encoding="utf-8")
            (page / "weights").mkdir()
            shutil.copyfile(detector, page / "weights" / "detector.onnx")
            page.parent.rename(folder)
    except OSError as error:
        raise output.unwritable(folder, error, KeyBoundError) from error
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _folder(model: str | None) -> Path:
    return SHIPPED if model is None else Path(model)
