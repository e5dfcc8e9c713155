"""What a probe must beat: random weights, positions alone, shuffled labels, words that merely follow each other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.device import derive_seed
from interp.probes.scores import AttachmentScores, attachment_scores, is_word, kept_words
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


def random_weights(model: LanguageModel, *, seed: int = 0) -> LanguageModel:
    """The same architecture and tokenizer with freshly initialised weights.

    Raises ValueError for a model without a transformers configuration to make another from.
    """
    from transformers import AutoModelForCausalLM, PreTrainedConfig

    from interp.models.loading import load_model

    if not isinstance(model.config, PreTrainedConfig):
        raise ValueError(f"{model.name} has no transformers configuration to make a random model from")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "random weights"))
        module = AutoModelForCausalLM.from_config(model.config)
    fresh = load_model(module.to(model.device, model.dtype).eval(), tokenizer=model.tokenizer)
    fresh.name = f"{model.name} with random weights"
    return fresh


def position_activations(trees: Sequence[DependencyTree], width: int = 64) -> WordActivations:
    """Sinusoids of each word's position from the start and from the end, and nothing else.

    What a probe gets out of these it owes to word order; as layer 0 of `width` features (a multiple of 4).
    """
    if width < 4 or width % 4:
        raise ValueError(f"width={width}: give a multiple of 4")
    rates = 1 / 100 ** (np.arange(width // 4) / (width // 4))
    rows = []
    for tree in trees:
        forward = np.arange(len(tree))[:, None] * rates
        backward = forward[::-1]
        waves = (np.sin(forward), np.cos(forward), np.sin(backward), np.cos(backward))
        rows.append(np.concatenate(waves, axis=1).astype(np.float32))
    return WordActivations.from_sentences(rows)


def shuffle_relations(trees: Sequence[DependencyTree], *, seed: int = 0) -> list[DependencyTree]:
    """The control task of Hewitt and Liang 2019: every word form gets a relation of its own at random.

    It is drawn once for each form, by how often relations occur in `trees`, so a probe that scores well here
    memorises words. The label accuracy on true labels less that on these is the probe's selectivity. Give
    all splits in one call, or forms would differ between them.
    """
    labels = [relation for tree in trees for _, _, relation in tree.edges()]
    random = np.random.default_rng(derive_seed(seed, "control task"))
    forms = sorted({word.lower() for tree in trees for word in tree.words})
    drawn = dict(zip(forms, random.choice(labels, size=len(forms)).tolist(), strict=True))
    return [
        replace(
            tree,
            relations=tuple(
                relation if head < 0 else drawn[word.lower()]
                for word, head, relation in zip(tree.words, tree.heads, tree.relations, strict=True)
            ),
        )
        for tree in trees
    ]


def linear_order_scores(
    train: Sequence[DependencyTree],
    test: Sequence[DependencyTree],
    *,
    average: str = "macro",
    exclude_punct: bool = False,
) -> AttachmentScores:
    """The baseline that links neighbours: every word to the next, in the direction and with the relation that
    neighbours have most often in the training trees.

    Args:
        exclude_punct: leave punctuation out, by the trees' tags: the words at its sides are neighbours then.
    """
    steps: Counter[tuple[int, str]] = Counter()
    for tree, words in zip(train, _words(train, exclude_punct), strict=True):
        place = {word: i for i, word in enumerate(words)}
        for head, word, relation in tree.edges():
            if head in place and word in place and abs(step := place[head] - place[word]) == 1:
                steps[step, relation] += 1
    if not steps:
        raise ValueError("train: no edge between neighbours to learn from")
    (step, relation), _ = min(steps.items(), key=lambda item: (-item[1], item[0]))
    chains = [
        [(b, a, relation) if step > 0 else (a, b, relation) for a, b in itertools.pairwise(words)]
        for words in _words(test, exclude_punct)
    ]
    return attachment_scores(chains, test, average=average, exclude_punct=exclude_punct)


def _words(trees: Sequence[DependencyTree], exclude_punct: bool) -> list[list[int]]:
    """The words of every sentence that count, by their places in it."""
    return [words.tolist() for words in kept_words(trees, is_word(trees) if exclude_punct else None)]
