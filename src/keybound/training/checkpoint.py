"""What training keeps: weights, averages, the optimiser, all as safetensors with JSON beside.

A checkpoint resumes a run exactly. Weights alone, such as those the package ships, start a new one.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as safe_bytes
from torch import Tensor, nn

from keybound.errors import RecipeError
from keybound.training import nets
from keybound.training.recipe import Recipe, from_tree, to_tree

WIDENED = re.compile(r"\.(expand\.weight|expand\.bias|contract\.weight|mix\.weight)$")
NEW = re.compile(r"(analysis|synthesis|blocks)\.\d+\.|tell$|slope$")  # may lack in weights


@dataclass
class State:
    """All that changes while a model is trained."""

    embedder: nn.Module
    detector: nn.Module
    remover: nn.Module
    optimiser: torch.optim.AdamW
    remover_optimiser: torch.optim.AdamW
    trained: list[nn.Parameter]
    average: list[Tensor]
    step: int = 0
    seconds: float = 0.0
    residual: Tensor | None = None  # of the codec request that was under way


def fresh(recipe: Recipe, device: torch.device, init: dict[str, Tensor] | None = None) -> State:
    """Start a run from random weights, or from `init` (names as `weights` gives them)."""
    torch.manual_seed(recipe.seed)
    embedder, detector = (net.to(device) for net in nets.build(recipe.model))
    remover = nets.build_remover(recipe.channel.wave_remover).to(device)
    if init is not None:
        for name, net in (("embedder.", embedder), ("detector.", detector)):
            net.load_state_dict(grown(_part(init, name), net))
    trained = [*embedder.parameters(), *detector.parameters()]
    average = [p.detach().clone() for p in trained]
    for name, net in (("embedder", embedder), ("detector", detector)):
        for part, value in net.named_parameters():
            value.requires_grad_(f"{name}.{part}".startswith(recipe.trainable or ""))
    active = [p for p in trained if p.requires_grad]
    if not active:
        raise RecipeError("the recipe trains nothing", hint="see its entry trainable")
    optimisers = (_adam(active, recipe), _adam(list(remover.parameters()), recipe))
    return State(embedder, detector, remover, *optimisers, trained, average)


def grown(init: dict[str, Tensor], net: nn.Module) -> dict[str, Tensor]:
    """Return a network's weights from those of one as large, or smaller, that computes the same.

    It may have more blocks, which add nothing yet, and wider ones, and judge presence over longer
    spans, with a weight of its own for bits, which is at first what presence is.
    """
    whole, hint = {}, "its [model] must be that of the weights, or have more or wider blocks"
    for name, value in net.state_dict().items():
        old = init.get(name, init.get(name.replace("heads.weight.", "heads.")))
        if old is None and name.endswith(".scale"):
            value.zero_()
        elif old is not None and old.shape == value.shape:
            value.copy_(old)
        elif old is not None and WIDENED.search(name) and len(old) <= len(value):
            if name.endswith(("contract.weight", "mix.weight")):
                value.zero_()
            value[tuple(slice(n) for n in old.shape)] = old
        elif old is not None or not NEW.match(name):
            raise RecipeError(f"the weights do not fit the recipe: {name}", hint=hint)
        whole[name] = value
    if strange := sorted(set(init) - set(whole)):
        raise RecipeError(f"the weights do not fit the recipe: {strange[0]}", hint=hint)
    return whole


def _adam(parameters: list[nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        parameters, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=1e-2, fused=True
    )


def weights(state: State, *, averaged: bool) -> dict[str, Tensor]:
    """Return the weights of both networks by name."""
    names = [f"embedder.{k}" for k, _ in state.embedder.named_parameters()]
    names += [f"detector.{k}" for k, _ in state.detector.named_parameters()]
    values = state.average if averaged else [p.detach() for p in state.trained]
    return {k: v.cpu().contiguous() for k, v in zip(names, values, strict=True)}


def save(state: State, recipe: Recipe, folder: Path) -> None:
    """Write a checkpoint: resume.safetensors, weights.safetensors (averaged), state.json.

    Each file appears whole or not at all, so a run that is killed leaves the one before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rest = {f"trained.{k}": v for k, v in weights(state, averaged=False).items()}
    rest |= {f"remover.{k}": v.cpu() for k, v in state.remover.state_dict().items()}
    for label, optimiser in _optimisers(state).items():
        for i, values in optimiser.state_dict()["state"].items():
            rest |= {f"{label}.{i}.{k}": torch.as_tensor(v).cpu() for k, v in values.items()}
    if state.residual is not None:
        rest["residual"] = state.residual
    line = {"step": state.step, "seconds": state.seconds, "recipe": to_tree(recipe)}
    whole = {
        "resume.safetensors": safe_bytes(rest),
        "weights.safetensors": safe_bytes(weights(state, averaged=True)),
        "state.json": json.dumps(line, indent=1).encode(),
    }
    for name, content in whole.items():
        (folder / f"{name}.part").write_bytes(content)
    for name in whole:
        (folder / f"{name}.part").replace(folder / name)


def restore(folder: Path, device: torch.device) -> tuple[State, Recipe]:
    """Read a checkpoint back, to go on exactly where it was written."""
    try:
        line = json.loads((folder / "state.json").read_text())
        rest = load_file(folder / "resume.safetensors")
        averaged = load_file(folder / "weights.safetensors")
    except OSError as error:
        raise RecipeError(f"no checkpoint in {folder}", hint="train writes one") from error
    except (ValueError, SafetensorError) as error:
        raise RecipeError(f"the checkpoint in {folder} is damaged") from error
    recipe = from_tree(line["recipe"])
    state = fresh(recipe, device, _part(rest, "trained."))
    state.remover.load_state_dict(_part(rest, "remover."))
    state.average = [averaged[k].to(device) for k in weights(state, averaged=False)]
    for label, optimiser in _optimisers(state).items():
        entries: dict[int, dict[str, Tensor]] = {}
        for key, value in _part(rest, f"{label}.").items():
            index, name = key.split(".", 1)
            entries.setdefault(int(index), {})[name] = value
        optimiser.load_state_dict(optimiser.state_dict() | {"state": entries})
    state.step, state.seconds = line["step"], line["seconds"]
    state.residual = rest.get("residual")
    return state, recipe


def _optimisers(state: State) -> dict[str, torch.optim.AdamW]:
    return {"optimiser": state.optimiser, "remover_optimiser": state.remover_optimiser}


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
