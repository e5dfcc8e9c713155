"""Where the named sites live in each architecture of transformers.

One row per `config.model_type`.  The decisive point is that `attn_out` and `mlp_out` are the terms *added to
the residual stream*: in the Gemma 2/3 and OLMo 2/3 blocks that is the output of a norm behind the module, not
the module's own output.  `resid_pre + attn_out + mlp_out == resid_post` holds for every row and is tested for
each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from interp.models.sites import IO

Norm = Literal["rms", "rms_plus_one", "layer_norm"]


@dataclass(frozen=True)
class Tap:
    """The input or output of one module; `path` may hold `{i}` for the layer."""

    path: str
    io: IO

    def at(self, layer: int | None) -> Tap:
        return self if layer is None else replace(self, path=self.path.format(i=layer))


@dataclass(frozen=True)
class Family:
    """The map of one architecture.

    `norm` says what the final norm's weight means: a plain RMSNorm scale, Gemma's `1 + weight`, or a
    LayerNorm (which also centres).  `absent` gives, for a site that the architecture lacks, the reason.
    """

    name: str
    backbone: str
    norm_path: str
    norm: Norm
    taps: dict[str, Tap]
    learned_positions: bool = False
    absent: dict[str, str] = field(default_factory=dict)


def _family(
    name: str,
    *,
    prefix: str,
    block: str,
    embed: str,
    final_norm: str,
    norm: Norm,
    taps: dict[str, tuple[str, IO]],
    learned_positions: bool = False,
) -> Family:
    root = f"{prefix}.{block}"
    located = {site: Tap(f"{root}.{path}" if path else root, io) for site, (path, io) in taps.items()}
    located["embed"] = Tap(f"{prefix}.{embed}", "out")
    located["final_norm"] = Tap(f"{prefix}.{final_norm}", "out")
    return Family(name, prefix, f"{prefix}.{final_norm}", norm, located, learned_positions)


_STREAM: dict[str, tuple[str, IO]] = {"resid_pre": ("", "in"), "resid_post": ("", "out")}

_GPT2 = _family(
    "gpt2",
    prefix="transformer",
    block="h.{i}",
    embed="wte",
    final_norm="ln_f",
    norm="layer_norm",
    learned_positions=True,
    taps={
        **_STREAM,
        "attn_z": ("attn.c_proj", "in"),
        "attn_out": ("attn", "out"),
        "resid_mid": ("ln_2", "in"),
        "mlp_post": ("mlp.c_proj", "in"),
        "mlp_out": ("mlp", "out"),
    },
)
_GPT_NEO = replace(
    _GPT2,
    name="gpt_neo",
    taps={**_GPT2.taps, "attn_z": Tap("transformer.h.{i}.attn.attention.out_proj", "in")},
)
_GPT_NEOX = _family(
    "gpt_neox",
    prefix="gpt_neox",
    block="layers.{i}",
    embed="embed_in",
    final_norm="final_layer_norm",
    norm="layer_norm",
    taps={
        **_STREAM,
        "attn_z": ("attention.dense", "in"),
        "attn_out": ("attention", "out"),
        "resid_mid": ("post_attention_layernorm", "in"),
        "mlp_post": ("mlp.dense_4h_to_h", "in"),
        "mlp_out": ("mlp", "out"),
    },
)


def _llama_like(
    name: str, resid_mid: str, *, norm: Norm = "rms", added_after_norm: bool = False, prefix: str = "model"
) -> Family:
    return _family(
        name,
        prefix=prefix,
        block="layers.{i}",
        embed="embed_tokens",
        final_norm="norm",
        norm=norm,
        taps={
            **_STREAM,
            "attn_z": ("self_attn.o_proj", "in"),
            "attn_out": ("post_attention_layernorm" if added_after_norm else "self_attn", "out"),
            "resid_mid": (resid_mid, "in"),
            "mlp_post": ("mlp.down_proj", "in"),
            "mlp_out": ("post_feedforward_layernorm" if added_after_norm else "mlp", "out"),
        },
    )


_LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "smollm3")
_FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _GPT2,
        _GPT_NEO,
        _GPT_NEOX,
        *(_llama_like(name, "post_attention_layernorm") for name in _LLAMA_LIKE),
        _llama_like("gemma", "post_attention_layernorm", norm="rms_plus_one"),
        _llama_like("gemma2", "pre_feedforward_layernorm", norm="rms_plus_one", added_after_norm=True),
        _llama_like("gemma3_text", "pre_feedforward_layernorm", norm="rms_plus_one", added_after_norm=True),
        replace(
            _llama_like(
                "gemma3",
                "pre_feedforward_layernorm",
                norm="rms_plus_one",
                added_after_norm=True,
                prefix="model.language_model",
            ),
            backbone="model",
        ),
        _llama_like("olmo2", "mlp", added_after_norm=True),
        _llama_like("olmo3", "mlp", added_after_norm=True),
    )
}
FAMILY_NAMES = tuple(_FAMILIES)


def family_of(config: Any) -> Family | None:
    """The family of a transformers configuration; None where the table does not know its `model_type`."""
    family = _FAMILIES.get(getattr(config, "model_type", ""))
    if family is None or family.name != "gpt_neox" or not config.use_parallel_residual:
        return family
    reason = (
        "attention and MLP read the same stream in a parallel-residual block, so there is no point between "
        "them (use resid_pre, attn_out, mlp_out or resid_post)"
    )
    taps = {site: tap for site, tap in family.taps.items() if site != "resid_mid"}
    return replace(family, taps=taps, absent={"resid_mid": reason})
