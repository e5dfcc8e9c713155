"""From token ids and masks to the arguments of a causal model's forward pass.

Three facts decide what is passed (transformers 5.24).  Right padding needs no mask, since real tokens never
look ahead. Left padding needs the mask *and* position ids counted from it, or learned positions are wrong.
Isolating documents packed into one row needs an explicit 4-D mask: position ids that restart isolate only
under special conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PAD_SEGMENT = -1


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of `b` texts padded to the same length `s`.

    `attention_mask` is 1 at real tokens; `position_ids` count the tokens of each text.
    """

    input_ids: Int[Tensor, "b s"]
    attention_mask: Int[Tensor, "b s"]
    position_ids: Int[Tensor, "b s"]

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def to(self, device: torch.device | str) -> TokenBatch:
        return TokenBatch(*(t.to(device) for t in (self.input_ids, self.attention_mask, self.position_ids)))

    def rows(self) -> Iterator[list[int]]:
        """The real token ids, text by text."""
        for ids, mask in zip(self.input_ids, self.attention_mask.bool(), strict=True):
            yield ids[mask].tolist()


@dataclass(frozen=True)
class ModelInputs:
    """Validated inputs; `None` means "not needed" (no padding, no segments)."""

    input_ids: Int[Tensor, "b s"]
    position_ids: Int[Tensor, "b s"]
    attention_mask: Int[Tensor, "b s"] | None
    segment_ids: Int[Tensor, "b s"] | None
    counted_positions: bool

    def forward_arguments(self, config: Any, dtype: torch.dtype, *, known: bool = True) -> dict[str, Any]:
        """Keyword arguments of the model's forward pass.

        Where the architecture is not `known` to be causal every padding is masked, and positions that it would
        count by itself are left to it: not every architecture counts them from 0.
        """
        arguments: dict[str, Any] = {"input_ids": self.input_ids}
        if known or not self.counted_positions:
            arguments["position_ids"] = self.position_ids
        if self.segment_ids is not None:
            arguments["attention_mask"] = segment_attention_mask(self.segment_ids, config, dtype)
        elif self.attention_mask is not None and not (known and right_padded(self.attention_mask)):
            arguments["attention_mask"] = self.attention_mask
        elif not self.counted_positions:
            # Without a mask transformers takes restarting positions for packed documents.
            arguments["attention_mask"] = torch.ones_like(self.input_ids)
        return arguments

    def real_tokens(self) -> Bool[Tensor, "b s"]:
        """Which tokens are not padding."""
        real = torch.ones_like(self.input_ids, dtype=torch.bool)
        if self.segment_ids is not None:
            real &= self.segment_ids != PAD_SEGMENT
        if self.attention_mask is not None:
            real &= self.attention_mask.bool()
        return real

    def target_mask(self) -> Bool[Tensor, "b s-1"]:
        """Where position t has a next token to predict: both real, both in the same segment."""
        ids = self.input_ids
        if self.segment_ids is not None:
            here, following = self.segment_ids[:, :-1], self.segment_ids[:, 1:]
            valid = (here == following) & (here != PAD_SEGMENT)
        else:
            valid = torch.ones(ids.shape[0], ids.shape[1] - 1, dtype=torch.bool, device=ids.device)
        if self.attention_mask is not None:
            real = self.attention_mask.bool()
            valid = valid & real[:, :-1] & real[:, 1:]
        return valid


def prepare_inputs(
    tokens: Tensor | TokenBatch,
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    segment_ids: Tensor | None,
    *,
    device: torch.device,
    d_vocab: int | None,
    max_positions: int | None,
) -> ModelInputs:
    """Check shapes and ranges, move to `device`, and fill in what follows from the rest.

    `max_positions` is the number of learned positions, None where positions are rotary.

    Raises:
        TypeError: tokens are not integers.
        ValueError: a wrong shape, an id outside the vocabulary, a position beyond the learned ones.
    """
    if isinstance(tokens, TokenBatch):
        attention_mask = tokens.attention_mask if attention_mask is None else attention_mask
        position_ids = tokens.position_ids if position_ids is None and segment_ids is None else position_ids
        tokens = tokens.input_ids
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        shown = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(f"tokens: expected a tensor of integer ids [b s], a TokenBatch or text, got {shown}")
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise ValueError(f"tokens: expected a non-empty [b s] tensor, got shape {tuple(tokens.shape)}")
    companions = {"attention_mask": attention_mask, "position_ids": position_ids, "segment_ids": segment_ids}
    for name, tensor in companions.items():
        if tensor is not None and tensor.shape != tokens.shape:
            raise ValueError(
                f"{name}: shape {tuple(tensor.shape)} differs from tokens' {tuple(tokens.shape)}"
            )
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or (d_vocab is not None and high >= d_vocab):
        raise ValueError(
            f"tokens: ids run from {low} to {high}, the vocabulary from 0 to {(d_vocab or 0) - 1}"
        )
    if attention_mask is not None and bool(attention_mask.all()):
        attention_mask = None

    arange = torch.arange(tokens.shape[1]).expand(tokens.shape)
    if position_ids is None:
        position_ids = _positions(arange, attention_mask, segment_ids)
    counted = bool((position_ids.cpu() == arange).all())
    if max_positions is not None and int(position_ids.max()) >= max_positions:
        raise ValueError(
            f"tokens: position {int(position_ids.max())} is beyond the {max_positions} that this model "
            "has learned; split the text into shorter contexts"
        )

    def put(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(device=device, dtype=torch.long)

    ids, positions = (
        tokens.to(device=device, dtype=torch.long),
        position_ids.to(device=device, dtype=torch.long),
    )
    return ModelInputs(ids, positions, put(attention_mask), put(segment_ids), counted)


def _positions(arange: Tensor, attention_mask: Tensor | None, segment_ids: Tensor | None) -> Tensor:
    if segment_ids is not None:
        starts = torch.ones_like(segment_ids, dtype=torch.bool)
        starts[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
        arange = arange.to(segment_ids.device)
        return arange - torch.where(starts, arange, 0).cummax(-1).values
    if attention_mask is None or right_padded(attention_mask):
        return arange
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


def right_padded(attention_mask: Int[Tensor, "b s"]) -> bool:
    """Whether no text of the batch has padding before it."""
    return bool((attention_mask[:, 1:] <= attention_mask[:, :-1]).all())


def segment_attention_mask(
    segment_ids: Int[Tensor, "b s"], config: Any, dtype: torch.dtype
) -> Float[Tensor, "b 1 s s"] | dict[str, Tensor]:
    """The additive mask in which a token sees the earlier tokens of its own segment only.

    A model with sliding-window layers gets what its code expects: one windowed mask, or one mask per layer
    type. Padding (segment -1) attends to padding, so that no row of the softmax is empty.
    """
    s = segment_ids.shape[1]
    index = torch.arange(s, device=segment_ids.device)
    distance = index[:, None] - index[None, :]
    visible = (segment_ids[:, :, None] == segment_ids[:, None, :]) & (distance >= 0)

    def additive(seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill_(~seen, torch.finfo(dtype).min).unsqueeze(1)

    layer_types = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    if layer_types is not None:
        masks = {"full_attention": additive(visible)}
        if "sliding_attention" in layer_types and window is not None:
            masks["sliding_attention"] = additive(visible & (distance < window))
        return masks if _takes_masks_by_layer_type(config) else masks["full_attention"]
    return additive(visible if window is None else visible & (distance < window))


def _takes_masks_by_layer_type(config: Any) -> bool:
    return config.model_type in ("qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3", "olmo3")
