"""The losses with written-out gradients, and the projection, against their definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.probes import fused_losses, losses
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.grammar import ControlledGrammar
from interp.probes.tree_data import SentenceBatch, TreeData
from interp.probes.treebank import ROOT, DependencyTree, relation_types

LONE = DependencyTree(("a",), (ROOT,), ("root",))
TREES = [*ControlledGrammar().sample(12, seed=0), LONE, LONE]
DATA = TreeData(TREES, relation_types(TREES))
BATCHES = {
    "several": DATA.batch(torch.tensor([3, 0, 7, 8])),
    "with lone words": DATA.batch(torch.tensor([13, 3, 0, 12, 7, 8, 5])),
    "one": DATA.batch(torch.tensor([4])),
    "lone words": DATA.batch(torch.tensor([12, 13])),
}


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def value_and_gradient(loss: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    # Unequal weights, so that a gradient that mixes up the probes shows.
    weights = torch.arange(1, loss.numel() + 1).to(loss).reshape(loss.shape)
    return loss.detach(), torch.autograd.grad((loss * weights).sum(), inputs)[0]


def plain_distance(z: Tensor, batch: SentenceBatch) -> Tensor:
    pairs = batch.mask[:, :, None] & batch.mask[:, None, :]
    distances = torch.zeros(pairs.shape, dtype=z.dtype)
    distances[pairs] = batch.distances.to(z)
    return losses.structural_distance_loss(z[:, batch.padded], distances, batch.mask)


def plain_angular(z: Tensor, batch: SentenceBatch) -> Tensor:
    words = batch.dependents
    return losses.angular_loss(z[:, batch.heads[words]] - z[:, words], batch.types[words])


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("probes", [1, 3])
def test_losses_agree_with_their_definitions(kind: str, probes: int) -> None:
    batch = BATCHES[kind]
    z = random(probes, len(batch.words), 6)
    for mine, plain in (
        (
            fused_losses.structural_distance_loss(z, batch.distances.double(), batch.lengths),
            plain_distance(z, batch),
        ),
        (fused_losses.angular_loss(z, batch.heads, batch.types), plain_angular(z, batch)),
    ):
        for found, wanted in zip(value_and_gradient(mine, z), value_and_gradient(plain, z), strict=True):
            assert torch.allclose(found, wanted, rtol=1e-11, atol=1e-13)


def test_edges_without_length_and_no_edges() -> None:
    z = torch.zeros(2, 5, 3, dtype=torch.float64).requires_grad_()
    heads, types = torch.tensor([0, 0, 0, 0, 0]), torch.tensor([-1, 0, 1, 0, 1])
    loss = fused_losses.angular_loss(z, heads, types)
    # No edge has a direction: every cosine is 0, and half of the 16 pairs are of one type.
    assert loss.tolist() == [0.5, 0.5]
    assert torch.isfinite(torch.autograd.grad(loss.sum(), z)[0]).all()
    lone = BATCHES["lone words"]
    words = random(2, 2, 3)
    for loss in (
        fused_losses.angular_loss(words, lone.heads, lone.types),
        fused_losses.structural_distance_loss(words, lone.distances.double(), lone.lengths),
    ):
        value, gradient = value_and_gradient(loss, words)
        assert value.tolist() == [0.0, 0.0]
        assert float(gradient.abs().max()) == 0


def test_gradients_by_finite_differences() -> None:
    batch = DATA.batch(torch.tensor([1, 12, 2]))
    z = random(2, len(batch.words), 3)
    assert torch.autograd.gradcheck(lambda z: fused_losses.angular_loss(z, batch.heads, batch.types), z)
    assert torch.autograd.gradcheck(
        lambda z: fused_losses.structural_distance_loss(z, batch.distances.double(), batch.lengths), z
    )


@pytest.mark.parametrize(
    "specs",
    [
        [ProbeSpec(0, 5), ProbeSpec(1, 5), ProbeSpec(2, 5)],
        [ProbeSpec(2, 5), ProbeSpec(0, 5), ProbeSpec(1, 5)],
        [ProbeSpec(1, 2), ProbeSpec(0, 7), ProbeSpec(1, 4), ProbeSpec(1, 7)],
    ],
    ids=["one a layer", "in another order", "several of unequal ranks"],
)
def test_the_projection_of_many_is_that_of_each(specs: list[ProbeSpec]) -> None:
    bank = ProbeBank(specs, 7, (0, 1, 2), ("a",)).double()
    with torch.no_grad():
        bank.mean.copy_(random(len(specs), 7, seed=1))
        bank.scale.copy_(random(len(specs), 7, seed=2).exp())
    x = random(len(bank.layers), 11, 7, seed=3).detach()
    k = bank.weight.shape[2]
    upstream = random(len(specs), 11, k, seed=4).detach()
    found = bank(x)
    gradient = torch.autograd.grad((found * upstream).sum(), bank.weight)[0]
    for p, spec in enumerate(specs):
        weight = bank.weight[p].detach().clone().requires_grad_()
        rows = (x[bank.layers.index(spec.layer)] - bank.mean[p]) / bank.scale[p]
        z = rows @ (weight * (torch.arange(k) < spec.rank))
        assert torch.allclose(found[p], z, rtol=1e-12, atol=1e-13)
        wanted = torch.autograd.grad((z * upstream[p]).sum(), weight)[0]
        assert torch.allclose(gradient[p], wanted, rtol=1e-12, atol=1e-12)
