"""The command line as a user meets it: the program, keys and parties, attacks, the demo."""

import dataclasses
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

from keybound.attacks import ATTACKS
from keybound.cli import main
from keybound.cli.batch import Asked
from keybound.crypto.keys import Key
from keybound.demo import SPEECH
from keybound.model.detection import FALSE_ALARMS
from keybound.watermark import options

PAYLOAD = "0x5eed"

Run = Callable[..., Any]  # to the outcome of `run` in conftest

pytestmark = pytest.mark.usefixtures("home")


# The program


def test_the_entry_point_is_installed() -> None:
    (point,) = importlib.metadata.entry_points(group="console_scripts", name="keybound")
    assert point.load() is main.main


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
from keybound.cli.main import main
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
    program = "import sys; from keybound.cli import main; print('onnxruntime' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=home
    )
    assert done.stdout == "False\n"


# keygen and party


def test_keygen_writes_a_private_file_and_prints_its_id(run: Run, home: Path) -> None:
    made = run("keygen", "my.key", "--comment", "for tests")
    assert made.code == 0
    assert made.err == "keybound: wrote my.key; keep it secret and keep a copy\n"
    key = Key.read(home / "my.key")
    assert made.out == f"{key.id}\n"
    assert stat.S_IMODE((home / "my.key").stat().st_mode) == 0o600
    assert (home / "my.key").read_text().startswith("# for tests\n")
    assert key.secret.hex() not in made.out + made.err


def test_keygen_never_overwrites(run: Run, refused: Run) -> None:
    run("keygen", "my.key")
    assert "my.key exists (key files are never" in refused("keygen", "my.key").err


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
    run("party", "add", "bob", "--key", key, "--payload", "7", "--bits", "16", "--rho", "1")
    key_id = Key.read(key).id
    listed = run("party", "list")
    assert listed.out.splitlines() == [
        f"alice\t0x5eed\t{key_id}\t{key}",
        f"bob\t0x0007\t{key_id}\t{key}",
    ]
    rows = [json.loads(line) for line in run("party", "list", "--json").out.splitlines()]
    assert [row["name"] for row in rows] == ["alice", "bob"]
    assert (rows[1]["bits"], rows[1]["rho"], rows[1]["payload"]) == (16, 1, 7)
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
    other = ("party", "add", "bob", "--key", key, "--payload", "1", "--bits")
    for bits in ("0", "8", "20"):
        said = f"the model carries payloads of 16 bits, not {bits} (--model names other weights)"
        assert said in refused(*other, bits).err
    assert "no party is named 'zoe'" in refused("party", "remove", "zoe").err
    missing = refused("party", "add", "zoe", "--key", "zoe.key", "--payload", "1")
    assert "key file 'zoe.key' does not exist (keybound keygen" in missing.err


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


def test_the_defaults_of_the_options_are_those_of_the_library() -> None:
    """They are written twice, since the command line starts without numpy."""
    given = {
        p.name: p.default for verb in ("embed", "verify") for p in main.cli.commands[verb].params
    }
    assert given["excerpt"] == options.EXCERPT_S
    assert (given["false_alarms"], given["speed"]) == (FALSE_ALARMS, options.USUAL.speed)
    for name in ("excerpt", "false_alarms", "speed"):
        assert {f.name: f.default for f in dataclasses.fields(Asked)}[name] == given[name]
