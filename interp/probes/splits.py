"""The sentences of an experiment: to train on, to choose epochs by, and to score on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interp.core.device import derive_seed
from interp.core.messages import nearest
from interp.probes.conllu_files import BrokenSentences, parse_conllu
from interp.probes.grammar import ControlledGrammar
from interp.probes.scores import is_word
from interp.probes.treebank import DependencyTree

if TYPE_CHECKING:
    from interp.probes.experiment import ProbeExperiment

logger = logging.getLogger(__name__)

TREEBANKS = ("grammar", "silver")
TEST_SHARE = VALIDATION_SHARE = 0.2


@dataclass(frozen=True)
class Treebanks:
    """Three lists of sentences.

    Attributes:
        name: says of the test sentences whether their trees are gold or silver.
        broken: what was left out of each CoNLL-U file that has broken sentences.
    """

    name: str
    train: Sequence[DependencyTree]
    validation: Sequence[DependencyTree]
    test: Sequence[DependencyTree]
    broken: tuple[BrokenSentences, ...] = ()


def load_treebanks(experiment: ProbeExperiment) -> Treebanks:
    """Read, parse or generate the sentences, in three parts that share none: of two with the same words one is kept,
    and one that is in the test treebank is left out of the other.

    Raises:
        ValueError: no such treebank, too few sentences, what `parse_conllu` refuses, or no tags to leave punctuation
            out by.
        ImportError: "silver" without a parser installed.
    """
    n, name = experiment.n_sentences, experiment.treebank
    broken: list[BrokenSentences] = []

    def conllu(path: str) -> list[DependencyTree]:
        trees, faults = parse_conllu(Path(path), strict=experiment.strict)
        if faults:
            broken.append(faults)
            logger.warning("%s", faults)
        return trees

    if name == "grammar":
        trees, label = ControlledGrammar().sample(n, seed=experiment.seed), "controlled grammar (gold)"
    elif name == "silver":
        from interp.activations.python_docs import python_docs
        from interp.probes.silver import load_parser, prose_sentences, silver_name, silver_trees

        parser = load_parser()
        trees = silver_trees(prose_sentences(python_docs(), n), parser)
        label = f"python-docs ({silver_name(parser)})"
    elif Path(name).is_file():
        trees, label = conllu(name), f"{Path(name).name} (gold)"
    else:
        raise ValueError(f"treebank={name!r}: no such CoNLL-U file; {nearest(name, TREEBANKS)}")
    test: list[DependencyTree] = []
    if experiment.test_treebank is not None:
        test = _different(conllu(experiment.test_treebank))
        label = f"{Path(experiment.test_treebank).name} (gold), trained on {label}"
    trees, known = _different(trees), {tree.words for tree in test}
    unseen = [tree for tree in trees if tree.words not in known]
    if len(unseen) < len(trees):
        logger.info("%d sentences of the test treebank are left out of training", len(trees) - len(unseen))
    order = np.random.default_rng(derive_seed(experiment.seed, "split")).permutation(len(unseen))[:n]
    trees = [unseen[i] for i in order]
    if experiment.test_treebank is None:
        cut = round(len(trees) * TEST_SHARE)
        test, trees = trees[:cut], trees[cut:]
    held = round(len(trees) * VALIDATION_SHARE)
    if min(held, len(test), len(trees) - held) < 1:
        raise ValueError(f"treebank={name!r}: {len(order)} sentences are too few to train, choose and test")
    if experiment.exclude_punct:
        is_word([*trees, *test])  # trees without tags are refused before the model runs
    return Treebanks(label, trees[held:], trees[:held], test, tuple(broken))


def _different(trees: Sequence[DependencyTree]) -> list[DependencyTree]:
    """Of the sentences with the same words one; none of a single word, which has no edge."""
    return list({tree.words: tree for tree in trees if len(tree) > 1}.values())
