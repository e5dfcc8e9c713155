"""Texts run once, and any number of continuations of them run on their keys and values alone.

Attention is causal: whatever happens behind a text leaves what was computed for it untouched.  Where many
passes share their beginning and differ only in the last tokens, or in an edit that begins there, the beginning
needs to be run once.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.models import arguments, generation, head
from interp.models.hooks import in_eval_mode
from interp.models.inputs import ModelInputs

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


class Prefix:
    """`b` texts whose keys and values are kept; made by `LanguageModel.prefix`.

    Edits open while it is made are part of it; those open in `logits` apply to the continuations only, and
    see positions that go on counting from their text.

    Attributes:
        lengths: how many tokens each text has [b].
        token_forwards: tokens run through the model so far, padding included.
    """

    def __init__(self, model: LanguageModel, inputs: ModelInputs) -> None:
        from transformers import DynamicCache

        ids, self._mask = generation.left_padded(inputs)
        self._model = model
        model.require("cached chunks")
        if not bool(self._mask.all()):
            model.require("left padding")
        self.lengths: Int[Tensor, " b"] = self._mask.sum(-1)
        self._cache = DynamicCache(config=model.config)
        self._cache_argument = arguments.cache_argument(model.module)
        positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        with in_eval_mode(model.module, grad=False), model._decoding():
            self._run(model.backbone, ids, self._mask, positions, self._cache)
        if arguments.cached_tokens(self._cache) != ids.shape[1]:
            raise ValueError(
                f"{model.name} ({model.family}) keeps no key-value cache: run the whole texts with `logits`"
            )
        self.token_forwards = ids.numel()

    def logits(
        self, tails: Int[Tensor, "r t"], rows: Int[Tensor, " r"] | Sequence[int] | None = None
    ) -> Float[Tensor, "r t vocab"]:
        """Next-token logits at every token of the continuations, as if each had been run behind its text.

        Args:
            tails: ids; shorter ones padded on the right, with whatever ids (nothing real sees them).
            rows: which text each tail continues; None: the first for all where there is one text, else one
                tail a text.

        Raises:
            ValueError: rows that don't fit the tails or the texts.
        """
        b, device = len(self.lengths), self._mask.device
        if tails.ndim != 2 or tails.numel() == 0:
            raise ValueError(f"tails: expected a non-empty [r t] tensor of ids, got {tuple(tails.shape)}")
        if rows is None:
            rows = [0] * len(tails) if b == 1 else range(b)
        chosen = torch.as_tensor(rows, dtype=torch.long, device=device)
        if chosen.shape != tails.shape[:1] or int(chosen.min()) < 0 or int(chosen.max()) >= b:
            raise ValueError(
                f"rows: expected {len(tails)} indices (one a tail) from 0 to {b - 1} (the texts), got "
                f"{list(rows)}"
            )
        longest = int(self.lengths[chosen].max()) + tails.shape[1]
        if self._model.max_positions is not None and longest > self._model.max_positions:
            raise ValueError(
                f"tails: text and tail make {longest} tokens, but {self._model.name} has "
                f"{self._model.max_positions} positions"
            )
        tails = tails.to(device)
        mask = torch.cat([self._mask[chosen], torch.ones_like(tails)], dim=1)
        positions = self.lengths[chosen, None] + torch.arange(tails.shape[1], device=device)
        model = self._model
        with in_eval_mode(model.module, grad=False), model._decoding():
            output = self._run(model.module, tails, mask, positions, self._copy(chosen))
        self.token_forwards += tails.numel()
        return head.logits_of(output, model.name)

    def _run(self, module: Any, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Any:
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, "use_cache": True}
        return module(**given, **{self._cache_argument: cache})

    def _copy(self, rows: Int[Tensor, " r"]) -> Any:
        """The cache with one row per tail; layers replace their tensors, so a shallow copy keeps ours whole."""
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        cache.batch_select_indices(rows)
        return cache
