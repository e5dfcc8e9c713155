"""RowSparseAdam is Adam with beta1 = 0, whichever rows are shown to it."""

from __future__ import annotations

import pytest
import torch

from interp.sae.optim import RowSparseAdam

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


def trajectory(steps: int, *, sparse_every: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both optimisers on one sequence of gradients of which two rows in three are zero."""
    g = torch.Generator().manual_seed(0)
    start = torch.randn(20, 5, generator=g, dtype=torch.float64)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    row_sparse = RowSparseAdam([ours], lr=1e-2, betas=(0.0, 0.99))
    dense = torch.optim.Adam([theirs], lr=1e-2, betas=(0.0, 0.99))
    for t in range(steps):
        rows = torch.nonzero(torch.rand(20, generator=g) < 1 / 3)[:, 0]
        values = torch.randn(len(rows), 5, generator=g, dtype=torch.float64)
        full = torch.zeros_like(start).index_copy_(0, rows, values)
        theirs.grad = full
        ours.grad = full.clone()
        if t % sparse_every == 0:
            ours.grad = torch.sparse_coo_tensor(rows[None], values, start.shape)
        row_sparse.step()
        dense.step()
        with torch.no_grad():
            for p in (ours, theirs):
                p.div_(p.norm(dim=1, keepdim=True))
    return ours.detach(), theirs.detach()


@pytest.mark.parametrize("sparse_every", [1, 3, 10_000], ids=["sparse", "mixed", "dense"])
def test_equals_dense_adam_over_500_steps(sparse_every: int) -> None:
    ours, theirs = trajectory(500, sparse_every=sparse_every)
    assert float((ours - theirs).abs().max()) < 1e-12


def test_the_missed_decay_is_what_makes_it_equal() -> None:
    """The first step after a pause of three: v = beta2^3 v_1 + (1 - beta2) g^2."""
    p = torch.nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
    optimizer = RowSparseAdam([p], lr=1.0, betas=(0.0, 0.5), eps=0.0)
    for row in (0, 1, 1, 0):
        p.grad = torch.sparse_coo_tensor([[row]], torch.ones(1, 1, dtype=torch.float64), (2, 1))
        optimizer.step()
    v = optimizer.row_state(p).v
    assert float(v[0]) == 0.5 * 0.5**3 + 0.5
    assert float(v[1]) == 0.5 * 0.5 + 0.5
    assert optimizer.row_state(p).last_step.tolist() == [4, 3]
    expected = -1.0 - 1 / (float(v[0]) / (1 - 0.5**4)) ** 0.5  # step 1 moves by exactly lr
    assert float(p[0].detach()) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"betas": (0.9, 0.999)}, "beta1 = 0"),
        ({"betas": (0.0, 1.0)}, "beta2 must be"),
        ({"lr": -1.0}, "neither may be negative"),
    ],
)
def test_refuses(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RowSparseAdam([torch.nn.Parameter(torch.zeros(1))], **arguments)


def test_state_survives_a_round_trip_with_its_types() -> None:
    def run(p: torch.nn.Parameter, optimizer: RowSparseAdam, steps: range) -> None:
        for t in steps:
            g = torch.Generator().manual_seed(t)
            p.grad = torch.randn(6, 3, generator=g)
            optimizer.step()

    whole = torch.nn.Parameter(torch.ones(6, 3))
    optimizer = RowSparseAdam([whole], lr=1e-2)
    run(whole, optimizer, range(20))
    half = torch.nn.Parameter(torch.ones(6, 3))
    first = RowSparseAdam([half], lr=1e-2)
    run(half, first, range(10))
    second = RowSparseAdam([half], lr=0.5)
    second.load_state_dict(first.state_dict())
    assert second.row_state(half).last_step.dtype == torch.int64
    assert second.row_state(half).last_step is not first.row_state(half).last_step
    run(half, second, range(10, 20))
    assert torch.equal(half, whole)


def test_reset_rows_forgets_their_moment_only() -> None:
    p = torch.nn.Parameter(torch.zeros(4, 2))
    optimizer = RowSparseAdam([p])
    p.grad = torch.ones(4, 2)
    optimizer.step()
    optimizer.reset_rows_(p, torch.tensor([1, 3]))
    assert optimizer.row_state(p).v[:, 0].eq(0).tolist() == [False, True, False, True]
