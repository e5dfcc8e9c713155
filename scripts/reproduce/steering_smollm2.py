"""Parts B, E, F and G: a real model, where the vector from A/B items is the direction between the letters.

SmolLM2-135M-Instruct answers generated items ("(A): I like tea.", "(B): I dislike tea.").  Steering the letter moves
every item towards one letter, so half of the items go the wrong way: a mean of about 0, explained by the letter.
"""

from __future__ import annotations

import random

import numpy as np
from checks import Findings

from interp.models.language_model import LanguageModel
from interp.steering.baselines import split_by_letter
from interp.steering.decomposition import cells, decompose_variance
from interp.steering.extraction import extract, fit
from interp.steering.generators import ab_pair, likes, sentiment_reviews
from interp.steering.layers import layer_sweep
from interp.steering.pair_activations import collect
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.propensity import propensity_curves
from interp.steering.reliability import evaluate
from interp.steering.scoring import TokenGroups
from interp.steering.side_effects import continuations
from interp.steering.steerability_plots import (
    plot_cells,
    plot_curves,
    plot_sweeps,
    plot_variance,
    plot_violins,
)
from interp.steering.transfer import cross_evaluate, generalisation
from interp.steering.words import NEGATIVE, POSITIVE, SUBJECTS, THINGS

LAYERS = (8, 12, 16, 20, 24)
NEUTRAL_TEXTS = (
    "The river rises in the hills, flows past three villages and reaches the sea at the old harbour, where the ferry "
    "to the islands leaves twice a day in summer and once a week in winter.",
    "A library lends books to its members, who bring them back after some weeks. Those who keep them longer pay a "
    "small fee for every day, which goes towards new books and the repair of old ones.",
    "To plant a tree, dig a hole twice as wide as its roots, set it in so that the stem stands upright, fill the hole "
    "with soil and water it well. In the first year it needs water whenever the ground is dry.",
    "The train leaves the station at half past seven, stops at every village along the coast and arrives in the city a "
    "little before nine. On Sundays there is only one train, in the afternoon.",
)
N_THINGS = 8  # times three wordings: 24 items each to train and to test


def letters(model: LanguageModel, *, n_things: int = N_THINGS, seed: int = 0) -> Findings:
    """Part B: what the vector of lettered items is made of, with 16 (A) to 8 (B) and with 12 to 12 in training.

    Both are measured on the same items, half (A) and half (B).
    """
    found = Findings()
    train = {
        "16:8": likes(THINGS[:n_things], share_a=2 / 3, seed=seed),
        "12:12": likes(THINGS[:n_things], seed=seed),
    }
    test = likes(THINGS[n_things : 2 * n_things], seed=seed)
    read = {name: collect(model, pairs, LAYERS, progress=True) for name, pairs in train.items()}
    vectors = {name: fit(activations) for name, activations in read.items()}
    letter = split_by_letter(read["12:12"], train["12:12"])[1]
    at_layers = {f"{name}, layer {n}": v.only(n) for name, v in vectors.items() for n in LAYERS}
    curves = propensity_curves(model, test, at_layers)
    slopes = {name: curve.steerability(seed=seed) for name, curve in curves.items()}
    is_a = {"A": test.factors()["A"]}
    shares = {name: decompose_variance(s.slopes, is_a, name=name) for name, s in slopes.items()}
    counts = train["16:8"].balance()
    expected = (counts["(A)"] - counts["(B)"]) / len(train["16:8"])
    for layer in LAYERS:
        name = f"16:8, layer {layer}"
        by_letter = cells(slopes[name].slopes, is_a)["mean"]
        found.at_least("B", f"{name}: the letter's share of the variance", 0.7, shares[name].shares["A"])
        signs = ", ".join(f"{by_letter[key]:+.3f}" for key in (True, False))
        opposed = by_letter.prod() < 0
        found.check("B", f"{name}: mean slopes where (A), (B) is right", "opposite", signs, opposed)
        cosine = read["16:8"].quality(vectors["16:8"])[layer].mean_cosine
        close = abs(cosine - expected) < 0.08
        found.check(
            "B", f"{name}: mean cosine of differences with v", f"{expected:.2f}+-0.08", f"{cosine:.3f}", close
        )
        ratio = vectors["12:12"].norms()[layer] / vectors["16:8"].norms()[layer]
        found.at_most("B", f"layer {layer}: norm with 12:12 letters over that with 16:8", 0.5, ratio)
    plain = PairDataset(test.pairs, test.name)  # without the persona, whose prompts part F compares
    report = evaluate(
        model,
        train["16:8"],
        plain,
        16,
        vector=vectors["16:8"],
        name="likes, 16:8 letters",
        neutral_texts=NEUTRAL_TEXTS,
        seed=seed,
    )
    distrusted = report.verdict.startswith("do not trust")
    found.check(
        "B", "the report's verdict", "do not trust", "do not trust" if distrusted else "reliable", distrusted
    )
    found.numbers = {
        "report": report.to_dict(),
        "steerability": {name: s.summary() for name, s in slopes.items()},
        "shares": {name: d.shares for name, d in shares.items()},
        "cosine_with_letter": {name: v.cosine(letter) for name, v in vectors.items()},
        "norms": {name: v.norms() for name, v in vectors.items()},
        "token_forwards": curves["16:8, layer 16"].token_forwards,
        "saving": curves["16:8, layer 16"].saving,
    }
    found.figures = {
        "letters_report": report.plot(),
        "letters_curves": plot_curves({name: curves[name] for name in ("16:8, layer 16", "12:12, layer 16")}),
        "letters_violins": plot_violins(slopes),
        "letters_variance": plot_variance(
            {name.replace(", layer", "\nlayer"): d for name, d in shares.items()}
        ),
        "letters_cells": plot_cells(slopes["16:8, layer 16"].slopes, is_a),
    }
    print(report)
    print("the letter's share of the variance, and the mean and spread of the slopes:")
    for name, s in slopes.items():
        print(
            f"  {name:<16} {shares[name].shares['A']:6.1%}  {s.mean:+.3f} {s.mean_interval}, std {s.std:.3f}"
        )
    return found


def open_ended(model: LanguageModel, *, n_train: int = 16, n_prompts: int = 10, seed: int = 0) -> Findings:
    """Part E: the sentiment of what comes next and of whole continuations; measured, whatever comes out."""
    found = Findings()
    train = sentiment_reviews(n_train, subjects=SUBJECTS[:10], seed=seed)
    vector = extract(model, train, 15, read="all", progress=True)
    rivals = {"vector": vector, "random 0": vector.random_like(0), "random 1": vector.random_like(1)}
    prompts = [f"I think the {subject} was" for subject in SUBJECTS[10 : 10 + n_prompts]]
    score = TokenGroups(*(single_tokens(model, words) for words in (POSITIVE, NEGATIVE)))
    items = [ContrastivePair(prompt, "good", "bad") for prompt in prompts]
    curves = propensity_curves(model, items, rivals, score=score, chat=False)
    slopes = {name: curve.steerability(seed=seed) for name, curve in curves.items()}
    asked = [f"Write a short review of the {subject}." for subject in SUBJECTS[10 : 10 + n_prompts]]
    written = continuations(model, asked, vector, multipliers=(-1.5, 0.0, 1.5), max_new_tokens=24, seed=seed)
    lexicon = written.steerability(sentiment, seed=seed, name="sentiment by lexicon")
    own = slopes["vector"]
    print(f"next word: {own}\nwhole continuations: {lexicon}\n{written}")
    low = own.mean_interval.low
    found.check(
        "E", "next word: the slope's interval lies above 0", "low > 0", str(own.mean_interval), low > 0
    )
    bound = 2 * max(abs(s.mean) for name, s in slopes.items() if name != "vector")
    found.at_least(
        "E", "next word: the slope is twice those of both random directions", round(bound, 3), own.mean
    )
    found.numbers = {
        "next_word": {name: s.summary() for name, s in slopes.items()},
        "lexicon": lexicon.summary(),
        "lexicon_means": written.score(sentiment).mean(0).tolist(),
        "fluency": written.fluency.tolist(),
        "multipliers": written.multipliers.tolist(),
        "texts": [list(row) for row in written.texts[:3]],
    }
    found.figures = {"sentiment_curves": plot_curves(curves), "sentiment_violins": plot_violins(slopes)}
    return found


def paper_figures(model: LanguageModel, *, n_things: int = 4, seed: int = 0) -> Findings:
    """Part F: the paper's kinds of figures, on generated data sets: 25 cells, layer sweep, ID against OOD."""
    found = Findings()
    groups = {
        "likes": (likes(THINGS[:n_things], seed=seed), likes(THINGS[12 : 12 + n_things], seed=seed)),
        "likes, yes/no": tuple(
            likes(THINGS[first : first + max(1, n_things // 2)], "yes_no", seed=seed) for first in (0, 12)
        ),
        "films": (films(3 * n_things, 0), films(3 * n_things, 1)),
    }
    layer, few = 16, (-1.0, 0.0, 1.0)
    transfers = {
        name: cross_evaluate(model, train, test, layer, multipliers=few)
        for name, (train, test) in groups.items()
    }
    ood = generalisation(transfers)
    sweeps = {
        name: layer_sweep(model, train, test, layers=range(0, model.n_layers, 3), multipliers=(-1.0, 1.0))
        for name, (train, test) in groups.items()
    }
    print(*transfers.values(), ood, *sweeps.values(), sep="\n")
    found.numbers = {
        "transfer": {name: t.matrix.tolist() for name, t in transfers.items()},
        "correlations": {name: _known(t.correlations()) for name, t in transfers.items()},
        "id_ood": ood.to_frame().to_dict("index"),
        "id_ood_spearman": _known(ood.correlations()),
        "layers": {
            name: {n: s.mean for n, s in sweep.steerability.items()} for name, sweep in sweeps.items()
        },
    }
    found.figures = {
        "prompts_25_cells": transfers["likes"].plot(),
        "layer_sweep": sweeps["likes"].plot(),
        "layer_sweeps": plot_sweeps(sweeps),
        "id_ood": ood.plot(),
    }
    return found


def films(n: int, part: int) -> PairDataset:
    """A/B items about a film or the like: praise against a slating; parts share no item."""
    rng = random.Random(f"films {part}")
    subjects = SUBJECTS[part * 10 : part * 10 + 10]
    pairs = [
        ab_pair(
            f"What would you say about the {rng.choice(subjects)}, number {i}?",
            f"It was {rng.choice(POSITIVE)}.",
            f"It was {rng.choice(NEGATIVE)}.",
            i % 2 == 0,
        )
        for i in range(n)
    ]
    return PairDataset(tuple(pairs), "films", ("You praise everything.", "You slate everything."))


def single_tokens(model: LanguageModel, words: list[str]) -> tuple[int, ...]:
    """Ids of the words that are a single token behind a blank."""
    ids = [model.tokenizer.encode(f" {word}", add_special_tokens=False) for word in words]
    return tuple(sorted({i[0] for i in ids if len(i) == 1}))


def sentiment(text: str) -> float:
    """Positive less negative words, over all that are either; 0 where there is none."""
    words = [word.strip(".,!?;:'\"()").lower() for word in text.split()]
    up, down = (sum(word in group for word in words) for group in (PRAISE, BLAME))
    return (up - down) / max(1, up + down)


PRAISE = frozenset(POSITIVE) | frozenset(
    "love loved loves enjoy enjoyed enjoyable delight delighted happiness joy best recommend recommended fun favorite "
    "engaging captivating heartwarming fantastic gripping memorable compelling stunning vibrant refreshing uplifting "
    "wonderfully beautifully brilliantly masterpiece gem treat pleasure incredible touching insightful rich".split()
)
BLAME = frozenset(NEGATIVE) | frozenset(
    "hate hated hates dislike disliked boredom worst disappointment disappointed lacking lacked lacks waste wasted "
    "mediocre bland predictable tedious slow confusing forgettable unfortunately fails failed failure mess letdown "
    "regret horror pain suffered suffering frustrating frustrated problem problems flawed weakness never".split()
)


def _known(values: dict[str, float]) -> dict[str, float | None]:
    return {key: None if np.isnan(value) else value for key, value in values.items()}


def cost(model: LanguageModel, *, seed: int = 0) -> Findings:
    """Part G: curves on the prompt's cache are those of whole passes, at a fifth of the tokens or less."""
    found = Findings()
    test = likes(THINGS[:1], seed=seed)[:2]
    full = extract(model, test, (8, 20))
    vectors = {f"layer {layer}": full.only(layer) for layer in full.layers}
    cached, whole = (
        propensity_curves(model, test, vectors, multipliers=(-1.0, 1.0), use_prefix_cache=use)
        for use in (True, False)
    )
    off = max(float(np.abs(cached[name].values - whole[name].values).max()) for name in vectors)
    found.check("G", "cached and whole passes differ by", "< 1e-4", f"{off:.1e}", off < 1e-4)
    usual = propensity_curves(model, test, vectors)["layer 8"]
    found.at_least("G", "fewer token-forwards than two full passes a multiplier, times", 5.0, usual.saving)
    found.numbers = {
        "largest_difference": off,
        "token_forwards": usual.token_forwards,
        "reference_token_forwards": usual.reference_token_forwards,
        "saving": usual.saving,
    }
    return found
