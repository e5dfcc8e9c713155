"""Activations into which a feedback pattern was planted: a model where the right answer is known.

A word is a sum of three of 40 concepts, a text adds two more; tuning adds ``gamma v(word) u`` with v the word's valence
and u one direction for all.  A probe must read v from the tuned activations, and nothing from those of the base model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float

from interp.activations.stream import TensorStream
from interp.core.device import derive_seed
from interp.probes.lfp.agreement import FeedbackAgreement
from interp.probes.lfp.held_out_words import FeedbackReading, cross_validated_feedback
from interp.probes.lfp.probe import TripleFeatures
from interp.probes.lfp.saes import RECIPE
from interp.probes.lfp.triples import ContrastiveTriple
from interp.sae.dictionary import Dictionary
from interp.sae.evaluate import SAEEvaluation, evaluate
from interp.sae.training import TrainedSAE, train

CONCEPTS, CONCEPTS_OF_WORD, CONCEPTS_OF_TEXT = 40, 3, 2
WORDS, NEUTRAL_WORDS = 200, 50


@dataclass(frozen=True)
class PlantedFeedback:
    """What was drawn; `tuned(gamma)` and `tokens(gamma)` give the activations of a model tuned that far (0: base).

    Attributes:
        lexicon: valence of the words, half of them positive.
        triples: whose texts are the words' names: there is no model to read them.
        direction: u, of unit length.
    """

    lexicon: dict[str, float]
    triples: list[ContrastiveTriple]
    direction: Float[np.ndarray, " d"]
    _triples: TripleFeatures
    _tokens: Float[np.ndarray, "t d"]
    _valence: Float[np.ndarray, " t"]

    def tuned(self, gamma: float) -> TripleFeatures:
        """Activations at the triples' target words."""
        positive, negative, neutral = self._triples
        up = np.asarray([self.lexicon[t.target_positive] for t in self.triples])
        down = np.asarray([self.lexicon[t.target_negative] for t in self.triples])
        return TripleFeatures(
            positive + gamma * np.outer(up, self.direction),
            negative + gamma * np.outer(down, self.direction),
            neutral,
        )

    def tokens(self, gamma: float) -> Float[np.ndarray, "t d"]:
        """Activations to train a dictionary on."""
        return self._tokens + gamma * np.outer(self._valence, self.direction)


@dataclass(frozen=True)
class PlantedReading:
    """A dictionary trained on a planted model's tokens, how good it is on them, and the feedback read through it."""

    sae: Dictionary
    quality: SAEEvaluation
    features: TripleFeatures
    feedback: FeedbackReading


def plant_feedback(
    seed: int = 0, *, d: int = 32, n_triples: int = 1200, n_tokens: int = 20_000
) -> PlantedFeedback:
    """Draw concepts, words, texts and the direction of the feedback."""
    random = np.random.default_rng(derive_seed(seed, "planted feedback"))
    concepts = _unit(random.standard_normal((CONCEPTS, d)))
    direction = _unit(random.standard_normal((1, d)))[0]
    n_words = WORDS + NEUTRAL_WORDS
    words = _sums(random, concepts, n_words, CONCEPTS_OF_WORD, 0.5, 1.5)
    valence = np.zeros(n_words)
    valence[:WORDS] = np.round(random.uniform(0.5, 3.5, WORDS), 1) * np.repeat([1, -1], WORDS // 2)
    names = [f"word{i:03d}" for i in range(n_words)]

    drawn = [random.integers(*part, n_triples) for part in ((0, 100), (100, WORDS), (WORDS, n_words))]
    context = _sums(random, concepts, n_triples, CONCEPTS_OF_TEXT, 0.2, 1.0)
    triples = [
        ContrastiveTriple(names[p], names[n], names[z], names[p], names[n])
        for p, n, z in zip(*drawn, strict=True)
    ]
    of_tokens = random.integers(0, n_words, n_tokens)
    contexts = _sums(random, concepts, n_tokens, CONCEPTS_OF_TEXT, 0.2, 1.0)
    return PlantedFeedback(
        lexicon=dict(zip(names[:WORDS], valence[:WORDS].tolist(), strict=True)),
        triples=triples,
        direction=direction,
        _triples=TripleFeatures(*(words[part] + context for part in drawn)),
        _tokens=words[of_tokens] + contexts,
        _valence=valence[of_tokens],
    )


def read_planted(
    planted: PlantedFeedback,
    gamma: float,
    *,
    target: str = "signed_divergence",
    d_sae: int = 64,
    l1_coefficient: float = 0.002,
    steps: int = 2000,
    seed: int = 0,
) -> PlantedReading:
    """Train a dictionary on the tokens of the model tuned by `gamma` and read the feedback from its features."""
    tokens = torch.from_numpy(planted.tokens(gamma)).float()
    options: dict[str, Any] = {**RECIPE, "d_sae": d_sae, "l1_coefficient": l1_coefficient, "steps": steps}
    trained = train(
        tokens, batch_size=512, seed=seed, tracker="none", progress=False, device="cpu", **options
    )
    sae = cast(TrainedSAE, trained).sae
    features = TripleFeatures(*(_encode(sae, part) for part in planted.tuned(gamma)))
    quality = evaluate(sae, stream=TensorStream(tokens), progress=False)
    feedback = cross_validated_feedback(
        features, planted.triples, lexicon=planted.lexicon, target=target, seed=seed
    )
    return PlantedReading(sae, quality, features, feedback)


@dataclass(frozen=True)
class PlantedGate:
    """The figures that must come out of a pipeline that reads feedback rightly, at one seed."""

    base: FeedbackAgreement
    tuned: FeedbackAgreement
    direct: FeedbackAgreement

    def checks(self) -> dict[str, tuple[float, str, bool]]:
        """By statement: the figure, its bound, and whether it holds."""
        tau, sign = self.tuned.tau.value, self.tuned.sign_accuracy.value
        within = min(self.tuned.tau_positive.value, self.tuned.tau_negative.value)
        base, direct = abs(self.base.tau.value), self.direct.tau.value
        return {
            "tuned: tau over all words": (tau, ">= 0.75", tau >= 0.75),
            "tuned: sign accuracy": (sign, ">= 0.95", sign >= 0.95),
            "tuned: tau within a sign": (within, ">= 0.6", within >= 0.6),
            "base: |tau| over all words": (base, "<= 0.3", base <= 0.3),
            "direct supervision: tau": (direct, f">= {tau:.3f}", direct >= tau),
        }

    @property
    def passed(self) -> bool:
        return all(holds for _, _, holds in self.checks().values())

    def __str__(self) -> str:
        return "\n".join(
            f"{'pass' if holds else 'FAIL'}  {statement:<28} {value:.3f}, must be {bound}"
            for statement, (value, bound, holds) in self.checks().items()
        )


def planted_gate(seed: int = 0, *, gamma: float = 0.6, steps: int = 2000) -> PlantedGate:
    """Run the whole analysis on a planted model: base, tuned, and tuned under direct supervision (15 CPU seconds)."""
    planted = plant_feedback(seed)
    base = read_planted(planted, 0.0, steps=steps, seed=seed)
    tuned = read_planted(planted, gamma, steps=steps, seed=seed)
    direct = cross_validated_feedback(
        tuned.features, planted.triples, lexicon=planted.lexicon, target="valence", seed=seed
    )
    return PlantedGate(base.feedback.agreement(), tuned.feedback.agreement(), direct.agreement())


@torch.no_grad()
def _encode(sae: Dictionary, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n F"]:
    return sae.encode(torch.from_numpy(x).float()).numpy()


def _sums(
    random: np.random.Generator, concepts: np.ndarray, n: int, k: int, low: float, high: float
) -> Float[np.ndarray, "n d"]:
    """n sums of k distinct concepts with weights uniform in [low, high]."""
    chosen = random.random((n, len(concepts))).argpartition(k, axis=1)[:, :k]
    weights = random.uniform(low, high, (n, k))
    return (weights[..., None] * concepts[chosen]).sum(1)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)
