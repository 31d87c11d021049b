"""C2PA manifests as records keep them: the bytes that were signed, and the name they go by.

Knows text and bytes: what signs and reads manifests is in `credentials`.
"""

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from keybound.errors import RecordError

DATA_MAX = 1 << 20  # bytes; one without earlier ones in it has about 4,000
ID = re.compile(r"urn:(c2pa|uuid):[0-9A-Za-z:._-]{1,120}")


class Manifest(NamedTuple):
    """A manifest store as it stands in a signed file, and the id of its active manifest."""

    id: str
    data: bytes

    def members(self) -> dict[str, str]:
        """Return the manifest as members of a JSON object."""
        return {"data": base64.b64encode(self.data).decode(), "id": self.id}


def check(kept: Manifest) -> None:
    """Raise an error where a record cannot keep a manifest."""
    if not ID.fullmatch(kept.id):
        raise RecordError("the manifest of a record has no id", hint="such as urn:c2pa: and a UUID")
    if not 0 < len(kept.data) <= DATA_MAX:
        raise RecordError(f"the manifest of a record has no bytes, or more than {DATA_MAX}")


def parse(members: dict[str, Any] | None) -> Manifest | None:
    """Return the manifest that the members of a JSON object hold."""
    if members is None:
        return None
    try:
        return Manifest(members["id"], base64.b64decode(members["data"], validate=True))
    except binascii.Error as error:
        raise ValueError("no manifest") from error


def active_only(data: bytes) -> bytes:
    """Return a manifest store with its active manifest alone, which is the last in it."""
    boxes = list(_boxes(data, 8, len(data)))  # within the one box that a store is
    if len(boxes) < 2:
        raise ValueError("no manifest store")
    described, active = boxes[0], boxes[-1]
    inside = data[described.start : described.stop] + data[active.start : active.stop]
    return struct.pack(">I4s", 8 + len(inside), data[4:8]) + inside


def _boxes(data: bytes, start: int, stop: int) -> Iterator[range]:
    """Yield where the boxes of JUMBF lie that follow each other."""
    while start + 8 <= stop:
        (size,) = struct.unpack_from(">I", data, start)
        if size < 8 or start + size > stop:
            raise ValueError("no manifest store")
        yield range(start, start + size)
        start += size
