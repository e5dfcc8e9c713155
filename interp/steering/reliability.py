"""Everything about one steering vector in one report, which ends in a verdict in words."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import write_json
from interp.core.messages import at_least, one_of, warn_once
from interp.models.sites import Site
from interp.steering import criteria as judge
from interp.steering.baselines import (
    BaselineComparison,
    compare_baselines,
    prompt_equivalent,
    split_by_letter,
)
from interp.steering.criteria import Finding, ReliabilityCriteria
from interp.steering.decomposition import VarianceDecomposition, cells, decompose_variance
from interp.steering.extraction import METHODS, fit
from interp.steering.pair_activations import Read, collect
from interp.steering.pairs import ContrastivePair, PairDataset, check_disjoint
from interp.steering.prompts import BASE, PromptVariation, variations
from interp.steering.propensity import DEFAULT_MULTIPLIERS, PropensityResult, at_layer
from interp.steering.quality import ConceptQuality
from interp.steering.scoring import Score
from interp.steering.side_effects import SideEffects, neutral_tokens, side_effects
from interp.steering.steerability import Steerability, check_multipliers
from interp.steering.transfer import Transfer, cross_evaluate, prompts_to_compare
from interp.steering.vector import SteeringVector, as_layer

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel

log = logging.getLogger(__name__)
FACTOR_LABELS = {"A": "the answer letter", "Y": "the wording Yes or No"}


@dataclass(frozen=True)
class ReliabilityReport:
    """What was measured of a vector, and whether that makes it one to rely on.

    Attributes:
        curve, steerability: always there.
        factors: nuisance factors of the samples, by name; empty where there are none.
        decomposition, quality, baselines, transfer, effects: None where not measured; what was not measured is no
            part of the verdict.
        criteria: the bounds.
    """

    name: str
    layer: int
    curve: PropensityResult
    steerability: Steerability
    factors: dict[str, list[Any]] = field(default_factory=dict)
    decomposition: VarianceDecomposition | None = None
    quality: ConceptQuality | None = None
    baselines: BaselineComparison | None = None
    transfer: Transfer | None = None
    effects: SideEffects | None = None
    criteria: ReliabilityCriteria = field(default_factory=ReliabilityCriteria)

    @property
    def findings(self) -> list[Finding]:
        """One per criterion that could be judged."""
        s, c = self.steerability, self.criteria
        found = [*judge.effect(s, c, self.baselines), *judge.evenness(s, c)]
        if self.decomposition is not None:
            found += judge.bias(s, self.decomposition, c, FACTOR_LABELS)
        if self.baselines is not None:
            found += judge.letter(self.baselines, c)
        if self.quality is not None:
            found += judge.agreement(self.quality, c)
        if self.transfer is not None:
            found += judge.generalises(self.transfer, c)
        if self.effects is not None:
            found += judge.harmless(self.effects, c)
        return found

    @property
    def reliable(self) -> bool:
        """Whether every criterion holds."""
        return all(finding.passed for finding in self.findings)

    @property
    def verdict(self) -> str:
        """In words: to trust or not, and below it a line for every criterion, those that fail first."""
        findings = sorted(self.findings, key=lambda finding: finding.passed)
        failed = sum(not finding.passed for finding in findings)
        if failed:
            head = f"do not trust: {failed} of the {len(findings)} criteria measured fail"
        else:
            head = f"reliable by all {len(findings)} criteria measured"
        return "\n".join([head, *(f"  {'pass' if f.passed else 'FAIL'}  {f.sentence}" for f in findings)])

    def to_dict(self) -> dict[str, Any]:
        """All figures as JSON values; None for a number that isn't finite."""
        content: dict[str, Any] = {
            "name": self.name,
            "layer": self.layer,
            "verdict": self.verdict,
            "reliable": self.reliable,
            "findings": [asdict(finding) for finding in self.findings],
            "criteria": asdict(self.criteria),
            "how": {
                "score": self.curve.score,
                "prompt": self.curve.variation,
                "operator": self.curve.operator,
                "steered_tokens": f"from the prompt's last token + {self.curve.skip_first_n} on",
                "token_forwards": self.curve.token_forwards,
                "saving": self.curve.saving,
            },
            "multipliers": self.curve.multipliers.tolist(),
            "mean_propensity": self.curve.values.mean(0).tolist(),
            "propensity": self.curve.values.tolist(),
            "probability": self.curve.probability.mean(0).tolist(),
            "accuracy": self.curve.accuracy.tolist(),
            "steerability": self.steerability.summary(),
            "slopes": self.steerability.slopes.tolist(),
        }
        if self.decomposition is not None:
            content["variance"] = {"total": self.decomposition.total, "shares": self.decomposition.shares}
        if self.quality is not None:
            content["quality"] = asdict(self.quality)
        if self.baselines is not None:
            content["baselines"] = {
                name: {"cosine": self.baselines.cosines[name], **s.summary()}
                for name, s in self.baselines.others.items()
            }
            content["prompts"] = {name: asdict(effect) for name, effect in self.baselines.prompts.items()}
        if self.transfer is not None:
            content["transfer"] = {
                "trained": list(self.transfer.trained),
                "tested": list(self.transfer.tested),
                "steerability": self.transfer.matrix.tolist(),
                "relative": self.transfer.relative().tolist(),
                "shift": self.transfer.shift().tolist(),
                "cosine": self.transfer.cosine().tolist(),
                "correlations": self.transfer.correlations(),
            }
        if self.effects is not None:
            content["side_effects"] = {
                "unsteered_perplexity": self.effects.unsteered_perplexity,
                "n_tokens": self.effects.n_tokens,
                **self.effects.to_frame().reset_index().to_dict("list"),
            }
        return _finite(content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON, atomically."""
        write_json(path, self.to_dict())

    def to_frame(self) -> pd.DataFrame:
        """One row per criterion."""
        import pandas as pd

        return pd.DataFrame([asdict(finding) for finding in self.findings]).set_index("criterion")

    def plot(self) -> Figure:
        """The propensity curves, the slopes beside the baselines', the variance and the slopes by factor."""
        from interp.steering.steerability_plots import plot_report

        return plot_report(self)

    def __str__(self) -> str:
        parts = [f"steering vector {self.name} at layer {self.layer}", str(self.steerability)]
        if self.decomposition is not None:
            by_cell = cells(self.steerability.slopes, self.factors).round(3)
            parts += [str(self.decomposition), by_cell.to_string()]
        parts += [str(part) for part in (self.baselines, self.transfer, self.effects) if part is not None]
        if self.baselines is not None and self.baselines.prompts:
            prompt, at = prompt_equivalent(self.baselines)
            worth = f"{at:.2f}" if math.isfinite(at) else "none, as its effect or the vector's may be 0"
            parts.append(f"multiplier worth the strongest prompt, {prompt}: {worth}")
        return "\n".join([*parts, f"verdict: {self.verdict}"])


def evaluate(
    model: LanguageModel,
    train: PairDataset | Sequence[ContrastivePair],
    test: PairDataset | Sequence[ContrastivePair],
    layer: int,
    *,
    vector: SteeringVector | None = None,
    name: str = "",
    method: str = "mean",
    read: Read = "answer",
    multipliers: Sequence[float] = DEFAULT_MULTIPLIERS,
    score: Score = "answer_token",
    variation: PromptVariation = BASE,
    factors: Mapping[str, Sequence[Any]] | None = None,
    criteria: ReliabilityCriteria | None = None,
    transfer: bool = False,
    seeds: int = 5,
    neutral_texts: Sequence[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> ReliabilityReport:
    """Extract a vector from `train` (or take the one given), measure all of it on `test`, and judge.

    Args:
        vector: evaluated instead of one from `train`, which then only serves to find the letters' direction. How far
            its pairs agree is judged by its own `quality`, where it has one.
        method, read: of the extraction.
        factors: nuisance factors of the test pairs in the order in which they enter the decomposition; None: the
            letter and Yes/No where the pairs have them.
        criteria: the bounds; None: the default ones.
        transfer: measure the five prompts of the data set's persona against each other: five extractions and six
            vectors under five prompts.
        seeds: how many random directions to compare with.
        neutral_texts: for the side effects; None: documents of the Python documentation.
        options: of `propensity_curves`: chat, operator, skip_first_n, batch_size, progress.

    Raises:
        ValueError: a pair that is in both parts, or that the vector was extracted from; a layer that the vector or the
            model lacks; fewer than two multipliers, or another option that could not be measured: before anything is.
    """
    check_disjoint(train, test)
    check_multipliers(multipliers)
    at_least("seeds", seeds, 1)
    one_of("method", method, METHODS)
    if transfer:
        prompts_to_compare(train, None, multipliers)
    if vector is not None:
        _check_unseen(vector, test)
    columns = _factors(test) if factors is None else {key: list(factors[key]) for key in factors}
    if columns and len(test) > 1:
        decompose_variance([0.0] * len(test), columns)  # refuses columns that don't fit
    neutral_tokens(model, neutral_texts)
    site = "resid_post" if vector is None else vector.site
    layer = model.check_site(Site(site, as_layer(layer))).layer or 0
    given = None if vector is None else at_layer(model, vector, layer)
    activations = collect(model, train, layer, read, variation, chat=options.get("chat"), site=site)
    own = fit(activations, method) if given is None else given
    chosen: dict[str, Any] = {"multipliers": multipliers, "score": score, "variation": variation, **options}
    persona = variations(getattr(test, "persona", None))
    baselines = compare_baselines(
        model,
        test,
        own,
        layer,
        others=_letter(activations, list(train)),
        seeds=seeds,
        variations={k: v for k, v in persona.items() if k != BASE.name},
        seed=seed,
        **chosen,
    )
    slopes = baselines.vector
    moved = {k: v for k, v in chosen.items() if k != "variation"}
    shared = {k: v for k, v in options.items() if k in ("operator", "progress")}
    return ReliabilityReport(
        name=name or getattr(test, "name", ""),
        layer=layer,
        curve=baselines.curve,
        steerability=slopes,
        factors=columns,
        decomposition=decompose_variance(slopes.slopes, columns) if columns and len(test) > 1 else None,
        quality=own.quality()[layer] if "quality" in own.meta else None,
        baselines=baselines,
        transfer=cross_evaluate(model, train, test, layer, method=method, read=read, **moved)
        if transfer
        else None,
        effects=side_effects(
            model, own, multipliers=[m for m in multipliers if m], texts=neutral_texts, **shared
        ),
        criteria=criteria or ReliabilityCriteria(),
    )


def _check_unseen(vector: SteeringVector, test: Sequence[ContrastivePair]) -> None:
    """Raise ValueError where the vector has seen test pairs; warn where it doesn't say what it has seen."""
    if "pairs" not in vector.meta:
        warn_once(
            log,
            "unknown pairs",
            "the vector doesn't say which pairs it was extracted from: see to it that none of those it is tested on "
            "are among them",
        )
    seen = sum(pair.digest in set(vector.meta.get("pairs", ())) for pair in test)
    if seen:
        raise ValueError(
            f"vector: {seen} of the {len(test)} pairs to test it on are among those that it was extracted from, so "
            "that the test says nothing. Extract it from the other part: PairDataset.split, or on the command line "
            "the same --train and --seed for extract as for evaluate"
        )


def _factors(pairs: Sequence[ContrastivePair]) -> dict[str, list[Any]]:
    """The letter, and Yes or No, where every pair has them."""
    columns = {"A": [pair.positive_is_a for pair in pairs], "Y": [pair.positive_is_yes for pair in pairs]}
    return {name: values for name, values in columns.items() if None not in values}


def _letter(activations: Any, pairs: list[ContrastivePair]) -> dict[str, SteeringVector]:
    """The letter's direction where the training pairs are answered by both letters."""
    if {pair.positive_is_a for pair in pairs} != {True, False}:
        return {}
    return {"letter": split_by_letter(activations, pairs)[1]}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
