"""KeyBound: a keyed, host-bound watermark for speech."""

__version__ = "0.1.0"
