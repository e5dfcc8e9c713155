"""What dictionaries share: activations to sparse codes and back, the unit-norm constraint, rescaling."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.config import to_dict
from interp.core.device import resolve_dtype
from interp.core.identity import Identity
from interp.core.messages import at_least, one_of
from interp.sae.codes import SparseCodes
from interp.sae.foreign import Foreign, ForeignForm
from interp.sae.kernels import dense
from interp.sae.kernels.autograd import sparse_loss
from interp.sae.kernels.backend import Grads, Params
from interp.sae.kernels.dead import AuxK, DeadLatents, PreActivations
from interp.sae.kernels.dispatch import BACKENDS
from interp.sae.kernels.inference import TokenCodes
from interp.sae.kernels.lists import Losses, LossOptions
from interp.sae.metadata import SAEMetadata

D = TypeVar("D", bound="Dictionary")

SMALLEST_NORM = 1e-12  # of a decoder row that is divided by its norm
_MOST_NUMBERS = 2**56  # what torch can still count, in bytes of float64
_TILE_NUMBERS = 2**22  # size of the n x latents tiles of encode_sparse: 16 MiB in float32


@dataclass(frozen=True)
class DictionaryConfig:
    """Shapes and form of a dictionary.

    Attributes:
        d_in: width of the activations, d.
        d_sae: number of latents, F.
        apply_b_dec_to_input: subtract the decoder's bias from the input.
        dtype: of the parameters.
    """

    d_in: int
    d_sae: int
    apply_b_dec_to_input: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("d_in", "d_sae"):
            at_least(name, getattr(self, name), 1)
        if self.d_in * self.d_sae > _MOST_NUMBERS:
            raise ValueError(f"d_in = {self.d_in} times d_sae = {self.d_sae} is more than any memory holds")
        resolve_dtype(self.dtype)

    @property
    def d_out(self) -> int:
        """Width of what is decoded: d_in, but for a transcoder."""
        return self.d_in


class SAEOutput(NamedTuple):
    """Reconstruction [... d] and dense codes [... F]."""

    x_hat: Float[Tensor, "... d"]
    codes: Float[Tensor, "... F"]


class SAELoss(NamedTuple):
    """A differentiable total and its parts, detached, in float64.

    ``total = reconstruction + weight * sparsity + auxiliary``; each is a mean over tokens. l0: mean number of
    latents that aren't zero; open_gates: mean number of open gates (the same where there are no gates).
    """

    total: Tensor
    reconstruction: Tensor
    sparsity: Tensor
    auxiliary: Tensor
    l0: Tensor
    open_gates: Tensor


class Dictionary(nn.Module, ABC):
    """A sparse dictionary. Decoder ``W_dec`` [F e] holds a direction per latent, ``b_dec`` [e] the bias.

    A subclass is an architecture. It names its parameters by kind (every encoder matrix is [F d], every vector in
    the space of latents, bias or threshold, is [F]; what it doesn't name has no unit, like `r_mag`), defines its
    `code`, and its loss in one of two ways: `loss_options` and `params` say it in the terms of the list kernels,
    which then train it; or `objective` is plain torch. What is made so, and registered by
    `interp.register_architecture`, can be trained, resumed, evaluated, reported, swept, saved and loaded.

    Attributes:
        architecture: its name.
        config_class: a `DictionaryConfig`, saved with the weights.
        loss_class: a dataclass of the loss's options, with a property `weight`, which the run warms up. None:
            for inference only.
        unit_norm: whether training keeps decoder rows at unit norm; asked of the loss's options.
        resamples: whether dead latents can be pointed elsewhere by `interp.sae.resampling`.
        foreign: what it is in other libraries' formats. It is not inherited: a subclass is another function.
        sites: of how many sites' rows, side by side, it is trained: ``"one"``; a ``"pair"``, of which it maps the
            first to the second; ``"several"``, which it reads and decodes at once.

    Raises (all methods that take activations): ValueError when the last dimension of x isn't d_in, or when x
    holds NaN or infinite values. Activations of another floating type are converted.
    """

    architecture: ClassVar[str]
    config_class: ClassVar[type[DictionaryConfig]]
    loss_class: ClassVar[type[Any] | None] = None
    encoder_matrices: ClassVar[tuple[str, ...]]
    latent_vectors: ClassVar[tuple[str, ...]]
    resamples: ClassVar[bool] = True
    foreign: ClassVar[Foreign] = {}
    sites: ClassVar[str] = "one"

    W_dec: nn.Parameter
    b_dec: nn.Parameter

    def __init__(self, cfg: DictionaryConfig) -> None:
        super().__init__()
        if type(cfg) is not self.config_class:
            raise TypeError(
                f"cfg is a {type(cfg).__name__}; {type(self).__name__} needs a {self.config_class.__name__}"
            )
        self.cfg = cfg
        self.metadata = SAEMetadata()

    @abstractmethod
    def code(self, xc: Float[Tensor, "n d"]) -> Float[Tensor, "n F"]:
        """Dense codes, differentiable; xc is the input as the encoder takes it. The definition."""

    def sparse_code(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        """The entries of `code` that aren't zero, without gradients; here by runs of tokens, else by kernels."""
        parts = [SparseCodes.from_dense(self.code(rows)) for rows in xc.split(self._tokens_at_once())]
        counts = torch.cat([part.indptr.diff() for part in parts])
        pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return TokenCodes(
            pointers, torch.cat([p.indices for p in parts]).int(), torch.cat([p.values for p in parts])
        )

    # What training needs.

    @classmethod
    def shape(cls, widths: tuple[int, ...]) -> dict[str, Any]:
        """The fields of the configuration that the widths of the rows' sites decide.

        Raises ValueError where there are more or fewer sites than this architecture takes.
        """
        if len(widths) != 1:
            raise ValueError(
                f"architecture = {cls.architecture!r} takes the rows of one site, here are {len(widths)}: name one"
            )
        return {"d_in": widths[0]}

    @classmethod
    def recipe(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults of training options, by name, where they differ from `interp.sae.config`'s.

        Args:
            given: the options that were asked for; they take precedence.
        """
        return {}

    def params(self) -> Params:
        """The parameters under the names the kernels use, for architectures that have `loss_options`."""
        raise TypeError(f"a {self.architecture} dictionary has no form for the list kernels")

    def loss_options(self, loss: Any) -> LossOptions | None:
        """The loss in the terms of the kernels; None where it is none of theirs, and `objective` is the loss."""
        return None

    def unit_norm(self, loss: Any) -> bool:
        """Whether decoder rows are kept at unit norm."""
        return True

    def dead_term(self, loss: Any) -> AuxK | PreActivations | None:
        """What the loss adds for latents that have been silent."""
        return None

    def objective(
        self,
        x: Float[Tensor, "n d"],
        weight: float,
        loss: Any,
        *,
        target: Float[Tensor, "n e"] | None = None,
        dead: DeadLatents | None = None,
    ) -> tuple[Tensor, Losses]:
        """The total training loss, differentiable, and its parts: the definition, by dense products.

        Args:
            weight: of the sparsity; the warm-up's share of ``loss.weight``.
            target: what is to be reconstructed, where it isn't x.
            dead: silent latents and what revives them.
        """
        return dense.loss(self.params(), x, weight, self._listed_options(loss), target=target, dead=dead)

    def set_gradients_(self, grads: Grads) -> None:
        """Take the gradients of `params` to the own parameters."""
        for parameter, grad in zip(self.params(), grads, strict=True):
            if parameter is not None:
                parameter.grad = grad

    @property
    def kernels_may_update(self) -> bool:
        """Whether `params` are the own parameters, so that a kernel may change them in place."""
        own = {id(p) for p in self.parameters()}
        return all(p is None or id(p) in own for p in self.params())

    def open_above_(self, latents: Int[Tensor, " k"], products: Float[Tensor, " k"]) -> None:
        """Set biases such that each latent opens where the product with its encoder row exceeds a number."""
        for vector in self._named(self.latent_vectors):
            vector[latents] = -products

    def after_step_(self, losses: Losses, *, warmed_up: bool) -> None:
        """What follows a step: constraints on parameters, running averages.

        Args:
            warmed_up: whether the learning rate's warm-up is over.
        """

    def after_many_steps_(self) -> None:
        """What is looked at from time to time, like a guard against overflow."""

    # What everybody needs.

    def encode(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... F"]:
        """Dense codes."""
        xc = self._encoder_input(self._checked(x))
        return self.code(xc.flatten(0, -2)).unflatten(0, x.shape[:-1])

    def encode_sparse(self, x: Float[Tensor, "... d"]) -> SparseCodes:
        """The latents that fire on each token; leading dimensions are flattened to n.

        An n x F array never exists: tokens are taken run by run, or, where no gradient is wanted and the work is
        worth it, by the compiled kernels.
        """
        xc = self._encoder_input(self._checked(x)).flatten(0, -2)
        n, n_latents = xc.shape[0], self.cfg.d_sae
        if not torch.is_grad_enabled() and n * n_latents >= _TILE_NUMBERS:
            return SparseCodes(*self.sparse_code(xc), (n, n_latents))
        rows, indices, values = [], [], []
        for start in range(0, max(n, 1), self._tokens_at_once()):
            codes = self.code(xc[start : start + self._tokens_at_once()])
            row, index = torch.nonzero(codes, as_tuple=True)
            rows.append(row + start)
            indices.append(index)
            values.append(codes[row, index])
        return SparseCodes.from_entries(
            torch.cat(rows), torch.cat(indices).int(), torch.cat(values), (n, n_latents)
        )

    def _tokens_at_once(self) -> int:
        return max(16, _TILE_NUMBERS // self.cfg.d_sae)

    def decode(
        self, codes: Float[Tensor, "... F"] | SparseCodes, x: Float[Tensor, "... d"] | None = None
    ) -> Float[Tensor, "... e"]:
        """``codes @ W_dec + b_dec``.

        Args:
            x: what was encoded, for a decoder that takes it, too (a skip transcoder's).
        """
        if codes.shape[-1] != self.cfg.d_sae:
            raise ValueError(f"codes have {codes.shape[-1]} latents, this dictionary {self.cfg.d_sae}")
        if not isinstance(codes, SparseCodes):
            return codes.to(self.W_dec.dtype) @ self.W_dec + self.b_dec
        summed = nn.functional.embedding_bag(
            codes.indices.long(),
            self.W_dec,
            codes.indptr,
            mode="sum",
            per_sample_weights=codes.values.to(self.W_dec.dtype),
            include_last_offset=True,
        )
        return summed + self.b_dec

    def forward(self, x: Float[Tensor, "... d"]) -> SAEOutput:
        """Encode and decode."""
        codes = self.encode(x)
        return SAEOutput(self.decode(codes, x), codes)

    def loss(
        self,
        x: Float[Tensor, "n d"],
        coefficient: float | None = None,
        *,
        backend: str = "dense",
        target: Float[Tensor, "n e"] | None = None,
        **options: Any,
    ) -> SAELoss:
        """The training loss of a batch, differentiable in the parameters.

        Args:
            coefficient: weight of the sparsity, in units of the squared error as it is reduced. None: the
                default of `loss_class`.
            backend: ``"dense"``, or the list form by ``"reference"``, ``"cpu"`` or ``"triton"``.
            target: what is to be reconstructed, where it isn't x.
            options: other fields of `loss_class`, by name.
        """
        if self.loss_class is None:
            raise TypeError(f"a {self.architecture} dictionary is for inference: it has no training loss")
        one_of("backend", backend, BACKENDS[1:])
        known = tuple(field.name for field in fields(self.loss_class))
        for name in options:
            one_of("loss option", name, known)
        chosen = self.loss_class(**options)
        weight = chosen.weight if coefficient is None else coefficient
        if weight < 0:
            raise ValueError(f"l1_coefficient = {weight} must not be negative")
        x = self._checked(x).flatten(0, -2)
        target = self.checked_target(x, target)
        if backend == "dense":
            total, parts = self.objective(x, weight, chosen, target=target)
        else:
            total, parts = sparse_loss(
                self.params(), x, weight, self._listed_options(chosen), backend=backend, target=target
            )
        return SAELoss(total, *parts[:5])

    def _listed_options(self, loss: Any) -> LossOptions:
        options = self.loss_options(loss)
        if options is None:
            raise TypeError(
                f"a {self.architecture} dictionary has no form for the list kernels: use backend='dense'"
            )
        return options

    def checked_target(
        self, x: Float[Tensor, "n d"], target: Float[Tensor, "n e"] | None
    ) -> Float[Tensor, "n e"] | None:
        """The target itself. Raises ValueError where it doesn't belong to x, or a transcoder has none."""
        if target is None and self.sites == "pair":
            raise ValueError(
                f"target is None: a {self.architecture} dictionary maps x to another activation, give it"
            )
        if target is not None and target.shape != (len(x), self.cfg.d_out):
            raise ValueError(
                f"target has shape {tuple(target.shape)}; with these x it must be [{len(x)}, d_out = {self.cfg.d_out}]"
            )
        return target

    def decoder_norms(self) -> Float[Tensor, " F"]:
        """``|d_i|``, as a selection or a penalty by norm takes it."""
        return self.W_dec.norm(dim=1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the sites whose rows, side by side, it is trained and measured on; see `shape`."""
        return (self.cfg.d_in, self.cfg.d_out) if self.sites == "pair" else (self.cfg.d_in,)

    def column_scales(self) -> Float[Tensor, " e"]:
        """By what decoded columns are multiplied where several sites are compared."""
        return torch.ones(self.cfg.d_out, dtype=torch.float64, device=self.b_dec.device)

    @property
    def trained_l0(self) -> float | None:
        """Latents per token in training, where a threshold that was measured there has to give as many."""
        return None

    def variants(self) -> dict[str, Dictionary]:
        """Dictionaries that are in this one, by what they are: prefixes, or smaller budgets. They share its weights
        or copy them."""
        return {}

    def to_jumprelu(self) -> Dictionary:
        """The same function as a JumpReLU dictionary, where there is one."""
        raise TypeError(f"a {self.architecture} dictionary has no JumpReLU form")

    @classmethod
    def foreign_forms(cls, format: str) -> tuple[ForeignForm, ...]:
        """The kinds of another library's format that this architecture is."""
        return tuple(vars(cls).get("foreign", {}).get(format, ()))

    def as_foreign(self, format: str) -> Dictionary:
        """The dictionary of the same function that is written for this one in another library's format.

        Itself, where it is one of the format's kinds, else its JumpReLU form. Raises ValueError or TypeError where
        there is none.
        """
        if any(form.holds(self.cfg) for form in self.foreign_forms(format)):
            return self
        return self.to_jumprelu()

    def set_centring_(self, centred: bool) -> None:
        """Take `b_dec` out of the biases, or put it in, so that `apply_b_dec_to_input` changes and nothing else."""
        if centred != self.cfg.apply_b_dec_to_input:
            raise ValueError(
                f"apply_b_dec_to_input = {not centred} of a {self.architecture} SAE can't change"
            )

    def open_gates(self, x: Float[Tensor, "n d"]) -> int | None:
        """Number of open gates on some rows, where an architecture has gates apart from its codes."""
        return None

    def _checked(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x is {kind}; give a floating-point tensor [..., {self.cfg.d_in}]")
        if x.dim() < 2 or x.shape[-1] != self.cfg.d_in:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; this dictionary was made for [..., d_in = {self.cfg.d_in}]"
            )
        # The sum is cheap to look at; where it isn't finite, that may be for its size alone.
        if not torch.isfinite(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32))):
            bad = int((~torch.isfinite(x)).any(-1).sum())
            if bad:
                raise ValueError(f"x holds NaN or infinite values in {bad} of {x[..., 0].numel()} rows")
        return x.to(self.W_dec.dtype)

    def _encoder_input(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return x - self.b_dec if self.cfg.apply_b_dec_to_input else x

    def _parameter(self, *shape: int, device: torch.device | str) -> nn.Parameter:
        return nn.Parameter(torch.zeros(shape, dtype=resolve_dtype(self.cfg.dtype), device=device))

    @torch.no_grad()
    def normalize_decoder_(self) -> None:
        """Divide each decoder row by its norm; a row shorter than 1e-12 is left as it is."""
        norms = self.W_dec.norm(dim=1, keepdim=True)
        self.W_dec.div_(torch.where(norms < SMALLEST_NORM, torch.ones_like(norms), norms))

    @torch.no_grad()
    def project_decoder_grad_(self) -> None:
        """Remove from each decoder row's gradient its component along the row (rows have unit norm)."""
        grad = self.W_dec.grad
        if grad is not None:
            grad.addcmul_((grad * self.W_dec).sum(1, keepdim=True), self.W_dec, value=-1)

    @torch.no_grad()
    def fold_activation_scale_(self, c: float, *, into: str = "biases") -> None:
        """Make a dictionary trained on c x take x itself, exactly: x_hat(x) = x_hat_before(c x) / c.

        Args:
            c: the scale, positive.
            into: ``"biases"`` divides biases and thresholds by c: codes come out in the units of the
                activations and the decoder keeps its norms. ``"weights"`` multiplies the encoder by c and
                divides the decoder: codes keep their values.
        """
        one_of("into", into, ("biases", "weights"))
        if not (c > 0 and c < float("inf")):
            raise ValueError(f"c = {c} must be a positive number")
        self.b_dec.div_(c)
        if into == "biases":
            for vector in self._named(self.latent_vectors):
                vector.div_(c)
        else:
            self.W_dec.div_(c)
            for matrix in self._named(self.encoder_matrices):
                matrix.mul_(c)
        self.metadata = replace(self.metadata, activation_scale=c, activation_scale_folded=True)

    def fold_activation_scales_(self, scales: tuple[float, ...]) -> None:
        """As `fold_activation_scale_`, with the scale of each site."""
        (c,) = scales
        self.fold_activation_scale_(c)

    @torch.no_grad()
    def scale_output_(self, factor: float) -> None:
        """Multiply whatever is decoded by a positive number; codes stay as they are."""
        self.W_dec.mul_(factor)
        self.b_dec.mul_(factor)

    @torch.no_grad()
    def fold_decoder_norm_(self) -> None:
        """Give every decoder row unit norm without changing a reconstruction; codes grow by the old norm."""
        norms = self.decoder_norms()
        norms = torch.where(norms < SMALLEST_NORM, torch.ones_like(norms), norms)
        self.W_dec.div_(norms[:, None])
        for matrix in self._named(self.encoder_matrices):
            matrix.mul_(norms[:, None])
        for vector in self._named(self.latent_vectors):
            vector.mul_(norms)

    def _named(self, names: tuple[str, ...]) -> Iterator[Tensor]:
        return (getattr(self, name) for name in names if getattr(self, name) is not None)

    def save_pretrained(self, folder: str | os.PathLike[str], metadata: SAEMetadata | None = None) -> Path:
        """Write ``config.json`` and ``weights.safetensors``; `metadata` replaces the dictionary's own."""
        from interp.sae.saving import write_pretrained

        if metadata is not None:
            self.metadata = metadata
        return write_pretrained(self, folder)

    def push_to_hub(self, repo: str, **how: Any) -> str:
        """Upload it to the Hugging Face hub; see `interp.sae.formats.hub.push_to_hub`."""
        from interp.sae.formats.hub import push_to_hub

        return push_to_hub(self, repo, **how)

    @classmethod
    def from_pretrained(
        cls: type[D], folder: str | os.PathLike[str], *, device: torch.device | str = "cpu"
    ) -> D:
        """Read what `save_pretrained` wrote. Raises ValueError if it holds another architecture."""
        from interp.sae.saving import read_pretrained

        return read_pretrained(cls, folder, device=device)

    def identity(self) -> Identity:
        """What results measured on this dictionary belong to: its form and all of its weights."""
        return Identity.of(
            "dictionary",
            architecture=self.architecture,
            config=to_dict(self.cfg),
            weights=dict(self.state_dict()),
        )

    def extra_repr(self) -> str:
        return f"d_in={self.cfg.d_in}, d_sae={self.cfg.d_sae}"
