"""Signatures of records, and the files of signing keys."""

import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_records import CANONICAL, KEY, RECORD

from keybound.crypto import signing
from keybound.crypto.signing import SigningKey
from keybound.errors import KeyFileError, RecordError
from keybound.provenance import records

SIGNER = SigningKey(bytes(range(32, 64)))
PUBLIC = "29acbae141bccaf0b22e1a94d34d0bc7361e526d0bfe12c89794bc9322966dd7"
SIGNATURE = (
    "0fbf087ac0547b681413d904b556faa6d426e427548a834742fe57885720163c"
    "3438eeebb6c314fa16bb0146723eb8e75ed1b824f34ca8d6992b4722a7eaf100"
)


def test_signature_known_answers() -> None:
    pytest.importorskip("cryptography")
    signed = records.stamp(RECORD, KEY).sign(SIGNER)
    assert (signed.public.hex(), signed.signature.hex()) == (PUBLIC, SIGNATURE)
    signing.check(signed.public, records.SIGNED + signed.mac + CANONICAL, signed.signature)


def test_a_signature_is_checked_without_the_key(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    records.stamp(RECORD, KEY).sign(SIGNER).write(tmp_path / "signed.kbr")
    signed = records.read(tmp_path / "signed.kbr")
    signed.check_signature(SIGNER.public)
    signed.check(KEY)
    forged = replace(signed, record=replace(RECORD, party="mallory"))
    for wrong in (forged, replace(signed, mac=bytes(32)), replace(signed, signature=bytes(64))):
        with pytest.raises(RecordError, match="does not hold"):
            wrong.check_signature(SIGNER.public)
    with pytest.raises(RecordError, match="somebody else"):
        signed.check_signature(SigningKey.generate().public)
    with pytest.raises(RecordError, match="not signed"):
        records.stamp(RECORD, KEY).check_signature(SIGNER.public)


def test_any_changed_byte_of_a_signed_record_is_refused_without_the_key() -> None:
    pytest.importorskip("cryptography")
    whole = records.stamp(RECORD, KEY).sign(SIGNER).to_bytes()
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(RecordError):
            records.parse(changed).check_signature(SIGNER.public)


def test_without_the_package_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(RecordError, match="need the package cryptography") as caught:
        records.stamp(RECORD, KEY).sign(SIGNER)
    assert caught.value.hint == "pip install keybound[sign]"


def test_signing_key_file(tmp_path: Path) -> None:
    path = tmp_path / "my.sign"
    SIGNER.write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.read(path).seed == SIGNER.seed
    assert repr(SIGNER) == "SigningKey()"
    with pytest.raises(KeyFileError, match="sign exists"):
        SIGNER.write(path)
    line = path.read_text().splitlines()[1]
    for wrong in ("", line[:-1], line + "0", f"{line}\n{line}", line.replace("-1:", "-2:")):
        with pytest.raises(KeyFileError, match="not a signing key"):
            SigningKey.parse(wrong)
    with pytest.raises(KeyFileError, match="checksum"):
        SigningKey.parse(line[:-1] + ("0" if line[-1] != "0" else "1"))
    with pytest.raises(KeyFileError, match="no such file"):
        SigningKey.read(tmp_path / "absent")
    KEY.write(tmp_path / "my.key")
    with pytest.raises(KeyFileError, match="not a signing key"):
        SigningKey.read(tmp_path / "my.key")
    with pytest.raises(KeyFileError, match="32 bytes"):
        SigningKey(b"short")
