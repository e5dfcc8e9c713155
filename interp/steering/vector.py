"""`SteeringVector`: a direction per layer, its arithmetic, and its two files."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.device import make_generator
from interp.core.files import atomic_write, read_json, read_sealed_json, sha256_file, write_sealed_json
from interp.core.tensor_files import read_tensors, write_tensors
from interp.models.sites import BLOCK_SITES

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.steering.quality import QualityReport

SCHEMA_VERSION = 2  # 1 had no checksum of what steering.json says
CONFIG, WEIGHTS = "steering.json", "vectors.safetensors"


def as_layer(layer: Any, name: str = "layer") -> int:
    """A layer as a plain integer; numpy's and torch's are taken. Raises TypeError for anything else."""
    if not isinstance(layer, bool):
        with suppress(TypeError):  # whole numbers only: 1.5 is no layer, and neither is "1"
            return operator.index(layer)
    raise TypeError(f"{name}={layer!r} is a {type(layer).__name__}; give an integer")


def as_layers(layers: Any) -> list[int]:
    """One layer, or several in any sequence, as plain integers. Raises TypeError for anything else."""
    try:
        listed = [layers] if isinstance(layers, str) else list(layers)
    except TypeError:
        listed = [layers]
    return [as_layer(layer) for layer in listed]


@dataclass(eq=False)
class SteeringVector:
    """A direction [d] for each of some layers.

    Attributes:
        directions: by layer, in float32 unless given otherwise; sorted by layer.
        meta: how it was made, as JSON values. ``meta["site"]`` is the name of the site in the block where the
            directions live, "resid_post" where not given.

    Raises:
        ValueError: no direction, one that is not a finite vector, different widths, a negative layer, or an
            unknown site.
    """

    directions: dict[int, Float[Tensor, " d"]]
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.directions:
            raise ValueError("directions = {}: give at least one layer's direction")
        layers = {as_layer(layer): direction for layer, direction in self.directions.items()}
        self.directions = {layer: layers[layer] for layer in sorted(layers)}
        self.meta = {"site": "resid_post", **self.meta}
        if self.site not in BLOCK_SITES:
            raise ValueError(
                f"meta['site'] = {self.site!r} is no site of a block; choose {', '.join(BLOCK_SITES)}"
            )
        for layer, direction in self.directions.items():
            if layer < 0:
                raise ValueError(f"directions: the layer {layer} must be an integer from 0 on")
            if direction.ndim != 1 or not direction.is_floating_point():
                raise ValueError(
                    f"the direction of layer {layer} is {direction.dtype} of shape {tuple(direction.shape)}; "
                    "give a floating-point vector [d]"
                )
            if not torch.isfinite(direction).all():
                raise ValueError(f"the direction of layer {layer} holds NaN or infinite values")
        widths = {layer: len(direction) for layer, direction in self.directions.items()}
        if len(set(widths.values())) > 1:
            raise ValueError(f"directions of different widths: {widths}")

    @property
    def site(self) -> str:
        return self.meta["site"]

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self.directions)

    @property
    def d(self) -> int:
        """The width."""
        return len(next(iter(self.directions.values())))

    def __getitem__(self, layer: int) -> Float[Tensor, " d"]:
        if layer not in self.directions:
            raise KeyError(f"this vector has no layer {layer}; it has {', '.join(map(str, self.layers))}")
        return self.directions[layer]

    def __repr__(self) -> str:
        layers = f"layer {self.layers[0]}" if len(self.layers) == 1 else f"{len(self.layers)} layers"
        made = ", ".join(f"{k}={self.meta[k]!r}" for k in ("dataset", "method", "n_pairs") if k in self.meta)
        return f"SteeringVector({self.site}, {layers}, d {self.d}{', ' if made else ''}{made})"

    def only(self, *layers: int) -> SteeringVector:
        """The same vector at some of its layers."""
        return SteeringVector({layer: self[layer] for layer in as_layers(layers)}, self.meta)

    def norms(self) -> dict[int, float]:
        return {layer: float(direction.float().norm()) for layer, direction in self.directions.items()}

    # Arithmetic; a layer that only one of two vectors has counts as zero in the other.

    def __add__(self, other: SteeringVector) -> SteeringVector:
        self._check_fits(other)
        zero = torch.zeros(self.d)
        layers = (*self.layers, *(layer for layer in other.layers if layer not in self.directions))
        return SteeringVector(
            {n: self.directions.get(n, zero) + other.directions.get(n, zero) for n in layers},
            self._shared(other),
        )

    def __sub__(self, other: SteeringVector) -> SteeringVector:
        return self + -other

    def __mul__(self, factor: float) -> SteeringVector:
        factor = float(factor)
        return SteeringVector({n: v * factor for n, v in self.directions.items()}, self._scaled(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> SteeringVector:
        return self * (1 / float(divisor))

    def __neg__(self) -> SteeringVector:
        return self * -1.0

    def normalize(self, to: float | SteeringVector = 1.0) -> SteeringVector:
        """Rescaled to a norm, or layer by layer to the norms of another vector.

        Raises ValueError where a direction is zero, or where the other vector lacks a layer.
        """
        norms, wanted = self.norms(), {}
        for layer in self.layers:
            if norms[layer] == 0:
                raise ValueError(f"the direction of layer {layer} is zero: it can't be rescaled")
            wanted[layer] = float(to[layer].float().norm()) if isinstance(to, SteeringVector) else float(to)
        return SteeringVector({n: v * (wanted[n] / norms[n]) for n, v in self.directions.items()}, self.meta)

    def cosine(self, other: SteeringVector) -> dict[int, float]:
        """Cosine at each layer that both have; NaN where one of the two is zero."""
        self._check_fits(other)
        shared = [layer for layer in self.layers if layer in other.directions]
        if not shared:
            raise ValueError(f"no layer in common: {self.layers} and {other.layers}")
        result = {}
        for layer in shared:
            a, b = (vector[layer].double().cpu() for vector in (self, other))
            result[layer] = float(a @ b / (a.norm() * b.norm()))
        return result

    def quality(self) -> QualityReport:
        """How far the pairs that this vector was extracted from agree on it, layer by layer."""
        if "quality" not in self.meta:
            raise ValueError(
                "this vector was not extracted from pairs (or is a sum of several): it has no quality"
            )
        from interp.steering.quality import QualityReport

        report = QualityReport.from_dict(self.meta["quality"])
        return QualityReport({layer: report[layer] for layer in self.layers if layer in report.layers})

    def random_like(self, seed: int = 0) -> SteeringVector:
        """Random directions of the same norms: the baseline that a vector has to beat."""
        generator = make_generator(seed, "random_like")
        norms = self.norms()
        drawn = {layer: torch.randn(self.d, generator=generator) for layer in self.layers}
        meta = {"site": self.site, "method": "random", "seed": seed, "pairs": []}
        return SteeringVector({n: v * (norms[n] / v.norm()) for n, v in drawn.items()}, meta)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> SteeringVector:
        return self._each(lambda direction: direction.to(device=device, dtype=dtype))

    def apply(
        self, model: LanguageModel, multiplier: float | Tensor = 1.0, **how: Any
    ) -> AbstractContextManager[None]:
        """Steer `model` while the context is open; see :func:`interp.steering.apply.steer`."""
        from interp.steering.apply import steer

        return steer(model, self, multiplier, **how)

    # Files.

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write ``vectors.safetensors`` and then ``steering.json``, which names its checksum and has its own."""
        folder = Path(folder)
        with atomic_write(folder / WEIGHTS) as temporary:
            checksum = write_tensors(temporary, {f"layer.{n}": v for n, v in self.directions.items()})
        config = {
            "schema_version": SCHEMA_VERSION,
            "layers": list(self.layers),
            "d": self.d,
            "sha256": checksum,
            "meta": self.meta,
        }
        write_sealed_json(folder / CONFIG, config)
        return folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> SteeringVector:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is broken, of a newer schema, or the two don't belong together; it is named.
        """
        config_path, weights_path = Path(folder) / CONFIG, Path(folder) / WEIGHTS
        for path in (config_path, weights_path):
            if not path.is_file():
                raise FileNotFoundError(
                    f"{path} is missing: {folder} is no steering vector's folder, or not all of it"
                )
        config = read_json(config_path, dict, ("schema_version", "layers", "sha256", "meta"))
        version = config["schema_version"]
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            raise ValueError(
                f"{config_path} has schema_version {version!r}, this library reads up to {SCHEMA_VERSION}: update "
                "interp-toolkit"
            )
        if version > 1:
            read_sealed_json(config_path)
        if sha256_file(weights_path) != config["sha256"]:
            raise ValueError(
                f"{weights_path} is corrupt (its SHA-256 is not the one in {CONFIG}): copy it again"
            )
        layers, tensors = config["layers"], read_tensors(weights_path)
        if not isinstance(layers, list) or {f"layer.{layer}" for layer in layers} != set(tensors):
            raise ValueError(
                f"{config_path} names the layers {layers}, {weights_path} has {', '.join(tensors)}"
            )
        try:
            return cls({layer: tensors[f"layer.{layer}"].to(device) for layer in layers}, config["meta"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{config_path}: {error}") from error

    def _each(self, change: Callable[[Tensor], Tensor]) -> SteeringVector:
        return SteeringVector({layer: change(v) for layer, v in self.directions.items()}, self.meta)

    def _check_fits(self, other: SteeringVector) -> None:
        if not isinstance(other, SteeringVector):
            raise TypeError(f"expected a SteeringVector, got a {type(other).__name__}")
        if other.d != self.d:
            raise ValueError(f"widths differ: {self.d} and {other.d}; the vectors are of different models")
        if other.site != self.site:
            raise ValueError(f"sites differ: {self.site} and {other.site}")

    def _shared(self, other: SteeringVector) -> dict[str, Any]:
        """What is true of both; a sum has seen the pairs of either."""
        meta = {k: v for k, v in self.meta.items() if k in other.meta and other.meta[k] == v}
        if "pairs" in self.meta and "pairs" in other.meta:
            meta["pairs"] = list(dict.fromkeys([*self.meta["pairs"], *other.meta["pairs"]]))
        return meta

    def _scaled(self, factor: float) -> dict[str, Any]:
        """The metadata of `factor` times this vector: agreement with the pairs turns with its sign."""
        meta = dict(self.meta)
        if "activation" in meta:
            meta["activation"] = factor * meta["activation"]
        if "quality" in meta and factor <= 0:
            from interp.steering.quality import QualityReport

            if factor == 0:
                del meta["quality"]  # a zero vector has no direction that pairs could agree on
            else:
                meta["quality"] = QualityReport.from_dict(meta["quality"]).turned().to_dict()
        return meta
