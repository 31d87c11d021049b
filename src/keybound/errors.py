"""The errors KeyBound raises. Each is one lower-case line, with a hint where there is one.

A caller may catch `KeyBoundError` alone; its subclasses tell which room raised it.
"""

DEBUG = "KEYBOUND_DEBUG"  # the environment variable that asks for tracebacks
EXTRAS = {  # which brings a package that the base install does not hold
    "scipy": "attacks",
    "matplotlib": "plot",
    "torch": "train",
    "pesq": "bench",
    "pystoi": "bench",
    "pyarrow": "batch",
    "ray": "ray",
    "cryptography": "sign",
    "c2pa": "c2pa",
    "psycopg": "postgres",
    "fastapi": "serve",
    "uvicorn": "serve",
}


class KeyBoundError(Exception):
    """Any error of KeyBound: `message` says what is wrong, `hint` what may help."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class KeyFileError(KeyBoundError):
    """A key that cannot be read, or must not be written."""


class KeyFileWarning(UserWarning):
    """A key file that others than its owner can read."""


class SearchWarning(UserWarning):
    """A search that was left out, because it would take too long."""


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


class NotGenuineError(RecordError):
    """A record that is not as its maker left it, or a signature that is not the signer's."""


class AttackError(KeyBoundError):
    """An attack that is unknown, or whose tools are absent."""


class RecipeError(KeyBoundError):
    """A training recipe with unknown or impossible entries."""


class CorpusError(KeyBoundError):
    """A manifest, or the results of a batch, that cannot be used."""


def missing(package: str | None, extra: str) -> KeyBoundError:
    """Return the error that a package is not installed, with the extra that brings it."""
    top = (package or "a package").partition(".")[0]
    what = f"this needs {top}, which is not installed"
    return KeyBoundError(what, hint=f"pip install 'keybound[{extra}]'")


def explain(error: BaseException) -> tuple[str, str | None]:
    """Return what went wrong in one line, and a hint or None, for any exception."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package in EXTRAS:
            error = missing(package, EXTRAS[package])
    if isinstance(error, KeyBoundError):
        return error.message, error.hint
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror.lower()
        return (f"{error.filename}: {reason}" if error.filename else reason), None
    if isinstance(error, MemoryError):
        return "not enough memory", "in a batch fewer --jobs need less"
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return f"unexpected error: {words}", f"{DEBUG}=1 shows where; please report it"
