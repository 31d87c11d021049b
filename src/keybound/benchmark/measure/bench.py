"""What `keybound bench` does: suites of attacks, security, false alarms, speed, the report."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from keybound.attacks import attack, available
from keybound.attacks.scene import noise_recordings
from keybound.attacks.suites import SUITES
from keybound.benchmark import peers
from keybound.benchmark.measure import negatives, security, speed
from keybound.benchmark.measure.methods import Method, keybound
from keybound.benchmark.measure.protocol import Row, read_clips, secret_of
from keybound.benchmark.measure.run import (
    Make,
    Plan,
    environment,
    identity,
    line_of,
    mend,
    read_rows,
    run,
)
from keybound.benchmark.report.document import write_report
from keybound.benchmark.report.summaries import STUDIES
from keybound.errors import KeyBoundError

Bar = Callable[[str], Callable[[int, int], None]]

SPECIAL = ("security", "nulls", "speed")  # measured otherwise than attack by attack


def measure(
    suites: Sequence[str],
    speech: Path,
    path: Path,
    *,
    method: str,
    model: str | None,
    seconds: float,
    clips: int,
    seed: int,
    workers: int,
    progress: Bar,
    speech_set: str | None = None,
    every: bool = False,
) -> int:
    """Measure suites, single attacks, or one of SPECIAL, and append rows; give how many.

    `speech_set` names speech beside the main set. Its rows stand in one table alone, which needs
    neither DNSMOS nor what attacks do to the speech.
    """
    check_set(speech_set, suites, every=every)
    make = chosen(method, model)
    for suite in suites:
        if suite not in (*SPECIAL, *SUITES):
            attack(suite)  # refuse unknown names before anything is measured
    made_up = make()
    study = made_up.name.startswith(STUDIES)  # whose tables need less
    made = append(path, [facts_of(made_up)])
    names: list[str] = []
    for suite in suites:
        if suite == "security":
            heard = read_clips(speech, max(seconds, made_up.seconds), made_up.rate, limit=clips)
            told = security.names_of(speech, seconds, clips)
            kinds = ("transplant",) if study else tuple(security.SUITES)
            made += append(path, security.measure(made_up, heard, told, seed=seed, suites=kinds))
        elif suite == "nulls":
            made += append(path, false_alarms(made_up, speech, seed))
        elif suite == "speed":
            made += append(path, speed.measure())
        else:
            names += SUITES.get(suite, (suite,))
    absent = {n: why for n in names if n != "clean" and (why := missing(n)) is not None}
    lines = [{"method": made_up.name, "attack": n, "reason": why} for n, why in absent.items()]
    made += append(path, lines)
    here = tuple(dict.fromkeys(n for n in names if n not in absent))
    if here:
        main = speech_set is None and not study
        how: dict[str, Any] = {"seconds": seconds, "clips": clips, "seed": seed, "every": every}
        plan = Plan(speech, here, **how, opinion=main, damage=main, speech_set=speech_set)
        made += run(make, plan, path, progress=progress("measuring"), workers=workers)
    return made


def chosen(method: str, model: str | None) -> Make:
    """Give a known method, or KeyBound with other weights as a method of its own.

    Under one name the newest rows would hide the others. A name that is given, such as
    `ablation/no-anchor` or `paper`, is that of a study of the learned layer: no seal then.
    """
    if model and method == "keybound":
        return partial(keybound, Path(model), f"keybound/{Path(model).name}")
    if model and method not in peers.METHODS:
        return partial(keybound, Path(model), method, seal=False)
    if model:
        raise KeyBoundError(f"{method} has no other weights", hint="--model is for keybound")
    if (why := peers.available(method)) is not None:
        raise KeyBoundError(f"{method} cannot run here: {why}")
    made: Make = peers.METHODS[method]
    return made


def facts_of(method: Method) -> Row:
    """Give what a method says of itself."""
    facts: Row = {"suite": "method", "method": method.name, "version": method.version}
    facts |= {"rate": method.rate, "bits": method.bits, "rho": method.rho}
    facts |= {"keyed": method.keyed, "threshold": method.threshold}
    return facts | {"versions": environment()}


def seals(
    speech: Sequence[Path],
    path: Path,
    *,
    parts: Sequence[str],
    networks: Path | None,
    model: str | None,
    rolling: bool,
    most: int | None,
    seed: int,
    workers: int,
    progress: Bar,
) -> int:
    """Measure sealed evidence on joined recordings, at most `most` of each length if given."""
    from keybound.benchmark.measure import seals_run
    from keybound.benchmark.measure.seals import ATTACKS, LENGTHS, Plan

    chosen = {part: part.removeprefix("seal-") for part in seals_run.PARTS}
    plan = Plan(
        speech=tuple(speech),
        parts=tuple(part for part, said in chosen.items() if not parts or said in parts),
        removers=tuple(sorted(networks.glob("*-*.safetensors"))) if networks else (),
        seed=seed,
        model=Path(model) if model else None,
        rolling=rolling,
    )
    if networks and not plan.removers:
        raise KeyBoundError(f"no removers in {networks}", hint="keybound bench remove --train")
    absent = {name: why for name in ATTACKS if name != "clean" and (why := missing(name))}
    plan = replace(plan, attacks=tuple(name for name in ATTACKS if name not in absent))
    if most is not None:
        fewer: Any = dict.fromkeys(("hosts", "forgeries", "scored"), most)
        plan = replace(plan, **fewer, lengths={s: min(n, most) for s, n in LENGTHS.items()})
    method = plan.make()
    lines: list[Row] = [
        {"method": method.name, "attack": n, "reason": w} for n, w in absent.items()
    ]
    made = append(path, [facts_of(method), *lines])
    return made + seals_run.run(plan, path, progress=progress("measuring"), workers=workers)


def remove(
    speech: Path,
    path: Path,
    networks: Path,
    *,
    method: str,
    model: str | None,
    train: Path | None,
    minutes: float,
    device: str,
    say: Callable[[str], None],
) -> int:
    """Measure the removers in a folder on test clips, trained before on other speech if asked."""
    import torch
    from safetensors import SafetensorError

    from keybound.benchmark.measure import removal, removers

    make = chosen(method, model)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch raises either for what is not here
        raise KeyBoundError(f"no device {device!r} here", hint="cpu or cuda") from error
    made_up = make()
    if train is not None:
        networks.mkdir(parents=True, exist_ok=True)
        pairs = networks / "pairs.safetensors"
        removal.save_pairs(made_up, train, pairs)
        removers.train_all([pairs], networks, device=device, minutes=minutes, say=say)
    found = sorted(networks.glob("*-*.safetensors"))
    if not found:
        raise KeyBoundError(f"no removers in {networks}", hint="--train FOLDER makes them")
    clips = read_clips(speech, max(1.0, made_up.seconds), made_up.rate, limit=removal.CLIPS)
    made = 0
    for file in found:
        try:
            network = removers.load(file)
        except (SafetensorError, KeyError, TypeError, RuntimeError) as error:
            raise KeyBoundError(f"{file} is not a remover", hint="train it anew") from error
        say(f"{network.name} after {network.steps} steps")
        made += append(path, removal.measure(made_up, network, clips))
    return made


def check_set(name: str | None, suites: Sequence[str], *, every: bool) -> None:
    """Refuse what would mix the rows of a set of speech with those of the main one."""
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


def missing(name: str) -> str | None:
    """Say why an attack, or a part of a chain, cannot run here."""
    return next((why for part in name.split("+") if (why := available(part))), None)


def false_alarms(method: Method, speech: Path, seed: int) -> Iterable[Row]:
    """Score unmarked audio that is not clean speech: noise, made sounds, attacked validation."""
    noise = noise_recordings()[0].parent
    return negatives.measure(method, noise=noise, speech=speech, attacks=SUITES["paper"], seed=seed)


def append(path: Path, rows: Iterable[Row]) -> int:
    """Append the rows that are not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path)
    done = {(identity(row), row.get("reason")) for row in read_rows(path)}
    count = 0
    with path.open("a", encoding="utf-8") as file:
        for row in rows:
            if (identity(row), row.get("reason")) not in done:
                file.write(line_of(row))
                count += 1
    return count


def report(path: Path, out: Path, speech: Path | None) -> Path:
    """Write the report of the rows, with a gallery of one clip if there is speech."""
    return write_report(read_rows(path), out, gallery(speech) if speech else None)


def gallery(speech: Path) -> dict[str, tuple[Any, int]]:
    """Give one clip as host, marked, carrier, and marked under some attacks."""
    import numpy as np

    method = keybound()
    (host,) = read_clips(speech, 3.0, method.rate, limit=1)
    marked = method.embed(host, secret_of(0, 0, method.bits))
    clips = {"host": host, "marked": marked, "carrier": marked - host}
    for name in ("lyra-6", "griffin-lim", "mp3", "noise-10"):
        if available(name) is None:
            hit = attack(name)
            drawn = hit.draw(np.random.default_rng(0), None)
            clips[f"marked, {name}"] = hit.apply(marked, method.rate, drawn)
    return {name: (samples, method.rate) for name, samples in clips.items()}
