"""One face for a language model: tokens in; activations, logits and losses out; edits at sites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from interp.core import bit_sums
from interp.models import arguments, fingerprint, generation, head, state, tokenization, trials
from interp.models.head import TokenLosses
from interp.models.hooks import EditFunction, Point, capturing, editor, in_eval_mode, on_tensor
from interp.models.inputs import ModelInputs, TokenBatch, prepare_inputs, right_padded
from interp.models.sites import BLOCK_SITES, MODEL_SITES, Site

if TYPE_CHECKING:
    from interp.models.families import Family
    from interp.models.prefix import Prefix

Tokens = Tensor | TokenBatch | str | Sequence[str]


class Activations(dict[Site, Tensor]):
    """Activations by site; `acts["resid_post.3"]` works as well as `acts[Site("resid_post", 3)]`."""

    def __missing__(self, key: Any) -> Tensor:
        site = Site.parse(key)
        if site not in self:
            raise KeyError(f"no activations of {site}; there are: {', '.join(map(str, self))}")
        return self[site]


class LanguageModel(ABC):
    """A causal language model behind one of the engines; made by `load_model`.

    Attributes:
        module: the model itself. It is never changed: hooks live as long as a call or an `edit`, training
            flags and the tokenizer's settings are put back.
        name, family: what was loaded and its architecture's `model_type`.
        tokenizer: a transformers tokenizer, or None.
        n_layers, d_model, d_vocab, n_ctx: sizes of the model (n_ctx: the longest context it was made for).
        truncated_from: the layer count of the whole model where only the first layers were loaded, else None.
    """

    engine: str
    weight_processing: str
    _computed_by: tuple[str, ...] = ()  # packages besides torch and transformers

    def __init__(
        self,
        module: nn.Module,
        *,
        name: str,
        tokenizer: Any = None,
        family: Family | None = None,
        truncated_from: int | None = None,
    ) -> None:
        self.module = module
        self.name = name
        self.tokenizer = tokenizer
        self.truncated_from = truncated_from
        self._family = family
        self.config = getattr(module, "config", None)
        self.family: str = getattr(self.config, "model_type", type(module).__name__)
        text_config = None if self.config is None else self.config.get_text_config()
        self._text_config = text_config
        self.n_layers: int = getattr(text_config, "num_hidden_layers", 0)
        self.d_model: int | None = getattr(text_config, "hidden_size", None)
        self.d_vocab: int | None = getattr(text_config, "vocab_size", None)
        self.n_ctx: int | None = getattr(text_config, "max_position_embeddings", None)
        self._widths: dict[Site, int] = {}
        self._positions: Tensor | None = None
        self._real: Tensor | None = None
        self._ids: Tensor | None = None
        self._known_real: Tensor | None = None
        self._edits_apply = True
        self.trials: dict[str, str | None] = {}  # see `interp.models.trials`

    # What an engine provides.

    @abstractmethod
    def _points_of(self, site: Site) -> Point:
        """The live point of a known site; ValueError where a module path leads nowhere."""

    @abstractmethod
    def _named_sites(self) -> tuple[str, ...]:
        """The names of `SITE_NAMES` that this model has."""

    @abstractmethod
    def _why_absent(self, name: str) -> str:
        """Why a name is not among `_named_sites`."""

    @abstractmethod
    def _module_at(self, path: str) -> nn.Module:
        """The module at a path; ValueError, with the nearest paths, where there is none."""

    @property
    @abstractmethod
    def backbone(self) -> nn.Module:
        """The model without its vocabulary projection."""

    def _weight_of(self, module: nn.Module) -> Tensor:
        """The weight of a norm or linear map of this model."""
        return state.weight_of(self.module, module)

    def _saved_and_other_state(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What is saved with the model, by the names of transformers; and what else its activations depend on."""
        return state.saved_state(self.module), state.unsaved_state(self.module)

    def _decoding(self) -> AbstractContextManager[None]:
        """What must hold while decoding with a key-value cache."""
        return nullcontext()

    # Places.

    @property
    def device(self) -> torch.device:
        """Where inputs go and activations come back to."""
        placed = (p.device for p in self.module.parameters() if p.device.type != "meta")
        return next(placed, torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)

    @cached_property
    def max_positions(self) -> int | None:
        """The number of positions where the model looks them up in a table; None where it computes them for any."""
        if self._family is not None:
            return self.n_ctx if self._family.learned_positions else None
        return self.n_ctx if arguments.has_position_table(self.module, self.n_ctx) else None

    def sites(self) -> list[Site]:
        """Every named site, in the order in which a forward pass reaches them."""
        names = self._named_sites()
        inside = [Site(n, layer) for layer in range(self.n_layers) for n in BLOCK_SITES if n in names]
        around = [Site(n) for n in MODEL_SITES if n in names]
        return [s for s in around if s.name == "embed"] + inside + [s for s in around if s.name != "embed"]

    def check_site(self, site: Site | str) -> Site:
        """Parse a site and make sure that this model has it.

        A negative layer counts from the end.

        Raises:
            ValueError: no such name, layer or module; the message lists what there is and the nearest.
        """
        site = Site.parse(site)
        if site.is_module:
            self._points_of(site)
            return site
        if site.layer is not None and not -self.n_layers <= site.layer < self.n_layers:
            loaded = f" (loaded with n_layers={self.n_layers})" if self.truncated_from else ""
            raise ValueError(
                f"site {site}: layer {site.layer} is out of range, {self.name} has layers 0 to "
                f"{self.n_layers - 1}{loaded}"
            )
        names = self._named_sites()
        if site.name not in names:
            known = f"sites it has: {', '.join(names)}; " if names else ""
            raise ValueError(
                f"site {site} is not available in {self.name} ({self.family}): "
                f"{self._why_absent(site.name)}. {known}any module works as 'path.of.module:out' or ':in'"
            )
        if site.layer is not None and site.layer < 0:
            return Site(site.name, site.layer + self.n_layers)
        return site

    def width(self, site: Site | str) -> int:
        """The size of the last dimension at a site (measured on a token where it is not d_model)."""
        site = self.check_site(site)
        if not site.is_module and site.name not in ("attn_z", "mlp_post") and self.d_model is not None:
            return self.d_model
        if site not in self._widths:
            self._widths[site] = self.activations(torch.zeros(1, 1, dtype=torch.long), site)[site].shape[-1]
        return self._widths[site]

    # Running.

    def activations(
        self,
        tokens: Tokens,
        sites: Site | str | Sequence[Site | str],
        *,
        attention_mask: Int[Tensor, "b s"] | None = None,
        position_ids: Int[Tensor, "b s"] | None = None,
        segment_ids: Int[Tensor, "b s"] | None = None,
        grad: bool = False,
        stop_early: bool = True,
    ) -> Activations:
        """The activations at one or several sites, after any edit there.

        Args:
            tokens: ids [b s], a `TokenBatch`, or text.
            attention_mask: 1 at real tokens; padding on either side. What stands at padding is unspecified.
            position_ids: counted from the mask or the segments where not given.
            segment_ids: attention never crosses from one id to another; -1 marks padding.
            grad: keep the graph, for gradients with respect to an edit or to parameters.
            stop_early: end the pass after the last of the sites. The values are the same either way.

        Returns:
            {site: tensor [b s width]} in the model's dtype, on the model's device.

        Raises:
            ValueError: an unknown site (the message lists them), a wrong shape or an id outside the
                vocabulary.
        """
        listed = [sites] if isinstance(sites, (str, Site)) else list(sites)
        if not listed:
            raise ValueError("sites=[]: name at least one, e.g. 'resid_post.3'")
        points = {site: self._points_of(site) for site in map(self.check_site, listed)}
        inputs = self._prepare(tokens, attention_mask, position_ids, segment_ids)
        behind_head = any(site.is_module and not self._in_backbone(site) for site in points)
        run = self.module if behind_head else self.backbone
        with in_eval_mode(self.module, grad=grad), capturing(points, stop=stop_early) as captured:
            self._forward(run, inputs)
        if missing := [str(site) for site in points if site not in captured]:
            raise ValueError(f"the forward pass never reached {', '.join(missing)}: no activation to return")
        return Activations({site: captured[site].to(self.device) for site in points})

    def logits(
        self,
        tokens: Tokens,
        *,
        attention_mask: Int[Tensor, "b s"] | None = None,
        position_ids: Int[Tensor, "b s"] | None = None,
        segment_ids: Int[Tensor, "b s"] | None = None,
        grad: bool = False,
    ) -> Float[Tensor, "b s vocab"]:
        """Next-token logits at every position; arguments as in `activations`."""
        self._needs_every_layer("logits")
        inputs = self._prepare(tokens, attention_mask, position_ids, segment_ids)
        with in_eval_mode(self.module, grad=grad):
            output = self._forward(self.module, inputs)
        return head.logits_of(output, self.name)

    def loss(
        self,
        tokens: Tokens,
        *,
        attention_mask: Int[Tensor, "b s"] | None = None,
        position_ids: Int[Tensor, "b s"] | None = None,
        segment_ids: Int[Tensor, "b s"] | None = None,
        grad: bool = False,
    ) -> TokenLosses:
        """Next-token cross-entropy in nats; arguments as in `activations`.

        The values [b s-1] are zero, and the mask false, where the token or its successor is padding or where
        they belong to different segments. The vocabulary projection runs over a few hundred positions at a
        time.
        """
        self._needs_every_layer("loss")
        inputs = self._prepare(tokens, attention_mask, position_ids, segment_ids)
        with in_eval_mode(self.module, grad=grad):
            if self._family is None:
                output = self._forward(self.module, inputs)
                return head.losses_from_logits(head.logits_of(output, self.name), inputs)
            hidden = self._forward(self.backbone, inputs).last_hidden_state
            return head.losses_from_hidden(hidden, inputs, self._unembed, self.d_vocab or 1)

    def generate(
        self,
        tokens: Tokens,
        max_new_tokens: int,
        *,
        attention_mask: Int[Tensor, "b s"] | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        stop_at_eos: bool = True,
    ) -> Int[Tensor, "b new"]:
        """Continue each text; returns the new ids only, rows that ended early filled with the end token.

        Runs with a key-value cache, and under an open `edit`: the edit sees the prompt first, then one
        position at a time, with positions that go on counting.

        Args:
            temperature: 0 takes the likeliest token; otherwise samples from the logits divided by it, with
                `seed`.
            stop_at_eos: end a row at the model's end-of-text token.
        """
        self._needs_every_layer("generate")
        inputs = self._prepare(tokens, attention_mask, None, None)
        return generation.generate(self, inputs, max_new_tokens, temperature, seed, stop_at_eos)

    def prefix(self, tokens: Tokens, *, attention_mask: Int[Tensor, "b s"] | None = None) -> Prefix:
        """Run texts once and keep their keys and values, to run many continuations of them cheaply.

            prefix = model.prefix(prompt)
            prefix.logits(tails)  # [r t vocab]: the prompt is not run again

        See `Prefix`. Equal to `logits` on the whole texts up to rounding.

        Raises:
            ValueError: a model that keeps no key-value cache.
        """
        from interp.models.prefix import Prefix

        self._needs_every_layer("prefix")
        return Prefix(self, self._prepare(tokens, attention_mask, None, None))

    @contextmanager
    def edit(self, edits: Mapping[Site | str, EditFunction]) -> Iterator[None]:
        """Replace activations while the context is open.

        `fn(act [b s width], positions [b s]) -> act | None` sees the positions within each text (or segment);
        None leaves the activations as they are. Edits nest: an inner one sees what the outer one made.
        Activations read meanwhile are those after the edit. Whatever happens inside, the hooks are gone
        afterwards.

        Raises:
            ValueError: an unknown site; or, during a pass, an edit that returns another shape.
        """
        with ExitStack() as stack:
            stack.callback(self._watch_positions().remove)
            for name, function in edits.items():
                site = self.check_site(name)
                point = self._points_of(site)
                visit = editor(site, point, function, self._current_positions)
                stack.callback(on_tensor(point, self._unless_untouched(visit)).remove)
            yield

    @contextmanager
    def untouched_by_edits(self) -> Iterator[None]:
        """While it is open, passes run as if no `edit` were."""
        before, self._edits_apply = self._edits_apply, False
        try:
            yield
        finally:
            self._edits_apply = before

    def _unless_untouched(
        self, visit: Callable[[Tensor], Tensor | None]
    ) -> Callable[[Tensor], Tensor | None]:
        return lambda tensor: visit(tensor) if self._edits_apply else None

    def real_tokens(self) -> Bool[Tensor, "b s"]:
        """Which tokens of the pass that is running are text and not padding; for use inside an edit."""
        if self._real is None:
            raise RuntimeError("real_tokens() tells of a pass that is running; call it inside an edit")
        return self._real

    def token_ids(self) -> Int[Tensor, "b s"]:
        """The tokens of the pass that is running; for use inside an edit.

        Raises RuntimeError outside a pass, or in one that was given embeddings in place of tokens.
        """
        if self._ids is None:
            raise RuntimeError(
                "token_ids() tells of a pass that is running on token ids; call it inside an edit"
            )
        return self._ids

    # Text and vocabulary.

    def tokenize(
        self, texts: str | Sequence[str], *, add_bos: bool | None = None, max_length: int | None = None
    ) -> TokenBatch:
        """Right-padded ids of one or several texts.

        Args:
            add_bos: put the beginning-of-text token first; None does as the tokenizer does by itself. A text
                that begins with it already (from a chat template, say) gets no second one.
            max_length: cut longer texts to this many tokens.

        Raises:
            ValueError: no tokenizer, a text without tokens, or no BOS token where one is asked for.
        """
        return tokenization.tokenize(self._tokenizer, texts, add_bos=add_bos, max_length=max_length)

    def decode_tokens(self, ids: Sequence[int] | Int[Tensor, " n"]) -> list[str]:
        """One legible string per id; bytes that are only part of a character are shown like `⟨E2⟩`."""
        return tokenization.decode_tokens(self._tokenizer, ids)

    @cached_property
    def special_token_ids(self) -> frozenset[int]:
        """Ids of control tokens (BOS, EOS, padding, chat markers); empty without a tokenizer."""
        return frozenset() if self.tokenizer is None else tokenization.special_token_ids(self.tokenizer)

    def logit_directions(self, vectors: Float[Tensor, "k d_model"]) -> Float[Tensor, "k vocab"]:
        """What each direction of the final residual stream adds to the logits, up to the final norm's scale.

        `(v * w) W_U^T` with `w` the final norm's weight (as applied: `1 + weight` in Gemma), `v` centred
        first where that norm is a LayerNorm. float32. Feed it a few hundred vectors at a time: the result is
        as wide as the vocabulary.
        """
        self._needs_every_layer("logit_directions")
        family = self._known_family
        if vectors.ndim != 2 or vectors.shape[1] != self.d_model:
            raise ValueError(f"vectors: expected [k {self.d_model}], got {tuple(vectors.shape)}")
        return head.logit_directions(
            vectors,
            family.norm,
            self._weight_of(self._module_at(family.norm_path)),
            self._weight_of(self._head),
        )

    def fingerprint(self) -> dict[str, Any]:
        """What activations depend on: weights to the last bit, configuration, code, number format, tokenizer.

        `weights` covers all that is saved with the model (a part of the layers hashes differently from the whole),
        `derived` what is computed when it is made, such as rotary frequencies, and `adapters` which of peft's are
        switched on, and how strongly. It reads every number: 0.7 seconds per gigabyte on one CPU thread.

        Raises:
            ValueError: numbers that can't be read: on the meta device, or packed in an unknown format.
        """
        saved, derived = self._saved_and_other_state()
        adapters = state.adapter_facts(self.module)
        return {
            "name": self.name,
            "architecture": type(self.module).__name__,
            "n_layers": self.n_layers,
            "d_model": self.d_model,
            "dtype": str(self.dtype).removeprefix("torch."),
            "hashing": bit_sums.HASHING,
            "weights": fingerprint.weights_hash(saved),
            "derived": fingerprint.weights_hash(derived) if derived else None,
            "adapters": fingerprint.weights_hash({"adapters": adapters}) if adapters else None,
            "config": fingerprint.config_hash(self.config),
            "remote_code": fingerprint.remote_code(self.module),
            "attention": getattr(self.config, "_attn_implementation", None),
            "tokenizer": None if self.tokenizer is None else tokenization.tokenizer_hash(self.tokenizer),
            "engine": self.engine,
            "weight_processing": self.weight_processing,
            "libraries": fingerprint.libraries(*self._computed_by),
        }

    def __repr__(self) -> str:
        sizes = f"{self.n_layers} layers, d_model {self.d_model}, vocabulary {self.d_vocab}"
        return f"{type(self).__name__}({self.name!r}, {self.family}, {sizes}, {self.dtype}, {self.device})"

    # Shared machinery.

    def _prepare(
        self,
        tokens: Tokens,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        segment_ids: Tensor | None,
    ) -> ModelInputs:
        if isinstance(tokens, str) or (
            isinstance(tokens, Sequence) and all(isinstance(t, str) for t in tokens)
        ):
            tokens = self.tokenize(tokens)
        inputs = self._inputs(tokens, attention_mask, position_ids, segment_ids)  # type: ignore[arg-type]
        if inputs.segment_ids is not None:
            self.require("segments")
        elif inputs.attention_mask is not None:
            self.require("right padding" if right_padded(inputs.attention_mask) else "left padding")
        return inputs

    def require(self, need: trials.Need) -> None:
        """Raise ValueError where this model, if its architecture is not in the family table, can't do something."""
        if self._family is None:
            trials.require(self, need)

    def _inputs(
        self,
        tokens: Tensor | TokenBatch,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> ModelInputs:
        return prepare_inputs(
            tokens,
            attention_mask,
            position_ids,
            segment_ids,
            device=self.device,
            d_vocab=self.d_vocab,
            max_positions=self.max_positions,
        )

    def _forward(self, module: nn.Module, inputs: ModelInputs, **more: Any) -> Any:
        known = self._family is not None
        given = inputs.forward_arguments(self._text_config, self.dtype, known=known)
        # Right padding passes no mask on, so that the module can't tell it from text.
        self._known_real = inputs.real_tokens()
        try:
            return module(**arguments.accepted(module, {**given, "use_cache": False, **more}))
        finally:
            self._known_real = None

    def _in_backbone(self, site: Site) -> bool:
        inside = self.backbone
        return any(m is self._points_of(site).module for m in inside.modules())

    def _needs_every_layer(self, what: str) -> None:
        if self.truncated_from is not None:
            raise ValueError(
                f"{what}: {self.name} was loaded with n_layers={self.n_layers} of {self.truncated_from}, and "
                "the vocabulary projection means nothing there; load the whole model"
            )

    def _watch_positions(self) -> RemovableHandle:
        def watch(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._positions = arguments.positions_of(args, kwargs)
            self._ids = args[0] if args else kwargs.get("input_ids")
            real = self._known_real
            self._real = arguments.real_tokens_of(kwargs, self._positions) if real is None else real

        return self.backbone.register_forward_pre_hook(watch, with_kwargs=True)

    def _current_positions(self) -> Tensor:
        if self._positions is None:
            raise RuntimeError("an edited module ran outside a forward pass of its model")
        return self._positions

    @property
    def _head(self) -> nn.Module:
        head = self.module.get_output_embeddings()  # type: ignore[operator]
        if head is None:
            raise ValueError(f"{self.name} has no vocabulary projection: load a causal language model")
        return head

    def _unembed(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n vocab"]:
        logits = self._head(hidden)
        cap = getattr(self._text_config, "final_logit_softcapping", None)
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @property
    def _known_family(self) -> Family:
        if self._family is None:
            raise ValueError(
                f"{self.name} ({self.family}) is not in the family table: its final norm is unknown"
            )
        return self._family

    @property
    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise ValueError(
                f"{self.name} has no tokenizer: load it with load_model(..., tokenizer=...) or pass token ids"
            )
        return self.tokenizer


def require_language_model(model: Any, argument: str = "model") -> None:
    """Raise TypeError, with what to do, for a bare module where a `LanguageModel` is wanted."""
    if isinstance(model, nn.Module):
        raise TypeError(
            f"{argument} is a {type(model).__name__}, a bare module: give interp.load_model(module, tokenizer=...)"
        )
