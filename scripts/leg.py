"""Train one leg of a run on a leased machine, which may be taken back at any moment.

    python scripts/leg.py RECIPE RUN --minutes 25 --leg 560 --back FOLDER --speech FOLDER \\
        --noise FOLDER --lyra FOLDER --start src/keybound/model/weights

The first leg starts the run, the next ones go on from the checkpoint in RUN, with the recipe as it
is then. `--minutes` is the length of all legs together and sets the schedule, `--leg` the seconds
of this one. What training has written last lies in the folder `--back`, as halves, at most two
minutes old: embedder.safetensors, detector.safetensors, state.json and log.jsonl. `join` makes a
run of them again, for `keybound export`:

    python scripts/leg.py join FOLDER RUN
"""

import argparse
import json
import shutil
import sys
import threading
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from keybound.training.checkpoint import fresh, restore
from keybound.training.export import read_weights
from keybound.training.recipe import load
from keybound.training.step import Sources
from keybound.training.train import train

PARTS = ("embedder", "detector")
SAVE_EVERY = 1000  # steps: about a minute
SHOWN = ("step", "message", "stoi", "weak_stoi", "visqol", "weak_visqol", "pesq", "weak_pesq",
         "zimtohrli", "weak_zimtohrli", "skipped")  # fmt: skip


def bring_back(run: Path, back: Path) -> None:
    """Write the averaged weights of the last checkpoint, by network and as halves."""
    weights = load_file(run / "weights.safetensors")
    for part in PARTS:
        own = {k: v.half() for k, v in weights.items() if k.startswith(part)}
        save_file(own, back / f"{part}.part")
        (back / f"{part}.part").replace(back / f"{part}.safetensors")
    for name in ("state.json", "log.jsonl"):
        shutil.copy(run / name, back / name)


def watch(run: Path, back: Path, done: threading.Event) -> None:
    """Bring back each checkpoint soon after it was written."""
    seen = 0.0
    while not done.wait(10):
        state = run / "state.json"
        if state.exists() and state.stat().st_mtime != seen:
            seen = state.stat().st_mtime
            bring_back(run, back)


def join(back: Path, run: Path) -> None:
    """Make a run of what was brought back."""
    run.mkdir(parents=True, exist_ok=True)
    weights: dict[str, torch.Tensor] = {}
    for part in PARTS:
        weights |= {k: v.float() for k, v in load_file(back / f"{part}.safetensors").items()}
    save_file(weights, run / "weights.safetensors")
    (run / "state.json").write_text((back / "state.json").read_text())


def main() -> None:
    """Train until the leg or the run is over, and print a short table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("run", type=Path)
    for name in ("speech", "noise", "back"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("lyra", "start"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--leg", type=float, required=True)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    asked = parser.parse_args()
    recipe = load(asked.recipe)
    if (asked.run / "state.json").exists():
        state, before = restore(asked.run, asked.device)
        print("the recipe", "changed" if before != recipe else "did not change")
    else:
        init = read_weights(asked.start) if asked.start else None
        state = fresh(recipe, asked.device, init)
    asked.back.mkdir(parents=True, exist_ok=True)
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(asked.run, asked.back, done))
    watcher.start()
    try:
        state = train(
            recipe, state, Sources(asked.speech, asked.noise, asked.lyra), asked.run,
            device=asked.device, minutes=asked.minutes, pause_s=asked.leg, save_every=SAVE_EVERY,
        )  # fmt: skip
    finally:
        done.set()
        watcher.join()
    bring_back(asked.run, asked.back)
    print(f"step {state.step}, {state.seconds:.0f} s")
    lines = [json.loads(line) for line in (asked.run / "log.jsonl").read_text().splitlines()]
    for line in lines[:: max(1, len(lines) // 10)]:
        print({name: line.get(name) for name in SHOWN})


if __name__ == "__main__":
    if sys.argv[1:2] == ["join"]:
        if len(sys.argv) != 4:
            sys.exit("leg.py join FOLDER RUN")
        join(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
