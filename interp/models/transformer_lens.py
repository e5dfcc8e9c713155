"""The TransformerLens 4 engine: the same transformers model wrapped in a `TransformerBridge`.

The bridge puts hook points around every component, so raw sites include TransformerLens' own names
(`blocks.3.attn.hook_pattern:out`).  Wrapping changes a model in place (its blocks, its attention
implementation), so it is only ever done to a private copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from interp.models import state
from interp.models.families import family_of
from interp.models.hooks import Point
from interp.models.huggingface import nearest_path
from interp.models.language_model import LanguageModel
from interp.models.sites import Site

_HOOKS = {
    "embed": "hook_embed",
    "resid_pre": "blocks.{i}.hook_resid_pre",
    "attn_z": "blocks.{i}.attn.hook_z",
    "attn_out": "blocks.{i}.hook_attn_out",
    "resid_mid": "blocks.{i}.hook_resid_mid",
    "mlp_post": "blocks.{i}.mlp.hook_post",
    "mlp_out": "blocks.{i}.hook_mlp_out",
    "resid_post": "blocks.{i}.hook_resid_post",
    "final_norm": "ln_final.hook_out",
}


class TransformerLensModel(LanguageModel):
    """A language model behind a `TransformerBridge`; `bridge` is the bridge itself (it takes token ids)."""

    engine = "transformer_lens"
    _computed_by = ("transformer-lens",)

    def __init__(
        self,
        bridge: Any,
        *,
        name: str,
        tokenizer: Any = None,
        truncated_from: int | None = None,
    ) -> None:
        module = bridge.original_model
        family = family_of(module.config)
        super().__init__(module, name=name, tokenizer=tokenizer, family=family, truncated_from=truncated_from)
        self.bridge = bridge

    @property
    def weight_processing(self) -> str:  # type: ignore[override]
        """`none`, or `compatibility` for a bridge whose owner has folded and centred its weights."""
        return "compatibility" if self.bridge.compatibility_mode else "none"

    @property
    def backbone(self) -> nn.Module:
        return self.module.base_model  # type: ignore[return-value]

    def _named_sites(self) -> tuple[str, ...]:
        absent = () if self._family is None else self._family.absent
        hooks = self.bridge.hook_dict
        return tuple(n for n, hook in _HOOKS.items() if hook.format(i=0) in hooks and n not in absent)

    def _why_absent(self, name: str) -> str:
        absent = {} if self._family is None else self._family.absent
        return absent.get(name, f"the bridge has no hook {_HOOKS[name].format(i='*')}")

    def _points_of(self, site: Site) -> Point:
        if site.io is not None:
            return Point(self._module_at(site.name), site.io)
        hook = self.bridge.hook_dict[_HOOKS[site.name].format(i=site.layer)]
        return Point(hook, "out", heads=site.name == "attn_z", in_place=site.name == "resid_mid")

    def _module_at(self, path: str) -> nn.Module:
        hooks = self.bridge.hook_dict
        if path in hooks:
            return hooks[path]
        module = self.module
        for part in path.split("."):
            while part not in module._modules and "_original_component" in module._modules:
                module = module._modules["_original_component"]  # type: ignore[assignment]
            inner = module._modules.get(part)
            if inner is None:
                plain = (p.replace("_original_component.", "") for p, _ in self.module.named_modules())
                raise ValueError(
                    f"{self.name} has no module {path!r}; {nearest_path(path, [*hooks, *plain])}"
                )
            module = inner
        return module

    def _weight_of(self, module: nn.Module) -> Tensor:
        while "_original_component" in module._modules:
            module = module._modules["_original_component"]  # type: ignore[assignment]
        return super()._weight_of(module)

    def _saved_and_other_state(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The weights under transformers' names, and apart from them what the bridge made of them for itself."""
        with torch.device("meta"):
            names = type(self.module)(self.config).state_dict().keys()
        saved: dict[str, Any] = {}
        other: dict[str, Any] = dict(state.unsaved_state(self.module))
        own: dict[str, Tensor] = {}
        for path, tensor in state.saved_state(self.module).items():
            name = path.replace("_original_component.", "")
            if name in names and name not in saved:
                saved[name] = tensor
            else:
                own[path] = tensor
        places = {_place(tensor) for tensor in saved.values()}
        return saved, other | {path: tensor for path, tensor in own.items() if _place(tensor) not in places}

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        # TransformerLens 4.3 looks for the cache under its former name and misses the one that
        # transformers 5.24 passes as `cache`: each new token would see itself alone, without a word.
        def rename(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if kwargs.get("cache") is None:
                return None
            return args, {**kwargs, "past_key_values": kwargs["cache"]}

        with ExitStack() as stack:
            for block in self.bridge.blocks:
                if "attn" in block._modules:
                    handle = block.attn.register_forward_pre_hook(rename, with_kwargs=True)
                    stack.callback(handle.remove)
            yield


def wrap(
    module: nn.Module, *, name: str, tokenizer: Any = None, truncated_from: int | None = None, private: bool
) -> TransformerLensModel:
    """Boot a bridge on a transformers model; on a deep copy of it unless it is `private` already."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    if state.adapter_facts(module):
        raise ValueError(
            f"{name} has peft adapters, which a bridge doesn't show: merge them first (merge_and_unload), or use "
            "engine='huggingface'"
        )
    own = module if private else copy.deepcopy(module)
    own.set_attn_implementation("eager")  # type: ignore[operator]
    # No tokenizer for the bridge: it would load another one like it from the hub, and put BOS before every text.
    bridge = build_bridge_from_module(own, type(own).__name__, hf_config=own.config, model_name=name)
    bridge.eval()
    return TransformerLensModel(bridge, name=name, tokenizer=tokenizer, truncated_from=truncated_from)


def around(bridge: Any, *, name: str, tokenizer: Any = None) -> TransformerLensModel:
    """Use a bridge that somebody has booted, where it stands."""
    return TransformerLensModel(bridge, name=name, tokenizer=tokenizer)


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
