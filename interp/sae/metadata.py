"""What an SAE was trained on and how: saved beside its weights, so that it can be used without guessing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SAEMetadata:
    """Where a dictionary's activations come from and how it was trained. None means unknown.

    Attributes:
        model_name, model_fingerprint: the language model, as `LanguageModel.name` and `.fingerprint()`.
        site: as `str(Site)`, e.g. ``"resid_post.15"``; a transcoder's input. None, too, where there are several.
        sites: of a transcoder its input and output, of a crosscoder all; empty where there is only one.
        activation_scale: c; the weights were trained on c times the activations.
        activation_scales: that of each of `sites`; empty where there is only one.
        activation_scale_folded: whether c is in the weights already. An SAE on which it isn't expects scaled
            activations; `load_sae` folds it, so that what it returns always takes raw ones.
        normalization: how c was found: ``"mean_norm"``, ``"rms"`` or ``"none"``.
        skip_positions: positions in a document that were left out of training.
        special_tokens_excluded: whether special tokens were.
        max_norm: rows of a larger norm were left out of training (attention sinks off position 0).
        context_size: tokens per context of the language model.
        text: what identifies the training text.
        training_dtype: of the parameters.
        tokens, steps, batch_size, lr: of the run; tokens counts those served, repetitions included.
        l1_coefficient, loss: sparsity weight and the loss's other choices by name.
        seed, library_version: of the run.
        extra: anything else, e.g. the metadata of another library's file.
    """

    model_name: str | None = None
    model_fingerprint: dict[str, Any] | None = None
    site: str | None = None
    sites: tuple[str, ...] = ()
    activation_scale: float = 1.0
    activation_scales: tuple[float, ...] = ()
    activation_scale_folded: bool = True
    normalization: str = "none"
    skip_positions: tuple[int, ...] = (0,)
    special_tokens_excluded: bool | None = None
    max_norm: float | None = None
    context_size: int | None = None
    text: Any = None
    training_dtype: str | None = None
    tokens: int | None = None
    steps: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    l1_coefficient: float | None = None
    loss: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    library_version: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.activation_scale > 0:
            raise ValueError(f"activation_scale = {self.activation_scale} must be positive")
        if not all(c > 0 for c in self.activation_scales):
            raise ValueError(f"activation_scales = {self.activation_scales} must be positive")
