"""The losses with written-out gradients against their definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.probes import fused_losses, losses
from interp.probes.grammar import ControlledGrammar
from interp.probes.tree_data import TreeData
from interp.probes.treebank import relation_types

TREES = ControlledGrammar().sample(12, seed=0)
BATCH = TreeData(TREES, relation_types(TREES)).batch(torch.tensor([3, 0, 7, 8]))


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()


def value_and_gradient(loss: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    # Unequal weights, so that a gradient that mixes up the probes shows.
    weights = torch.arange(1, loss.numel() + 1).to(loss).reshape(loss.shape)
    return loss.detach(), torch.autograd.grad((loss * weights).sum(), inputs)[0]


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_distance_loss_agrees_with_its_definition(leading: tuple[int, ...]) -> None:
    z = random(*leading, *BATCH.mask.shape, 6)
    arguments = (z, BATCH.distances.double(), BATCH.mask)
    found = value_and_gradient(fused_losses.structural_distance_loss(*arguments), z)
    wanted = value_and_gradient(losses.structural_distance_loss(*arguments), z)
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-14)
    assert float(found[1][..., ~BATCH.mask, :].abs().sum()) == 0


@pytest.mark.parametrize("shape", [(40, 5), (3, 40, 5), (2, 3, 8, 2), (2, 1, 3)])
def test_angular_loss_agrees_with_its_definition(shape: tuple[int, ...]) -> None:
    edges, types = random(*shape), torch.arange(shape[-2]) % 3
    found = value_and_gradient(fused_losses.angular_loss(edges, types), edges)
    wanted = value_and_gradient(losses.angular_loss(edges, types), edges)
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-11, atol=1e-13)


def test_edges_without_length_and_no_edges() -> None:
    edges = torch.zeros(2, 4, 3, dtype=torch.float64).requires_grad_()
    loss = fused_losses.angular_loss(edges, torch.tensor([0, 1, 0, 1]))
    # No edge has a direction: every cosine is 0, and half of the 16 pairs are of one type.
    assert loss.tolist() == [0.5, 0.5]
    assert torch.isfinite(torch.autograd.grad(loss.sum(), edges)[0]).all()
    none = torch.zeros(2, 0, 3).requires_grad_()
    loss = fused_losses.angular_loss(none, torch.zeros(0, dtype=torch.long))
    assert loss.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(loss.sum(), none)[0].shape == none.shape


def test_gradients_by_finite_differences() -> None:
    types = torch.tensor([0, 1, 0, 2])
    assert torch.autograd.gradcheck(lambda e: fused_losses.angular_loss(e, types), random(2, 4, 3))
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    distances = (
        torch.tensor([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]]).double().expand(2, 4, 4)
    )
    assert torch.autograd.gradcheck(
        lambda z: fused_losses.structural_distance_loss(z, distances, mask), random(2, 2, 4, 3)
    )
