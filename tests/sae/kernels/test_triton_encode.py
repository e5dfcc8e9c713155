"""The Triton encoder lists exactly the open gates, in order, whatever the tiles and the room."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

import tests.sae.kernels.triton_cases  # noqa: F401  (checks that the interpreter is on)
from interp.sae.kernels import reference
from interp.sae.kernels import triton as backend
from interp.sae.kernels.lists import OpenGates
from interp.sae.kernels.triton import encode
from interp.sae.kernels.triton.launch import product_precision
from tests.sae.kernels.cases import batch

SHAPES = [(1, 1, 1), (5, 3, 7), (63, 20, 65), (64, 16, 64), (129, 33, 300), (2, 8192, 70)]


@pytest.fixture(autouse=True)
def _forget_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_room", {})


def problem(n: int, d: int, F: int, shift: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers, so that float32 products are exact and the list must be exactly right."""
    x = (3 * batch(n, d, dtype=torch.float32)).round()
    weight = (3 * batch(F, d, dtype=torch.float32, seed=2)).round()
    threshold = ((batch(F, 1, dtype=torch.float32, seed=3)[:, 0] + shift) * 9 * d**0.5).round()
    return x, weight, threshold


def assert_same_list(ours: OpenGates, theirs: OpenGates) -> None:
    for field in fields(OpenGates):
        mine, wanted = getattr(ours, field.name), getattr(theirs, field.name)
        assert mine.dtype == wanted.dtype, field.name
        assert torch.equal(mine, wanted), field.name


@pytest.mark.parametrize(("n", "d", "F"), SHAPES)
def test_list_equals_the_references(n: int, d: int, F: int) -> None:
    inputs = problem(n, d, F)
    gates = backend.compact(*inputs)
    assert_same_list(gates, reference.compact(*inputs))
    pre = inputs[0].double() @ inputs[1].double().T
    assert torch.equal(gates.hits(), (pre > inputs[2]).sum(0))


def test_every_tile_shape_gives_the_same_list() -> None:
    inputs = problem(37, 40, 150)
    expected = reference.compact(*inputs)
    for tile in (*encode.TILES.values(), replace(encode.TILES["ieee"], parts=4, group=1)):
        assert_same_list(backend.compact(*inputs, tile=tile), expected)


def test_a_gate_exactly_at_its_threshold_is_closed() -> None:
    x = torch.tensor([[1.0], [2.0], [3.0]])
    gates = backend.compact(x, torch.ones(1, 1), torch.full((1,), 2.0))
    assert gates.tokens.tolist() == [2]


def test_a_list_longer_than_its_room_is_made_again_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = problem(20, 8, 100, shift=-10.0)
    monkeypatch.setattr(encode, "FIRST_ROOM", 1)
    rooms = []
    scan = encode._scan
    monkeypatch.setattr(encode, "_scan", lambda *a: rooms.append(a[3]) or scan(*a))
    gates = backend.compact(*inputs)
    assert len(gates) == 2000
    assert rooms == [20, 2000]
    assert_same_list(gates, reference.compact(*inputs))
    backend.compact(*inputs)
    assert rooms[2:] == [(16 + 150) * 20]  # remembered, with half as much again to spare


def test_an_empty_batch_gives_an_empty_list() -> None:
    inputs = problem(0, 6, 5)
    assert_same_list(backend.compact(*inputs), reference.compact(*inputs))


def test_no_open_gate_gives_an_empty_list() -> None:
    inputs = problem(9, 6, 11, shift=100.0)
    gates = backend.compact(*inputs)
    assert len(gates) == 0
    assert_same_list(gates, reference.compact(*inputs))


def test_not_a_number_opens_no_gate() -> None:
    x, weight, threshold = problem(5, 4, 9)
    x[2] = float("nan")
    gates = backend.compact(x, weight, threshold)
    assert int(gates.token_ptr.diff()[2]) == 0
    assert len(gates) == int(((x @ weight.T) > threshold).sum()) > 0


def test_order_of_tiles_leaves_no_trace() -> None:
    x, weight, threshold = problem(30, 8, 90)
    scan = encode.entries_over(encode.Limits(threshold), x, weight)
    shuffled = torch.randperm(len(scan.values), generator=torch.Generator().manual_seed(0))
    other = replace(
        scan,
        tokens=scan.tokens[shuffled],
        latents=scan.latents[shuffled],
        values=scan.values[shuffled],
    )
    assert_same_list(encode.in_order(other), encode.in_order(scan))


def test_sort_keys_of_64_bits_give_the_same_list(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = problem(30, 8, 90)
    monkeypatch.setattr(encode, "LARGEST_SHORT_KEY", 0)
    assert_same_list(backend.compact(*inputs), reference.compact(*inputs))


def test_autocast_runs_the_product_in_bfloat16_and_sums_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "LATENTS_AT_ONCE", 64)  # the weights' narrow copy is made piece by piece
    x, weight = batch(9, 40, dtype=torch.float32), batch(150, 40, dtype=torch.float32, seed=2)
    threshold = torch.full((150,), 9.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert product_precision(x.device) == "bf16"
        gates = backend.compact(x, weight, threshold)
    assert product_precision(x.device) == "ieee"
    rounded = reference.compact(x.bfloat16().float(), weight.bfloat16().float(), threshold)
    assert torch.equal(gates.tokens, rounded.tokens)
    assert torch.equal(gates.latent_ptr, rounded.latent_ptr)
    torch.testing.assert_close(gates.values, rounded.values, rtol=1e-5, atol=1e-5)
    assert (
        float((gates.values - (x @ weight.T)[gates.tokens.long(), gates.latent_of_entry()]).abs().max())
        > 1e-3
    )


def test_tf32_follows_torchs_setting() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert product_precision(torch.device("cpu")) == "tf32"
        inputs = problem(9, 16, 30)  # small integers are exact in TF32
        assert_same_list(backend.compact(*inputs), reference.compact(*inputs))
    finally:
        torch.set_float32_matmul_precision(before)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"float32.*float64.*backend='dense'"):
        backend.compact(*(t.double() for t in problem(3, 4, 5)))


def test_a_width_that_no_program_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="width d=16385"):
        backend.compact(torch.zeros(1, 16385), torch.zeros(2, 16385), torch.zeros(2))
