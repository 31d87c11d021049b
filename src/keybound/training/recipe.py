"""Recipes: every number that makes a model, read from TOML. Knows nothing of torch.

A recipe is a tree of frozen dataclasses. An entry that no dataclass knows is refused, so that a
mistyped name never trains silently with a default.
"""

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, get_args, get_origin

from keybound.errors import RecipeError

Ramp = tuple[float, float, float, float]
"""(from value, to value, first step, last step): constant outside, a straight line inside."""

KINDS = (  # of attack that `channel` knows
    "identity", "noise", "hard_noise", "background", "band_filter", "resample", "equalise", "speed",
    "quantise", "smoothing", "echo", "reverb", "griffin_lim", "mel_resynthesis", "envelope",
    "jitter", "celp", "denoise", "noise_denoise", "compress", "drop", "neural", "neural_noise",
    "neural_denoise", "remover",
)  # fmt: skip
GENERATORS = ("spectral", "additive")
MOST_BASES = 4  # of a recipe's base, one after the other


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
    presence_spans: tuple[int, ...] = ()  # odd numbers of frames beside 13, spectral only
    bands: int = 40  # gains a frame, spectral only
    max_gain_nepers: float = 0.6  # 5.2 dB either way, spectral only
    emphasis: tuple[tuple[float, float], ...] = ((0.0, 1.0),)  # (Hz, what gains are scaled by)
    by_strength: bool = False  # the embedder knows how strong its mark should be, spectral only
    latent: int = 128  # additive only
    carrier_scale: float = 1.0  # alpha of the paper, additive only
    absolute: bool = False  # C(x) hears the host's own level, not relative to it, additive only
    presence_limit: float = 5.0  # of a presence logit, additive only; 0: none
    anchor: bool = True  # False: C(x) is a learned constant (ablation)


@dataclass(frozen=True)
class DataSpec:
    """What is marked."""

    segment_frames: int = 50  # 20 ms each: one second
    speeds: tuple[float, ...] = (1.0,)  # copies of the corpus played faster or slower
    openings: float = 0.0  # share of segments that begin where a recording does
    level_db: tuple[float, float] = (-40.0, -12.0)  # rms of a segment
    tilt_db: float = 0.0  # random spectral tilt of the host, at most
    noisy: float = 0.0  # share of hosts with a little background noise of their own
    splice: float = 0.25  # share of segments where only a part is marked
    turns: float = 0.0  # share of marks, where `host` pairs them, that change code every second
    sealed: float = 0.0  # share of marked segments that bear a seal too
    cropped: float = 0.0  # share of full marks of which but half a second to two is heard
    non_speech: float = 0.5  # share of the clean unmarked clips that are not speech
    full: float = 1.0  # share of clips marked at full strength and read second by second
    strengths: tuple[float, float] = (1.0, 1.0)  # of the other clips, which are read whole


@dataclass(frozen=True)
class LossSpec:
    """Weights of the objective and the ramps of its curriculum."""

    message: float = 10.0
    presence: float = 1.5
    clip_presence: float = 1.5
    forgery: float = 1.0
    forgery_frames: float = 1.0  # share of the term on the presence of each forged frame
    forgery_clips: float = 1.0  # share of the term on the score of each forged clip
    gain_transplants: bool = True  # among the forgeries, beside residual transplants
    perceptual: float = 0.5
    masking: float = 1.0
    stoi: float = 0.0  # weight of what STOI lacks of its goal, within the perceptual term
    stoi_goal: float = 0.993
    visqol: float = 0.0  # likewise for ViSQOL
    visqol_goal: float = 0.95
    pesq: float = 0.0  # likewise for PESQ, as predicted
    pesq_goal: float = 4.4
    zimtohrli: float = 0.0  # likewise for Zimtohrli, as predicted
    zimtohrli_goal: float = 4.7
    weak_powers: tuple[float, float, float, float] = (1.0, 2.0, 1.0, 2.0)  # of strength, by budget
    host: float = 0.0  # on what hosts add to the logits whatever the code; marks each host twice
    budget: float = 1.0  # of the SNR hinge on the mean of a batch
    clip_budget: float = 0.0  # of the SNR hinge on each clip
    clip_slack_db: float = 0.0  # how far below the target the hinge on each clip begins
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
    neural_codecs: tuple[str, ...] = ()  # of those at hand, as lyra-6; none: all
    strengths: str = "wide"  # of the attacks, or "paper": near those that the paper tests
    shift_ms: float = 10.0  # how far any clip is moved, at most
    wave_remover: bool = False  # the in-loop remover works on the waveform, not on band gains
    remover_from: float = 7000.0  # step at which the in-loop remover's output joins the channel
    remover_updates: int = 1  # a step of the remover every so many steps; 0: no remover
    odds: dict[str, float] = field(default_factory=dict)
    late_odds: dict[str, float] = field(default_factory=dict)  # replaces odds in the last third


@dataclass(frozen=True)
class Recipe:
    """One model: what it is, its speech, its objective, its attacks, and for how long."""

    name: str
    seed: int = 1
    steps: int = 12000
    batch: int = 24  # segments a group: a batch holds one group for each kind of attack
    learning_rate: float = 5e-4
    warmup: int = 500
    decay_from: float = 0.5  # share of the run after which the rate falls along a cosine
    ema: float = 0.999
    clip_norm: float = 1.0
    trainable: tuple[str, ...] = ()  # beginnings of the names of weights to train; none: all
    model: ModelSpec = field(default_factory=ModelSpec)
    data: DataSpec = field(default_factory=DataSpec)
    loss: LossSpec = field(default_factory=LossSpec)
    channel: ChannelSpec = field(default_factory=ChannelSpec)


def at(ramp: Ramp, step: float) -> float:
    """Return the value of a ramp at a step."""
    start, end, first, last = ramp
    if last <= first:
        return end if step >= first else start
    share = min(1.0, max(0.0, (step - first) / (last - first)))
    return (1 - share) * start + share * end


def rate(recipe: Recipe, step: int, position: float) -> float:
    """Return the learning rate: warm-up by steps, then constant, then a cosine to a fiftieth.

    `position` is the step that the schedule has reached, which may follow the clock.
    """
    warm = min(1.0, (step + 1) / max(1, recipe.warmup))
    share = position / recipe.steps
    if share <= recipe.decay_from:
        return recipe.learning_rate * warm
    fall = min(1.0, (share - recipe.decay_from) / (1 - recipe.decay_from))
    return recipe.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * fall)))


def group_count(recipe: Recipe) -> int:
    """Count the groups of a batch, each of which meets one kind of attack."""
    return recipe.channel.groups + recipe.channel.codec_group + recipe.channel.neural_group


def plan(recipe: Recipe, step: int, position: float, coded: bool) -> list[str]:
    """Choose the attack of each group of a batch; the group of real codecs comes first.

    It meets one of the other attacks in steps that have nothing from the codecs (`coded`).
    """
    spec, rng = recipe.channel, Random(f"{recipe.seed}:{step}")
    late = position > 2 / 3 * recipe.steps
    odds = dict(spec.late_odds if late and spec.late_odds else spec.odds)
    if position < spec.remover_from:
        odds.pop("remover", None)
    odds = odds if sum(odds.values()) else {"identity": 1.0}
    chosen = rng.choices(list(odds), list(odds.values()), k=spec.groups)
    if spec.neural_group:
        chosen.append("neural")
    if spec.codec_group:
        chosen.insert(0, "codec" if coded else rng.choices(list(odds), list(odds.values()))[0])
    return chosen


def load(path: Path | str) -> Recipe:
    """Read a recipe, refusing unknown entries.

    One that names a `base`, by a path from its own folder, says only what differs from it.
    """
    return from_tree(_read(Path(path)))


def _read(path: Path, depth: int = 0) -> dict[str, Any]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RecipeError(f"cannot read recipe {path}: {why}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe {path} is not TOML: {error}") from error
    base = tree.pop("base", None)
    if base is None:
        return tree
    if not isinstance(base, str) or depth == MOST_BASES:
        raise RecipeError(f"recipe {path} must name a recipe as its base, and not itself")
    return _merged(_read(path.parent / base, depth + 1), tree)


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay entries over others, table by table."""
    whole = dict(below)
    for name, value in above.items():
        inner = whole.get(name)
        both = isinstance(inner, dict) and isinstance(value, dict)
        whole[name] = _merged(inner, value) if both else value  # type: ignore[arg-type]
    return whole


def from_tree(tree: dict[str, Any]) -> Recipe:
    """Build a recipe from plain dicts, as TOML or JSON give them."""
    recipe: Recipe = _build(Recipe, tree, "")
    for table in ("odds", "late_odds"):
        odds = getattr(recipe.channel, table)
        if unknown := sorted(set(odds) - set(KINDS)):
            hint = f"known: {', '.join(KINDS)}"
            raise RecipeError(f"unknown recipe entry channel.{table}.{unknown[0]}", hint=hint)
        if odds and (min(odds.values()) < 0 or not sum(odds.values())):
            raise RecipeError(f"channel.{table} must be positive odds")
    demands = {
        "generator must be spectral or additive": recipe.model.generator in GENERATORS,
        "bits must lie between 1 and 256": 1 <= recipe.model.bits <= 256,
        "steps must be at least 1": recipe.steps >= 1,
        "a batch must hold two clips or more, to transplant marks": (
            recipe.batch >= 1 and recipe.batch * group_count(recipe) >= 2
        ),
        "batches must be even where hosts are marked twice": not (
            recipe.loss.host and recipe.batch % 2
        ),
        "segments must have 4 frames or more": recipe.data.segment_frames >= 4,
        "emphasis must be pairs, each further up in Hz": (
            len(recipe.model.emphasis) > 0
            and all(low < high for (low, _), (high, _) in pairwise(recipe.model.emphasis))
        ),
        "strengths must be wide or paper": recipe.channel.strengths in ("wide", "paper"),
        "shift_ms must not be negative": recipe.channel.shift_ms >= 0,
        "speeds must be positive": min(recipe.data.speeds, default=0) > 0,
        "strengths must be positive": min(recipe.data.strengths) > 0,
    }
    for words, met in demands.items():
        if not met:
            raise RecipeError(words)
    return recipe


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain dicts."""
    return dataclasses.asdict(recipe)


def _build(kind: type, tree: dict[str, Any], where: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(kind)}
    if unknown := sorted(set(tree) - set(known)):
        hint = f"known: {', '.join(known)}"
        raise RecipeError(f"unknown recipe entry {where}{unknown[0]}", hint=hint)
    try:
        return kind(**{k: _fit(v, known[k].type, f"{where}{k}") for k, v in tree.items()})
    except TypeError as error:
        raise RecipeError(f"recipe is incomplete: {error}") from error


PLAIN = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a text"}


def _fit(value: Any, wanted: Any, name: str) -> Any:
    """Return a value as the type that its entry has, or refuse it."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if wanted in PLAIN:
        wish = PLAIN[wanted]
        if wanted is float and type(value) is int:
            value = float(value)
        if type(value) is wanted and not (wanted is float and not math.isfinite(value)):
            return value  # a bool is no int here
    elif origin is tuple:
        any_length = inner[-1] is Ellipsis
        things = {str: "texts", float: "numbers"}.get(inner[0], "pairs of numbers")
        wish = f"a list of {things}" if any_length else f"a list of {len(inner)} {things}"
        if isinstance(value, list | tuple) and (any_length or len(value) == len(inner)):
            return tuple(_fit(v, inner[0], name) for v in value)
    else:
        wish = "a table"
        if isinstance(value, dict) and origin is dict:
            return {k: _fit(v, inner[1], f"{name}.{k}") for k, v in value.items()}
        if isinstance(value, dict):
            return _build(wanted, value, f"{name}.")
    raise RecipeError(f"recipe entry {name} must be {wish}")
