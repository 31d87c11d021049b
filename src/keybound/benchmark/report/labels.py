"""Labels: the printed names of methods and attacks, and the notes that stand below tables."""

from collections.abc import Iterable, Sequence

from keybound.benchmark.report import paper
from keybound.benchmark.report.descriptions import METHODS
from keybound.benchmark.report.layout import BEHIND, BELOW, EMPTY, OVER, STANDS_IN
from keybound.benchmark.report.summaries import CLEAN, NOMINAL, SHIPPED, Evidence, natural

FAR = 0.02  # a figure on other speech that is further below the main set's is marked
TOO_MANY = 2 * NOMINAL  # a realised false-positive rate above this is marked

STUDIED = {"paper": "the paper's design", "ablation": "short schedule"}  # what arms are of
NOTES = {
    EMPTY: f"{EMPTY} no figure.",
    BEHIND: f"{BEHIND} worse than the paper's figure, compared with the digits the paper printed.",
    OVER: f"{OVER} more than {TOO_MANY:g} false positives a clip, twice the nominal rate.",
    BELOW: f"{BELOW} more than {FAR:g} below the figure on the test clips, as both are printed.",
    STANDS_IN: f"{STANDS_IN} the paper's figure under EnCodec 6 kbps.",
}


def titled(method: str) -> str:
    """Return the printed name of a method."""
    design, _, arm = method.partition("/")
    if design in STUDIED and arm:
        return f"{STUDIED[design]}, {mechanisms(method)}"
    if design == "excerpt":
        return f"KeyBound, --excerpt {arm}"
    if method.startswith("landmark/"):
        return method.replace("/", ": ")
    return METHODS.get(method, method)


def mechanisms(method: str) -> str:
    """Return what a method of a study has, and others of its study do not."""
    kind, _, value = method.partition("/")[2].partition("-")
    words = {"no": f"without {value}", "bits": f"{value} bits", "snr": f"SNR target {value} dB"}
    return words.get(kind, "all mechanisms")


def label(attack: str) -> str:
    """Return the printed name of an attack or a chain."""
    if "+" in attack:
        return " → ".join(paper.LABELS.get(a, a).partition(",")[0] for a in attack.split("+"))
    return paper.LABELS.get(attack, attack)


def in_order(attacks: Iterable[str], known: Sequence[str] = paper.ATTACKS) -> list[str]:
    """Return attacks in order: known ones, by default the paper's, then the rest by name."""
    rank = {attack: place for place, attack in enumerate(known)}
    return sorted(attacks, key=lambda attack: (rank.get(attack, len(rank)), natural(attack)))


def counted(e: Evidence, methods: Sequence[str]) -> str:
    """Return how many clips each method was measured on."""
    counts = {}
    for method in methods:
        sizes = {len(e.rows(method, attack)) for attack in e.attacks(method)}
        low, high = min(sizes, default=0), max(sizes, default=0)
        counts[titled(method)] = f"{low}" if low == high else f"{low} to {high}"
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} clips of one second"
    return "clips of one second: " + ", ".join(f"{m} {n}" for m, n in counts.items())


def thresholds(e: Evidence, methods: Sequence[str]) -> str:
    """Return where the thresholds stand."""
    told = []
    for method in methods:
        found = {which: e.threshold(method, which) for which in (SHIPPED, CLEAN)}
        words = [f"{which} {value:.4f}" for which, value in found.items() if value is not None]
        told.append(f"{titled(method)} {', '.join(words) or 'none known'}")
    return f"Thresholds: {'; '.join(told)} (clean: 1 % false positives on clean unmarked clips)."
