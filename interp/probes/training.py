"""Training all probes of a bank in one computation, each ending where it would have ended alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp.core.history import History
from interp.core.identity import describe
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec, StepContext
from interp.core.trainer import Trainer, TrainerConfig
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.best_epochs import KeepBestOfEach
from interp.probes.fused_losses import angular_loss, structural_distance_loss
from interp.probes.losses import root_loss, structural_depth_loss
from interp.probes.tree_data import TreeData
from interp.probes.treebank import DependencyTree, relation_types
from interp.probes.words import WordActivations


@dataclass(frozen=True)
class ProbeTraining:
    """How probes are trained.

    Attributes:
        lr: Adam's.
        batch_size: sentences a step; the angular loss pools their edges.
        max_epochs: passes over the training sentences.
        patience: a probe whose validation score (`KeepBestOfEach`) has not risen for so many evaluations is finished;
            only with validation sentences.
        eval_every: epochs between evaluations.
        exclude_punct: leave punctuation out of the validation score, by the trees' tags.
        standardize: give every feature mean 0 and standard deviation 1 over the training words first.
        seed: order of the sentences.
        device: where to train.
        out_dir: a folder for checkpoints, from which an interrupted run goes on.
        progress: show a bar.
    """

    lr: float = 1e-3
    batch_size: int = 50
    max_epochs: int = 100
    patience: int = 10
    eval_every: int = 1
    exclude_punct: bool = False
    standardize: bool = True
    seed: int = 0
    device: str = "auto"
    out_dir: str | None = None
    progress: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr={self.lr}: must be a positive number")
        for name in ("batch_size", "max_epochs", "patience", "eval_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")


@dataclass(frozen=True)
class FittedProbes:
    """A trained bank, the loss over the run, and where validation chose each probe's weights.

    Attributes:
        validation_scores: [evaluations P] or None.
        best_epochs: epoch of each probe's weights; None without validation.
    """

    bank: ProbeBank
    history: History
    validation_scores: Float[np.ndarray, "e P"] | None = field(default=None, repr=False)
    best_epochs: tuple[int, ...] | None = None


def fit_probes(
    words: WordActivations,
    trees: Sequence[DependencyTree],
    specs: Sequence[ProbeSpec],
    config: ProbeTraining | None = None,
    *,
    validation: tuple[WordActivations, Sequence[DependencyTree]] | None = None,
) -> FittedProbes:
    """Train probes of any layers, ranks and weights together.

    Every probe gets the numbers (up to rounding) that it would have got alone with the same seeds: they share
    the batches, and no term of the loss joins two of them. A sentence of one word has no edge and is left out, as if
    it had not been given.

    Args:
        trees: of `words`, sentence by sentence.
        validation: chooses each probe's epoch; None keeps the last.

    Raises:
        ValueError: activations that do not fit the trees or are not finite, an unknown layer, a rank above the
            width, an angular weight with fewer than two relation types, or no sentence of two words.
    """
    config = config or ProbeTraining()
    words.check(trees)
    with_edges = (words.lengths > 1).nonzero()[:, 0]
    if not len(with_edges):
        raise ValueError(
            f"trees: all {len(trees)} sentences have one word only, so there is no edge to learn from"
        )
    relations = relation_types(trees)
    if len(relations) < 2 and any(spec.angular for spec in specs):
        raise ValueError(f"angular > 0 needs two relation types or more, the trees have {list(relations)}")
    data = TreeData(trees, relations)
    bank = ProbeBank(specs, words.d, words.layers, relations)
    values = bank.select(words)
    _check_finite(values, bank.layers)
    if config.standardize:
        _set_statistics(bank, values, (words.lengths > 1).repeat_interleave(words.lengths))
    task = ProbeTask(bank, values, data, config.lr)
    if config.out_dir is not None:
        task.about = _identity(config, words, data, validation)
    per_epoch = math.ceil(len(with_edges) / config.batch_size)
    chooser = None
    if validation is not None:
        chooser = KeepBestOfEach(
            bank,
            task.set_prototypes,
            *validation,
            patience=config.patience,
            eval_every=config.eval_every,
            exclude_punct=config.exclude_punct,
        )
    trainer = Trainer(
        TrainerConfig(
            max_steps=per_epoch * config.max_epochs,
            batch_size=config.batch_size,
            seed=config.seed,
            checkpoint_every=None if config.out_dir is None else per_epoch * 5,
            log_every=per_epoch * config.eval_every,
            out_dir=config.out_dir,
            progress=config.progress,
        ),
        Runtime(config.device),
        callbacks=[] if chooser is None else [chooser],
    )
    stream = ArrayStream(with_edges, seed=config.seed)
    history = trainer.fit(task, stream)
    if chooser is not None:
        chooser.restore()
    task.set_prototypes()
    bank.requires_grad_(False)
    if chooser is None:
        return FittedProbes(bank, history)
    return FittedProbes(bank, history, np.array(chooser.scores), tuple(chooser.best_epochs))


def without_training(words: WordActivations, trees: Sequence[DependencyTree], layer: int) -> ProbeBank:
    """The control "no probe": the standardised activations themselves, with the prototypes of the trees."""
    words.check(trees)
    relations = relation_types(trees)
    bank = ProbeBank([ProbeSpec(layer, rank=words.d)], words.d, words.layers, relations)
    values = bank.select(words)
    _set_statistics(bank, values, (words.lengths > 1).repeat_interleave(words.lengths))
    with torch.no_grad():
        bank.weight.copy_(torch.eye(words.d))
    ProbeTask(bank, values, TreeData(trees, relations), lr=1.0).set_prototypes()
    return bank.requires_grad_(False)


class ProbeTask:
    """The losses of all probes of a bank over batches of sentences, for `core.Trainer`.

    The loss is the sum over probes of each one's mean over the sentences of the batch.
    """

    def __init__(self, bank: ProbeBank, values: Float[Tensor, "L N d"], data: TreeData, lr: float) -> None:
        self.bank, self.values, self.data, self.lr = bank, values, data, lr
        self._buffer = values.new_empty(0)
        self.about: dict[str, Any] = {}

    def modules(self) -> dict[str, nn.Module]:
        return {"probes": self.bank}

    def config(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        return {"lr": self.lr, "probes": [asdict(spec) for spec in self.bank.specs], **self.about}

    def configure_optimizers(self, max_steps: int) -> OptimizerSpec:
        fused = self.bank.weight.device.type in ("cpu", "cuda")  # one pass over the weights
        return OptimizerSpec(torch.optim.Adam(self.bank.parameters(), lr=self.lr, fused=fused))

    def loss(self, sentences: Tensor, ctx: StepContext) -> LossOutput:
        batch = self.data.batch(sentences.cpu())
        bank = ctx.modules["probes"]
        device, dtype = self.bank.weight.device, self.bank.weight.dtype
        z = bank(self._rows(batch.words).to(device, dtype))
        terms: dict[str, Tensor] = {}
        if self._uses("distance"):
            terms["distance"] = structural_distance_loss(z, batch.distances.to(device, dtype), batch.lengths)
        if self._uses("depth"):
            words = z.index_select(1, batch.padded.flatten().to(device)).unflatten(1, batch.padded.shape)
            depths = batch.depths[batch.padded].to(device, dtype)
            terms["depth"] = structural_depth_loss(words, depths, batch.mask.to(device))
        if self._uses("root"):
            terms["root"] = root_loss(z.index_select(1, batch.roots.to(device)), self.bank.centre)
        if self._uses("angular"):
            terms["angular"] = angular_loss(z, batch.heads.to(device), batch.types.to(device))
        total = torch.stack(
            [(self.bank.term_weights(name) * term).sum() for name, term in terms.items()]
        ).sum()
        count = len(sentences)
        metrics: dict[str, Any] = {f"{name}_loss": term.detach().mean() for name, term in terms.items()}
        return LossOutput(total * count, count, metrics)

    def _rows(self, words: Int[Tensor, " W"]) -> Float[Tensor, "L W d"]:
        """The activations of some words, in memory that every step uses anew: fresh pages cost more than the copy."""
        out = self._buffer.resize_(len(self.values), len(words), self.values.shape[2])
        return torch.index_select(self.values, 1, words.to(self.values.device), out=out)

    def set_prototypes(self) -> None:
        """Give every probe the mean edge of each type: the mean edge of the activations, mapped."""
        with torch.no_grad():
            self.bank.prototypes.copy_(self.mean_edges @ self.bank.maps())

    @property
    def mean_edges(self) -> Float[Tensor, "P R d"]:
        """Mean of head minus dependent over the edges of each type, in activation space."""
        if not hasattr(self, "_mean_edges"):
            words = self.data.dependents
            heads, types = self.data.heads[words], self.data.types[words]
            counts = torch.bincount(types, minlength=len(self.bank.relations)).clamp_min(1)
            # As a difference of two sums of words, so that no [L E d] of edges is needed.
            sums = torch.zeros(len(self.bank.relations), self.values.shape[1], dtype=torch.float64)
            sums.index_put_((types, heads), torch.ones(len(words), dtype=torch.float64), accumulate=True)
            sums.index_put_((types, words), -torch.ones(len(words), dtype=torch.float64), accumulate=True)
            weights = (sums / counts[:, None]).to(self.values.device, torch.float32)
            means = torch.stack([weights @ layer.float() for layer in self.values])
            device, dtype = self.bank.weight.device, self.bank.weight.dtype
            self._mean_edges = means.to(device, dtype)[self.bank.slots]
        return self._mean_edges

    def _uses(self, *terms: str) -> bool:
        return any(getattr(spec, term) for spec in self.bank.specs for term in terms)


def _identity(
    config: ProbeTraining,
    words: WordActivations,
    data: TreeData,
    validation: tuple[WordActivations, Sequence[DependencyTree]] | None,
) -> dict[str, Any]:
    """What else an interrupted run must have been trained on, and chosen by, to be gone on with."""
    names = ("standardize", "patience", "eval_every", "exclude_punct")
    parts = {"training": (words, data)}
    if validation is not None:
        parts["validation"] = (validation[0], TreeData(validation[1], data.relations))
    return {name: getattr(config, name) for name in names} | {
        f"{part} sentences": describe(
            [own.values, own.starts, trees.heads, trees.types, list(trees.relations)]
        )
        for part, (own, trees) in parts.items()
    }


def _set_statistics(bank: ProbeBank, values: Float[Tensor, "L N d"], counted: Bool[Tensor, " N"]) -> None:
    """Mean and standard deviation of every feature over words; a feature that never varies is left alone."""
    counted = counted.to(values.device)
    for slot, layer in enumerate(values):
        rows = layer if bool(counted.all()) else layer[counted]
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        varies = (rows != rows[0]).any(0)
        # Twice centred: what the first mean's rounding leaves is taken off as well.
        mean = rows.mean(0)
        rows = rows - mean
        rest = rows.mean(0)
        spread = rows.sub_(rest).square_().mean(0).sqrt() * varies
        mean = mean + rest
        mine = bank.slots == slot
        bank.mean[mine] = mean.to(bank.mean)
        bank.scale[mine] = torch.where(spread > 0, spread, 1.0).to(bank.scale)


def _check_finite(values: Float[Tensor, "L N d"], layers: Sequence[int]) -> None:
    for layer, rows in zip(layers, values, strict=True):
        if not bool(rows.sum().isfinite()) and not bool(rows.isfinite().all()):  # a sum is much the faster
            raise ValueError(f"the activations of layer {layer} hold NaN or infinite values")
