"""Records as they are stored: compressed, and read back byte by byte."""

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_records import KEY, RECORD, some

from keybound.errors import RecordError
from keybound.provenance import packing, records
from keybound.provenance.records import FILE_MAX, Record


@settings(max_examples=40, deadline=None)
@given(some())
def test_what_is_packed_is_read(record: Record) -> None:
    stamped = records.stamp(record, KEY)
    assert packing.unpacked(packing.packed(stamped.to_bytes())) == stamped


def test_the_dictionary_saves_room() -> None:
    data = records.stamp(RECORD, KEY).to_bytes()
    assert len(packing.packed(data)) < 0.7 * len(zlib.compress(data, 9, -15))


def test_other_bytes_are_refused() -> None:
    data = packing.packed(records.stamp(RECORD, KEY).to_bytes())
    bomb = packing.packed(bytes(2 * FILE_MAX))
    for wrong in (b"", b"{}", data[:-1], data + b"x", zlib.compress(data), bomb):
        with pytest.raises(RecordError, match="not a record"):
            packing.unpacked(wrong)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_changed_byte_is_refused(data: st.DataObject) -> None:
    whole = bytearray(packing.packed(records.stamp(RECORD, KEY).to_bytes()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        read = packing.unpacked(bytes(whole))
    except RecordError:
        return
    if read.record != RECORD:  # else the change is in what pads the last byte
        with pytest.raises(RecordError):
            read.check(KEY)
