"""The C2PA manifest of a record: kept with it, found by its id, gone with it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from test_registry_file import KEY, RECORD

from keybound.errors import RecordError, RegistryError
from keybound.provenance import manifest, records
from keybound.provenance.manifest import Manifest
from keybound.provenance.records import Stamped
from keybound.provenance.registry import Registry

SIGNED = Manifest("urn:c2pa:5be848d0-772d-41cb-b4ac-531fb952b485", bytes(range(256)) * 16)


def stamped(number: int, kept: Manifest | None) -> Stamped:
    later = RECORD.created + timedelta(days=number)
    return records.stamp(replace(RECORD, position=number, created=later, manifest=kept), KEY)


def test_a_manifest_is_found_moves_and_is_forgotten(place: Path | str, tmp_path: Path) -> None:
    with Registry(place) as known:
        known.append(stamped(1, None))
        assert known.append(stamped(2, SIGNED)) == 2
        found = known.of_manifest(SIGNED.id)
        assert found is not None
        assert (found.number, found.stamped.record.manifest) == (2, SIGNED)
        found.stamped.check(KEY)  # the MAC covers it
        assert known.of_manifest("urn:c2pa:other") is None
        with pytest.raises(RegistryError, match="there is a record with its manifest"):
            known.append(stamped(3, SIGNED))
        lines = list(known.exported())
        assert known.forget(RECORD.created + timedelta(days=5)) == 2
        assert known.of_manifest(SIGNED.id) is None
    with Registry(tmp_path / "other.sqlite") as other:
        other.import_lines(lines)
        again = other.of_manifest(SIGNED.id)
        assert again is not None
        assert again.stamped == stamped(2, SIGNED)


@pytest.mark.parametrize(
    "wrong",
    [
        Manifest("", b"jumb"),
        Manifest("urn:c2pa:", b"jumb"),
        Manifest("urn:c2pa:a/b", b"jumb"),
        Manifest(SIGNED.id, b""),
        Manifest(SIGNED.id, bytes(manifest.DATA_MAX + 1)),
    ],
)
def test_what_is_no_manifest_is_refused(wrong: Manifest) -> None:
    with pytest.raises(RecordError, match="manifest of a record"):
        stamped(1, wrong)
