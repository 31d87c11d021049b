"""The plans behind the verbs of `keybound bench`: what the name of a suite stands for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keybound.attacks import SUITES, attack
from keybound.attacks.scene import noise_recordings
from keybound.benchmark.measure import adversaries, removal, seals, security
from keybound.benchmark.measure.methods import STUDIES, Method
from keybound.benchmark.measure.plan import Plan
from keybound.benchmark.measure.robustness import QUALITY
from keybound.benchmark.measure.run import ATTACKS
from keybound.errors import KeyBoundError

SPECIAL = ("security", "negatives", *adversaries.SUITES)  # measured otherwise than attack by attack


def of_suites(
    make: Callable[[], Method],
    suites: Sequence[str],
    speech: Path,
    *,
    seconds: float = 1.0,
    clips: int | None = 300,
    seed: int = 0,
    speech_set: str | None = None,
    every: bool = False,
    joined: bool = False,
    detector: Callable[[], Any] | None = None,
) -> list[Plan]:
    """Return the plans of suites of attacks, single attacks, quality alone, or what is SPECIAL.

    `speech_set` names speech beside the main set. Its rows stand in one table alone, which needs
    neither DNSMOS nor what attacks do to the speech; nor do the tables of studies.
    """
    check_set(speech_set, suites, every=every)
    names: dict[str, None] = {}
    for suite in suites:
        if suite not in (*SPECIAL, QUALITY, *SUITES):
            attack(suite)  # refuse unknown names before anything is measured
        if suite not in (*SPECIAL, QUALITY):
            names |= dict.fromkeys(SUITES.get(suite, (suite,)))
    study = make().name.startswith(STUDIES)
    main = speech_set is None and not study
    parts: tuple[str, ...] = (ATTACKS,) if names or QUALITY in suites else ()
    if "security" in suites:
        parts += ("transplant", "carrier") if study else tuple(security.SUITES)
    parts += tuple(suite for suite in adversaries.SUITES if suite in suites)
    plan = Plan(make, (speech,), parts, tuple(names), {seconds: clips}, seed=seed, every=every)
    plan = replace(
        plan, speech_set=speech_set, joined=joined, detector=detector, opinion=main, damage=main
    )
    if "negatives" not in suites:
        return [plan]
    noise = noise_recordings()[0].parent
    other = replace(plan, suites=("null",), attacks=SUITES["paper"], lengths=None, noise=noise)
    return [plan, other]


def check_set(name: str | None, suites: Sequence[str], *, every: bool) -> None:
    """Raise an error for what would mix the rows of a set of speech with those of the main one."""
    if name is None and every:
        why = "clips of the main set are the first of each recording"
        raise KeyBoundError(why, hint="--every goes with --set NAME")
    if name is None:
        return
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        hint = "lower case, digits and hyphens"
        raise KeyBoundError(f"not a name for a set of speech: {name!r}", hint=hint)
    if special := [suite for suite in suites if suite in SPECIAL]:
        why = f"{special[0]} is measured on the main set of speech only"
        raise KeyBoundError(why, hint="leave --set away")


def of_seals(
    make: Callable[[], Method],
    speech: Sequence[Path],
    *,
    parts: Sequence[str] = (),
    removers: Path | None = None,
    most: int | None = None,
    seed: int = 0,
) -> Plan:
    """Return the plan of sealed evidence on joined recordings, of all parts or of those named."""
    suites = tuple(
        suite for suite in seals.SUITES if not parts or suite.removeprefix("seal-") in parts
    )
    plan = Plan(make, tuple(speech), suites, SUITES["sealed"], most=most, seed=seed)
    return replace(plan, removers=find_removers(removers) if removers else ())


def of_removers(make: Callable[[], Method], speech: Path, folder: Path) -> Plan:
    """Return the plan of the trained removers in a folder."""
    plan = Plan(make, (speech,), ("remover",), removers=find_removers(folder))
    for path in plan.removers:
        removal.load(path)  # refuse what is no remover before anything is measured
    return plan


def find_removers(folder: Path) -> tuple[Path, ...]:
    """Return the trained removers in a folder."""
    if found := tuple(sorted(folder.glob("*-*.safetensors"))):
        return found
    raise KeyBoundError(f"no removers in {folder}", hint="keybound bench remove --train FOLDER")
