"""Measure a registry of millions of records, synthesised: size, inserts a second, look-ups.

    python scripts/registry_scale.py PLACE --records 10000000

PLACE is a new SQLite file or the address of an empty PostgreSQL database. The records are those of
recordings of ten seconds, each stored with the data of one of 10,000 real ones. They are filled in
before the indexes are made; what is timed then happens in the full registry, and once more where
the registry is there already. Prints JSON.
"""

import argparse
import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from keybound.crypto.keys import Key
from keybound.provenance import pending, records, schema
from keybound.provenance.database import Value
from keybound.provenance.declared import Declared
from keybound.provenance.fingerprint import Fingerprint
from keybound.provenance.parties import Party
from keybound.provenance.records import Record, Stamped
from keybound.provenance.registry import Registry

PARTIES = 100
COLUMNS = 250  # of the fingerprint of ten seconds
BEGUN = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
POOL = 10_000  # records that are made whole; the others repeat their data, which saves an hour
BLOCK = 10_000  # records in a transaction
VALUES = ", ".join("?" * len(pending.COLUMNS.split(",")))
INSERT = f"INSERT INTO record ({pending.COLUMNS}) VALUES ({VALUES})"
LOOKUPS = 3000
ALONE = 300  # records that are added one by one


def serial_of(number: int) -> int:
    """Return a serial for each number: all different, in no order."""
    return number * 0x9E3779B97F % (1 << 40)


def made(number: int, party: Party, key: Key, parties: int = PARTIES) -> Stamped:
    """Return the record of a number, stamped with the key."""
    one = Record(
        created=BEGUN + timedelta(milliseconds=number),
        party=party.name,
        payload=party.payload,
        bits=party.bits,
        nonce=hashlib.sha256(b"nonce %d" % number).digest()[:12],
        position=number // parties,
        key=key.id,
        detector="c1" * 32,
        samples=160_000,
        rate=16_000,
        sha256=hashlib.sha256(b"%d" % number).hexdigest(),
        fingerprint=Fingerprint(COLUMNS, random.Random(number).randbytes(2 * COLUMNS)),
        serial=serial_of(number),
        registry_key="a5" * 8,
        declared=Declared("Example Ltd", "Example Voice", "3.1", "https://example.org/ask"),
    )
    return records.stamp(one, key)


def row_of(number: int, party: Party, parties: int, data: bytes) -> tuple[Value, ...]:
    """Return the row of a number: found by what is its own, with the data of another record."""
    digest = hashlib.sha256(b"%d" % number).digest()
    times = pending.microseconds(BEGUN) + 1000 * number
    found_by = (serial_of(number), party.name, party.key_id, number // parties, times)
    return (*found_by, digest[:12], digest, None, data)


def fill(known: Registry, whose: list[tuple[Party, Key]], count: int) -> float:
    """Fill in records without indexes, then make these; return the seconds that took."""
    database, parties = known._database, len(whose)
    pool = [
        pending.columns(made(n, *whose[n % parties], parties))[-1] for n in range(min(POOL, count))
    ]
    indexes = [one for one in schema.NEW if "INDEX" in one and " ON record " in one]
    for one in indexes:
        database.execute(f"DROP INDEX {one.split(' ON ')[0].split()[-1]}")
    begun = time.perf_counter()
    for start in range(0, count, BLOCK):
        with database.writing():
            numbers = range(start, min(count, start + BLOCK))
            rows = [row_of(n, whose[n % parties][0], parties, pool[n % POOL]) for n in numbers]
            database.execute_many(INSERT, rows)
    for one in indexes:
        database.execute(one)
    database.execute("INSERT INTO serial (serial) SELECT serial FROM record ORDER BY serial")
    for _, key in whose:
        stream = "INSERT INTO stream (key, next) VALUES (?, ?)"
        database.execute(stream, (key.id, -(-count // parties)))
    if database.shared:
        database.execute("VACUUM ANALYZE")
    return time.perf_counter() - begun


def timed(calls: list[Callable[[], object]]) -> dict[str, float]:
    """Return median, 99th percentile and maximum of the calls in milliseconds."""
    spent = []
    for call in calls:
        begun = time.perf_counter()
        assert call()
        spent.append(1000 * (time.perf_counter() - begun))
    spent.sort()
    p99 = spent[int(0.99 * len(spent))]
    found = {"median_ms": statistics.median(spent), "p99_ms": p99, "max_ms": spent[-1]}
    return {name: round(value, 3) for name, value in found.items()}


def adding(known: Registry, whose: list[tuple[Party, Key]], count: int) -> dict[str, float]:
    """Return records a second that are added to the full registry: in blocks, and one by one."""
    blocks = [
        [made(number, *whose[number % PARTIES]) for number in range(start, start + BLOCK)]
        for start in range(count, count + 3 * BLOCK, BLOCK)
    ]
    begun = time.perf_counter()
    for block in blocks:
        with known._database.writing():
            for one in block:
                pending.keep(known._database, one)
    together = 3 * BLOCK / (time.perf_counter() - begun)
    key = whose[0][1]
    begun = time.perf_counter()
    for _ in range(ALONE):  # as an embedding does: position, serial, record
        position, serial = known.reserve(key.id), known.draw_serial()
        one = replace(made(0, *whose[0]).record, position=position, serial=serial)
        known.append(records.stamp(one, key))
    alone = ALONE / (time.perf_counter() - begun)
    return {"in_blocks_a_second": round(together), "one_by_one_a_second": round(alone)}


def size(known: Registry, place: str) -> int:
    """Return the bytes of the registry on the disk."""
    if not known._database.shared:
        return Path(place).stat().st_size
    query = (
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = relnamespace WHERE relkind = 'r' AND nspname = current_schema()"
    )
    return int(known._database.rows(query)[0][0])


def main() -> None:
    """Fill a registry, measure it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("place")
    parser.add_argument("--records", type=int, default=10_000)
    asked = parser.parse_args()
    rng = random.Random(20)
    keys = [Key(hashlib.sha256(b"party %d" % number).digest()) for number in range(PARTIES)]
    whose = [
        (Party(f"party {number}", number, 16, 2, Path("none.key"), key.id, BEGUN), key)
        for number, key in enumerate(keys)
    ]
    with Registry(asked.place) as known:
        told: dict[str, Any] = {"records": asked.records}
        if not known.list():
            for party, _ in whose:
                known.add(party)
            told["filled_s"] = round(fill(known, whose, asked.records))
        told["bytes"] = size(known, asked.place)
        drawn = [rng.randrange(asked.records) for _ in range(2 * LOOKUPS)]
        by_serial = [lambda n=n: known.of_serial(serial_of(n)) for n in drawn[:LOOKUPS]]
        by_position = [
            lambda n=n: known.records(whose[n % PARTIES][0], n // PARTIES) for n in drawn[LOOKUPS:]
        ]
        looked = {"by_serial": timed(by_serial), "by_position": timed(by_position)}
        count = known._database.rows("SELECT max(number) FROM record")[0][0]
        print(json.dumps(told | looked | adding(known, whose, count)))


if __name__ == "__main__":
    main()
