"""Corpora: the parties of a manifest, the inputs that remain, the run and its counts.

Inputs that the journal says are done are not done again; what a kill left in the middle is. The
registry is written to here and not by the workers: a task has its keystream position and its
identifier before it is handed out, and marked files appear here, with their records.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from keybound import output, stages
from keybound.batch.job import ENV, Claimant, Job, Task, read_key
from keybound.batch.journal import Journal, Row, Stamp
from keybound.batch.manifest import Item, absolute
from keybound.batch.results import write_results
from keybound.batch.worker import HANDED, in_words
from keybound.crypto import codes
from keybound.errors import CodeError, CorpusError, KeyBoundError, KeyFileError, RegistryError
from keybound.provenance import records
from keybound.provenance.parties import Party
from keybound.provenance.registry import Registry
from keybound.watermark.candidates import Known
from keybound.watermark.claims import Untried, party_claim, triable
from keybound.watermark.reservation import Issued, issuing
from keybound.watermark.watermarker import Watermarker

Executor = Callable[[Job, Iterable[Task]], Generator[tuple[str, Row], None, None]]
AHEAD = 64  # tasks that are given their positions at a time


def everyone(known: Registry, bits: int) -> tuple[tuple[Claimant, ...], list[Untried]]:
    """Return every registered party that can be tried, and those that cannot."""
    every, untried = triable(known.list(), lambda one: _registered(known, one, bits))
    return tuple(every), untried


def claimants(
    items: Sequence[Item],
    *,
    name: str | None,
    key: str | None,
    payload: int | None,
    known: Registry | None,
    bits: int,
) -> tuple[tuple[Claimant, ...], list[int]]:
    """Return the claimants and the index of each item's: its own party, or what the options name.

    `known` is the open registry, where the items or the options name a party.
    """
    named = dict.fromkeys(item.party or name for item in items)
    parties = [who for who in named if who is not None]
    whose: list[Claimant] = []
    if known is not None:
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


def _registered(known: Registry, party: Party, bits: int) -> Claimant:
    """Return a party as its workers need it; raise an error where its key cannot be read."""
    party_claim(party, bits)
    return Claimant(
        name=party.name,
        key=str(party.key_file),
        key_id=party.key_id,
        payload=party.payload,
        rho=party.rho,
        recorded=known.count(party) > 0,
    )


def _unregistered(key: str, payload: int | None, bits: int) -> Claimant:
    if key == "-":
        raise KeyFileError("every process reads the key for itself", hint="--key FILE or env:NAME")
    if payload is not None:
        codes.check_payload(payload, bits)
    key_id = read_key(key).id
    reference = key if key.startswith(ENV) else absolute(key)
    return Claimant("", reference, key_id, payload, None)


def digest(job: Job, item: Item, one: Claimant | None, model: str) -> str:
    """Return a name of an input that covers all that decides its result.

    Of records it covers only whether there are any: later ones are of later recordings.
    """
    claimants = (one,) if one is not None else job.claimants
    parts = [job.verb, model, item.source, absolute(item.output) if item.output else ""]
    parts += [f"{item.payload}", (item.nonce or b"").hex()]
    parts += [f"{w.name} {w.key_id} {w.payload} {w.rho}" for w in claimants]
    parts += [repr(job.excerpt)] if job.verb == "embed" else [repr(job.how)]
    parts += [f"public {job.issuer} {job.signs}"] if job.issuer is not None else []
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
    """Return what remains to be done; raise an error where outputs exist that are not this batch's.

    Done is what the journal says is done, whose input has not changed since and whose output is
    there with the size that was written. What failed before is tried again.
    """
    card = Watermarker(job.model).card
    model = "".join(sorted(card.sha256.values()))
    names, tasks, foreign = [], {}, []
    for item, index in zip(items, who, strict=True):
        one = job.claimants[index] if index is not None else None
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
    executor: Executor,
    ended: Callable[[Row], None],
    known: Registry | None,
) -> None:
    """Do the tasks that remain; call `ended` with each row once it is in the journal."""
    under_way: dict[str, Task] = {}
    folders = {Path(task.output).parent for task in planned.tasks if task.output is not None}

    def begun() -> Iterator[Task]:
        tasks = iter(planned.tasks)
        while block := list(islice(tasks, AHEAD)):
            for task in with_positions(job, block, known) if known is not None else block:
                if task.output is not None:
                    journal.begin(task.name, task.fresh)
                    under_way[task.name] = task
                yield task

    for folder in folders:
        stages.sweep(folder)
    try:
        with contextlib.closing(executor(job, begun())) as entries:
            for name, entry in entries:
                if job.verb == "embed":
                    if name not in under_way:  # Ray may do again what was lost after it was told
                        continue
                    entry = _appear(job, under_way.pop(name), entry, known)
                journal.finish(name, entry)
                ended(entry["row"])
    finally:
        for folder in folders:  # what workers handed over and nobody took any more
            stages.sweep(folder)


def with_positions(job: Job, tasks: Sequence[Task], known: Registry) -> list[Task]:
    """Return the tasks, those of a registered party each with a position and a serial of its own.

    A task that was begun and did not end keeps them, unless its input has changed since. An output
    that exists counts as this batch's only if there is a record of it.
    """
    mine: dict[str, dict[str, Task]] = {}  # by key, and by what a position is reserved for
    for task in tasks:
        one = job.claimants[task.who] if job.verb == "embed" and task.who is not None else None
        if one is not None and one.name:
            stamp = Stamp.of(task.source)
            mine.setdefault(one.key_id, {})[f"{task.name} {stamp and tuple(stamp)}"] = task
    made = {}
    for key, named in mine.items():
        for reservation, task in list(named.items()):
            if entry := _recorded(known, key, task):
                made[task.name] = _as_recorded(known, task, entry)
                del named[reservation]
        issue = issuing(known, public=job.issuer is not None) if named else None
        for reservation, given in known.reserve_for(key, list(named)).items():
            task = named[reservation]
            there = task.output is not None and os.path.lexists(task.output)
            issued = None if issue is None else issue(given.serial)
            own = replace(task, position=given.position, issued=issued)
            made[task.name] = replace(own, fresh=task.fresh and not there)
    return [made.get(task.name, task) for task in tasks]


def _as_recorded(known: Registry, task: Task, entry: records.Entry) -> Task:
    """Return the task as its record says that it was done."""
    one = entry.stamped.record
    carried = Known(known).carried(one)
    issued = None
    if carried is not None and one.serial is not None:
        issued = Issued(one.serial, carried, one.registry_key)
    manifest = None if one.manifest is None else one.manifest.id
    own = replace(task, position=one.position, nonce=one.nonce, issued=issued)
    return replace(own, record=entry.number, manifest=manifest)


def _recorded(known: Registry, key: str, task: Task) -> records.Entry | None:
    """Return the record of an output that appeared in a run that was killed before it noted so."""
    if not task.fresh or task.output is None or not Path(task.output).is_file():
        return None
    try:
        with Path(task.output).open("rb") as file:
            return known.record_of(key, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None


def _appear(job: Job, task: Task, entry: Row, known: Registry | None) -> Row:
    """Publish the file that a worker made, with its record; return the entry with the outcome."""
    assert task.output is not None
    assert task.who is not None
    row = dict(entry["row"])
    try:
        if handed := row.pop(HANDED, None):
            made, target = Path(handed["part"]), Path(task.output)
            with output.adopted(made, target, replace=task.replace, kind=CorpusError) as part:
                if known is None or handed["record"] is None:
                    part.publish()
                else:
                    stamped = records.parse(handed["record"].encode())
                    row["record"] = known.appear(stamped, part)
    except KeyBoundError as error:
        row = {"status": "failed", "error": in_words(error), "took_s": row["took_s"]}
    if row["status"] != "ok" and task.position is not None and known is not None:
        with contextlib.suppress(RegistryError):
            known.void(job.claimants[task.who].key_id, task.position)
    wrote = Stamp.of(task.output) if row["status"] == "ok" else None
    return entry | {"row": row, "size": wrote.size if wrote else None}


def conclude(
    planned: Plan, items: Sequence[Item], journal: Journal, results: Path
) -> dict[str, Any]:
    """Write the results and count them."""
    write_results(results, items, journal.rows(planned.names))
    count: dict[str, Any] = {"files": len(items), "done": 0, "failed": 0, "pending": 0}
    count |= {"present": 0, "attributed": 0, "sealed": 0, "other": 0, "clipped": 0, "seconds": 0.0}
    count |= {"recurring": 0, "signed": 0, "unbound": 0}
    for row in journal.rows(planned.names):
        count["done" if row["status"] == "ok" else row["status"]] += 1
        for name in ("present", "clipped", "seconds"):
            count[name] += row.get(name) or 0
        if row.get("grade") in ("attributed", "sealed"):
            count[row["grade"]] += 1
        count["other"] += row.get("origin") == "other"
        count["recurring"] += bool(row.get("position_recurs"))
        count["signed"] += bool(row.get("manifest"))
        count["unbound"] += bool(row.get("manifest") and not row.get("identifier"))
    return count | {"results": str(results)}
