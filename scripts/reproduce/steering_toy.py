"""Part A: in the polarity model steering must work, and where it is read and added must decide it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from checks import Findings
from polarity_model import gate, train_polarity_model, word_ids

from interp.models.language_model import LanguageModel
from interp.steering.apply import steer
from interp.steering.baselines import random_directions
from interp.steering.extraction import extract
from interp.steering.generators import sentiment_words
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.propensity import DEFAULT_MULTIPLIERS, propensity_curves
from interp.steering.scoring import TokenGroups
from interp.steering.steerability import Steerability, steerability
from interp.steering.steerability_plots import plot_curves, plot_violins
from interp.steering.vector import SteeringVector
from interp.steering.words import NEGATIVE, POSITIVE

PART = "A"
LAYERS = (1, 2, 3)
N_RANDOM = 20  # in 64 dimensions a random direction has a cosine of about 1/8 with the vector
WORD = 3  # the position of W in "the S was W and the S was"


def groups(model: LanguageModel) -> TokenGroups:
    """The next word is positive, or it is negative."""
    return TokenGroups(word_ids(model, POSITIVE), word_ids(model, NEGATIVE))


def sentences(pairs: Sequence[ContrastivePair]) -> list[ContrastivePair]:
    """Each side of each pair as a prompt of its own, to be gone on from (by words, the answers don't matter)."""
    texts = [f"{pair.prompt} {answer}" for pair in pairs for answer in (pair.positive, pair.negative)]
    return [ContrastivePair(text, "good", "bad") for text in texts]


def run(model: LanguageModel | None = None, *, seed: int = 0, progress: bool = True) -> Findings:
    """Train the model (or take one), extract, steer, and compare with what must come out."""
    found = Findings()
    model = train_polarity_model(seed, progress=progress) if model is None else model
    after_positive, after_negative = gate(model)
    found.check(PART, "P(positive | positive before)", "> 0.8", f"{after_positive:.3f}", after_positive > 0.8)
    found.check(PART, "P(positive | negative before)", "< 0.1", f"{after_negative:.3f}", after_negative < 0.1)

    train = sentiment_words(30, seed=seed)
    tests = {
        "training words": train,
        "held-out words": sentiment_words(30, first=30, seed=seed),
        "unseen template": sentiment_words(30, template="with", seed=seed),
    }
    vector = extract(model, train, LAYERS)
    results = {name: measure(model, pairs, vector) for name, pairs in tests.items()}
    rivals = {name: measure(model, train, v) for name, v in random_directions(vector, N_RANDOM).items()}
    for layer in LAYERS:
        own = results["training words"][layer]
        found.at_least(PART, f"layer {layer}: mean steerability", 1.5, own.mean)
        found.at_most(PART, f"layer {layer}: anti-steerable fraction", 0.0, own.anti_fraction)
        usual = float(np.mean([abs(rival[layer].mean) for rival in rivals.values()]))
        found.at_most(
            PART, f"layer {layer}: mean |slope| of {len(rivals)} random directions of its norm", 0.35, usual
        )
        for name in ("held-out words", "unseen template"):
            off = abs(results[name][layer].mean / own.mean - 1)
            found.at_most(PART, f"layer {layer}: {name} differ from training words by", 0.25, off)
        quality = vector.quality()[layer]
        found.at_least(
            PART, f"layer {layer}: mean cosine of the differences with v", 0.95, quality.mean_cosine
        )
    control = at_the_word(model, train)
    for layer, result in control.items():
        found.at_most(
            PART, f"layer {layer}: control read and added at the word, |mean|", 0.1, abs(result.mean)
        )
    found.numbers = {
        "gate": [after_positive, after_negative],
        "steerability": {name: {n: s.summary() for n, s in by.items()} for name, by in results.items()},
        "random": {name: {n: s.mean for n, s in by.items()} for name, by in rivals.items()},
        "control_at_word": {n: s.summary() for n, s in control.items()},
    }
    curves = {
        "polarity model, layer 2": curves_of(model, train, vector)["layer 2"],
        "random direction": curves_of(model, train, vector.random_like(0))["layer 2"],
    }
    found.figures["toy_curves"] = plot_curves(curves)
    found.figures["toy_violins"] = plot_violins(
        {name: by[2] for name, by in results.items()}
        | {"random 0": rivals["random 0"][2], "at the word": control[2]}
    )
    return found


def curves_of(model: LanguageModel, pairs: PairDataset, vector: SteeringVector) -> dict:
    layers = {f"layer {layer}": vector.only(layer) for layer in vector.layers}
    return propensity_curves(
        model, sentences(pairs), layers, score=groups(model), batch_size=64, progress=False
    )


def measure(model: LanguageModel, pairs: PairDataset, vector: SteeringVector) -> dict[int, Steerability]:
    """Steerability at each layer, steering at the last token."""
    curves = curves_of(model, pairs, vector)
    return {layer: curves[f"layer {layer}"].steerability() for layer in vector.layers}


def at_the_word(model: LanguageModel, pairs: PairDataset) -> dict[int, Steerability]:
    """The control: read at the word's own token and steer there alone. Later tokens have read the word in block 0."""
    vector = extract(model, pairs, LAYERS, read=WORD)
    tokens = model.tokenize([item.prompt for item in sentences(pairs)])
    here = torch.zeros(1, WORD + 1, dtype=torch.bool)
    here[0, WORD] = True
    score, result = groups(model), {}
    for layer in LAYERS:
        values = []
        for multiplier in DEFAULT_MULTIPLIERS:
            with steer(model, vector.only(layer), multiplier, positions=here):
                last = model.logits(tokens)[:, -1]
            sides = [last[:, list(ids)].logsumexp(-1) for ids in (score.positive, score.negative)]
            values.append((sides[0] - sides[1]).numpy())
        result[layer] = steerability(DEFAULT_MULTIPLIERS, np.stack(values, axis=1))
    return result
