"""What the base install holds is enough to embed, detect and verify, and `import` loads less."""

import subprocess
import sys
from pathlib import Path

import pytest

from keybound.demo import SPEECH

ABSENT = ("scipy", "matplotlib", "torch", "pesq", "pystoi", "pyarrow", "ray", "cryptography")


def without_extras(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in which no package of an extra can be imported."""
    block = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", block + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def keybound(*arguments: object) -> subprocess.CompletedProcess[str]:
    return without_extras("from keybound.cli.main import main; main()", *arguments)


def test_importing_loads_what_the_interface_needs_and_no_more() -> None:
    program = "import keybound; print(sorted({'click', 'rich', 'onnxruntime'} & set(sys.modules)))"
    done = without_extras(program)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_recording_is_embedded_detected_and_verified(tmp_path: Path) -> None:
    key, marked = tmp_path / "a.key", tmp_path / "marked.wav"
    whose = ("--key", key, "--payload", "0x5eed")
    assert keybound("keygen", key).returncode == 0
    done = keybound("embed", SPEECH, marked, *whose)
    assert done.returncode == 0, done.stderr
    assert keybound("detect", marked).returncode == 0
    assert keybound("verify", marked, *whose, "--require", "sealed").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("demo",), "scipy", "demo"),
        (("detect", SPEECH, "--plot", "x.svg"), "matplotlib", "plot"),
        (("attack", "mp3", SPEECH, "x.wav"), "scipy", "attacks"),
        (("bench", "run", "paper", "--speech", "."), "pesq", "bench"),
        (("train", "x", "--speech", ".", "--noise", ".", "--out", "."), "torch", "train"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    arguments: tuple[object, ...], package: str, extra: str
) -> None:
    done = keybound(*arguments)
    assert done.returncode == 2
    assert done.stderr == (
        f"keybound: this needs {package}, which is not installed"
        f" (pip install 'keybound[{extra}]')\n"
    )
