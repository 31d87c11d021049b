"""KeyBound: a keyed, host-bound watermark for speech.

A maker marks the speech it generates; anyone can detect that a mark is there; only the holder of
the key can read whose it is.

Each name is loaded when it is first used. `__init__.pyi` gives their types.
"""

import os as _os
from importlib import import_module as _load
from typing import Any as _Any

__version__ = "0.2.0"

# Else onnxruntime keeps an identifier of the machine and reports sessions to its maker.
_os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_NAMES = {
    "crypto.keys": "Key",
    "identity.reading": "Reading read_public",
    "errors": (
        "AttackError AudioError CodeError CorpusError KeyBoundError KeyFileError KeyFileWarning"
        " ModelError NotGenuineError RecipeError RecordError RegistryError SearchWarning"
    ),
    "provenance.declared": "Declared",
    "provenance.origin": "Origin",
    "provenance.parties": "Party",
    "seal.search": "Sealed SealSearch",
    "types": "Analysis Detection Mark Span",
    "watermark.functions": "detect embed embed_with_position identify verify",
    "watermark.grader": "Grader",
    "watermark.identification": "Identified",
    "watermark.options": "DetectOptions EmbedOptions Marked",
    "watermark.registered": "RecordedStream Registry",
    "watermark.stream": "StreamDetector StreamEmbedder",
    "watermark.verdict": "Spelled Verdict",
    "watermark.watermarker": "MarkWarning Watermarker",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_load(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
