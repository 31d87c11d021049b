"""KeyBound: a keyed, host-bound watermark for speech.

A maker marks the speech it generates; anyone can detect that a mark is there; only the holder of
the key can read whose it is.
"""

from keybound.errors import KeyBoundError
from keybound.keys import Key
from keybound.watermark import (
    Detection,
    MarkWarning,
    Span,
    Verdict,
    Watermarker,
    detect,
    embed,
    verify,
)

__version__ = "0.1.0"

__all__ = [
    "Detection",
    "Key",
    "KeyBoundError",
    "MarkWarning",
    "Span",
    "Verdict",
    "Watermarker",
    "detect",
    "embed",
    "verify",
]
