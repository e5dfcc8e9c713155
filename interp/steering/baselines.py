"""What a vector has to be compared with before its effect means anything.

Random directions of the same norm, the direction between the answers' letters, other ways to find a direction from the
same activations, and just asking for the behaviour in the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from interp.core.intervals import Interval, bootstrap
from interp.steering.pair_activations import PairActivations
from interp.steering.pairs import ContrastivePair, PairDataset, as_pairs
from interp.steering.prompts import BASE, PromptVariation
from interp.steering.propensity import DEFAULT_MULTIPLIERS, PropensityResult, at_layer, propensity_curves
from interp.steering.steerability import Steerability, check_multipliers
from interp.steering.vector import SteeringVector

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel


def random_directions(vector: SteeringVector, seeds: int = 5) -> dict[str, SteeringVector]:
    """Directions drawn at random, with the vector's norm at each of its layers."""
    if seeds < 1:
        raise ValueError(f"seeds={seeds}: draw at least one random direction")
    return {f"random {seed}": vector.random_like(seed) for seed in range(seeds)}


def split_by_letter(
    activations: PairActivations, pairs: Sequence[ContrastivePair]
) -> tuple[SteeringVector, SteeringVector]:
    """The mean difference taken apart into what the behaviour adds and what the letter adds.

    With D_A the mean difference of the pairs whose positive answer is (A), and D_B that of the others:
    behaviour = (D_A + D_B) / 2, in which the letters cancel whatever their balance is, and letter = (D_A - D_B) / 2,
    the direction from (B) to (A), in which the behaviour cancels.

    Args:
        activations: as `collect` reads them from these `pairs`.

    Returns:
        The behaviour's vector and the letter's.

    Raises:
        ValueError: answers that aren't letters, or a single letter for all.
    """
    if len(pairs) != len(activations):
        raise ValueError(
            f"pairs: {len(pairs)} for the activations of {len(activations)}; give those they are of"
        )
    letters = [pair.positive_is_a for pair in as_pairs(pairs)]
    if None in letters or len(set(letters)) < 2:
        raise ValueError(
            "pairs: the letter's direction needs answers (A) and (B), with positive ones of both; got "
            f"{sum(x is True for x in letters)} (A), {sum(x is False for x in letters)} (B), "
            f"{sum(x is None for x in letters)} others"
        )
    is_a = torch.tensor([bool(letter) for letter in letters])
    behaviour, letter = {}, {}
    for layer in activations.layers:
        delta = activations.differences(layer)
        d_a, d_b = delta[is_a].mean(0), delta[~is_a].mean(0)
        behaviour[layer], letter[layer] = (d_a + d_b) / 2, (d_a - d_b) / 2
    meta = activations.meta
    return SteeringVector(behaviour, {**meta, "method": "balanced mean"}), SteeringVector(
        letter, {**meta, "method": "letter"}
    )


@dataclass(frozen=True)
class PromptEffect:
    """How far a prompt alone, without steering, moves the propensity: mean over samples, in logits."""

    shift: float
    interval: Interval


def prompting(
    model: LanguageModel,
    pairs: Sequence[ContrastivePair],
    variations: Mapping[str, PromptVariation],
    *,
    seed: int = 0,
    **options: Any,
) -> dict[str, PromptEffect]:
    """The unsteered propensity under each prompt, less that under BASE, sample by sample.

    Args:
        variations: by name; BASE may be among them.
        options: of `propensity_curves`.
    """
    still = SteeringVector({0: torch.zeros(model.width("resid_post.0"))})
    options = {**options, "multipliers": [0.0]}
    measured = {
        name: propensity_curves(model, pairs, {name: still}, variation=variation, **options)[name].unsteered
        for name, variation in {BASE.name: BASE, **variations}.items()
    }
    shifts = {name: m - measured[BASE.name] for name, m in measured.items() if name != BASE.name}
    return {
        name: PromptEffect(float(s.mean()), bootstrap(s, lambda x: x.mean(1), seed=seed))
        for name, s in shifts.items()
    }


@dataclass(frozen=True)
class BaselineComparison:
    """A vector beside what it has to beat.

    Attributes:
        curve: the vector's propensity curve.
        vector: its steerability.
        others: that of other vectors at the same norm, by name; names that begin with "random" are random ones.
        cosines: of the vector with each of the others.
        prompts: by variation, what the prompt alone does.
    """

    curve: PropensityResult
    vector: Steerability
    others: dict[str, Steerability]
    cosines: dict[str, float]
    prompts: dict[str, PromptEffect] = field(default_factory=dict)

    @property
    def largest_random(self) -> float:
        """The largest |mean slope| of a random direction; NaN without any."""
        slopes = [abs(s.mean) for name, s in self.others.items() if name.startswith("random")]
        return max(slopes, default=float("nan"))

    def to_frame(self) -> pd.DataFrame:
        """One row per direction."""
        import pandas as pd

        rows = [{"direction": "vector", "cosine": 1.0, **self.vector.summary()}]
        rows += [{"direction": n, "cosine": self.cosines[n], **s.summary()} for n, s in self.others.items()]
        return pd.DataFrame(rows).set_index("direction")

    def plot(self) -> Figure:
        """The per-sample slopes of each direction side by side."""
        from interp.steering.steerability_plots import plot_violins

        return plot_violins({"vector": self.vector, **self.others})

    def __str__(self) -> str:
        lines = [
            f"  {'direction':<12} {'cosine':>7} {'mean slope':>11} {'interval':>18} {'anti-steerable':>15}"
        ]
        for name, s in {"vector": self.vector, **self.others}.items():
            cosine = self.cosines.get(name, 1.0)
            interval = str(s.mean_interval)
            lines.append(
                f"  {name:<12} {cosine:>7.2f} {s.mean:>11.3f} {interval:>18} {s.anti_fraction:>15.1%}"
            )
        for name, effect in self.prompts.items():
            lines.append(f"  prompt {name}: moves the propensity by {effect.shift:+.3f} {effect.interval}")
        return "\n".join(["baselines, all at the vector's norm", *lines])


def compare_baselines(
    model: LanguageModel,
    pairs: PairDataset | Sequence[ContrastivePair],
    vector: SteeringVector,
    layer: int,
    *,
    others: Mapping[str, SteeringVector] | None = None,
    seeds: int = 5,
    variations: Mapping[str, PromptVariation] | None = None,
    seed: int = 0,
    **options: Any,
) -> BaselineComparison:
    """Measure a vector, random directions and any others at its norm in the same rows, and prompts without steering.

    Args:
        pairs: to measure on.
        others: directions by name (the letter's, other methods'), rescaled to the vector's norm.
        seeds: how many random directions.
        variations: prompts that ask for the behaviour, or its opposite.
        options: of `propensity_curves`.
    """
    check_multipliers(options.get("multipliers", DEFAULT_MULTIPLIERS))
    own = at_layer(model, vector, layer)
    rescaled = {name: at_layer(model, v, layer).normalize(own) for name, v in (others or {}).items()}
    rivals = {**rescaled, **random_directions(own, seeds)}
    curves = propensity_curves(model, pairs, {"vector": own, **rivals}, **options)
    slopes = {name: curve.steerability(seed=seed) for name, curve in curves.items()}
    cosines = {name: rival.cosine(own)[own.layers[0]] for name, rival in rivals.items()}
    unsteered = {k: v for k, v in options.items() if k not in ("multipliers", "variation")}
    effects = prompting(model, pairs, variations, seed=seed, **unsteered) if variations else {}
    return BaselineComparison(curves["vector"], slopes.pop("vector"), slopes, cosines, effects)


def prompt_equivalent(comparison: BaselineComparison) -> tuple[str, float]:
    """The prompt that moves the mean propensity most, and the multiplier at which the vector moves it as much.

    The multiplier is NaN where the interval of the prompt's shift or of the mean slope includes 0: a ratio of two
    figures that may be nothing.

    Raises ValueError where no prompt was measured.
    """
    if not comparison.prompts:
        raise ValueError("comparison: no prompts were measured")
    name, effect = max(comparison.prompts.items(), key=lambda item: abs(item[1].shift))
    if not (effect.interval.excludes_zero and comparison.vector.mean_interval.excludes_zero):
        return name, float("nan")
    return name, effect.shift / comparison.vector.mean
