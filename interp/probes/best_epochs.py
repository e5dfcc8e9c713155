"""Which epoch's weights each probe keeps: those that read the validation sentences best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.core.callbacks import Callback
from interp.core.trainer import Trainer
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.correlation import depth_spearman
from interp.probes.readout import Pairs, orient, spanning_forest
from interp.probes.scores import is_word, match
from interp.probes.tree_data import TreeData
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations


class KeepBestOfEach(Callback):
    """Remembers the weights of every probe's best evaluation; ends the run when all have stopped improving.

    A probe whose patience has run out keeps what it had, whatever comes after: as if it were alone. Its score is the
    LAS of the decoded trees, or their UUAS without relation types to tell apart; a probe with only the depth term,
    which has no trees, is scored by the Spearman correlation of its squared norms with the depths, averaged over
    sentences.

    Args:
        set_prototypes: gives the bank's prototypes the present weights' values.
        exclude_punct: leave punctuation out of trees and depths.

    Raises:
        ValueError: activations that don't fit the trees, sentences without an edge to score, no tags to know
            punctuation by.
    """

    def __init__(
        self,
        bank: ProbeBank,
        set_prototypes: Callable[[], None],
        words: WordActivations,
        trees: Sequence[DependencyTree],
        *,
        patience: int,
        eval_every: int = 1,
        exclude_punct: bool = False,
    ) -> None:
        words.check(trees)
        self.bank, self.set_prototypes, self.words, self.trees = bank, set_prototypes, words, trees
        self.patience, self.eval_every = patience, eval_every
        self.data = TreeData(trees, bank.relations)
        self.keep = is_word(trees) if exclude_punct else None
        self.pairs = Pairs.within(self.data.starts.numpy(), self.keep)
        if not len(self.pairs.a):
            raise ValueError("validation: no sentence has two words, so there is no edge to choose epochs by")
        self.scores: list[list[float]] = []
        self.best = [-np.inf] * len(bank)
        self.best_epochs = [0] * len(bank)
        self.waited = [0] * len(bank)
        self.weights = bank.weight.detach().clone()
        self.centres = bank.centre.detach().clone()

    def on_log(self, trainer: Trainer, step: int, metrics: dict[str, float]) -> None:
        scores = self.evaluate()
        self.scores.append(scores)
        epoch = len(self.scores) * self.eval_every
        for probe, score in enumerate(scores):
            if self.waited[probe] >= self.patience:
                continue
            if score > self.best[probe]:
                self.best[probe], self.best_epochs[probe], self.waited[probe] = score, epoch, 0
                self.weights[probe] = self.bank.weight[probe].detach()
                self.centres[probe] = self.bank.centre[probe].detach()
            else:
                self.waited[probe] += 1
        metrics["valid_score"] = float(np.mean(scores))
        if min(self.waited) >= self.patience:
            trainer.stop("no probe improves on the validation sentences any more")

    def evaluate(self) -> list[float]:
        """The score of every probe with its present weights."""
        self.set_prototypes()
        points = self.bank.transform(self.words).double().cpu().numpy()
        prototypes = self.bank.prototypes.double().cpu().numpy()
        return [self._score(*parts) for parts in zip(self.bank.specs, points, prototypes, strict=True)]

    def _score(
        self, spec: ProbeSpec, points: Float[np.ndarray, "N k"], prototypes: Float[np.ndarray, "R k"]
    ) -> float:
        if spec.only_depth:
            depths = np.split(np.square(points).sum(1), self.data.starts[1:-1].numpy())
            found = depth_spearman(depths, self.trees, per="sentence", keep=self.keep)
            return found if np.isfinite(found) else -1.0  # all words of every sentence equally deep
        u, v = spanning_forest(self.pairs.squared_distances(points), self.pairs)
        scores = match(orient(u, v, points, prototypes), self.data, self.keep).scores()
        return scores.las if len(self.bank.relations) > 1 else scores.uuas

    def restore(self) -> None:
        """Give every probe the weights of its best epoch."""
        with torch.no_grad():
            self.bank.weight.copy_(self.weights)
            self.bank.centre.copy_(self.centres)

    def state_dict(self) -> dict[str, Any]:
        return {
            "scores": self.scores,
            "best": self.best,
            "best_epochs": self.best_epochs,
            "waited": self.waited,
            "weights": self.weights,
            "centres": self.centres,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
