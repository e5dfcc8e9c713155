"""Bregman losses: values, the minimiser of their mean for every generator, and the order of arguments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from classic_ml.surrogates import BregmanLoss, PolytopeEmbedding, SquaredLoss
from classic_ml.surrogates.losses import half_square

CUBE = PolytopeEmbedding.cube(2)
P = torch.tensor([0.45, 0.25, 0.2, 0.1], dtype=torch.float64)
MEAN = torch.from_numpy(CUBE.embed_distribution(P.numpy()[None])[0])
GENERATORS = {
    "half square": half_square,
    "exponentials": lambda u: u.exp().sum(-1),
    "fourth powers": lambda u: (u.square() + u**4).sum(-1),
    "a quadratic form": lambda u: (u @ torch.tensor([[2.0, 0.5], [0.5, 1.0]]).to(u) * u).sum(-1),
}
generators = pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)


def expected(loss: BregmanLoss, u: torch.Tensor) -> torch.Tensor:
    return P @ loss(u.expand(4, 2), torch.arange(4))


def argmin(risk) -> np.ndarray:
    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        u = torch.tensor(x, requires_grad=True)
        value = risk(u)
        (slope,) = torch.autograd.grad(value, u)
        return value.item(), slope.numpy()

    return minimize(both, [0.9, 0.1], jac=True, method="BFGS", options={"gtol": 1e-10}).x


@generators
def test_the_mean_minimises_the_expected_loss_for_every_generator(generator) -> None:
    loss = BregmanLoss(CUBE, generator, reduction="none")
    np.testing.assert_allclose(argmin(lambda u: expected(loss, u)), MEAN, atol=1e-6)
    best = expected(loss, MEAN)
    for u in torch.rand(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        assert expected(loss, u) >= best


def test_the_other_order_of_arguments_has_another_minimiser() -> None:
    generator = GENERATORS["exponentials"]
    V = torch.from_numpy(CUBE.vertices)

    def turned(u: torch.Tensor) -> torch.Tensor:  # D_G(u, v_y), whose minimiser is the mean of grad G
        return P @ (generator(u) - generator(V) - (V.exp() * (u - V)).sum(-1))

    found = argmin(turned)
    np.testing.assert_allclose(found, torch.log(P @ V.exp()), atol=1e-6)
    assert np.abs(found - MEAN.numpy()).min() > 0.05


def test_squared_loss_is_the_loss_of_the_half_square() -> None:
    u = torch.rand(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    y = torch.tensor([3, 0, 1, 1])
    general, plain = BregmanLoss(CUBE, half_square)(u, y), SquaredLoss(CUBE)(u, y)
    assert general.item() == pytest.approx(plain.item(), abs=1e-14)
    rows = ((u - torch.from_numpy(CUBE.vertices)[y]) ** 2).sum(1) / 2
    torch.testing.assert_close(SquaredLoss(CUBE, reduction="none")(u, y), rows)
    assert plain.item() == pytest.approx(rows.mean().item())
    slopes = [torch.autograd.grad(value, u)[0] for value in (general, plain)]
    torch.testing.assert_close(slopes[0], slopes[1])
    torch.testing.assert_close(slopes[1], (u - torch.from_numpy(CUBE.vertices)[y]).detach() / 4)


def test_convex_in_the_report_for_the_square_only() -> None:
    y, line = torch.tensor([0]), torch.linspace(-4, 4, 81, dtype=torch.float64)

    def bends(generator) -> float:
        loss = BregmanLoss(CUBE, generator, reduction="none")
        values = loss(torch.stack([line, line], 1), y.expand(81)).numpy()
        return float(np.diff(values, 2).min())

    assert bends(half_square) > 0
    assert bends(GENERATORS["exponentials"]) < -1e-3


def test_single_precision_and_wrong_shapes() -> None:
    u = torch.zeros(3, 2)
    assert SquaredLoss(CUBE)(u, torch.tensor([0, 0, 3])).dtype == torch.float32
    with pytest.raises(
        ValueError, match=r"u has shape \(3, 1\); 3 labels and <cube embedding: 4 classes in 2"
    ):
        SquaredLoss(CUBE)(u[:, :1], torch.tensor([0, 0, 3]))
    with pytest.raises(ValueError, match="y holds 4"):
        SquaredLoss(CUBE)(u, torch.tensor([0, 0, 4]))
    with pytest.raises(ValueError, match="reduction = 'sum'"):
        SquaredLoss(CUBE, reduction="sum")  # type: ignore[arg-type]
