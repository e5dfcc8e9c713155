"""Sparse autoencoders on the MLP outputs of chosen layers, by the paper's recipe."""

from __future__ import annotations

from typing import Any

# Marks et al. 2024: tied, squared error averaged over dimensions, Adam at a constant rate, biases from zero.
RECIPE: dict[str, Any] = {
    "architecture": "tied",
    "mse_reduction": "mean",
    "lr": 1e-3,
    "beta1": 0.9,
    "b_dec_init": "zero",
    "l1_warmup": 0.0,
    "lr_warmup": 0.0,
    "lr_decay": 0.0,
}
