"""`steer`: a steering vector at work inside a model, for as long as a context is open.

Which tokens are steered is decided by a token's position in its own text, never by its index in the tensor: with a
key-value cache the model sees one token at a time, and left padding shifts every index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.messages import one_of
from interp.models.hooks import EditFunction
from interp.models.sites import Site
from interp.steering.vector import SteeringVector, as_layers

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

OPERATORS = ("add", "ablate", "ablate_then_add", "clamp")
POSITIONS = ("all", "prompt", "generation", "last")

Where = str | int | Sequence[int] | Tensor
Select = Callable[[Int[Tensor, "b s"], Bool[Tensor, "b s"]], Bool[Tensor, "b s"]]


@contextmanager
def steer(
    model: LanguageModel,
    vector: SteeringVector,
    multiplier: float | Float[Tensor, " b"] = 1.0,
    *,
    layers: int | Sequence[int] | None = None,
    positions: Where = "all",
    operator: str = "add",
    normalize: bool = False,
) -> Iterator[None]:
    """Steer every pass of the model, `generate` included, while the context is open.

    Contexts nest, so several vectors act at once; the model's weights are never touched, and the hooks are gone
    afterwards whatever happens inside. Activations read meanwhile are those after steering.

    Args:
        multiplier: λ, one number or one per row of the batch.
        layers: some of the vector's layers (negative ones count from the end); None: all of them.
        positions: which tokens of each text:
            - "all";
            - "prompt": the tokens of a pass that begins at position 0, and none that is decoded after it;
            - "generation": the last token of such a pass (it predicts the first new token), and all that are
              decoded after it;
            - "last": only the last token of such a pass;
            - an integer t, or one per row: the tokens from position t on. Unlike the names this means the same
              tokens whether a text is decoded step by step or read in one pass;
            - a Boolean mask [b s] (or [1 s]) over positions in the text; what lies beyond it is left alone.
        operator: with p the projection h·v/‖v‖ of an activation h,
            - "add": h + λ v;
            - "ablate": h - λ p v/‖v‖, which removes the direction at λ = 1;
            - "ablate_then_add": h - p v/‖v‖ + λ v, so that the projection becomes λ ‖v‖;
            - "clamp": the same, but only where p is short of λ ‖v‖ (for λ < 0: beyond it).
        normalize: give each steered token back the norm it had.

    Raises:
        ValueError: a layer that the vector or the model lacks, another width, an unknown operator or name of
            positions, λ that is not finite, or a zero direction where the operator needs one; during a pass, as
            many multipliers, starts or mask rows as the batch does not have.
    """
    one_of("operator", operator, OPERATORS)
    multipliers = torch.as_tensor(multiplier, dtype=torch.float32)
    if multipliers.ndim > 1 or not torch.isfinite(multipliers).all():
        raise ValueError(f"multiplier = {multiplier}: give a finite number, or one per row of the batch")
    select = _selection(positions)
    edits: dict[Site | str, EditFunction] = {}
    for layer in _layers(model, vector, layers):
        site = model.check_site(Site(vector.site, layer))
        if model.width(site) != vector.d:
            raise ValueError(
                f"the vector has width {vector.d}, {model.name} at {site} has {model.width(site)}: it was made for "
                "another model"
            )
        direction = vector[layer].detach().float()
        if operator != "add" and not direction.any():
            raise ValueError(
                f"the direction of layer {layer} is zero: operator={operator!r} needs a direction"
            )
        edits[site] = _edit(model, direction, multipliers, select, operator, normalize)
    with model.edit(edits):
        yield


def _layers(model: LanguageModel, vector: SteeringVector, layers: int | Sequence[int] | None) -> list[int]:
    if layers is None:
        return list(vector.layers)
    listed = as_layers(layers)
    if not listed:
        raise ValueError("layers=[]: give at least one, or None for all of the vector's layers")
    absolute = [layer + model.n_layers if layer < 0 else layer for layer in listed]
    if lacking := [layer for layer, n in zip(listed, absolute, strict=True) if n not in vector.directions]:
        raise ValueError(
            f"layers={layers}: the vector has no layer {', '.join(map(str, lacking))}; it has "
            f"{', '.join(map(str, vector.layers))}"
        )
    return absolute


def _selection(where: Where) -> Select:
    """A function that tells which tokens of a pass are meant, from their positions and which are not padding."""
    if isinstance(where, str):
        one_of("positions", where, POSITIONS)
        return lambda positions, real: _named(where, positions, real)
    given = torch.as_tensor(where)
    if given.dtype == torch.bool:
        if given.ndim != 2:
            raise ValueError(f"positions: a mask must be [b s], got shape {tuple(given.shape)}")
        return lambda positions, real: _masked(given, positions) & real
    if given.is_floating_point() or given.ndim > 1:
        raise ValueError(
            f"positions = {where}: give {', '.join(POSITIONS)}, an integer, one integer per row or a Boolean mask"
        )
    if given.numel() and int(given.min()) < 0:
        raise ValueError(f"positions = {where}: positions count from 0 at the first token of the text")
    return lambda positions, real: (positions >= _per_row("positions", given, positions)[:, None]) & real


def _named(name: str, positions: Int[Tensor, "b s"], real: Bool[Tensor, "b s"]) -> Bool[Tensor, "b s"]:
    if name == "all":
        return real
    begins = ((positions == 0) & real).any(dim=1, keepdim=True)
    if name == "prompt":
        return real & begins
    last = real & (positions == positions.masked_fill(~real, -1).amax(dim=1, keepdim=True))
    return last & begins if name == "last" else torch.where(begins, last, real)


def _masked(mask: Bool[Tensor, "b s"], positions: Int[Tensor, "b s"]) -> Bool[Tensor, "b s"]:
    rows = mask.to(positions.device)
    if len(rows) not in (1, len(positions)):
        raise ValueError(f"positions: the mask has {len(rows)} rows, the batch {len(positions)}")
    inside = positions < rows.shape[1]
    return rows.expand(len(positions), -1).gather(1, positions.clamp(max=rows.shape[1] - 1)) & inside


def _per_row(name: str, values: Tensor, positions: Int[Tensor, "b s"]) -> Tensor:
    """One value for each row of the batch."""
    values, b = values.to(positions.device).reshape(-1), len(positions)
    if len(values) not in (1, b):
        raise ValueError(
            f"{name}: {len(values)} values for a batch of {b} rows; give one per row, or one for all"
        )
    return values.expand(b)


def _edit(
    model: LanguageModel,
    direction: Float[Tensor, " d"],
    multipliers: Tensor,
    select: Select,
    operator: str,
    normalize: bool,
) -> EditFunction:
    idle = operator == "add" and not (multipliers.any() and direction.any())

    def edit(act: Float[Tensor, "b s d"], positions: Int[Tensor, "b s"]) -> Tensor | None:
        scale = _per_row("multiplier", multipliers, positions)[:, None, None].to(act.device)
        if idle:
            return None
        positions = positions.to(act.device)
        chosen = select(positions, model.real_tokens().to(act.device))
        if not chosen.any():
            return None
        v = direction.to(act.device)
        if operator == "add" and not normalize:
            new = act + (scale * v).to(act.dtype)
        else:
            new = _steered(act.float(), v, scale, operator)
            if normalize:
                before, after = (
                    torch.linalg.vector_norm(x, dim=-1, keepdim=True) for x in (act.float(), new)
                )
                new = new * torch.where(after > 0, before / after, 1.0)
            new = new.to(act.dtype)
        return torch.where(chosen[..., None], new, act)

    return edit


def _steered(h: Float[Tensor, "b s d"], v: Float[Tensor, " d"], scale: Tensor, operator: str) -> Tensor:
    if operator == "add":
        return h + scale * v
    norm = v.norm()
    unit = v / norm
    projection = (h @ unit)[..., None]
    if operator == "ablate":
        return h - scale * projection * unit
    wanted = scale * norm
    if operator == "clamp":
        wanted = torch.where(scale < 0, torch.minimum(projection, wanted), torch.maximum(projection, wanted))
    return h + (wanted - projection) * unit
