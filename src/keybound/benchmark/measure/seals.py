"""Sealed evidence of one recording: after attacks and removers, under wrong keys, forged, averaged.

Recordings of one speaker are joined and cut; each piece has a key and a position of its own.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from keybound.attacks import copying
from keybound.audio import metrics
from keybound.benchmark.measure import countering, removal
from keybound.benchmark.measure.methods import EXCERPT_S
from keybound.benchmark.measure.plan import OWN_KEYS, Case, Plan, Suite, each, each_attack, one_row
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.measure.rows import Row
from keybound.crypto.keys import Key
from keybound.identity import reading
from keybound.identity.identifier import keyed
from keybound.identity.permutation import Permutation
from keybound.provenance import fingerprint, matching
from keybound.provenance.origin import Origin
from keybound.seal.search import SealSearch
from keybound.types import Analysis
from keybound.watermark import channels
from keybound.watermark.candidates import evidence
from keybound.watermark.verdict import Verdict

SHORT_S, USUAL_S = 3.0, 10.0
SOURCES = ("unmarked", "sealed by others", "attacked")
P_LEVELS = tuple(10.0**-n for n in range(1, 7))  # under which the p of wrong keys is counted
COPIES = 5
RECORDS = 10**7  # of the registry in which an identifier is looked up
COPYINGS = ("gain-field", "residual", "residual-levelled")
COUNTERS, COUNTERS_DB = ("once", "twice"), (1, 2, 3, 4)
COLLUSIONS = ("copies", "mixture", "estimate", "reused")


@lru_cache(maxsize=1)
def record_of(case: Case) -> fingerprint.Fingerprint:
    """Return the fingerprint that the party keeps of what it marked."""
    return fingerprint.take(channels.levels_of(case.marked))


def judge(case: Case, heard: Clip, secret: Secret, *, search: bool = True) -> Row:
    """Return a row's evidence: at the secret's position, and searched for in the usual ones."""
    marker = case.marker
    found = marker.analyse(heard, case.method.rate)
    whose: Any = {"key": secret.key, "payload": secret.payload}
    whose["identifier"] = keyed(secret.position, secret.key) if case.method.issued else None
    known = marker.judge(found, **whose, search=SealSearch((secret.position,)))
    row: Row = {"presence": known.presence, "errors": known.distance, "bits": known.bits}
    row |= told(case, known, found, secret)
    if search:  # a record, which an identifier has, tells the position
        wide = known if case.method.issued else marker.judge(found, **whose, search=SealSearch())
        row |= {f"{name}_256": value for name, value in told(case, wide, found, secret).items()}
    return row


def told(case: Case, verdict: Verdict, found: Analysis, secret: Secret) -> Row:
    """Return what holds, and by what; an identifier has a record, among as many as a registry's."""
    p, layer = verdict.seal.p, "pattern"
    if case.method.issued:
        same = matching.match(record_of(case), found.levels[None]).decision
        read = reading.read(found.detection, [Permutation(secret.key)])
        for one in [evidence(one, 1, RECORDS) for one in read if one.serial == secret.position]:
            p, layer = (p, layer) if verdict.seal.holds else (one.bound, "code")
            verdict = replace(verdict, spelled=one)
        holds = verdict.rule_holds and same == "same"  # the audio names the record, not its codes
        verdict = replace(verdict, origin=Origin(same), rule_holds=holds)
    row: Row = {"holds": verdict.grade == "sealed", "verified": verdict.rule_holds}
    return row | {"z": verdict.seal.z, "log10_p": math.log10(max(p, 1e-300)), "layer": layer}


def attacked(case: Case, face: Row) -> Row:
    """Attack the marked recording and look for its seal."""
    return judge(case, case.attacked(face["attack"]), case.secret)


def removed(case: Case, face: Row) -> Row:
    """Return the marked recording to a trained remover."""
    heard, rate = removal.removed(case, face), case.method.rate
    return judge(case, heard, case.secret) | {"pesq": metrics.pesq(case.host, heard, rate)}


def moved_against(case: Case, face: Row) -> Row:
    """Move each tile against what the public finder says of it, once or twice."""
    rate, rounds = case.method.rate, COUNTERS.index(face["attack"]) + 1
    heard = countering.countered(case.marked, countering.FACTOR_DB, face["budget"], rounds)
    row = judge(case, heard, case.secret)
    row |= {"pesq": metrics.pesq(case.host, heard, rate)}
    return row | {"zimtohrli": metrics.zimtohrli(case.host, heard, rate)}


def each_counter(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the names of the rows of tiles that are moved, each by as many dB at most."""
    return [{"attack": kind, "budget": db} for kind in COUNTERS for db in COUNTERS_DB]


def one_source(plan: Plan, index: int) -> list[Row]:
    """Return the name of the row of wrong keys: the sources take turns, and so do the attacks."""
    turn, which = divmod(index, len(SOURCES))
    hits = [name for name in plan.attacks if name != "clean"]
    name = hits[turn % len(hits)] if SOURCES[which] == "attacked" and hits else "clean"
    return [{"source": SOURCES[which], "attack": name}]


def wrong_keys(case: Case, face: Row) -> Row:
    """Try wrong keys, at the position that the right one has; count how low p comes.

    What they are tried on is unmarked, sealed by somebody else, or one of both under an attack.
    """
    heard = case.marked
    if face["source"] == SOURCES[0] or (face["source"] == SOURCES[2] and case.index % 2):
        heard = case.host
    heard = case.attacked(face["attack"], heard)
    marker = case.marker
    found = marker.analyse(heard, case.method.rate)
    rng = case.chance("wrong keys")
    where, payload = SealSearch((case.secret.position,)), case.secret.payload
    wrong = (Key(rng.bytes(32)) for _ in range(case.plan.wrong_keys))
    p = np.array([marker.judge(found, key=k, payload=payload, search=where).seal.p for k in wrong])
    below = [int(np.sum(p < level)) for level in P_LEVELS]
    return {"keys": len(p), "below": below, "least_log10_p": math.log10(max(p.min(), 1e-300))}


def forged(case: Case, face: Row) -> Row:
    """Forge from one marked recording: its code on another host, sealed by the forger's own key.

    The public detector reads the code. With a `known-payload` that gives the mask, and so the code
    of any other payload; a `replay` keeps the payload. An identifier is copied second by second.
    """
    method, rate = case.method, case.method.rate
    rng = case.chance("forgery")
    chosen, own = int.from_bytes(rng.bytes(32)) >> (256 - method.bits), Key(rng.bytes(32))
    payload = case.secret.payload if face["attack"] == "replay" else chosen
    size = rate if method.issued else len(case.marked)
    starts = range(0, len(case.marked), size)
    readings = [method.read(case.marked[start : start + size]) for start in starts]
    own_mask = method.decode(readings[0], own) ^ method.decode(readings[0], None)
    change = case.secret.payload ^ payload ^ own_mask
    forgery = np.empty_like(case.other)
    how: Any = {"key": own, "position": case.secret.position, "excerpt": EXCERPT_S, "check": False}
    for start, heard in zip(starts, readings, strict=True):
        code = method.decode(heard, None) ^ change
        forgery[start:] = case.marker.embed(case.other, rate, payload=code, **how)[start:]
    return judge(case, forgery, Secret(case.secret.key, payload, case.secret.position))


def copied(case: Case, face: Row) -> Row:
    """Copy a mark and its seal to another host; compare it with the record's fingerprint."""
    moved = copying.copied(case.host, case.marked, case.other, face["attack"])
    heard = np.clip(moved, -1, 1).astype(np.float32)
    found = matching.match(record_of(case), channels.levels_of(heard))
    row: Row = {"decision": found.decision, "agreement": found.agreement}
    return row | {"holds": judge(case, heard, case.secret, search=False)["holds"]}


def averaged(case: Case, face: Row) -> Row:
    """Let colluders average what one party marked; look for each of the seals.

    `copies`: copies of one host with other payloads and positions, averaged. `mixture`: different
    recordings, averaged. `estimate`: what different recordings have in common by level is taken out
    of each of them. Where they share position and payload, against the rules, it is `reused`.
    """
    method, party, count, kind = case.method, case.secret, face["copies"], face["attack"]
    rng = case.chance("average")
    secrets = [
        Secret(party.key, int(rng.integers(1 << method.bits)), (party.position + i) % 256)
        for i in range(count)
    ]
    secrets = [party] * count if kind == "reused" else secrets
    others = [case.hosts[(count * case.index + i) % len(case.hosts)] for i in range(count)]
    hosts = [case.host] * count if kind == "copies" else others
    marked = [method.embed(host, secret) for host, secret in zip(hosts, secrets, strict=True)]
    heard: list[Clip] = [np.mean(marked, axis=0, dtype=np.float32)] * count
    if kind in ("estimate", "reused"):
        common = copying.in_common(marked)
        heard = [copying.scaled(one, np.exp(-common)) for one in marked]
    rows = [judge(case, h, s, search=False) for h, s in zip(heard, secrets, strict=True)]
    return {key: [row[key] for row in rows] for key in ("holds", "z", "log10_p", "verified")}


def cost(case: Case, face: Row) -> Row:  # noqa: ARG001
    """Measure the quality of the marked recording with its seal and without."""
    whose: Any = {"key": case.secret.key, "payload": case.secret.payload, "excerpt": EXCERPT_S}
    bare = case.marker.embed(case.host, case.method.rate, **whose, seal=False, check=False)
    row: Row = {}
    for which, heard in (("", case.marked), ("_unsealed", bare)):
        scores = metrics.scores(case.host, heard, case.method.rate)
        row |= {measure + which: value for measure, value in scores.items()}
        row[f"snr_db{which}"] = metrics.snr_db(case.host, heard)
    return row


# Seconds, and most recordings of that length.
LENGTHS: dict[float, int | None] = {SHORT_S: 60, USUAL_S: 80, 30.0: 10}
FORGED: dict[float, int | None] = {SHORT_S: 300, USUAL_S: 80}
SCORED: dict[float, int | None] = {SHORT_S: 40, USUAL_S: 40}  # few: ViSQOL takes long
LONG: dict[float, int | None] = {USUAL_S: 80}
forgeries, copyings = each("attack", "known-payload", "replay"), each("attack", *COPYINGS)
collusions = each("attack", *COLLUSIONS, copies=COPIES)
SUITES = {
    "seal": Suite(attacked, each_attack, LENGTHS, OWN_KEYS),
    "seal-remover": Suite(removed, removal.each_remover, LONG, OWN_KEYS),
    "seal-counter": Suite(moved_against, each_counter, LONG, OWN_KEYS),
    "seal-average": Suite(averaged, collusions, LONG, OWN_KEYS, takes=COPIES),
    "seal-forgery": Suite(forged, forgeries, FORGED, OWN_KEYS),
    "seal-copy": Suite(copied, copyings, FORGED, OWN_KEYS),
    "seal-quality": Suite(cost, one_row, SCORED, OWN_KEYS),
    "seal-null": Suite(wrong_keys, one_source, {SHORT_S: 300}, OWN_KEYS),
}
