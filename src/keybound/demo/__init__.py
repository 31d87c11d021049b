"""The clip of synthetic speech that the package carries, and what `keybound demo` does with it."""

from pathlib import Path

SPEECH = Path(__file__).parent / "speech.flac"
