"""The list of open gates: complete, ordered, and indexed by token."""

from __future__ import annotations

import pytest
import torch

from interp.sae.kernels import cpu, cpu_list, reference
from tests.sae.kernels.cases import batch


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("n", [1, 31, 32, 100])
def test_list_holds_exactly_the_pairs_above_the_threshold(backend, n: int, monkeypatch) -> None:
    monkeypatch.setattr(cpu_list, "_SMALLEST_TILE", 16)
    monkeypatch.setattr(cpu_list, "_TILE_SIZE", 0)
    x, weight, threshold = batch(n, 12), batch(77, 12, seed=2), batch(77, 1, seed=3)[:, 0] + 2
    pre = x @ weight.T
    is_open = pre > threshold
    gates = backend.compact(x, weight, threshold)

    latents, tokens = torch.nonzero(is_open.T, as_tuple=True)
    assert torch.equal(gates.latent_of_entry(), latents)
    assert torch.equal(gates.tokens.long(), tokens)
    torch.testing.assert_close(gates.values, pre[tokens, latents], rtol=1e-12, atol=1e-12)
    assert torch.equal(gates.hits(), is_open.sum(0))

    by_token, of_token = torch.nonzero(is_open, as_tuple=True)
    assert torch.equal(gates.token_ptr.diff(), is_open.sum(1))
    assert torch.equal(gates.latents.long(), of_token)
    assert torch.equal(gates.tokens[gates.order].long(), by_token)
    assert (gates.n_tokens, gates.n_latents, len(gates)) == (n, 77, int(is_open.sum()))


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
def test_a_gate_exactly_at_its_threshold_is_closed(backend) -> None:
    x = torch.tensor([[1.0], [2.0], [2.0000000000000004]], dtype=torch.float64)
    gates = backend.compact(
        x, torch.ones(1, 1, dtype=torch.float64), torch.full((1,), 2.0, dtype=torch.float64)
    )
    assert gates.tokens.tolist() == [2]


def test_every_gate_open_needs_no_room_foreseen() -> None:
    """A list as long as the dense product is complete too: there is no capacity to exceed."""
    gates = cpu.compact(batch(50, 4), batch(300, 4, seed=2), torch.full((300,), -1e9, dtype=torch.float64))
    assert len(gates) == 50 * 300
    assert torch.equal(gates.latents.reshape(50, 300), torch.arange(300, dtype=torch.int32).expand(50, 300))
