"""The Polar Probe of one layer, with the manners of a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.history import History
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.readout import Pairs, by_sentence, cosines, decode, nearest_words
from interp.probes.scores import attachment_scores
from interp.probes.training import ProbeTraining, fit_probes
from interp.probes.treebank import DependencyTree, Edge
from interp.probes.words import WordActivations

DEFAULT_RANK = 128  # where the paper finds the scores to level off
Sentences = WordActivations | Sequence[np.ndarray | Tensor]


@dataclass
class PolarProbe:
    """Reads labelled, directed trees out of word activations (Diego-Simon et al. 2024, arXiv 2412.05571).

    One linear map, in whose space the squared distance of two words is their distance in the tree and the
    vector from a dependent to its head points where the relation says.

        probe = PolarProbe(rank=40).fit(train_activations, train_trees)
        edges = probe.predict(test_activations)

    For many layers, ranks or weights at once see `fit_probes`, which this calls with one.

    Attributes:
        rank: dimensions of the space; None is 128, or the width where that is smaller.
        angular_weight: of the angular loss; several numbers are tried in one computation, and the validation
            sentences choose.
        structural_weight, root_weight: of the distance loss, and of a learned point for roots.
        lr, batch_size, max_epochs, patience, standardize: as in `ProbeTraining`.
        random_state: of the initial weights and the order of the sentences.
        bank_: the fitted probe; projection_ [d k], prototypes_ [R k], relations_, mean_ [d], scale_ [d] and
            history_ are parts of the fit.
    """

    rank: int | None = None
    angular_weight: float | Sequence[float] | np.ndarray = 1.0
    structural_weight: float = 1.0
    root_weight: float = 0.0
    lr: float = 1e-3
    batch_size: int = 50
    max_epochs: int = 100
    patience: int = 10
    standardize: bool = True
    random_state: int = 0
    progress: bool = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def set_params(self, **params: Any) -> PolarProbe:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name!r} is no parameter of {type(self).__name__}: {', '.join(known)}")
            setattr(self, name, value)
        return self

    def fit(
        self,
        activations: Sentences,
        trees: Sequence[DependencyTree],
        validation: tuple[Sentences, Sequence[DependencyTree]] | None = None,
    ) -> PolarProbe:
        """Train on activations [n d] of each sentence and its tree.

        Args:
            validation: sentences and trees that choose the epoch, and the angular weight where there are
                several.

        Raises:
            ValueError: naming the sentence: activations and tree of different length, different widths, NaN;
                a rank above the width; no sentence of two words; several angular weights without validation.
        """
        words = _words(activations)
        specs = self._specs(words)
        if len(specs) > 1 and validation is None:
            raise ValueError(
                f"angular_weight={self.angular_weight}: to choose one, give validation sentences"
            )
        config = ProbeTraining(
            lr=self.lr,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            standardize=self.standardize,
            seed=self.random_state,
            progress=self.progress,
        )
        held_out = None if validation is None else (_words(validation[0]), validation[1])
        fitted = fit_probes(words, trees, specs, config, validation=held_out)
        scores = fitted.validation_scores
        self._chosen = 0 if scores is None else int(scores.max(0).argmax())
        self.bank_: ProbeBank = fitted.bank
        self.history_: History = fitted.history
        self.relations_ = self.bank_.relations
        self.projection_ = _numpy(self.bank_.weight[self._chosen])
        self.prototypes_ = _numpy(self.bank_.prototypes[self._chosen])
        self.mean_, self.scale_ = (
            _numpy(self.bank_.mean[self._chosen]),
            _numpy(self.bank_.scale[self._chosen]),
        )
        self.angular_weight_ = specs[self._chosen].angular
        return self

    def _specs(self, words: WordActivations) -> list[ProbeSpec]:
        weights = np.atleast_1d(self.angular_weight)
        if weights.ndim > 1 or not len(weights):
            raise ValueError(
                f"angular_weight={np.asarray(self.angular_weight).tolist()}: give a number, or several in a row"
            )
        return [
            ProbeSpec(
                words.layers[0],
                rank=min(DEFAULT_RANK, words.d) if self.rank is None else self.rank,
                distance=self.structural_weight,
                angular=float(weight),
                root=self.root_weight,
                seed=self.random_state,
            )
            for weight in weights
        ]

    def transform(self, activations: Sentences) -> list[Float[np.ndarray, "n k"]]:
        """Every sentence's words in the probe's space."""
        words = _words(activations)
        return np.split(self._points(words), words.starts[1:-1].numpy())

    def predict(self, activations: Sentences, rooted: bool = False) -> list[list[Edge]]:
        """Edges (head, dependent, relation) of every sentence.

        Args:
            rooted: make each a tree that hangs on one root. The paper's read-out, False, lets a word have
                several heads or none.
        """
        words = _words(activations)
        points, starts = self._points(words), words.starts.numpy()
        roots = nearest_words(points, self._centre, starts) if self.root_weight else None
        pairs = Pairs.within(starts)
        edges = decode(pairs, points, self.prototypes_.astype(float), starts, rooted=rooted, roots=roots)
        return by_sentence(edges, starts, self.relations_)

    def predict_relations(
        self, activations: Sentences, pairs: Sequence[Sequence[tuple[int, int]]]
    ) -> list[list[str]]:
        """The relation of given edges (head, dependent) of every sentence."""
        points = self.transform(activations)
        if len(points) != len(pairs):
            raise ValueError(f"pairs of {len(pairs)} sentences for activations of {len(points)}")
        out = []
        for z, edges in zip(points, pairs, strict=True):
            heads, words = np.array(edges, dtype=np.int64).reshape(-1, 2).T
            nearest = cosines(z[heads] - z[words], self.prototypes_.astype(float)).argmax(1)
            out.append([self.relations_[kind] for kind in nearest])
        return out

    def score(self, activations: Sentences, trees: Sequence[DependencyTree]) -> float:
        """LAS, averaged over sentences."""
        return attachment_scores(self.predict(activations), trees).las

    @property
    def _centre(self) -> Float[np.ndarray, " k"]:
        return _numpy(self.bank_.centre[self._chosen]).astype(float)

    def _points(self, words: WordActivations) -> Float[np.ndarray, "N k"]:
        if not hasattr(self, "bank_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} is not fitted: call fit(activations, trees) first"
            )
        return self.bank_.transform(words)[self._chosen].double().cpu().numpy()


def _words(activations: Sentences) -> WordActivations:
    if not isinstance(activations, WordActivations):
        return WordActivations.from_sentences(activations)
    if len(activations.layers) != 1:
        raise ValueError(f"activations of {len(activations.layers)} layers: choose one with .at(layer)")
    return activations


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
