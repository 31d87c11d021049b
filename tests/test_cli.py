"""The command line as a user meets it: results, exit status, and one line for every refusal."""

import importlib.metadata
import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf

from keybound import audio, cli, codes
from keybound.attacks import ATTACKS
from keybound.demo import SPEECH
from keybound.keys import Key
from keybound.watermark import Watermarker

DATA = Path(__file__).parent / "data"
PAYLOAD = "0x5eed"
RATE = 16_000


Run = Callable[..., Any]  # to the outcome of `run` in conftest


@pytest.fixture(scope="session")
def marker() -> Watermarker:
    return Watermarker()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: Watermarker) -> Path:
    """An empty folder to work in, with a registry of its own; the shipped weights load once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEYBOUND_REGISTRY", str(tmp_path / "registry.sqlite"))
    load = cli.load
    monkeypatch.setattr(cli, "load", lambda model: load(model) if model else marker)
    return tmp_path


@pytest.fixture
def refused(run: Run, home: Path) -> Run:
    """Run the entry point, which must refuse in one line and leave the folder as it was."""

    def call(*args: object, stdin: bytes = b"") -> Any:
        before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        outcome = run(*args, stdin=stdin)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        assert re.fullmatch(r"keybound: [^A-Z\n][^\n]*[^.\n]\n", outcome.err), outcome.err
        assert "Traceback" not in outcome.err
        assert ".keybound-" not in outcome.err  # names of temporary files are none of the user's
        after = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
        registry = home / "registry.sqlite"  # opening one makes one
        assert before | {registry: b""} == after | {registry: b""}
        return outcome

    return call


@pytest.fixture
def key(home: Path) -> Path:
    Key(bytes(range(32))).write(home / "alice.key")
    return home / "alice.key"


@pytest.fixture
def host(home: Path) -> Path:
    """Synthetic speech of a few seconds as WAV."""
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    sf.write(home / "host.wav", samples, rate)
    return home / "host.wav"


@pytest.fixture(scope="session")
def marked_once(tmp_path_factory: pytest.TempPathFactory, marker: Watermarker) -> Path:
    samples, rate = sf.read(DATA / "flite-rms.flac", dtype="float32")
    path = tmp_path_factory.mktemp("marked") / "marked.wav"
    key = Key(bytes(range(32)))
    sf.write(path, marker.embed(samples, rate, key=key, payload=0x5EED), rate)
    return path


@pytest.fixture
def marked(home: Path, marked_once: Path) -> Path:
    """The host with a mark of alice.key and the payload."""
    (home / "marked.wav").write_bytes(marked_once.read_bytes())
    return home / "marked.wav"


def hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


# The program


def test_the_entry_point_is_installed() -> None:
    (point,) = importlib.metadata.entry_points(group="console_scripts", name="keybound")
    assert point.load() is cli.main


def test_help_and_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("--version").out.strip() == importlib.metadata.version("keybound")
    verbs = ["keygen", "party", "embed", "detect", "verify", "attack", "train", "export", "demo"]
    verbs.append("batch")
    for arguments in ([], ["--help"], ["-h"]):
        shown = run(*arguments)
        assert (shown.code, shown.err) == (0, "")
        assert shown.out.startswith("Usage: keybound")
        assert set(verbs) <= set(re.findall(r"^  (\w+) ", shown.out, re.MULTILINE))
        assert "..." not in shown.out.split("Commands:")[1]  # each fits on its line
    for verb in verbs:
        assert run(verb, "--help").code == 0


USER = """
import sys
from keybound.cli import main
verbs = [line.split("\\t") for line in sys.stdin.read().splitlines()]
for verb in verbs:
    sys.argv = ["keybound", *verb]
    try:
        main()
    except SystemExit as end:
        print(verb[0], end.code, file=sys.stderr)
assert "onnxruntime" in sys.modules
heavy = sorted({"torch", "safetensors", "onnx", "pesq"} & set(sys.modules))
print("imported:", *heavy, file=sys.stderr)
"""


def test_nothing_a_user_runs_imports_torch(home: Path, host: Path, key: Path) -> None:
    whose = f"--key\t{key}\t--payload\t{PAYLOAD}"
    verbs = [
        "keygen\tnew.key",
        f"party\tadd\tuser\t{whose}",
        f"embed\t{host}\tmarked.wav\t{whose}",
        "verify\tmarked.wav\t--party\tuser",
        "detect\tmarked.wav",
        "attack\tnoise\tmarked.wav\tattacked.wav",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", USER],
        input="\n".join(verbs), capture_output=True, text=True, check=True, cwd=home,
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert lines[-1] == "imported:"
    assert [line for line in lines if re.match(r"(verify|detect) ", line)] == [
        "verify 0",
        "detect 0",
    ]
    assert (home / "attacked.wav").exists()


def test_help_alone_loads_no_networks(home: Path) -> None:
    program = "import sys; from keybound import cli; print('onnxruntime' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=home
    )
    assert done.stdout == "False\n"


USAGE = {
    "": ("party", "missing command (see keybound party --help)"),
    "an unknown verb": ("verfy x", "no such command 'verfy' ("),
    "no argument": ("embed", "missing argument 'HOST' (see keybound embed --help)"),
    "too many": ("detect a b c", "unexpected extra arguments (b c) (see keybound detect --help)"),
    "an unknown option": ("detect a --jso", "(did you mean "),
    "no number": ("embed a b --payload x", "'x' is not a number such as 24301 or 0x5eed"),
    "no nonce": ("verify a --nonce xyz", "'xyz' is not hexadecimal"),
    "a negative seed": ("attack noise a b --seed -1", "-1 is not in the range"),
    "nobody": ("verify a", "say whose mark: --party NAME, or --key FILE and --payload NUMBER"),
    "half a claim": ("verify a --payload 1", "say whose mark"),
    "two claims": ("verify a --party b --payload 1", "--party brings its own key and payload"),
    "any and one": ("verify a --any --party b", "--any tries every party; name none"),
    "frames for people": ("detect a --frames", "--frames needs --json"),
    "half an attack": ("attack noise a", "name an attack, a recording and an output, or --list"),
    "a party without key": ("party add bob --payload 1", "missing option '--key'"),
    "a key of a stream": ("party add bob --key - --payload 1", "needs a key file"),
}


@pytest.mark.parametrize("name", USAGE)
def test_what_cannot_be_meant_is_refused_with_a_hint(refused: Run, name: str) -> None:
    arguments, message = USAGE[name]
    err = refused(*arguments.split()).err
    assert message in err
    assert err.endswith(")\n")  # the hint


def test_a_name_with_a_line_break_stays_in_one_line(refused: Run) -> None:
    assert "a?b.wav cannot be read" in refused("detect", "a\nb.wav").err


# keygen and party


def test_keygen_writes_a_private_file_and_prints_its_fingerprint(run: Run, home: Path) -> None:
    made = run("keygen", "my.key", "--comment", "for tests")
    assert made.code == 0
    assert made.err == "keybound: wrote my.key; keep it secret and keep a copy\n"
    key = Key.read(home / "my.key")
    assert made.out == f"{key.fingerprint}\n"
    assert stat.S_IMODE((home / "my.key").stat().st_mode) == 0o600
    assert (home / "my.key").read_text().startswith("# for tests\n")
    assert key.secret.hex() not in made.out + made.err


def test_keygen_never_overwrites(run: Run, refused: Run) -> None:
    run("keygen", "my.key")
    assert "'my.key' already exists (key files are never" in refused("keygen", "my.key").err


@pytest.mark.parametrize("path", ["nowhere/my.key", "-", "."])
def test_keygen_refuses_where_no_key_can_be(refused: Run, path: str) -> None:
    refused("keygen", path)


def test_parties_are_added_listed_and_removed(run: Run, key: Path) -> None:
    assert run("party", "list") == (
        0,
        "",
        "keybound: no party is registered (keybound party add)\n",
    )
    added = run("party", "add", "alice", "--key", key.name, "--payload", "24301")
    assert added == (0, "", "keybound: registered alice\n")
    run("party", "add", "bob", "--key", key, "--payload", "7", "--bits", "20", "--rho", "1")
    print_of_key = Key.read(key).fingerprint
    listed = run("party", "list")
    assert listed.out.splitlines() == [
        f"alice\t0x5eed\t{print_of_key}\t{key}",
        f"bob\t0x00007\t{print_of_key}\t{key}",
    ]
    rows = [json.loads(line) for line in run("party", "list", "--json").out.splitlines()]
    assert [row["name"] for row in rows] == ["alice", "bob"]
    assert (rows[1]["bits"], rows[1]["rho"], rows[1]["payload"]) == (20, 1, 7)
    assert run("party", "remove", "alice") == (0, "", "keybound: removed alice\n")
    assert run("party", "list").out.startswith("bob\t")
    assert key.exists()


def test_a_registry_can_be_named(run: Run, key: Path, home: Path) -> None:
    elsewhere = ("--registry", home / "other.sqlite")
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD, *elsewhere)
    assert run("party", "list").out == ""
    assert run("party", "list", *elsewhere).out.startswith("alice\t")


def test_a_party_that_cannot_be_is_refused(run: Run, refused: Run, key: Path) -> None:
    add = ("party", "add", "alice", "--key", key, "--payload")
    run(*add, PAYLOAD)
    assert "already registered" in refused(*add, "1").err
    assert "does not fit in 16 bits" in refused(*add, "0x10000").err
    assert "too large" in refused(*add, "1", "--rho", "8").err
    assert "1 to 256 bits" in refused(*add, "1", "--bits", "0").err
    assert "no party is named 'zoe'" in refused("party", "remove", "zoe").err
    missing = refused("party", "add", "zoe", "--key", "zoe.key", "--payload", "1")
    assert "key file 'zoe.key' does not exist (keybound keygen" in missing.err


# embed and verify


def test_the_path_of_a_party(run: Run, key: Path, host: Path, home: Path) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    made = run("embed", host, "out.wav", "--party", "alice")
    assert made.code == 0
    assert made.err == "keybound: sealed at position 0\nkeybound: record 1\n"
    again = run("embed", host, "again.wav", "--party", "alice")
    assert again.err == "keybound: sealed at position 1\nkeybound: record 2\n"
    said = r"marked, payload agrees in 1\d of 16 bits, sealed evidence p < 1e-\d+"
    assert re.fullmatch(f"{said}\n", made.out)
    verified = run("verify", "out.wav", "--party", "alice")
    assert verified.code == 0
    assert re.fullmatch(f"alice: {said}; the audio is that of record 1 of .*\n", verified.out)
    unmarked = run("verify", host, "--party", "alice")
    assert unmarked.code == 1
    assert unmarked.out.startswith("alice: no mark found (presence 0.")
    assert hidden(home) == []


def test_a_key_from_standard_input(run: Run, key: Path, host: Path) -> None:
    text = key.read_bytes()
    key.unlink()
    made = run("embed", host, "out.wav", "--key", "-", "--payload", PAYLOAD, stdin=text)
    assert made.code == 0
    whose = ("--key", "-", "--payload", "24301")
    assert run("verify", "out.wav", *whose, stdin=text).code == 0
    other = Key(bytes(32)).to_text().encode()
    wrong = run("verify", "out.wav", *whose, stdin=other)
    assert wrong.code == 1
    assert wrong.out.startswith("marked, but not by this key and payload: payload agrees in ")


def test_a_file_may_be_marked_without_reading_it_back(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD, "--position", "9")
    made = run("embed", host, "out.wav", *whose, "--no-check", "--json")
    assert made.code == 0
    assert made.json == {"output": "out.wav", "clipped": 0, "position": 9}
    assert run("embed", host, "both.wav", *whose).code == 0
    assert Path("out.wav").read_bytes() == Path("both.wav").read_bytes()


def test_a_nonce_is_part_of_the_mark(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    assert run("embed", host, "out.wav", *whose, "--nonce", "c11b01").code == 0
    assert run("verify", "out.wav", *whose, "--nonce", "C11B01").code == 0
    assert run("verify", "out.wav", *whose).code == 1


def test_a_seal_can_be_placed_required_and_left_out(
    run: Run, refused: Run, key: Path, host: Path
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    placed = run("embed", host, "out.wav", *whose, "--position", "70000", "--json")
    assert placed.json["position"] == 70000
    for extra, code in (((), 1), (("--position", "70000"), 0), (("--position", "3"), 1)):
        assert run("verify", "out.wav", *whose, *extra, "--require", "sealed").code == code
        assert run("verify", "out.wav", *whose, *extra).code == 0  # attributed in any case
    bare = run("embed", host, "bare.wav", *whose, "--no-seal", "--json")
    assert (bare.json["position"], bare.json["grade"], bare.err) == (None, "attributed", "")
    assert run("verify", "bare.wav", *whose).code == 0
    assert run("verify", "bare.wav", *whose, "--require", "sealed").code == 1
    both = ("--no-seal", "--position", "1")
    assert "leaves nothing to place" in refused("embed", host, "no.wav", *whose, *both).err


def test_a_seal_is_found_at_another_speed(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    run("embed", host, "out.wav", *whose, "--position", "5")
    assert run("attack", "speed", "out.wav", "fast.wav", "--strength", "1.02").code == 0
    sealed = (*whose, "--position", "5", "--require", "sealed")
    assert run("verify", "fast.wav", *sealed).code == 1
    assert run("verify", "fast.wav", *sealed, "--speed", "3").code == 0


def test_a_rolling_code_is_seen_by_verify(run: Run, refused: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", "0x5eed")
    assert run("embed", host, "out.wav", *whose, "--rolling", "--position", "7").code == 0
    known = run("verify", "out.wav", *whose, "--position", "7", "--json")
    assert (known.code, known.json["grade"], known.json["distance"]) == (0, "sealed", 0)
    both = refused("embed", host, "two.wav", *whose, "--rolling", "--no-seal")
    assert "--no-seal leaves nothing" in both.err


def test_verdicts_for_machines(run: Run, key: Path, host: Path) -> None:
    whose = ("--key", key, "--payload", PAYLOAD, "--json")
    made = run("embed", host, "out.wav", *whose).json
    assert made["verified"] is True
    assert (made["output"], made["clipped"]) == ("out.wav", 0)
    right = run("verify", "out.wav", *whose)
    assert right.code == 0
    verdict = right.json
    searched = ("output", "clipped", "position", "seal", "roll", "words", "marks", "bound")
    alike = {k: v for k, v in made.items() if k not in searched}
    assert alike == {k: v for k, v in verdict.items() if k not in searched}
    assert made["position"] == made["seal"]["position"] == verdict["seal"]["position"]
    assert made["seal"]["p"] < verdict["seal"]["p"] < 1e-12
    assert made["grade"] == verdict["grade"] == "sealed"
    assert set(verdict) == {
        "verified", "present", "presence", "threshold", "distance", "bits", "rho", "bound",
        "tries", "marks", "spans", "seal", "roll", "origin", "mask_known", "grade", "words",
    }  # fmt: skip
    assert verdict["spans"][0].keys() == {"start_s", "end_s", "score"}
    wrong = run("verify", "out.wav", "--key", key, "--payload", "0xa112", "--json")
    assert wrong.code == 1
    assert wrong.json["verified"] is False


def test_any_tries_every_party_and_corrects_the_bound(
    run: Run, key: Path, marked: Path, home: Path
) -> None:
    for number, name in enumerate(("bob", "carol", "dave")):
        Key(bytes([number]) * 32).write(home / f"{name}.key")
        run("party", "add", name, "--key", f"{name}.key", "--payload", "1", "--rho", "1")
    nobody = run("verify", marked, "--any")
    assert nobody.code == 1
    assert [line.split(":")[0] for line in nobody.out.splitlines()] == ["bob", "carol", "dave"]
    run("party", "add", "zoe", "--key", key, "--payload", PAYLOAD)
    found = run("verify", marked, "--any", "--json")
    assert found.code == 0
    verdicts = {row["party"]: row for row in map(json.loads, found.out.splitlines())}
    assert [name for name, row in verdicts.items() if row["verified"]] == ["zoe"]
    # Rho differs between the parties: the largest bound covers all of them.
    corrected = 1 - (1 - codes.bound(16, 2)) ** 4
    assert [row["bound"] for row in verdicts.values()] == pytest.approx([corrected] * 4)
    assert all(row["tries"] == 4 for row in verdicts.values())
    alone = run("verify", marked, "--party", "zoe", "--json").json
    assert alone["bound"] == pytest.approx(codes.bound(16, 2))
    assert verdicts["zoe"]["grade"] == "sealed"
    assert verdicts["zoe"]["seal"]["p"] == pytest.approx(4 * alone["seal"]["p"])


def test_any_of_nobody_is_refused(refused: Run, marked: Path) -> None:
    assert "no party is registered (keybound party add)" in refused("verify", marked, "--any").err


@pytest.mark.parametrize("who", ["--party alice", "--any"])
def test_a_party_of_another_model_is_refused(
    run: Run, refused: Run, key: Path, marked: Path, who: str
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", "0xed", "--bits", "8", "--rho", "1")
    message = "party 'alice' has a payload of 8 bits, and this model carries 16 (--model names"
    assert message in refused("verify", marked, *who.split()).err
    if who != "--any":
        assert message in refused("embed", marked, "out.wav", *who.split()).err


@pytest.mark.parametrize("who", ["--party alice", "--any"])
def test_a_party_without_its_key_is_named(
    run: Run, refused: Run, key: Path, marked: Path, who: str
) -> None:
    run("party", "add", "alice", "--key", key, "--payload", PAYLOAD)
    key.unlink()
    message = f"party 'alice': key file '{key}' does not exist (restore the key file, or remove"
    assert message in refused("verify", marked, *who.split()).err
    Key(bytes(32)).write(key)
    assert "is registered with key" in refused("verify", marked, *who.split()).err


def test_the_largest_wrong_bits_of_a_party_are_its_own(run: Run, key: Path, marked: Path) -> None:
    run("party", "add", "strict", "--key", key, "--payload", "0x5eec", "--rho", "0")
    run("party", "add", "lax", "--key", key, "--payload", "0x5eec", "--rho", "4")
    assert run("verify", marked, "--party", "strict").code == 1
    assert run("verify", marked, "--party", "lax").code == 0


FORMATS = [
    ("wav", "WAV", "PCM_16", 16_000, 1),
    ("wav", "WAV", "PCM_24", 44_100, 2),
    ("wav", "WAV", "FLOAT", 8_000, 1),
    ("flac", "FLAC", "PCM_24", 48_000, 1),
    ("ogg", "OGG", "VORBIS", 22_050, 2),
    ("opus", "OGG", "OPUS", 48_000, 1),
    ("mp3", "MP3", "MPEG_LAYER_III", 44_100, 2),
]


@pytest.mark.parametrize(("suffix", "kind", "subtype", "rate", "channels"), FORMATS)
def test_a_format_stays_what_it_was(
    run: Run, key: Path, suffix: str, kind: str, subtype: str, rate: int, channels: int
) -> None:
    samples, made = sf.read(DATA / "flite-rms.flac", dtype="float32")
    wide = audio.resample(samples, made, rate)
    sf.write(f"in.{suffix}", np.stack([wide] * channels, 1), rate, format=kind, subtype=subtype)
    whose = ("--key", key, "--payload", PAYLOAD)
    outcome = run("embed", f"in.{suffix}", f"out.{suffix}", *whose)
    assert outcome.code == 0, outcome.err
    before, after = sf.info(f"in.{suffix}"), sf.info(f"out.{suffix}")
    assert (after.format, after.subtype) == (kind, subtype)
    assert (after.samplerate, after.channels) == (rate, channels)
    assert abs(after.frames - before.frames) <= 1_152  # an MP3 ends with a whole frame
    assert run("verify", f"out.{suffix}", *whose).code == 0


def test_clipped_samples_are_reported(run: Run, key: Path, host: Path) -> None:
    samples, rate = sf.read(host)
    sf.write("loud.wav", np.clip(6 * samples, -1, 0.9999), rate)
    outcome = run("embed", "loud.wav", "out.wav", "--key", key, "--payload", PAYLOAD)
    assert outcome.code == 0
    first, _ = outcome.err.splitlines()
    assert re.fullmatch(r"keybound: samples limited to full scale: [1-9]\d*", first)


def test_silence_leaves_nothing_behind(refused: Run, key: Path, home: Path) -> None:
    sf.write("silence.wav", np.zeros(2 * RATE), RATE)
    outcome = refused("embed", "silence.wav", "out.wav", "--key", key, "--payload", PAYLOAD)
    assert outcome.err == (
        "keybound: silence.wav does not hold a mark: the recording is silent "
        "(nothing was written)\n"
    )
    assert hidden(home) == []


def test_silence_does_not_replace_what_is_there(refused: Run, key: Path, home: Path) -> None:
    sf.write("silence.wav", np.zeros(2 * RATE), RATE)
    (home / "out.wav").write_bytes(b"precious")
    whose = ("--key", key, "--payload", PAYLOAD)
    refused("embed", "silence.wav", "out.wav", "--force", *whose)


def test_an_output_that_exists_is_replaced_only_by_force(
    run: Run, refused: Run, key: Path, host: Path, home: Path
) -> None:
    (home / "out.wav").write_bytes(b"precious")
    whose = ("--key", key, "--payload", PAYLOAD)
    assert "out.wav exists (--force replaces it)" in refused("embed", host, "out.wav", *whose).err
    assert "out.wav exists (--force" in refused("attack", "noise", host, "out.wav").err
    assert run("embed", host, "out.wav", "--force", *whose).code == 0
    assert run("verify", "out.wav", *whose).code == 0
    assert run("attack", "polarity", host, "out.wav", "--force").code == 0
    np.testing.assert_array_equal(sf.read("out.wav")[0], -sf.read(host)[0])


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("output", ["host.wav", "./host.wav", "link.wav"])
def test_a_recording_is_never_written_over_itself(
    refused: Run, key: Path, host: Path, home: Path, output: str, force: tuple[str, ...]
) -> None:
    (home / "link.wav").symlink_to(host)
    whose = ("--key", key, "--payload", PAYLOAD)
    message = "is the recording itself (name another output)"
    assert message in refused("embed", "host.wav", output, *whose, *force).err
    assert message in refused("attack", "noise", "host.wav", output, *force).err


OUTPUTS = {
    "nowhere/out.wav": "nowhere is not a folder (make it first)",
    "alice.key/out.wav": "alice.key is not a folder (make it first)",
    "out.txt": "out.txt does not end in the name of a known format (wav, flac",
    "out": "out does not end in the name of a known format",
    ".": ". is a folder (name a file in it)",
    "a" * 300 + ".wav": "cannot be written",
}


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda name: name[:20])
def test_an_output_that_cannot_be_is_refused(
    refused: Run, key: Path, host: Path, output: str
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    assert OUTPUTS[output] in refused("embed", host, output, *whose).err
    assert OUTPUTS[output] in refused("attack", "polarity", host, output).err


# Bad recordings and bad keys


def bad_recordings(home: Path, host: Path) -> dict[str, str]:
    """Make files that are no recordings, and say what is to be said of each."""
    whole = host.read_bytes()
    samples, rate = sf.read(host, dtype="float32")
    (home / "empty.wav").write_bytes(b"")
    (home / "cut.wav").write_bytes(whole[: len(whole) // 2])
    (home / "head.wav").write_bytes(whole[:20])
    (home / "text.wav").write_text("dear diary\n" * 100)
    (home / "folder.wav").mkdir()
    sf.write(home / "nan.wav", np.where(np.arange(len(samples)) == 99, np.nan, samples), rate,
             subtype="FLOAT")  # fmt: skip
    sf.write(home / "zero.wav", samples[:0], rate)
    sf.write(home / "short.wav", samples[: rate // 100], rate)
    sf.write(home / "slow.wav", samples, 4_000)
    sf.write(home / "apple.aiff", samples, rate)
    return {
        "empty.wav": "empty.wav is empty (",
        "cut.wav": "cut.wav is cut short",
        "head.wav": "head.wav is damaged, cut short or of an unknown codec (",
        "text.wav": "text.wav is not a recording that can be read (wav, flac, ogg,",
        "folder.wav": "folder.wav is not a file (",
        "nan.wav": "nan.wav holds samples that are not finite numbers (",
        "zero.wav": "zero.wav holds no samples (",
        "short.wav": "10 ms is too short for a mark (at least 0.1 s, better a second or more)",
        "slow.wav": "a sample rate of 4000 Hz is not supported (",
        "apple.aiff": "aiff is not supported (",
        "missing.wav": "missing.wav cannot be read: no such file or directory (check the name)",
    }


@pytest.mark.parametrize("verb", ["embed", "detect", "verify", "attack"])
def test_a_bad_recording_is_refused_in_one_line(
    refused: Run, key: Path, host: Path, home: Path, verb: str
) -> None:
    whose = ("--key", key, "--payload", PAYLOAD)
    for name, message in bad_recordings(home, host).items():
        if verb == "attack" and name == "short.wav":  # an attack needs no second
            continue
        arguments = {
            "embed": ("embed", name, "out.wav", *whose),
            "detect": ("detect", name),
            "verify": ("verify", name, *whose),
            "attack": ("attack", "noise", name, "out.wav"),
        }[verb]
        assert message in refused(*arguments).err
    assert not (home / "out.wav").exists()
    assert hidden(home) == []


def bad_keys(home: Path, key: Path) -> dict[str, str]:
    """Make files that are no keys, and say what is to be said of each."""
    text = key.read_text()
    (home / "typo.key").write_text(text.replace("000102", "000103"))
    (home / "newer.key").write_text(text.replace("keybound-key-1:", "keybound-key-2:"))
    (home / "empty.key").write_text("")
    (home / "ssh.key").write_text("ssh-ed25519 AAAA me\n")
    (home / "two.key").write_text(text + text)
    return {
        "host.wav": "is not a key: it looks like a WAV recording (keybound keygen",
        "typo.key": "its checksum does not match (",
        "newer.key": "has version 2",
        "empty.key": "(keybound keygen makes a key file)",
        "ssh.key": "looks like an SSH public key",
        "two.key": "holds 2 keys (",
        ".": "is a folder (",
        "missing.key": "does not exist (keybound keygen makes a key file)",
    }


def test_a_bad_key_is_refused_in_one_line(refused: Run, key: Path, host: Path, home: Path) -> None:
    for name, message in bad_keys(home, key).items():
        whose = ("--key", name, "--payload", PAYLOAD)
        assert message in refused("embed", host, "out.wav", *whose).err
        assert message in refused("verify", host, *whose).err
        assert message in refused("party", "add", "alice", *whose).err
    err = refused("verify", host, "--key", "-", "--payload", "1", stdin=b"hello").err
    assert "the key on standard input is not a key (" in err


@pytest.mark.parametrize("payload", ["0x10000", "65536", "-1"])
def test_a_payload_too_large_is_refused_before_any_work(
    refused: Run, key: Path, host: Path, payload: str
) -> None:
    whose = ("--key", key, "--payload", payload)
    message = "does not fit in 16 bits (a payload of 16 bits lies between 0 and 0xffff)"
    assert message in refused("embed", host, "out.wav", *whose).err
    assert message in refused("verify", "missing.wav", *whose).err


def test_a_folder_without_weights_is_refused(refused: Run, key: Path, host: Path) -> None:
    for verb in (["detect", host], ["verify", host, "--key", key, "--payload", "1"]):
        assert "no card.json in nowhere (a folder of weights" in (
            refused(*verb, "--model", "nowhere").err
        )


# detect


def test_detect_for_people(run: Run, host: Path, marked: Path) -> None:
    found = run("detect", marked)
    assert (found.code, found.err) == (0, "")
    first, *spans = found.out.splitlines()
    assert re.fullmatch(r"marked \(presence [01]\.\d{3}\)", first)
    assert spans
    assert all(re.fullmatch(r" +\d+\.\d\d s to +\d+\.\d\d s  [01]\.\d{3}", s) for s in spans)
    nothing = run("detect", host)
    assert nothing.code == 1
    assert re.fullmatch(r"no mark found \(presence 0\.\d{3}\)\n", nothing.out)


def test_a_mark_in_a_small_part_is_found_and_verified(
    run: Run, host: Path, marked: Path, key: Path
) -> None:
    unmarked = sf.read(host)[0]
    sf.write("long.wav", np.concatenate([*[unmarked] * 4, sf.read(marked)[0]]), RATE)
    found = run("detect", "long.wav")
    assert found.code == 0
    first, span = found.out.splitlines()
    assert first.startswith("marked (presence 0.")
    start_s, end_s = (float(word) for word in re.findall(r"(\d+\.\d+) s", span))
    seconds = len(unmarked) / RATE
    assert (start_s, end_s) == (
        pytest.approx(4 * seconds, abs=0.25),
        pytest.approx(5 * seconds, abs=0.25),
    )
    verdict = run("verify", "long.wav", "--key", key, "--payload", PAYLOAD)
    assert verdict.code == 0
    assert verdict.out.startswith("marked, payload agrees in 16 of 16 bits")


def test_detect_for_machines(run: Run, marked: Path, marker: Watermarker) -> None:
    plain = run("detect", marked, "--json").json
    assert set(plain) == {
        "present", "presence", "threshold", "evidence_s", "evidence_threshold_s", "spans",
    }  # fmt: skip
    assert plain["present"] is True
    heard = audio.read(marked)
    found = marker.detect(heard.samples, heard.sample_rate)
    assert plain["presence"] == pytest.approx(found.presence)
    whole = run("detect", marked, "--json", "--frames").json
    assert whole["frame_s"] == 0.02
    np.testing.assert_allclose(whole["frame_presence"], found.frame_presence, atol=1e-6)
    np.testing.assert_allclose(whole["frame_logits"], found.frame_logits, atol=1e-4)


def test_detect_draws_where_the_mark_is(run: Run, refused: Run, host: Path, marked: Path) -> None:
    for name in ("spans.svg", "spans.png"):
        assert run("detect", marked, "--plot", name).code == 0
        assert Path(name).stat().st_size > 2_000
    assert "marked in 1 span" in Path("spans.svg").read_text()
    assert run("detect", host, "--plot", "none.svg").code == 1
    assert "does not end in the name of a picture" in refused("detect", marked, "--plot", "a.x").err


# attack


def test_attacks_are_listed_with_their_dials(run: Run) -> None:
    listed = run("attack", "--list")
    assert listed.code == 0
    lines = {line.split()[0]: line for line in listed.out.splitlines()}
    assert list(lines) == list(ATTACKS)
    assert lines["noise"].endswith("[--strength: snr_db]")
    assert lines["polarity"].endswith(ATTACKS["polarity"].summary)
    columns = {line.index(line.split(maxsplit=1)[1], 2 + len(name)) for name, line in lines.items()}
    assert len(columns) == 1  # however long a name is


def test_an_attack_does_what_its_strength_says_and_repeats(run: Run, host: Path) -> None:
    drawn = run("attack", "noise", host, "a.wav", "--strength", "12.5", "--seed", "3")
    assert (drawn.code, drawn.err) == (0, "")
    assert drawn.json["snr_db"] == 12.5
    clean, noisy = sf.read(host)[0], sf.read("a.wav")[0]
    snr_db = 10 * np.log10(np.mean(clean**2) / np.mean((noisy - clean) ** 2))
    assert snr_db == pytest.approx(12.5, abs=0.3)
    run("attack", "noise", host, "b.wav", "--strength", "12.5", "--seed", "3")
    run("attack", "noise", host, "c.wav", "--strength", "12.5", "--seed", "4")
    np.testing.assert_array_equal(sf.read("b.wav")[0], noisy)
    assert not np.array_equal(sf.read("c.wav")[0], noisy)


def test_attacks_in_a_row_on_two_channels_keep_the_format(run: Run, host: Path) -> None:
    samples, rate = sf.read(host)
    sf.write("in.flac", np.stack([samples, 0.5 * samples], 1), rate, subtype="PCM_24")
    drawn = run("attack", "gain+polarity", "in.flac", "out.flac")
    assert len(drawn.json["parts"]) == 2
    info = sf.info("out.flac")
    assert (info.format, info.subtype, info.channels) == ("FLAC", "PCM_24", 2)
    before, after = sf.read("in.flac")[0], sf.read("out.flac")[0]
    np.testing.assert_allclose(after, -0.5 * before, atol=2**-22)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nois",), "no attack is named 'nois' (did you mean noise"),
        (("noise+nothing",), "no attack is named 'nothing'"),
        (("noise", "--strength", "500"), "snr_db cannot be 500 (a number from -20 to 100)"),
        (("noise", "--strength", "nan"), "snr_db cannot be nan ("),
        (("polarity", "--strength", "1"), "has no strength"),
        (("noise+mp3", "--strength", "1"), "chain"),
    ],
)
def test_an_attack_that_cannot_be_is_refused(
    refused: Run, host: Path, arguments: tuple[str, ...], message: str
) -> None:
    name, *more = arguments
    assert message in refused("attack", name, host, "out.wav", *more).err


# demo


def test_the_demo_shows_the_whole_path(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = iter([Key(bytes(range(32))), Key(bytes(32))])  # the same ones every time
    monkeypatch.setattr(Key, "generate", classmethod(lambda _: next(keys)))
    shown = run("demo", "--out", "shown")
    assert (shown.code, shown.err) == (0, "")
    rows = [[cell.strip() for cell in re.split("[│┃]", line)] for line in shown.out.splitlines()]
    verdicts = {row[1]: row[2:] for row in rows if len(row) > 6}
    assert verdicts["unmarked"][1] == "no"
    assert verdicts["unmarked"][3:5] == ["none", "none"]
    assert verdicts["marked"][1:5] == ["yes", "16 of 16", "sealed", "present"]
    assert all(row[4] in ("none", "present", "wrong key") for row in verdicts.values())
    assert len(verdicts) > 6
    assert shown.out.endswith("wrote shown/marked.flac and shown/spectrogram.png\n")
    assert {path.name for path in (home / "shown").iterdir()} == {"marked.flac", "spectrogram.png"}
    marked, clip = sf.info("shown/marked.flac"), sf.info(SPEECH)
    assert (marked.frames, marked.samplerate) == (clip.frames, clip.samplerate)
    assert run("detect", "shown/marked.flac").code == 0
    assert (home / "shown" / "spectrogram.png").read_bytes().startswith(b"\x89PNG")


def test_a_demo_without_a_folder_is_refused(refused: Run, key: Path) -> None:
    for out in (key, key / "demo"):
        assert "cannot be made a folder (--out" in refused("demo", "--out", out).err
