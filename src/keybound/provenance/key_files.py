"""Key files that a registry names: their path, the key id and a date, never the key itself.

Parties have them, and the registry its own. Knows keys: no database, no audio.
"""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from keybound.crypto.keys import KEY_ID_BYTES, Key
from keybound.errors import RegistryError


@dataclass(frozen=True)
class KeyFile:
    """Where a key is kept, its id, and since when it is used for new marks."""

    path: Path
    id: str
    since: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_ID_BYTES}}}", self.id):
            raise RegistryError(f"a key id is not {2 * KEY_ID_BYTES} hex digits")
        if self.since.tzinfo is None:
            raise RegistryError(f"the date of key {self.id} has no time zone")

    def key(self, whose: str, hint: str) -> Key:
        """Return the key; raise an error where the file holds another than that of `whose`."""
        key = Key.read(self.path)
        if key.id != self.id:
            what = f"key file {os.fspath(self.path)!r} holds key {key.id}"
            raise RegistryError(f"{what}, and {whose} is registered with key {self.id}", hint=hint)
        return key

    def row(self) -> tuple[bytes, str, str]:
        """Return path, id and date as a registry stores them."""
        return os.fsencode(self.path), self.id, self.since.astimezone(UTC).isoformat()


def of_row(path: bytes, key_id: str, since: str) -> KeyFile:
    """Return the key file that a registry stored; raise an error where it is damaged."""
    try:
        return KeyFile(Path(os.fsdecode(path)), key_id, datetime.fromisoformat(since))
    except (TypeError, ValueError) as error:
        raise RegistryError(f"the registry is damaged at key {key_id!r}") from error
