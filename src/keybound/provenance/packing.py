"""Records as a registry stores them: compressed, with what all have in common as a dictionary.

Half of the room is saved, and most of what is left is the fingerprint. What is read back is the
file that is exported, byte by byte. Knows records: no database.
"""

import base64
import binascii
import json
import zlib

from keybound.errors import CodeError, RecordError
from keybound.provenance import records
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.records import DAMAGED_HINT, FILE_MAX, Stamped

RAW = -15  # DEFLATE alone, RFC 1951, without a header
LEVEL = 6
# Specified in docs/spec.md: what is stored cannot be read with another.
DICTIONARY = (
    b'{"mac":"","record":{"bits":16,"columns":250,"created":"2026-01-01T00:00:00.000000Z",'
    b'"detector":"","fields":{},"fingerprint":"","key":"","link":null,"manifest":null,"nonce":"","party":"",'
    b'"payload":"","position":null,"provider":null,"public":false,"rate":16000,'
    b'"registry_key":"","samples":160000,"serial":null,"sha256":"","system":null,'
    b'"system_version":null,"version":3}}\n'
)


def packed(data: bytes) -> bytes:
    """Return the file of a record compressed."""
    made = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW, zdict=DICTIONARY)
    return made.compress(data) + made.flush()


def unpacked(data: bytes) -> Stamped:
    """Return the record that was compressed; raise an error where it is damaged."""
    return records.parse(_whole(data))


def fingerprint_of(data: bytes) -> Fingerprint:
    """Return the fingerprint of the record that was compressed, in a tenth of the time."""
    try:
        fields = json.loads(_whole(data))["record"]
        return Fingerprint(fields["columns"], base64.b64decode(fields["fingerprint"]))
    except (ValueError, TypeError, KeyError, binascii.Error, CodeError) as error:
        raise RecordError("this is not a record, or it is damaged", hint=DAMAGED_HINT) from error


def _whole(data: bytes) -> bytes:
    try:
        made = zlib.decompressobj(RAW, zdict=DICTIONARY)
        whole = made.decompress(data, FILE_MAX + 1)
    except zlib.error as error:
        raise RecordError("this is not a record, or it is damaged", hint=DAMAGED_HINT) from error
    if not made.eof or made.unused_data:
        raise RecordError("this is not a record, or it is damaged", hint=DAMAGED_HINT)
    return whole
