"""Distances between parameters, by closed form, and the layers chosen."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.divergence import parameter_divergence, select_layers
from tests.models.tiny import tiny_model


def tuned(base: LanguageModel, change: dict[int, float]) -> LanguageModel:
    """Every entry of a block's parameters moved by a number."""
    module = copy.deepcopy(base.module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            for layer, by in change.items():
                if f".{layer}." in name:
                    parameter += by
            if "embed" in name or "wte" in name:
                parameter += 9.0  # belongs to no block
    return load_model(module)


def sizes(model: LanguageModel, layer: int) -> list[int]:
    return [p.numel() for name, p in model.module.named_parameters() if f".{layer}." in name]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neo"])
def test_sum_and_norm_by_closed_form(family: str) -> None:
    base = load_model(tiny_model(family))
    after = tuned(base, {1: 0.5})
    counts = sizes(base, 1)
    found = parameter_divergence(base, after)
    assert list(found) == list(range(base.n_layers))
    assert found[1] == pytest.approx(sum(0.5 * n**0.5 for n in counts), rel=1e-5)
    assert found[0] == found[2] == 0.0
    assert parameter_divergence(base, after, reduce="norm")[1] == pytest.approx(
        0.5 * sum(counts) ** 0.5, rel=1e-5
    )


def test_relative_divides_by_the_base() -> None:
    base = load_model(tiny_model("llama"))
    module = copy.deepcopy(base.module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if ".2." in name:
                parameter *= 1.25
    for reduce in ("sum", "norm"):
        found = parameter_divergence(base, load_model(module), reduce=reduce, relative=True)
        assert found[2] == pytest.approx(0.25, rel=1e-5)


def test_half_precision_is_compared_in_float32() -> None:
    base = load_model(tiny_model("llama"))
    after = load_model(copy.deepcopy(base.module).half())
    expected = sum(
        float((p.half().float() - p).detach().norm())
        for name, p in base.module.named_parameters()
        if ".0." in name
    )
    assert parameter_divergence(base, after)[0] == pytest.approx(expected, rel=1e-4)


def test_layers_are_ordered_as_numbers() -> None:
    base = load_model(tiny_model("llama", num_hidden_layers=12))
    found = parameter_divergence(base, tuned(base, {10: 0.3, 11: 0.2, 2: 0.1}))
    assert list(found) == list(range(12))
    assert select_layers(found, 3) == (2, 10, 11)
    assert select_layers(found, 2) == (10, 11)


def test_selection() -> None:
    divergence = {0: 3.0, 1: 5.0, 2: 1.0, 3: 4.0}
    assert select_layers(divergence, 2) == (1, 3)
    assert select_layers(divergence, 2, "lowest") == (0, 2)
    assert select_layers({0: 1.0, 1: 1.0, 2: 1.0}, 1) == (2,)
    with pytest.raises(ValueError, match="4 layers"):
        select_layers(divergence, 5)
    with pytest.raises(ValueError, match="how"):
        select_layers(divergence, 1, "middle")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [({"num_hidden_layers": 2}, "no parameter"), ({"intermediate_size": 64}, "has shape")],
)
def test_other_models_are_refused(overrides: dict[str, Any], message: str) -> None:
    base, other = load_model(tiny_model("llama")), load_model(tiny_model("llama", **overrides))
    with pytest.raises(ValueError, match=message):
        parameter_divergence(base, other)


def test_an_adapter_must_be_merged() -> None:
    base = load_model(tiny_model("llama"))
    adapted = copy.deepcopy(base.module)
    adapted.model.layers[0].mlp.lora_A = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="merge"):
        parameter_divergence(base, load_model(adapted))
