"""Count identifiers that are read by chance.

    python scripts/wrong_identifiers.py --speech FOLDER --trials 520 --keys 200 [--public]

Opens what unmarked, attacked, otherwise marked and spliced excerpts spell with random keys, and
counts the serials whose check holds and those that one of ten million records has. With --public
the keys are the published one and random ones in its place. Set KEYBOUND_LYRA for Lyra, and
KEYBOUND_THREADS=1.
"""

import argparse
import random
import sys
import warnings
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import numpy as np

from identity import ATTACKS, RATE, Clip, attacked, hosts, marked
from keybound.attacks import available
from keybound.crypto.keys import Key
from keybound.identity import identifier, reading
from keybound.identity.frame import PUBLIC
from keybound.identity.permutation import Permutation
from keybound.watermark.watermarker import Watermarker

RECORDS = 10**7  # of the registry in which serials are looked up
KINDS = ("unmarked", "attacked", "marked under another key", "spliced")  # of excerpts


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


def main() -> None:
    """Count them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--speech", type=Path, action="append", required=True)
    parser.add_argument("--trials", type=int, default=520)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--public", action="store_true", help="open public identifiers")
    wrong(parser.parse_args())


if __name__ == "__main__":
    main()
