"""Recipes: every number that makes a model, read from TOML. Knows nothing of torch.

A recipe is a tree of frozen dataclasses. An entry that no dataclass knows is refused, so that a
mistyped name never trains silently with a default.
"""

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keybound.errors import RecipeError

Ramp = tuple[float, float, float, float]
"""(from value, to value, first step, last step): constant outside, a straight line inside."""


@dataclass(frozen=True)
class ModelSpec:
    """What the two networks are."""

    generator: str = "spectral"  # or "additive", the paper's
    bits: int = 16
    width: int = 256
    expansion: int = 3
    analysis_blocks: int = 2
    synthesis_blocks: int = 6
    detector_blocks: int = 10
    detector_expansion: int = 2
    bands: int = 40  # gains a frame, spectral only
    max_gain_nepers: float = 0.6  # 5.2 dB either way, spectral only
    latent: int = 128  # additive only
    carrier_scale: float = 1.0  # alpha of the paper, additive only
    anchor: bool = True  # False: C(x) is a learned constant (ablation)


@dataclass(frozen=True)
class DataSpec:
    """What is marked."""

    segment_frames: int = 50  # 20 ms each: one second
    speeds: tuple[float, ...] = (1.0,)  # copies of the corpus played faster or slower
    level_db: tuple[float, float] = (-40.0, -12.0)  # rms of a segment
    tilt_db: float = 0.0  # random spectral tilt of the host, at most
    noisy: float = 0.0  # share of hosts with a little background noise of their own
    splice: float = 0.25  # share of segments where only a part is marked


@dataclass(frozen=True)
class LossSpec:
    """Weights of the objective and the ramps of its curriculum."""

    message: float = 10.0
    presence: float = 1.5
    clip_presence: float = 1.5
    forgery: float = 1.0
    perceptual: float = 0.5
    masking: float = 1.0
    budget: float = 1.0
    gain_budget: float = 5.0
    snr_db: Ramp = (6.0, 15.0, 0.0, 4000.0)
    gain_db: Ramp = (4.0, 2.0, 0.0, 4000.0)
    forgery_ramp: Ramp = (0.0, 1.0, 1000.0, 3000.0)
    perceptual_ramp: Ramp = (0.0, 1.0, 1000.0, 4000.0)


@dataclass(frozen=True)
class ChannelSpec:
    """The attack channel: how often, how many kinds a batch, and the odds of each kind."""

    probability: Ramp = (0.3, 0.95, 0.0, 2000.0)
    groups: int = 4  # kinds of attack drawn for each batch
    codec_group: bool = True  # one more group through real MP3, Opus or Vorbis
    neural_group: bool = True  # one more group through Lyra (or EnCodec where installed)
    remover_from: float = 7000.0  # step at which the in-loop remover's output joins the channel
    remover_updates: int = 1  # a step of the remover every so many steps; 0: no remover
    odds: dict[str, float] = field(default_factory=dict)
    late_odds: dict[str, float] = field(default_factory=dict)  # replaces odds in the last third


@dataclass(frozen=True)
class Recipe:
    """One model: what it is, what it hears, what it suffers, and for how long."""

    name: str
    seed: int = 1
    steps: int = 12000
    batch: int = 24  # segments a group: a batch holds one group for each kind of attack
    learning_rate: float = 5e-4
    warmup: int = 500
    decay_from: float = 0.5  # share of the run after which the rate falls along a cosine
    ema: float = 0.999
    clip_norm: float = 1.0
    model: ModelSpec = field(default_factory=ModelSpec)
    data: DataSpec = field(default_factory=DataSpec)
    loss: LossSpec = field(default_factory=LossSpec)
    channel: ChannelSpec = field(default_factory=ChannelSpec)


def at(ramp: Ramp, step: float) -> float:
    """Give the value of a ramp at a step."""
    start, end, first, last = ramp
    if last <= first:
        return end if step >= first else start
    share = min(1.0, max(0.0, (step - first) / (last - first)))
    return start + (end - start) * share


def load(path: Path | str) -> Recipe:
    """Read a recipe, refusing unknown entries."""
    try:
        tree = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot read recipe {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path} is not TOML: {error}") from error
    return from_tree(tree)


def from_tree(tree: dict[str, Any]) -> Recipe:
    """Build a recipe from plain dicts, as TOML or JSON give them."""
    recipe = _build(Recipe, tree, "")
    assert isinstance(recipe, Recipe)
    if recipe.model.generator not in ("spectral", "additive"):
        raise RecipeError(
            f"unknown generator {recipe.model.generator!r}", hint="spectral or additive"
        )
    if not 1 <= recipe.model.bits <= 256:
        raise RecipeError("bits must lie between 1 and 256")
    return recipe


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """Give a recipe as plain dicts."""
    return dataclasses.asdict(recipe)


def _build(kind: type, tree: dict[str, Any], where: str) -> object:
    known = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(tree) - set(known))
    if unknown:
        raise RecipeError(
            f"unknown recipe entry {where}{unknown[0]}", hint=f"known: {', '.join(known)}"
        )
    values: dict[str, Any] = {}
    for name, value in tree.items():
        wanted = known[name].type
        if isinstance(wanted, type) and dataclasses.is_dataclass(wanted):
            if not isinstance(value, dict):
                raise RecipeError(f"recipe entry {where}{name} must be a table")
            values[name] = _build(wanted, value, f"{where}{name}.")
        elif isinstance(value, list):
            values[name] = tuple(value)
        elif wanted is float and isinstance(value, int) and not isinstance(value, bool):
            values[name] = float(value)
        elif isinstance(wanted, type) and not isinstance(value, wanted):
            raise RecipeError(f"recipe entry {where}{name} must be a {wanted.__name__}")
        else:
            values[name] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise RecipeError(f"recipe is incomplete: {error}") from error
