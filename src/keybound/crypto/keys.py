"""The key of a party: 32 secret bytes, their text file, and what is derived from them.

Standard library only. This room knows nothing of payloads, masks, audio or networks: others
ask a key for bytes under a label, so that no use of a key can be mistaken for another.
No message and no repr ever shows secret bytes, nor characters of a file refused as a key.
The format and the derivation are specified in docs/spec.md.
"""

import hashlib
import hmac
import os
import re
import secrets
import shlex
import stat
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from keybound import output
from keybound.errors import KeyFileError, KeyFileWarning

KEY_BYTES = 32
CHECKSUM_BYTES = 4
# Hex, not base32: sixteen symbols without the pairs 0/o, 1/l, 2/z, 5/s, and no spare bits that
# would let two texts mean one key.
KEY_DIGITS = 2 * (KEY_BYTES + CHECKSUM_BYTES)
PREFIX = "keybound-key-1:"
KEY_ID_BYTES = 8
KEY_ID_LABEL = "keybound-1/key-id"
HASH_BYTES = 32
# One byte of counter, as in HKDF-Expand (RFC 5869).
DERIVE_MAX = 255 * HASH_BYTES
# A key file is some 150 bytes. The rest is room for comments: an hour of audio is not read whole
# only to be refused.
FILE_MAX = 64 * 1024

# How a file begins that somebody is likely to give in place of a key file.
OTHER_KINDS = (
    (b"RIFF", "a WAV recording"),
    (b"fLaC", "a FLAC recording"),
    (b"OggS", "an Ogg recording"),
    (b"ID3", "an MP3 recording"),
    (b"SQLite format 3\0", "an SQLite database, perhaps the registry"),
    (b"-----BEGIN ", "a PEM key or certificate"),
    (b"ssh-", "an SSH public key"),
    (b"age1", "an age public key"),
    (b"AGE-SECRET-KEY-", "an age key"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)
KEYGEN_HINT = "keybound keygen makes a key file"
COPY_HINT = "compare it with the original, character by character, or restore a backup"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Key:
    """The secret of a party: 32 uniformly random bytes."""

    secret: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            raise KeyFileError(f"a key is made of {KEY_BYTES} bytes", hint=KEYGEN_HINT)

    def __repr__(self) -> str:
        return f"Key(id={self.id!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return hmac.compare_digest(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def generate(cls) -> "Key":
        """Make a new key from the operating system's randomness."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Read a key from the text of a key file.

        Refuses, each with its own message: no key, more than one, another version, a wrong
        length, a character outside the alphabet, and a checksum that does not match.
        """
        return _parse(text, "the key text")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Key":
        """Read a key from a file, or from standard input where the path is `-`.

        A file that everybody may read is refused; one that its group may read raises a
        `KeyFileWarning`.
        """
        name = os.fspath(path)
        source = "the key on standard input" if name == "-" else f"key file {name!r}"
        data, mode = _read_start(name, source)
        key = _parse(_to_text(data, source), source)
        check_private(mode, name, source)  # last: what is no key is told so first
        return key

    def write(self, path: str | os.PathLike[str], comment: str = "") -> None:
        """Write the key to a new file that only its owner can read (mode 0600).

        Never overwrites: an existing file, or a symbolic link, is refused. The file is on the
        disk when this returns, and absent when it raises.
        """
        if os.fspath(path) == "-":
            raise KeyFileError("a key is not written to standard output", hint="name a new file")
        data = self.to_text(comment).encode()
        hint = "key files are never overwritten: choose another name"
        with output.writing(path, mode=output.PRIVATE, kind=KeyFileError, exists_hint=hint) as part:
            part.write_bytes(data)

    def to_text(self, comment: str = "") -> str:
        """Return the text of the key file, secret included, with a comment at its head."""
        lines = comment.splitlines()
        if not all(line.isprintable() for line in lines):
            raise KeyFileError("the comment of a key file holds a control character")
        lines.append(f"keybound secret key {self.id}: keep this file private")
        body = (self.secret + _checksum(self.secret)).hex()
        return "".join(f"# {line}".rstrip() + "\n" for line in lines) + f"{PREFIX}{body}\n"

    @property
    def id(self) -> str:
        """Return the key id: 16 hex digits that tell nothing about the secret."""
        return self.derive(KEY_ID_LABEL, KEY_ID_BYTES).hex()

    def derive(self, label: str, length: int, nonce: bytes = b"") -> bytes:
        """Derive `length` bytes for the use that the label names, and for this nonce.

        This is HKDF-Expand (RFC 5869) with SHA-256, the secret as its pseudorandom key, and

            info = len(label) ‖ label ‖ len(nonce) ‖ nonce
            T(i) = HMAC-SHA256(secret, T(i-1) ‖ info ‖ byte i),  i = 1, 2, ...,  T(0) empty

        where lengths count bytes in 4 bytes, big-endian, and the label is UTF-8. The lengths
        keep every pair (label, nonce) apart from every other. A shorter output is a prefix of
        a longer one.
        """
        if not label:
            raise ValueError("every derivation has a label")
        if not 0 < length <= DERIVE_MAX:
            raise ValueError(f"derive gives 1 to {DERIVE_MAX} bytes, not {length}")
        info = _prefixed(label.encode()) + _prefixed(nonce)
        output = block = b""
        counter = 0
        while len(output) < length:
            counter += 1
            block = hmac.digest(self.secret, block + info + bytes([counter]), "sha256")
            output += block
        return output[:length]


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _checksum(secret: bytes) -> bytes:
    return hashlib.sha256(PREFIX.encode() + secret).digest()[:CHECKSUM_BYTES]


def _read_start(name: str, source: str) -> tuple[bytes, int]:
    """Read one byte more than a key file may have, so that a larger file shows; and its mode."""
    try:
        if name == "-" and sys.stdin is None:
            raise KeyFileError(f"{source} cannot be read: standard input is closed")
        if name == "-":
            return sys.stdin.buffer.read(FILE_MAX + 1), 0
        with Path(name).open("rb") as file:
            return file.read(FILE_MAX + 1), os.fstat(file.fileno()).st_mode
    except FileNotFoundError:
        raise KeyFileError(f"{source} does not exist", hint=KEYGEN_HINT) from None
    except IsADirectoryError:
        raise KeyFileError(f"{source} is a folder", hint="name the file inside it") from None
    except PermissionError:
        raise KeyFileError(
            f"{source} may not be read by this user",
            hint="key files have mode 0600: only their owner reads them",
        ) from None
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{source} cannot be read: {_reason(error)}") from error


def check_private(mode: int, name: str, source: str) -> None:
    """Raise an error where everybody may read a secret file, and warn where its group may."""
    if os.name != "posix" or not stat.S_ISREG(mode):  # a pipe is read once
        return
    mend = f"chmod 600 {shlex.quote(name)}"
    if mode & stat.S_IRWXO:
        raise KeyFileError(f"{source} is open to everybody", hint=mend)
    if mode & stat.S_IRWXG:
        warnings.warn(f"{source} is open to its group ({mend})", KeyFileWarning, stacklevel=3)


def _to_text(data: bytes, source: str) -> str:
    for start, kind in OTHER_KINDS:
        if data.startswith(start):
            raise KeyFileError(f"{source} is not a key: it looks like {kind}", hint=KEYGEN_HINT)
    if len(data) > FILE_MAX:
        raise KeyFileError(f"{source} is not a key: it is too large", hint=KEYGEN_HINT)
    try:
        text = data.decode("utf-8-sig")  # some editors put a byte order mark
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise KeyFileError(f"{source} is not a key: it holds binary data", hint=KEYGEN_HINT)
    return text


def _parse(text: str, source: str) -> Key:
    if not text.strip():
        raise KeyFileError(f"{source} is empty", hint=KEYGEN_HINT)
    stripped = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
    lines = [(number, line) for number, line in stripped if line and not line.startswith("#")]
    if not lines:
        raise KeyFileError(f"{source} holds only comments and no key", hint=KEYGEN_HINT)
    found = [line for _, line in lines if re.match(r"keybound-key-[0-9]+:", line)]
    if not found:
        if re.fullmatch(rf"[0-9a-f]{{{2 * KEY_ID_BYTES}}}", lines[0][1]):
            raise KeyFileError(
                f"{source} is a key id, the public name of a key, and not the key",
                hint="give the secret key file that it names",
            )
        raise KeyFileError(
            f"{source} is not a key",
            hint=f"a key file has one line that starts with {PREFIX}",
        )
    if len(found) > 1:
        raise KeyFileError(
            f"{source} holds {len(found)} keys", hint="keep each key in its own file"
        )
    for number, line in lines:
        if line != found[0]:
            raise KeyFileError(
                f"{source} is damaged: line {number} is neither the key nor a comment",
                hint="a key stands on one line, and comment lines start with #",
            )
    return Key(_secret(found[0], source))


def _secret(line: str, source: str) -> bytes:
    """Return the secret from the one line of a key; raise an error where it is damaged."""
    prefix, body = line[: line.index(":") + 1], line[line.index(":") + 1 :]
    if prefix != PREFIX:
        version = prefix.removeprefix("keybound-key-").rstrip(":")
        raise KeyFileError(
            f"{source} has version {version[:4]}, and this program reads version 1",
            hint="a newer keybound may read it: upgrade, or look for a mistyped digit",
        )
    if len(body) != KEY_DIGITS:
        raise KeyFileError(
            f"{source} has {len(body)} characters after {PREFIX}, and a key has {KEY_DIGITS}",
            hint=COPY_HINT,
        )
    wrong = re.search(r"[^0-9a-f]", body)
    if wrong:
        raise KeyFileError(
            f"{source} is mistyped: character {wrong.start() + 1} after {PREFIX} is not allowed",
            hint="a key is written with the characters 0 to 9 and a to f, in lower case",
        )
    data = bytes.fromhex(body)
    secret, checksum = data[:KEY_BYTES], data[KEY_BYTES:]
    if checksum != _checksum(secret):
        raise KeyFileError(
            f"{source} is mistyped or damaged: its checksum does not match", hint=COPY_HINT
        )
    return secret


def _reason(error: OSError | ValueError) -> str:
    """Return the reason of an error in lower case, without the path that str() repeats."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]
