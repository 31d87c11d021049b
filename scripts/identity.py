"""Measure identifiers: how often they are read, and the CPU of identifying.

    python scripts/identity.py read --speech FOLDER --speech FOLDER --trials 200
    python scripts/identity.py cpu --speech FOLDER --records 1000 --records 100000
    python scripts/identity.py short --speech FOLDER --records 100000 --trials 20

Recordings of one speaker are joined. `read` marks them with an identifier and a seal, attacks them
and prints the share whose serial is read. `cpu` prints the seconds of CPU beside detection, by the
number of records and parties. `short` prints how often three seconds, cut anywhere, are found by
their audio among the records of a party and hold the rule V_A. Set KEYBOUND_LYRA for Lyra, and
KEYBOUND_THREADS=1. Identifiers that are read by chance: wrong_identifiers.py.
"""

import argparse
import itertools
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from registry_scale import fill

from keybound.attacks import attack, available
from keybound.audio import folders
from keybound.crypto.keys import Key
from keybound.identity import identifier, reading
from keybound.identity.identifier import Identifier
from keybound.identity.permutation import Permutation
from keybound.provenance.parties import Party
from keybound.watermark import verification
from keybound.watermark.candidates import Known
from keybound.watermark.claims import party_claim
from keybound.watermark.options import EmbedOptions
from keybound.watermark.registered import Registry
from keybound.watermark.watermarker import Watermarker

Clip = npt.NDArray[np.float32]
RATE = 16_000
SEARCHED = 10**5  # records of a party among which an excerpt is looked for by its audio, at most
ATTACKS = (
    "clean", "mp3", "opus-16", "noise-20", "lowpass", "highpass", "resample", "griffin-lim",
    "lyra-6", "noise-10",
)  # fmt: skip
# Seconds of the host and of the excerpt, whether it is cut anywhere, and for which excerpt it is
# marked.
ROWS = {
    "whole, 10 s": (10, 10, 3.0),
    "whole, 6 s": (6, 6, 3.0),
    "20 s cut anywhere": (45, 20, 3.0),
    "full strength, whole, 6 s": (6, 6, 1.0),
    "full strength, 10 s cut anywhere": (25, 10, 1.0),
}


def hosts(speech: list[Path], seconds: int) -> list[Clip]:
    """Return recordings of so many seconds, each of one speaker; a short one is repeated."""
    voices = list(folders.speakers(speech, RATE))
    length = seconds * RATE
    long = [voice if len(voice) >= length else np.resize(voice, length) for voice in voices]
    return folders.cut(long, length)


def marked(marker: Watermarker, host: Clip, own: Identifier, key: Key, excerpt: float) -> Clip:
    """Return a host with an identifier and a seal."""
    options = EmbedOptions(key, 0x5EED, position=0, identifier=own, excerpt=excerpt)
    made: Clip = marker._embed(host, RATE, options, check=False).samples
    return made


def attacked(samples: Clip, name: str, rng: np.random.Generator) -> Clip:
    """Return the samples after an attack."""
    hit = attack(name)
    return hit.apply(samples, RATE, hit.draw(rng, None))


def read_one(trial: int, *, row: str, host: Clip, public: bool) -> dict[str, bool]:
    """Return by attack whether the serial of a recording is read."""
    marker, rng = Watermarker(), np.random.default_rng([20, trial])
    _, seconds, excerpt = ROWS[row]
    key, serial = Key(rng.bytes(32)), int(rng.integers(1 << 40))
    own = identifier.public(serial, 7) if public else identifier.keyed(serial, key)
    whole = marked(marker, host, own, key, excerpt)
    start = int(rng.integers(len(whole) - seconds * RATE + 1))
    piece = whole[start : start + seconds * RATE]
    told = {}
    for name in ATTACKS:
        if available(name) is None:
            found = marker.detect(attacked(piece, name, rng), RATE)
            read = reading.read_public(found) if public else reading.read(found, [Permutation(key)])
            told[name] = [one.serial for one in read] == [serial]
    return told


def read(asked: argparse.Namespace) -> None:
    """Print the share of recordings whose identifier is read, by attack."""
    print("| recording | trials | " + " | ".join(ATTACKS) + " |")
    print("| --- " * (len(ATTACKS) + 2) + "|")
    with get_context("spawn").Pool(asked.workers) as pool:
        for row in asked.row or ROWS:
            many = hosts(asked.speech, ROWS[row][0])
            done = [
                pool.apply_async(
                    read_one,
                    (n,),
                    {"row": row, "host": many[n % len(many)], "public": asked.public},
                )
                for n in range(asked.trials)
            ]
            told = [one.get() for one in done]
            shares = [
                f"{np.mean([one[name] for one in told]):.3f}" if name in told[0] else "–"
                for name in ATTACKS
            ]
            cells = [row, f"{len(told)}, of {min(len(many), asked.trials)} hosts", *shares]
            print(f"| {' | '.join(cells)} |", flush=True)


def parties(known: Registry, folder: Path, count: int) -> list[tuple[Party, Key]]:
    """Return so many new parties of a registry with their keys."""
    whose = []
    for number in range(count):
        key, place = Key.generate(), folder / f"{number}.key"
        key.write(place)
        whose.append((Party(f"{number}", number, 16, 2, place, key.id, datetime.now(UTC)), key))
        known.add(whose[-1][0])
    return whose


def spent(work: Callable[[], Any], times: int) -> float:
    """Return the least seconds of CPU of a piece of work."""
    took = []
    for _ in range(times):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def cpu(asked: argparse.Namespace) -> None:
    """Print the CPU of identifying and verifying beside that of detection."""
    marker, host = Watermarker(), hosts(asked.speech, 10)[0]
    print("| records | parties | detection, 10 s | identify | verify | 2 s by its audio |")
    print("| --- " * 6 + "|")
    for count, many in itertools.product(asked.records, asked.parties):
        with tempfile.TemporaryDirectory() as folder, Registry(Path(folder) / "r.sqlite") as known:
            known.rotate_key(Path(folder) / "registry.key")
            whose = parties(known, Path(folder), many)
            fill(known, whose, count)
            maker = whose[many // 2][0]
            made = known.embed(host, RATE, party=maker.name).samples
            found = marker.analyse(made, RATE)
            short = marker.analyse(made[4 * RATE : 6 * RATE], RATE)
            claim = [party_claim(maker, 16)]
            judge = partial(verification.judge, marker.card, found, claim)
            times = [
                spent(partial(marker.detect, made, RATE), 5),
                spent(partial(known.identify_analysis, found), 5),
                spent(partial(judge, Known(known)), 5),
            ]
            assert known.identify_analysis(found)[0].grade == "sealed"
            shown = [f"{one:.3f}" for one in times]
            if count / many <= SEARCHED:
                own = partial(verification.judge, marker.card, short, claim)
                shown.append(f"{spent(partial(own, Known(known)), 1):.3f}")
        print(f"| {count:,} | {many:,} | {' | '.join(shown)} |", flush=True)


def short(asked: argparse.Namespace) -> None:
    """Print the share of excerpts of three seconds that are found and attributed, by attack."""
    marker, rng = Watermarker(), np.random.default_rng(23)
    many = hosts(asked.speech, 10)
    print("| records | attack | trials | found by the audio | V_A | seconds of CPU |")
    print("| --- " * 6 + "|")
    for count in asked.records:
        with tempfile.TemporaryDirectory() as folder, Registry(Path(folder) / "r.sqlite") as known:
            known.rotate_key(Path(folder) / "registry.key")
            whose = parties(known, Path(folder), 1)
            fill(known, whose, count)
            maker = whose[0][0]
            names = [name for name in ("clean", "mp3", *ATTACKS[-2:]) if available(name) is None]
            told: dict[str, list[tuple[bool, bool, float]]] = {name: [] for name in names}
            for trial in range(asked.trials):
                host = many[trial % len(many)]
                made = known.embed(host, RATE, party=maker.name).samples
                start = int(rng.integers(len(made) - 3 * RATE))
                for name in names:
                    heard = attacked(made[start : start + 3 * RATE], name, rng)
                    found = marker.analyse(heard, RATE)
                    begun = time.process_time()
                    claim = [party_claim(maker, 16)]
                    (one,) = verification.judge(marker.card, found, claim, Known(known))
                    took = time.process_time() - begun
                    told[name].append((one.origin.match == "same", one.rule_holds, took))
            for name, own in told.items():
                shown = " | ".join(f"{share:.3f}" for share in np.mean(own, axis=0))
                print(f"| {count:,} | {name} | {len(own)} | {shown} |", flush=True)


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["read", "cpu", "short"])
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--public", action="store_true", help="read public identifiers")
    parser.add_argument("--records", type=int, action="append")
    parser.add_argument("--parties", type=int, action="append")
    asked = parser.parse_args()
    asked.records = asked.records or [1000, 100_000]
    asked.parties = asked.parties or [1]
    warnings.simplefilter("ignore")
    {"read": read, "cpu": cpu, "short": short}[asked.what](asked)


if __name__ == "__main__":
    main()
