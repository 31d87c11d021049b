"""Corpora: whose marks a manifest is about, which inputs are still to do, and their count.

Inputs that the journal says are done are not done again; what a kill left in the middle is.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keybound import codes, records
from keybound.corpora.journal import Journal, Row, Stamp, write_results
from keybound.corpora.manifest import Item, absolute
from keybound.corpora.origins import Origins
from keybound.corpora.worker import ENV, HEARD, RECORD, Job, Task, Whose, read_key
from keybound.errors import CodeError, CorpusError, KeyFileError
from keybound.parties import Untried, party_claim, triable
from keybound.registry import Party, Registry
from keybound.watermark import Watermarker

Engine = Callable[[Job, Iterable[Task]], Iterator[tuple[str, Row]]]


def everyone(registry: Path, bits: int) -> tuple[tuple[Whose, ...], list[Untried]]:
    """Return every registered party that can be tried; name the others."""
    with Registry(registry) as known:
        every, untried = triable(known.list(), lambda one: _registered(known, one, bits))
    return tuple(every), untried


def claimants(
    items: Sequence[Item],
    *,
    name: str | None,
    key: str | None,
    payload: int | None,
    registry: Path,
    bits: int,
) -> tuple[tuple[Whose, ...], list[int]]:
    """Find the claimants, and which is each item's: its own party, or what the options name."""
    named = dict.fromkeys(item.party or name for item in items)
    parties = [who for who in named if who is not None]
    whose: list[Whose] = []
    if parties:
        with Registry(registry) as known:
            whose = [_registered(known, known.get(who), bits) for who in parties]
    index = {who: number for number, who in enumerate(parties)}
    if key is not None:
        whose.append(_unregistered(key, payload, bits))
    who: list[int] = []
    for item in items:
        party = item.party or name
        if party is not None and item.payload is not None:
            hint = "a payload of a row's own needs --key, and no party"
            raise CorpusError(f"{item.path}: a party brings its own payload", hint=hint)
        if party is None and key is None:
            hint = "--party NAME, --key FILE and --payload NUMBER, or a column party"
            raise CorpusError(f"nothing says whose mark {item.path} is about", hint=hint)
        if party is None and payload is None and item.payload is None:
            hint = "--payload NUMBER, or a column payload"
            raise CorpusError(f"there is no payload for {item.path}", hint=hint)
        who.append(len(whose) - 1 if party is None else index[party])
    return tuple(whose), who


def _registered(known: Registry, party: Party, bits: int) -> Whose:
    """Give a party as its workers are told of it, after a look at whether its key can be read."""
    party_claim(party, bits)
    masks = dict.fromkeys(known.masks(party))
    return Whose(
        name=party.name,
        key=str(party.key_file),
        fingerprint=party.fingerprint,
        payload=party.payload,
        rho=party.rho,
        drawn=party.drawn,
        recorded=next(known.positions(party), None) is not None,
        masks=tuple(masks),
    )


def _unregistered(key: str, payload: int | None, bits: int) -> Whose:
    if key == "-":
        raise KeyFileError("every process reads the key for itself", hint="--key FILE or env:NAME")
    if payload is not None:
        codes.check_payload(payload, bits)
    fingerprint = read_key(key).fingerprint
    reference = key if key.startswith(ENV) else absolute(key)
    return Whose("", reference, fingerprint, payload, None)


def digest(job: Job, item: Item, one: Whose | None, model: str) -> str:
    """Name an input by all that decides its result, so that a change of any makes it anew.

    Of records only whether there are any: later ones are of later recordings.
    """
    claimants = (one,) if one is not None else job.whose
    parts = [job.verb, model, item.source, absolute(item.output) if item.output else ""]
    parts += [f"{item.payload}", (item.nonce or b"").hex()]
    parts += [f"{w.name} {w.fingerprint} {w.payload} {w.rho}" for w in claimants]
    parts += ["rolling"] if job.rolling else []
    parts += [f"{w.name} recorded" for w in claimants if w.recorded and job.verb == "verify"]
    return hashlib.sha256(os.fsencode("\0".join(parts))).hexdigest()[:24]


@dataclass(frozen=True)
class Plan:
    """The names of all inputs in order, and the tasks that remain."""

    names: tuple[str, ...]
    tasks: tuple[Task, ...]


def plan(
    job: Job, items: Sequence[Item], who: Sequence[int | None], journal: Journal, *, force: bool
) -> Plan:
    """Find what remains to be done; refuse outputs that are there and are not this batch's.

    Done is what the journal says is done, whose input has not changed since and whose output is
    there with the size that was written. What failed before is tried again.
    """
    card = Watermarker(job.model).card
    model = "".join(sorted(card.sha256.values()))
    names, tasks, foreign = [], {}, []
    for item, index in zip(items, who, strict=True):
        one = job.whose[index] if index is not None else None
        if item.payload is not None and job.verb != "detect":
            try:
                codes.check_payload(item.payload, card.bits)
            except CodeError as error:
                raise CodeError(f"{item.path}: {error.message}", hint=error.hint) from None
        name = digest(job, item, one, model)
        names.append(name)
        output = absolute(item.output) if item.output else None
        there = Stamp.of(output) if output else None
        before = journal.done.get(name)
        ours = before is not None and before.ok
        if before and ours:
            # The stamp of a source that is gone is None, and what was made of it stays good.
            same = Stamp.of(item.source) in (before.source, None)
            if same and (output is None or (there and there.size == before.size)):
                continue
        fresh = there is None or (name in journal.fresh and not ours)
        if there and not (ours or fresh or force):
            foreign.append(item.output)
        nonce = item.nonce or b""
        tasks[name] = Task(
            name, item.source, output, index, item.payload, nonce, fresh, ours or force
        )
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        verb = "exist" if more else "exists"
        hint = "--force replaces; --results names the results of the run that made them"
        raise CorpusError(f"{foreign[0]}{more} {verb} already", hint=hint)
    return Plan(tuple(names), tuple(tasks.values()))


def run(
    job: Job,
    planned: Plan,
    journal: Journal,
    engine: Engine,
    ended: Callable[[Row], None],
    registry: Path,
) -> None:
    """Do the tasks that remain, each end noted in the journal before `ended` hears of it.

    The records that come of them are kept in the registry, here and not by the workers, who may be
    elsewhere. One whose end was not noted any more is made again: better two than none. What they
    heard is compared with the records here too.
    """
    origins = Origins(registry)

    def begun() -> Iterator[Task]:
        for task in planned.tasks:
            if task.output is not None:
                journal.begin(task.name, task.fresh)
            yield task

    for name, entry in engine(job, begun()):
        if made := entry["row"].get(RECORD):
            with Registry(registry) as known:
                entry["row"][RECORD] = known.append(records.parse(made.encode()))
        if HEARD in entry["row"]:
            entry["row"] = origins.settle(entry["row"])
        journal.finish(name, entry)
        ended(entry["row"])


def conclude(
    planned: Plan, items: Sequence[Item], journal: Journal, results: Path
) -> dict[str, Any]:
    """Write the results and count them."""
    write_results(results, items, journal.rows(planned.names))
    count: dict[str, Any] = {"files": len(items), "done": 0, "failed": 0, "pending": 0}
    count |= {"present": 0, "attributed": 0, "sealed": 0, "other": 0, "clipped": 0, "seconds": 0.0}
    for row in journal.rows(planned.names):
        count["done" if row["status"] == "ok" else row["status"]] += 1
        for name in ("present", "clipped", "seconds"):
            count[name] += row.get(name) or 0
        if row.get("grade") in ("attributed", "sealed"):
            count[row["grade"]] += 1
        count["other"] += row.get("origin") == "other"
    return count | {"results": str(results)}
