from keybound.crypto.codes import position_nonce
from keybound.crypto.keys import Key
from keybound.errors import (
    AttackError,
    AudioError,
    CodeError,
    CorpusError,
    KeyBoundError,
    KeyFileError,
    KeyFileWarning,
    ModelError,
    NotGenuineError,
    RecipeError,
    RecordError,
    RegistryError,
)
from keybound.provenance.origin import Origin
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.seal.search import Sealed, SealSearch
from keybound.types import Analysis, Detection, Mark, Span
from keybound.watermark.functions import detect, embed, embed_with_position, verify
from keybound.watermark.grader import Grader
from keybound.watermark.options import DetectOptions, EmbedOptions, Marked
from keybound.watermark.stream import StreamDetector, StreamEmbedder
from keybound.watermark.verdict import Verdict
from keybound.watermark.watermarker import MarkWarning, Watermarker

__version__: str

__all__ = [
    "Analysis",
    "AttackError",
    "AudioError",
    "CodeError",
    "CorpusError",
    "DetectOptions",
    "Detection",
    "EmbedOptions",
    "Grader",
    "Key",
    "KeyBoundError",
    "KeyFileError",
    "KeyFileWarning",
    "Mark",
    "MarkWarning",
    "Marked",
    "ModelError",
    "NotGenuineError",
    "Origin",
    "Party",
    "RecipeError",
    "RecordError",
    "Registry",
    "RegistryError",
    "SealSearch",
    "Sealed",
    "Span",
    "StreamDetector",
    "StreamEmbedder",
    "Verdict",
    "Watermarker",
    "detect",
    "embed",
    "embed_with_position",
    "position_nonce",
    "verify",
]
