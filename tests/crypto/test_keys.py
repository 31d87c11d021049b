"""The key: its text, its file, and what is derived from it."""

import io
import os
import re
import stat
import string
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keybound.crypto.keys import DERIVE_MAX, FILE_MAX, PREFIX, Key
from keybound.errors import KeyFileError

# The shared machine may be slow: a slow example is no failure.
relaxed = settings(deadline=None)
keys = st.binary(min_size=32, max_size=32).map(Key)

# Secret 00 01 02 ... 1f. The vectors below were made without the code under test:
#   checksum     sha256(b"keybound-key-1:" + secret).hexdigest()[:8]
#   derivations  openssl kdf -keylen 48 -kdfopt digest:SHA256 -kdfopt mode:EXPAND_ONLY
#                  -kdfopt hexkey:000102...1f -kdfopt hexinfo:INFO HKDF
SECRET = bytes(range(32))
LINE = "keybound-key-1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2e542494"
KEY_ID = "0f254a1c050bdb5a"  # INFO 00000011 "keybound-1/key-id" 00000000
DERIVED = bytes.fromhex(  # INFO 00000004 "test" 00000000; two blocks
    "29d10efb0ed42fea4b508eb430f4ddc75dba0ce40caa786efcc7a9de85d9abc9"
    "43a2716523d00a02342527352c61b473"
)


def refused(text: str, message: str) -> KeyFileError:
    with pytest.raises(KeyFileError, match=message) as caught:
        Key.parse(text)
    assert "\n" not in caught.value.message
    return caught.value


def test_text_known_answer() -> None:
    assert Key(SECRET).to_text("made for a test") == (
        f"# made for a test\n# keybound secret key {KEY_ID}: keep this file private\n{LINE}\n"
    )
    assert Key.parse(LINE).secret == SECRET


def test_derive_known_answers() -> None:
    assert Key(SECRET).derive("test", 48) == DERIVED
    # hmac.new(SECRET, bytes.fromhex("0000000f") + b"keybound-1/mask" + bytes.fromhex("00000006")
    #          + b"clip-1" + b"\x01", "sha256").hexdigest()
    expected = "034e6cd930e34977c75bbbe7786c450ee5337085450325a435901d5efc0ca1ea"
    assert Key(SECRET).derive("keybound-1/mask", 32, b"clip-1").hex() == expected
    assert Key(SECRET).id == KEY_ID


@relaxed
@given(keys)
def test_repr_shows_only_the_id(key: Key) -> None:
    assert repr(key) == str(key) == f"Key(id='{key.id}')"
    assert key.secret.hex() not in repr([key])


def test_keys_are_equal_when_their_secrets_are() -> None:
    assert Key(SECRET) == Key(bytes(SECRET))
    assert hash(Key(SECRET)) == hash(Key(bytes(SECRET)))
    assert Key(SECRET) != Key(SECRET[::-1])
    assert Key(SECRET) != SECRET
    assert len({Key.generate() for _ in range(100)}) == 100


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), "0" * 32, bytearray(32)])
def test_a_key_is_32_bytes(secret: bytes) -> None:
    with pytest.raises(KeyFileError, match="32 bytes"):
        Key(secret)


@relaxed
@given(keys, st.lists(st.text().filter(str.isprintable)))
def test_text_round_trip(key: Key, comment: list[str]) -> None:
    assert Key.parse(key.to_text("\n".join(comment))) == key


def test_a_comment_cannot_bring_a_key_in() -> None:
    other = Key(bytes(32)).to_text()
    assert Key.parse(Key(SECRET).to_text(f"one\n{other}\r\n{LINE}\u2028{LINE}")) == Key(SECRET)


def test_blank_lines_comments_and_line_ends_do_not_matter() -> None:
    assert Key.parse(f"\n\n  {LINE}\t\n\n") == Key(SECRET)
    assert Key.parse(f"# before\r\n{LINE}\r\n# after\r\n") == Key(SECRET)
    assert Key.parse(f"#{LINE}\n{LINE}") == Key(SECRET)


@relaxed
@given(keys, st.data())
def test_any_one_mistyped_character_is_refused(key: Key, data: st.DataObject) -> None:
    line = key.to_text().splitlines()[-1]
    place = data.draw(st.integers(0, len(line) - 1))
    typed = data.draw(st.sampled_from(string.printable) | st.characters(codec="utf-8"))
    if typed != line[place]:
        with pytest.raises(KeyFileError):
            Key.parse(line[:place] + typed + line[place + 1 :])


def test_every_mistyped_digit_is_refused_by_its_checksum() -> None:
    for place in range(len(PREFIX), len(LINE)):
        for digit in set("0123456789abcdef") - {LINE[place]}:
            refused(LINE[:place] + digit + LINE[place + 1 :], "checksum does not match")


@relaxed
@given(keys, st.data())
def test_a_lost_doubled_or_swapped_character_is_refused(key: Key, data: st.DataObject) -> None:
    line = key.to_text().splitlines()[-1]
    i = data.draw(st.integers(0, len(line) - 2))
    swapped = line[:i] + line[i + 1] + line[i] + line[i + 2 :]
    for text in {line[:i] + line[i + 1 :], line[:i] + line[i] + line[i:], swapped} - {line}:
        with pytest.raises(KeyFileError):
            Key.parse(text)


def test_each_refusal_says_what_is_wrong() -> None:
    refused(" \n\n", "is empty")
    refused("# only a comment\n", "only comments")
    refused("hello\n", "is not a key")
    refused(KEY_ID, "is a key id")
    assert "upgrade" in str(refused(LINE.replace("-1:", "-2:"), "version 2").hint)
    refused(LINE[:-1], "71 characters after keybound-key-1:, and a key has 72")
    assert "lower case" in str(refused(LINE.replace("a", "A"), "character 22 after").hint)
    refused(f"{LINE}\n{LINE}\n", "holds 2 keys")
    refused(f"{LINE}\nsomething\n", "line 2 is neither")
    half = len(LINE) // 2
    refused(f"{LINE[:half]}\n{LINE[half:]}\n", "line 2 is neither")


def test_messages_do_not_show_the_secret() -> None:
    for text in (LINE[:-1], LINE[:-1] + "z", LINE[:-1] + "5", f"{LINE}\n{LINE}", f"{LINE}\nx"):
        error = refused(text, "key text")
        assert not re.search("[0-9a-f]{8}", f"{error.message} {error.hint}")


def test_write_then_read(tmp_path: Path) -> None:
    path = tmp_path / "alice.key"
    Key(SECRET).write(path, comment="alice, 2026")
    assert Key.read(path) == Key.read(str(path)) == Key(SECRET)
    assert path.read_text() == Key(SECRET).to_text("alice, 2026")
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark
    assert Key.read(path) == Key(SECRET)


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_may_read_the_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        Key(SECRET).write(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_write_never_overwrites_or_follows_a_link(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"precious")
    with pytest.raises(KeyFileError, match="key exists"):
        Key(SECRET).write(path)
    assert path.read_bytes() == b"precious"
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    with pytest.raises(KeyFileError, match="is a symbolic link"):
        Key(SECRET).write(link)
    assert not target.exists()


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_write_leaves_nothing_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(_descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((KeyFileError, KeyboardInterrupt)) as caught:
        Key(SECRET).write(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []
    if isinstance(caught.value, KeyFileError):
        assert caught.value.message.endswith("cannot be written: no space left on the disk")


def test_write_refuses_impossible_places(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="absent is not a folder"):
        Key(SECRET).write(tmp_path / "absent" / "key")
    with pytest.raises(KeyFileError, match="standard output"):
        Key(SECRET).write("-")
    with pytest.raises(KeyFileError, match="null"):
        Key(SECRET).write("a\0b")
    with pytest.raises(KeyFileError, match="control character"):
        Key(SECRET).write(tmp_path / "key", comment="a\tb")
    assert list(tmp_path.iterdir()) == []


def test_read_refuses_missing_and_unreadable_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyFileError, match="does not exist") as caught:
        Key.read(tmp_path / "absent")
    assert caught.value.hint == "keybound keygen makes a key file"
    with pytest.raises(KeyFileError, match="is a folder"):
        Key.read(tmp_path)
    with pytest.raises(KeyFileError, match="cannot be read"):
        Key.read("a\0b")

    # Root may read any file, so the refusal is played.
    def deny(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(KeyFileError, match="may not be read by this user"):
        Key.read(tmp_path / "key")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"RIFF\x24\x08\x00\x00WAVEfmt ", "looks like a WAV recording"),
        (b"fLaC\x00\x00\x00\x22", "looks like a FLAC recording"),
        (b"ID3\x04" + b"\xff" * 9, "looks like an MP3 recording"),
        (b"\xff\xfb\x90\x00" + b"\x00" * 99, "holds binary data"),
        (b"plain\0text", "holds binary data"),
        (b"-----BEGIN PUBLIC KEY-----\n", "looks like a PEM key"),
        (b"ssh-ed25519 AAAA", "looks like an SSH public key"),
        (b"SQLite format 3\0", "perhaps the registry"),
        (LINE.encode("utf-16"), "looks like UTF-16 text"),
        (b"#" * (FILE_MAX + 1), "too large"),
    ],
)
def test_read_names_files_of_other_kinds(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(KeyFileError, match=message) as caught:
        Key.read(path)
    assert str(path) in caught.value.message


def test_read_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    assert Key.read("-") == Key(SECRET)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(KeyFileError, match="the key on standard input is empty"):
        Key.read("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(KeyFileError, match="standard input is closed"):
        Key.read(Path("-"))


# Derivation

labels = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
nonces = st.binary(max_size=20)


@relaxed
@given(keys, labels, nonces, st.integers(1, 200), st.integers(1, 200))
def test_a_shorter_output_is_a_prefix(key: Key, label: str, nonce: bytes, a: int, b: int) -> None:
    short, long = sorted((a, b))
    assert key.derive(label, long, nonce)[:short] == key.derive(label, short, nonce)
    assert len(key.derive(label, long, nonce)) == long


@relaxed
@given(keys, st.tuples(labels, nonces), st.tuples(labels, nonces))
def test_labels_and_nonces_are_kept_apart(
    key: Key, a: tuple[str, bytes], b: tuple[str, bytes]
) -> None:
    same = key.derive(a[0], 32, a[1]) == key.derive(b[0], 32, b[1])
    assert same == (a == b)


@relaxed
@given(keys, st.text("abc", min_size=2, max_size=8), st.data())
def test_moving_bytes_between_label_and_nonce_matters(
    key: Key, text: str, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(1, len(text) - 1))
    assert key.derive(text[:cut], 32, text[cut:].encode()) != key.derive(text, 32)


def test_derive_limits() -> None:
    key = Key(SECRET)
    assert len(key.derive("x", DERIVE_MAX)) == 8160
    for length in (-1, 0, DERIVE_MAX + 1):
        with pytest.raises(ValueError, match="derive gives 1 to 8160 bytes"):
            key.derive("x", length)
    with pytest.raises(ValueError, match="label"):
        key.derive("", 32)
