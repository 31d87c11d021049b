"""Attacks of 2025 and 2026 on a mark: copies combined to frame a party, steps down the gradient.

Both are stronger than the paper's threat model. Whether a row verifies by presence is left to the
tables, so that one measurement serves every threshold.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from keybound.attacks.copying import Signs, nearest
from keybound.attacks.gradient import descend
from keybound.audio import metrics
from keybound.benchmark.measure import seals
from keybound.benchmark.measure.plan import Case, Plan, Suite
from keybound.benchmark.measure.protocol import Clip, Secret
from keybound.benchmark.measure.rows import Row
from keybound.benchmark.measure.security import fresh
from keybound.crypto import codes
from keybound.errors import KeyBoundError

COPIES = (2, 3, 5, 8)
COMBINATIONS = ("mean", "drawn", "nearest")
PARTIES = 200  # that have no part in the combination
GOALS = ("remove", "create", "replace")
BUDGETS_DB = (40, 30, 20)  # of the perturbation under the clip
HANDLED = ("clean", "mp3")  # recordings whose presence is usual


def each_combination(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the names of the rows of combined copies."""
    return [{"attack": kind, "copies": n} for n in COPIES for kind in COMBINATIONS]


def combined(case: Case, face: Row) -> Row:
    """Combine copies of one host, each marked for another party; look for them and for others.

    `mean` has equal weights. The others have weights that take the sum of the codes nearest to the
    code of a party that has no copy: one that is `drawn`, or of many the one that is `nearest`.
    Colluders read their own codes with the public detector; those of others are told to them.
    """
    method, count = case.method, face["copies"]
    others = fresh(case, "collusion")
    parties = [case.secret, *(next(others) for _ in range(count - 1))]
    innocent = [next(others) for _ in range(PARTIES)]
    copies = [case.marked, *(method.embed(case.host, party) for party in parties[1:])]
    own, theirs = (np.stack([signs(case, s) for s in group]) for group in (parties, innocent))
    target, weights = 0, np.full(count, 1 / count)
    if face["attack"] != "mean":
        tried = range(PARTIES) if face["attack"] == "nearest" else (target,)
        target, weights = nearest(own, theirs, tried)
    heard = np.tensordot(weights, np.stack(copies), 1).astype(np.float32)
    reading = method.read(heard)
    errors = [method.errors(reading, secret) for secret in (*parties, *innocent)]
    accepted = sum(wrong <= method.rho for wrong in errors[count:])
    row: Row = {"presence": reading.presence, "bits": method.bits, "errors": errors[:count]}
    row |= {"target_errors": errors[count + target], "accepted": accepted, "parties": PARTIES}
    row |= {"weights": weights.tolist(), "snr_db": metrics.snr_db(case.host, heard)}
    if method.marker is not None:
        row["holds"] = [seals.judge(case, heard, p, search=False)["holds"] for p in parties]
        framed = seals.judge(case, heard, innocent[target], search=False)
        row["target_holds"] = framed["holds"]
    return row


def signs(case: Case, secret: Secret) -> Signs:
    """Return the code of a secret, which its mask and its payload give."""
    reading = case.reading
    mask = case.method.decode(reading, secret.key) ^ case.method.decode(reading, None)
    ones: Signs = codes.to_bits(secret.payload ^ mask, case.method.bits).astype(np.float64)
    return 2 * ones - 1


def each_goal(plan: Plan, index: int) -> list[Row]:  # noqa: ARG001
    """Return the names of the rows of gradient steps."""
    return [{"attack": goal, "budget": db} for goal in GOALS for db in BUDGETS_DB]


def stepped(case: Case, face: Row) -> Row:
    """Go down the gradient of the public detector, within a budget, and ask what is left.

    `remove` starts from the marked clip and takes presence and logits to those of unmarked ones;
    `create` starts from the host and puts another party's code on it; `replace` changes the code
    of the marked clip into another party's. `forged` is about that party, the rest about the owner;
    `usual` has the presence of what the outcome is to pass for.
    """
    goal, method = face["attack"], case.method
    victim = next(fresh(case, "gradient"))
    start = case.host if goal == "create" else case.marked
    code = None if goal == "remove" else signs(case, victim)
    heard = descend(network(case.plan.detector), start, code, float(face["budget"]))
    reading = method.read(heard)
    row: Row = {"bits": method.bits, "presence": reading.presence}
    like = case.host if goal == "remove" else case.marked
    row |= {"usual": [method.read(case.attacked(name, like)).presence for name in HANDLED]}
    row |= {"snr_db": metrics.snr_db(start, heard), "pesq": metrics.pesq(start, heard, method.rate)}
    if goal != "create":
        row |= {"errors": method.errors(reading, case.secret)}
        row |= _sealed(case, heard, case.secret)
    if goal != "remove":
        row |= {"forged_errors": method.errors(reading, victim)}
        row |= {f"forged_{k}": v for k, v in _sealed(case, heard, victim).items()}
    return row


def _sealed(case: Case, heard: Clip, secret: Secret) -> Row:
    if case.method.marker is None:
        return {}
    found = seals.judge(case, heard, secret, search=False)
    return {"holds": found["holds"], "log10_p": found["log10_p"]}


@lru_cache(maxsize=1)
def network(make: Callable[[], Any] | None) -> Any:
    """Return the public detector as a torch network, made once."""
    if make is None:
        raise KeyBoundError("gradients need the detector in torch", hint="only KeyBound's is here")
    return make()


LENGTHS: dict[float, int | None] = {3.0: 100}
SUITES = {
    "collusion": Suite(combined, each_combination, LENGTHS),
    "gradient": Suite(stepped, each_goal, {3.0: 30}),
}
