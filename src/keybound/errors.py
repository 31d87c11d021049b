"""The errors KeyBound raises. Each is one lower-case line, with a hint where there is one.

A caller may catch `KeyBoundError` alone; the children say which room refused.
"""


class KeyBoundError(Exception):
    """Anything KeyBound refuses to do: `message` says what, `hint` what may help."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class KeyFileError(KeyBoundError):
    """A key that cannot be read, or must not be written."""


class KeyFileWarning(UserWarning):
    """A key file that others than its owner can read."""


class CodeError(KeyBoundError):
    """A payload, nonce or tolerance outside what the code allows."""


class AudioError(KeyBoundError):
    """Audio that cannot be read, written or marked."""


class ModelError(KeyBoundError):
    """Weights that are missing, damaged or of another kind."""


class RegistryError(KeyBoundError):
    """A party that is unknown, or already known."""


class RecordError(KeyBoundError):
    """A record of an embedding, or a signature, that cannot be read or does not hold."""


class AttackError(KeyBoundError):
    """An attack that is unknown, or whose tools are absent."""


class RecipeError(KeyBoundError):
    """A training recipe with unknown or impossible entries."""


class CorpusError(KeyBoundError):
    """A manifest, or the results of a batch, that cannot be used."""
