"""A model whose steerability is known in closed form: behind its last block the logits are linear in the residual."""

from __future__ import annotations

from typing import Any

import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.vector import SteeringVector
from tests.models.tiny import tiny_model

LAST = 2
PERSONA = ("Be up.", "Be down.")


def linear_model(tokenizer: Any) -> LanguageModel:
    """A tiny llama without its final norm."""
    module = tiny_model("llama")
    module.model.norm = torch.nn.Identity()
    return load_model(module, tokenizer=tokenizer)


def pairs(first: int, n: int) -> PairDataset:
    """Answers " up" and " do": the tokens part at "u" and "d"."""
    made = tuple(ContrastivePair(f"Item {i}:", " up", " do", read_index=-1) for i in range(first, first + n))
    return PairDataset(made, "up", PERSONA)


def slope(model: LanguageModel, vector: SteeringVector) -> float:
    """What every sample of `pairs` must show under a vector at the last layer."""
    up, down = (model.tokenizer.encode(letter)[0] for letter in "ud")
    weight = model.module.lm_head.weight.detach()
    return float(vector[LAST] @ (weight[up] - weight[down]))
