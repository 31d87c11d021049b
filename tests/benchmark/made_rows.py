"""Made rows: what a run would write, drawn from chance, for the tests of tables and report."""

import zlib
from typing import Any

import numpy as np

from keybound.attacks import SUITES

Row = dict[str, Any]

HARD = {  # how often a bit is wrong, and how far unmarked scores move up
    "noise-20": (0.002, 0.05),
    "noise-10": (0.03, 0.25),
    "echo": (0.006, 0.08),
    "lyra-6": (0.03, 0.05),
    "lyra-3.2": (0.08, 0.05),
    "hifigan": (0.09, 0.02),
    "codec2-3200": (0.2, 0.1),
}


def clip_rows(
    method: str, attacks: tuple[str, ...], clips: int, seconds: float = 1.0, ease: float = 1.0
) -> list[Row]:
    """Draw rows of attacked clips; `ease` below one makes the mark worse."""
    rows = []
    for name in attacks:
        wrong, lift = HARD.get(name.split("+")[-1].split("@")[0], (0.0005, 0.0))
        rng = np.random.default_rng(hash_of(method, name, str(seconds)))
        for clip in range(clips):
            row: Row = {"method": method, "version": "1", "attack": name, "clip": clip}
            row |= {"seconds": seconds, "seed": 0, "parameters": {}, "bits": 16}
            row["marked"] = round(float(np.clip(rng.normal(0.93 * ease, 0.04), 0, 1)), 5)
            row["unmarked"] = round(float(np.clip(rng.normal(0.12 + lift, 0.09), 0, 1)), 5)
            row["errors"] = int(rng.binomial(16, min(0.5, wrong / seconds + (1 - ease) / 2)))
            row["pesq"] = None if clip == 3 else round(float(rng.uniform(1.5, 4.4)), 3)
            row["stoi"] = round(float(rng.uniform(0.7, 1.0)), 4)
            row |= {"si_snr_raw_db": round(float(rng.normal(4, 6)), 3), "lag": int(clip % 3)}
            row["si_snr_db"] = round(row["si_snr_raw_db"] + 3, 3)
            rows.append(row)
    return rows


def set_rows(speech: str, attacks: tuple[str, ...], clips: int, ease: float = 1.0) -> list[Row]:
    """Draw rows of another set of speech, which hold no damage and no DNSMOS."""
    left_out = ("stoi", "pesq", "si_snr_raw_db", "si_snr_db", "lag", "dnsmos", "dnsmos_host")
    rows = [
        {key: value for key, value in row.items() if key not in left_out}
        for row in clip_rows("keybound", attacks, clips, ease=ease)
    ]
    quality = quality_rows("keybound", clips)
    rows += [{k: v for k, v in row.items() if "dnsmos" not in k} for row in quality]
    return [row | {"speech": speech} for row in rows]


def hash_of(*words: str) -> int:
    """Give a number that is the same in every process."""
    return zlib.crc32("/".join(words).encode())


def quality_rows(method: str, clips: int, pesq: float = 4.45) -> list[Row]:
    """Draw rows of the quality of marked clips; PESQ cannot score the fifth."""
    rng = np.random.default_rng(hash_of(method))
    rows = []
    for clip in range(clips):
        row: Row = {"method": method, "version": "1", "attack": "quality", "clip": clip}
        row |= {"seconds": 1.0, "seed": 0, "stoi": round(float(rng.uniform(0.98, 1)), 4)}
        row["pesq"] = None if clip == 4 else round(float(rng.normal(pesq, 0.08)), 3)
        row |= {"snr_db": round(float(rng.normal(18, 2)), 3), "si_snr_db": 17.5}
        row |= {
            "visqol": 4.4,
            "visqol_host": 4.48,
            "zimtohrli": 4.5,
            "dnsmos": 3.1,
            "dnsmos_host": 3.15,
        }
        rows.append(row)
    return rows


def security_rows(method: str, clips: int) -> list[Row]:
    """Draw rows of every security suite."""
    rng = np.random.default_rng(5)
    rows: list[Row] = []
    for clip in range(clips):
        base: Row = {"method": method, "clip": clip, "bits": 16, "presence": 0.95}
        wrong = [int(e) for e in rng.binomial(16, 0.5, 10)]
        rows.append(
            base | {"suite": "keys", "right": 0, "zero": int(rng.binomial(16, 0.5)), "wrong": wrong}
        )
        for kind in ("residual", "gain-field"):
            moved = {"attack": kind, "presence": round(float(rng.uniform(0, 0.7)), 3)}
            rows.append(
                base | moved | {"suite": "transplant", "errors": int(rng.binomial(16, 0.4))}
            )
        rows.append(base | {"suite": "re-embed", "first": 7, "second": 0})
        rows += [
            base | {"suite": "average", "copies": n, "errors": [3 + i for i in range(n)]}
            for n in (2, 5)
        ]
        rows.append(base | {"suite": "known-payload", "mask_errors": 0, "errors": 1})
        rows.append(base | {"suite": "replay", "errors": 0})
        rows += [
            base | {"suite": "collusion", "seconds": 3.0, "version": "1"} | kind
            for kind in (
                {"attack": "mean", "copies": 2, "errors": [1, 9], "target_errors": 7}
                | {"accepted": 2, "parties": 200, "holds": [True, False], "target_holds": False},
                {"attack": "drawn", "copies": 8, "errors": [5] * 8, "target_errors": clip % 2 * 6}
                | {"accepted": 0, "parties": 200, "holds": [False] * 8, "target_holds": False},
            )
        ]
        stepped = {"suite": "gradient", "seconds": 3.0, "version": "1", "pesq": 2.5}
        removed = {"attack": "remove", "budget": 30, "errors": 6, "holds": True, "presence": 0.01}
        rows.append(base | stepped | removed | {"usual": [0.01, 0.02]})
        created = {"attack": "create", "budget": 40, "forged_errors": 1, "forged_holds": False}
        rows.append(base | stepped | created | {"usual": [0.99, 0.98]})
        for network, held in (("unet", 0.9), ("gains", 0.4)):
            for budget in (1000, 4000, 10000, 20000):
                left = held * 1000 / budget + (0.25 if network == "unet" else 0.1)
                row = {"suite": "remover", "network": network, "budget": budget, "pesq": 4.2}
                row |= {"marked": round(float(rng.normal(left, 0.2)), 4), "stoi": 0.99}
                row |= {"errors": int(rng.binomial(16, 0.3)), "snr_db": 25.0}
                rows.append(base | row)
    for domain, alike in (("waveform", 0.05), ("gain-field", 0.4)):
        row = {"suite": "carrier", "method": method, "domain": domain, "hosts": clips}
        rows.append(row | {"correlation": alike, "cosine": alike + 0.01})
    for source, attack in (("noise", "clean"), ("attacked-speech", "mp3")):
        scores = [round(float(s), 3) for s in rng.uniform(0, 0.6, 600)]
        row = {"suite": "null", "method": method, "source": source, "attack": attack}
        rows.append(row | {"seconds": 1.0, "scores": scores})
    absent = {"suite": "null", "method": method, "source": "attacked-speech", "attack": "encodec-6"}
    rows.append(absent | {"seconds": 1.0, "scores": [], "not_run": "weights absent"})
    for verb, times in (("embed", 80.0), ("detect", 120.0)):
        speed = {"suite": "speed", "verb": verb, "trained": True}
        rows.append(speed | {"method": method, "times_real_time": times})
        slower = {"method": "audioseal", "times_real_time": times / 2, "trained": False}
        rows.append(speed | slower)
    return rows


def seal_rows(method: str, clips: int) -> list[Row]:
    """Draw rows of every part of the suite of sealed evidence."""
    rng = np.random.default_rng(6)
    rows: list[Row] = []
    for clip in range(clips):
        for seconds in (3.0, 10.0):
            base: Row = {"method": method, "version": "1", "seed": 0, "clip": clip}
            base |= {"seconds": seconds}
            evidence: Row = {"layer": "pattern", "verified": True}
            evidence |= {"z": round(float(rng.normal(8, 1)), 3), "holds": True, "holds_256": False}
            rows += [base | evidence | {"suite": "seal", "attack": a} for a in SUITES["sealed"]]
            removed = {"suite": "seal-remover", "network": "gains", "budget": 20000, "pesq": 4.5}
            rows.append(base | evidence | removed)
            rows.append(base | evidence | {"suite": "seal-forgery", "attack": "replay"})
            moved = {"suite": "seal-counter", "attack": "once", "budget": 2, "pesq": 4.5}
            rows.append(base | evidence | moved | {"zimtohrli": 4.9})
            scores = {"pesq": 4.4, "visqol": 3.9, "stoi": 0.99, "snr_db": 19.0}
            bare = {f"{k}_unsealed": v + 0.005 for k, v in scores.items()}
            rows.append(base | scores | bare | {"suite": "seal-quality"})
            answer = {"decision": ("other", "unclear")[clip % 2], "agreement": 0.1, "holds": True}
            rows.append(base | answer | {"suite": "seal-copy", "attack": "residual"})
        for kind in ("copies", "mixture", "estimate"):
            row = {"suite": "seal-average", "attack": kind, "copies": 2, "verified": [True, False]}
            rows.append(base | row | {"holds": [True, False], "z": [8.0, 4.0]})
        source = ("unmarked", "sealed by others", "attacked")[clip % 3]
        row = {"suite": "seal-null", "source": source, "attack": "clean", "keys": 350}
        rows.append(base | row | {"below": [9, 1, 0, 0, 0, 0]})
    return rows


def facts(method: str, threshold: float | None, bits: int = 16, *, keyed: bool = True) -> Row:
    """Give what a method says of itself."""
    row: Row = {"suite": "method", "method": method, "rate": 16000, "bits": bits, "rho": 2}
    return row | {"keyed": keyed, "threshold": threshold}


def all_rows(clips: int = 40) -> list[Row]:
    """Make rows for every table."""
    paper = tuple(name for name in SUITES["paper"] if name != "encodec-6")
    more = ("hifigan", "codec2-3200", "speex-wb2", "lyra-3.2", "lyra-9.2", "opus-16", "reverb")
    more += ("packet-loss@5", "crop", "noise@40", "stretch@0.7")
    chains = ("lyra-6+noise-20", "denoiser+resample", "mp3+griffin-lim", "gain+echo")
    rows = [facts("keybound", 0.47), facts("perth", None, keyed=False)]
    rows += clip_rows("keybound", (*paper, *more, *chains), clips)
    rows += clip_rows("perth", paper, clips, ease=0.6)
    rows += clip_rows("keybound", ("clean", "noise-10", "lyra-6"), clips, seconds=3.0)
    rows += quality_rows("keybound", clips) + quality_rows("perth", clips, 4.1)
    rows += security_rows("keybound", clips) + seal_rows("keybound", clips)
    studies = {"ablation/baseline": 1.0, "ablation/no-anchor": 0.9, "bits/8": 1.0, "bits/64": 0.6}
    studies |= {"paper/no-anchor": 0.9, "paper/bits-32": 0.7, "paper/snr-26": 0.95}
    studies |= {f"budget/{n}": 1 - n / 200 for n in (5, 10, 20)}
    for method, ease in studies.items():
        bits = int(method.partition("/")[2]) if method.startswith("bits") else 16
        rows.append(facts(method, 0.5, bits))
        rows += clip_rows(method, ("clean", "denoiser", "lyra-6", "noise-10"), clips, ease=ease)
        rows += quality_rows(method, clips, 3.6 + (1 - ease) * 4)
    for seconds in (3.0, 10.0):  # marks for longer excerpts, on clips of that length
        method = f"excerpt/{seconds:g}"
        rows.append(facts(method, 0.5))
        rows += clip_rows(method, ("clean", "noise-10", "lyra-6", "lyra-3.2"), clips, seconds)
        rows += [row | {"seconds": seconds} for row in quality_rows(method, clips, 4.55)]
    rows += set_rows("synthetic", paper, clips, ease=0.95)
    rows += set_rows("wideband", (*paper, "opus-16"), 6)
    for name in ("encodec-6", "encodec-6+noise-20", "encodec-6+denoiser", "dac-16", "bigvgan"):
        rows.append({"method": "keybound", "attack": name, "reason": "weights absent"})
    rows.append({"method": "wavmark", "attack": "clean", "reason": "weights absent"})
    return rows
