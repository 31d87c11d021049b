"""What the base install holds is enough to embed, detect and verify, and `import` loads less."""

import ast
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import keybound as keybound_package
from keybound.demo import SPEECH

ROOT = Path(__file__).resolve().parents[1]
VENV_MB = 30  # pip and setuptools, which every environment has
ABSENT = (
    "scipy",
    "matplotlib",
    "torch",
    "pesq",
    "pystoi",
    "pyarrow",
    "ray",
    "cryptography",
    "psycopg",
    "fastapi",
    "uvicorn",
)


def without_extras(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program in which no package of an extra can be imported."""
    block = f"import sys\nfor name in {ABSENT!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", block + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def keybound(*arguments: object) -> subprocess.CompletedProcess[str]:
    return without_extras("from keybound.cli.main import main; main()", *arguments)


def test_importing_loads_no_package_and_takes_a_fourth_of_what_numpy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")  # as installed: compiled once
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    program = """
from time import process_time
start = process_time()
import keybound
half = process_time()
assert not {"numpy", "click", "rich", "onnxruntime"} & set(sys.modules)
import numpy
print(half - start, process_time() - half)
"""
    runs = [list(map(float, without_extras(program).stdout.split())) for _ in range(4)]
    ours, numpys = (min(times) for times in zip(*runs, strict=True))
    assert ours < numpys / 4


def test_every_public_name_is_loaded_and_has_its_type_in_the_stub() -> None:
    program = (
        "import keybound; print(*(getattr(keybound, one).__name__ for one in keybound.__all__))"
    )
    done = without_extras(program)
    assert done.stdout.split() == keybound_package.__all__
    stub = ast.parse((ROOT / "src/keybound/__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {name.name: node.module for node in imports for name in node.names}
    assert homes == {
        name: f"keybound.{home}" for name, home in vars(keybound_package)["_HOMES"].items()
    }


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = getattr(keybound_package, "nothing")  # noqa: B009 (the stub knows no such name)


def base_packages() -> set[str]:
    """Return the packages that `pip install .` brings, with all that these need."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted, found = list(settings["project"]["dependencies"]), set()
    while wanted:
        one = Requirement(wanted.pop())
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(one.name)
            wanted += metadata.requires(one.name) or []
    return found


def test_the_base_install_holds_no_package_of_an_extra_and_stays_below_220_mb() -> None:
    packages = base_packages()
    assert {"numpy", "soundfile", "soxr", "onnxruntime", "click", "rich"} <= packages
    assert not packages & set(ABSENT)
    files = [Path(str(file.locate())) for name in packages for file in metadata.files(name) or []]
    files += [path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts]
    size_mb = sum(path.stat().st_size for path in files if path.is_file()) / 2**20
    assert 100 < size_mb + VENV_MB < 220


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
        (("party", "list", "--registry", "postgresql:///keybound"), "psycopg", "postgres"),
        (("serve",), "uvicorn", "serve"),
        (("page", "--out", "x"), "fastapi", "serve"),
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


def test_detection_reports_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path))
    command = [sys.executable, "-m", "keybound", "detect", SPEECH]
    unset = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(command, env=unset | places, capture_output=True)
    assert done.returncode == 1
    assert not list(tmp_path.rglob("*"))
