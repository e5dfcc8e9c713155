"""Many linear probes in one module: a probe is a map to a few dimensions, and one product serves all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.device import make_generator
from interp.core.messages import at_least
from interp.probes.projection import columns_of, project
from interp.probes.words import WordActivations

INIT = 0.05  # weights start uniform in [-0.05, 0.05] (Hewitt and Manning 2019)


@dataclass(frozen=True)
class ProbeSpec:
    """What one probe reads, how wide it is, and the weights of the terms that it minimises.

    The Polar Probe has the distance and the angular term, the Structural Probe one of distance and depth.

    Attributes:
        layer: which of the activations' layers it reads: 0 is the embedding, l the output of the l-th block
            (`resid_post.{l - 1}`, where steering calls the layer l - 1).
        rank: its number of dimensions k.
        distance: weight of `structural_distance_loss`.
        angular: weight of `angular_loss`.
        depth: weight of `structural_depth_loss`.
        root: weight of `root_loss`.
        seed: of its initial weights.
    """

    layer: int
    rank: int = 128
    distance: float = 1.0
    angular: float = 1.0
    depth: float = 0.0
    root: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("layer", 0), ("rank", 1), ("seed", 0)):
            at_least(name, getattr(self, name), least)
            object.__setattr__(self, name, int(getattr(self, name)))  # numpy's integers aren't JSON
        for name in ("distance", "angular", "depth", "root"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)}: a weight must be a number from 0 on")
            object.__setattr__(self, name, float(getattr(self, name)))
        if not any((self.distance, self.angular, self.depth)):
            raise ValueError("distance, angular and depth are all 0: the probe would learn nothing")

    @property
    def kind(self) -> str:
        """ "polar" where it has the angular term, else "structural"."""
        return "polar" if self.angular else "structural"

    @property
    def only_depth(self) -> bool:
        """Whether its squared norms are to be depths and its distances mean nothing."""
        return bool(self.depth) and not self.distance and not self.angular

    def __str__(self) -> str:
        return f"{self.kind} probe of layer {self.layer}, rank {self.rank}"


class ProbeBank(nn.Module):
    """P probes, z_p = ((x - mean) / scale) B_p.

    Attributes:
        weight: [P d k], k the largest rank; the columns beyond a probe's rank are and stay 0.
        mean, scale: [P d], of the words that the probe was trained on.
        centre: [P k], where the roots of sentences lie (trained where the weight of the root is not 0).
        prototypes: [P R k], the mean edge of each relation type.
        relations: the R types.
    """

    weight: nn.Parameter
    mean: Tensor
    scale: Tensor
    prototypes: Tensor
    columns: Tensor
    slots: Tensor

    def __init__(
        self, specs: Sequence[ProbeSpec], d: int, layers: Sequence[int], relations: Sequence[str]
    ) -> None:
        super().__init__()
        if not specs:
            raise ValueError("specs: no probes")
        for spec in specs:
            if spec.layer not in layers:
                raise ValueError(f"layer {spec.layer} is not among the activations' layers {tuple(layers)}")
            if spec.rank > d:
                raise ValueError(f"rank={spec.rank} is more than the {d} dimensions of the activations")
        self.specs, self.relations = tuple(specs), tuple(relations)
        self.layers = tuple(sorted({spec.layer for spec in specs}))
        k = max(spec.rank for spec in specs)
        columns = torch.arange(k) < torch.tensor([spec.rank for spec in specs])[:, None]
        self.weight = nn.Parameter(torch.stack([_initial(spec, d, k) for spec in specs]))
        self.centre = nn.Parameter(torch.zeros(len(specs), k))
        self.register_buffer("columns", columns[:, None, :])
        self.register_buffer("slots", torch.tensor([self.layers.index(spec.layer) for spec in specs]))
        self._columns = columns_of(self.slots.tolist(), [spec.rank for spec in specs])
        self.register_buffer("mean", torch.zeros(len(specs), d))
        self.register_buffer("scale", torch.ones(len(specs), d))
        self.register_buffer("prototypes", torch.zeros(len(specs), len(self.relations), k))

    def __len__(self) -> int:
        return len(self.specs)

    def term_weights(self, term: str) -> Float[Tensor, " P"]:
        """One number a probe of `ProbeSpec`."""
        return torch.tensor([getattr(spec, term) for spec in self.specs], device=self.weight.device)

    def maps(self) -> Float[Tensor, "P d k"]:
        """What raw activations are multiplied by: the weights divided by the scale."""
        return self.weight * self.columns / self.scale.unsqueeze(-1)

    def forward(self, x: Float[Tensor, "L N d"]) -> Float[Tensor, "P N k"]:
        """Words in every probe's space; `x` has the activations of `self.layers`, in that order."""
        return project(x, self.weight, self.mean, self.scale, self._columns)

    @torch.no_grad()
    def transform(self, words: WordActivations) -> Float[Tensor, "P N k"]:
        """All words of some sentences in every probe's space.

        Raises ValueError where a layer is missing or the width differs.
        """
        values = self.select(words)
        device = self.weight.device
        return torch.cat([self(part.to(device, self.weight.dtype)) for part in values.split(8192, dim=1)], 1)

    def select(self, words: WordActivations) -> Float[Tensor, "L N d"]:
        """The activations of this bank's layers, in its order; a view where it reads all of them."""
        if words.d != self.weight.shape[1]:
            raise ValueError(f"activations of width {words.d} for probes of width {self.weight.shape[1]}")
        if missing := [layer for layer in self.layers if layer not in words.layers]:
            raise ValueError(f"layers {missing} are not among the activations' layers {words.layers}")
        if self.layers == words.layers:
            return words.values
        return words.values[[words.layers.index(layer) for layer in self.layers]]


def _initial(spec: ProbeSpec, d: int, k: int) -> Float[Tensor, "d k"]:
    """A probe of a lower rank starts with the first columns of one with a higher rank."""
    drawn = torch.rand(spec.rank, d, generator=make_generator(spec.seed, "probe")) * 2 * INIT - INIT
    return nn.functional.pad(drawn, (0, 0, 0, k - spec.rank)).T
