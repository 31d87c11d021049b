"""Measure identifiers: how often they are read, wrong ones, and the CPU of identifying.

    python scripts/identity.py read --speech FOLDER --speech FOLDER --trials 200
    python scripts/identity.py wrong --speech FOLDER --trials 520 --keys 200 [--public]
    python scripts/identity.py cpu --speech FOLDER --records 1000 --records 100000
    python scripts/identity.py short --speech FOLDER --records 100000 --trials 20

Recordings of one speaker are joined. `read` marks them with an identifier and a seal, attacks them
and prints the share whose serial is read. `wrong` opens what unmarked, attacked, otherwise marked
and spliced excerpts spell with random keys (with --public in the place of the published one, and
with that too), and counts the serials whose check holds and those that one of ten million records
has. `cpu` prints the seconds of CPU beside detection, by the number of
records and parties. `short` prints how often three seconds, cut anywhere, are found by their audio
among the records of a party and hold the rule V_A. Set KEYBOUND_LYRA for Lyra, and
KEYBOUND_THREADS=1.
"""

import argparse
import itertools
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
from registry_scale import fill

from keybound.attacks import attack, available
from keybound.audio import folders
from keybound.crypto.keys import Key
from keybound.identity import identifier, reading
from keybound.identity.frame import PUBLIC
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
RECORDS = 10**7  # of the registry in which serials of random keys are looked up
SEARCHED = 10**5  # records of a party among which an excerpt is looked for by its audio, at most
ATTACKS = (
    "clean", "mp3", "opus-16", "noise-20", "lowpass", "highpass", "resample", "griffin-lim",
    "lyra-6", "noise-10",
)  # fmt: skip
KINDS = ("unmarked", "attacked", "marked under another key", "spliced")  # of excerpts
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


def excerpt(trial: int, host: Clip, other: Clip) -> tuple[str, Clip, int]:
    """Return what an excerpt is, its samples, and the public serial that it spells, or -1."""
    marker, rng = Watermarker(), np.random.default_rng([21, trial])
    kind, key = KINDS[trial % len(KINDS)], Key(rng.bytes(32))
    names = [name for name in ATTACKS if available(name) is None]
    name = names[trial // len(KINDS) % len(names)]
    if kind == "unmarked":
        return kind, host, -1
    if kind == "attacked":
        return kind, attacked(host, name, rng), -1
    one = marked(marker, host, identifier.keyed(1, key), key, 1.0)
    if kind == "marked under another key":
        return kind, attacked(one, name, rng), -1
    two = marked(marker, other, identifier.public(2, 7), key, 1.0)
    return kind, np.concatenate([one, two]), 2


class Counted:
    """One or more keys in the place of one; counts the blocks that they open."""

    def __init__(self, check_bits: int, *own: Permutation) -> None:
        self.check, self.own, self.count = 1 << check_bits, own, 0

    def decrypt(self, block: int) -> int:
        """Return the block as decrypted by the first key whose check holds, or by the last."""
        for key in self.own:
            self.count += 1
            opened = key.decrypt(block)
            if opened % self.check == 0:
                break
        return opened


def wrong_one(
    trial: int, *, host: Clip, other: Clip, keys: int, public: bool
) -> tuple[str, list[int], int]:
    """Return what an excerpt is, the wrong serials that are read, and how many blocks were opened.

    They are read under random keys of registries, or under the published key and random ones in
    its place.
    """
    warnings.simplefilter("ignore")
    kind, sound, spelled = excerpt(trial, host, other)
    rng = random.Random(trial)
    secrets = [Key(rng.randbytes(32)) for _ in range(keys)]
    found = Watermarker().detect(sound, RATE)
    if not public:
        counted = [Counted(identifier.CHECK_BITS, Permutation(secret)) for secret in secrets]
        serials = [one.serial for one in reading.read(found, counted)]
        return kind, serials, sum(one.count for one in counted)
    others = (Permutation(key, PUBLIC.block_bits, identifier.PUBLIC_LABEL) for key in secrets[1:])
    many = Counted(identifier.PUBLIC_CHECK_BITS, identifier.published(), *others)
    with mock.patch.object(identifier, "published", return_value=many):
        serials = [one.serial for one in reading.read_public(found)]
    return kind, [serial for serial in serials if serial != spelled], many.count


def wrong(asked: argparse.Namespace) -> None:
    """Print how often wrong keys, or those of public identifiers, read a serial."""
    held = set(np.random.default_rng(22).integers(1 << 40, size=RECORDS).tolist())
    many = hosts(asked.speech, 10)
    count = {kind: np.zeros(5, np.int64) for kind in (*KINDS, "all")}
    with get_context("spawn").Pool(asked.workers) as pool:
        done = [
            pool.apply_async(
                partial(wrong_one, keys=asked.keys, public=asked.public),
                (n,),
                {"host": many[n % len(many)], "other": many[(n + 1) % len(many)]},
            )
            for n in range(asked.trials)
        ]
        for number, one in enumerate(done, start=1):
            kind, serials, opened = one.get()
            named = sum(serial in held for serial in serials)
            for row in (kind, "all"):
                count[row] += [1, asked.keys, opened, len(serials), named]
            if number % 20 == 0:
                print(f"{number} of {asked.trials} excerpts", file=sys.stderr, flush=True)
    print("| excerpts | of them | keys tried | blocks opened | check holds | names a record |")
    print("| --- " * 6 + "|")
    for kind, row in count.items():
        print(f"| {kind} | {' | '.join(f'{one:,}' for one in row)} |")
    bits = identifier.PUBLIC_CHECK_BITS if asked.public else identifier.CHECK_BITS
    expected = count["all"][2] / 2**bits
    print(f"\nThe check alone allows {expected:.1e}, of which {RECORDS:,} records have")
    print(f"{expected * RECORDS / 2**40:.1e} in all. Hosts: {len(many)}.")


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
    parser.add_argument("what", choices=["read", "wrong", "cpu", "short"])
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--row", action="append", choices=list(ROWS))
    parser.add_argument("--public", action="store_true", help="read public identifiers")
    parser.add_argument("--records", type=int, action="append")
    parser.add_argument("--parties", type=int, action="append")
    asked = parser.parse_args()
    asked.records = asked.records or [1000, 100_000]
    asked.parties = asked.parties or [1]
    warnings.simplefilter("ignore")
    {"read": read, "wrong": wrong, "cpu": cpu, "short": short}[asked.what](asked)


if __name__ == "__main__":
    main()
