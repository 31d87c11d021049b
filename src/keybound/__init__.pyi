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
    SearchWarning,
)
from keybound.identity.reading import Reading, read_public
from keybound.provenance.declared import Declared
from keybound.provenance.origin import Origin
from keybound.provenance.parties import Party
from keybound.seal.search import Sealed, SealSearch
from keybound.types import Analysis, Detection, Mark, Span
from keybound.watermark.functions import detect, embed, embed_with_position, identify, verify
from keybound.watermark.grader import Grader
from keybound.watermark.identification import Identified
from keybound.watermark.options import DetectOptions, EmbedOptions, Marked
from keybound.watermark.registered import RecordedStream, Registry
from keybound.watermark.stream import StreamDetector, StreamEmbedder
from keybound.watermark.verdict import Spelled, Verdict
from keybound.watermark.watermarker import MarkWarning, Watermarker

__version__: str

__all__ = [
    "Analysis",
    "AttackError",
    "AudioError",
    "CodeError",
    "CorpusError",
    "Declared",
    "DetectOptions",
    "Detection",
    "EmbedOptions",
    "Grader",
    "Identified",
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
    "Reading",
    "RecipeError",
    "RecordError",
    "RecordedStream",
    "Registry",
    "RegistryError",
    "SealSearch",
    "Sealed",
    "SearchWarning",
    "Span",
    "Spelled",
    "StreamDetector",
    "StreamEmbedder",
    "Verdict",
    "Watermarker",
    "detect",
    "embed",
    "embed_with_position",
    "identify",
    "read_public",
    "verify",
]
