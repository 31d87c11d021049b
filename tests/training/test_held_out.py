"""Channels that are held out for the benchmark: nothing under training can reach one."""

import ast
import sys
from pathlib import Path

import pytest

import keybound.training

MODULES = sorted(Path(keybound.training.__path__[0]).glob("*.py"))
ATTACKS = {"keybound.attacks.codecs": {"mp3", "opus", "vorbis"}}  # all that training may use
BY_NAME = {"attack", "available"}  # what the fit of bytes may use, for attacks that it names
PACKAGES = {  # what training may import beside the standard library and itself
    "torch", "numpy", "onnx", "onnxruntime", "safetensors", "soundfile", "soxr", "rich", "google",
    "encodec",
}  # fmt: skip
HELD_OUT = ("hifigan", "codec2", "speex", "gsm", "rnnoise", "deepfilter", "bigvgan", "dac_")


def imports(path: Path) -> list[tuple[str, set[str]]]:
    """Return the modules that a file imports, wherever it does, with the names it takes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, set()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.module or "", {alias.name for alias in node.names}))
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_training_takes_three_codecs_from_the_attacks_and_no_other_package(path):
    for module, names in imports(path):
        top = module.partition(".")[0]
        if module.startswith("keybound.attacks"):
            assert names
            fitting = path.stem == "quantise" and module == "keybound.attacks"
            assert names <= (BY_NAME if fitting else ATTACKS.get(module, set()))
        elif top != "keybound":
            assert top in PACKAGES or top in sys.stdlib_module_names
        else:
            assert "attacks" not in names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_training_names_no_channel_that_is_held_out(path):
    text = path.read_text().lower().replace("-", "")
    assert [name for name in HELD_OUT if name in text] == []
