"""Finding the model inside what people wrap around it, and running it as it is written."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def unwrapped(module: nn.Module) -> nn.Module:
    """The model itself: without `torch.compile`, data parallelism or peft around it.

    peft's low-rank adapters live in the model's own layers and act there; with the wrapper gone, the model's sites
    have their usual names.

    Raises:
        ValueError: an adapter that acts outside the model's layers (soft prompts), which would be lost.
    """
    while True:
        inside = getattr(module, "_orig_mod", None)  # torch.compile
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inside = module.module
        elif callable(getattr(module, "get_base_model", None)) and hasattr(module, "peft_config"):
            inside = _without_peft(module)
        if not isinstance(inside, nn.Module):
            return module
        module = inside


def _without_peft(module: Any) -> nn.Module:
    for name, config in module.peft_config.items():
        if config.is_prompt_learning or getattr(config, "alora_invocation_tokens", None):
            raise ValueError(
                f"adapter {name!r} ({config.peft_type.value}) acts on the tokens, outside the model's layers, where "
                "sites can't show it: use an adapter of the weights such as LoRA"
            )
    return module.get_base_model()


def uncompiled(module: nn.Module) -> AbstractContextManager[Any]:
    """While it is open, compiled parts run as they are written: compiled code takes no notice of later hooks."""
    # Nothing has been compiled where nobody has imported the compiler, which takes seconds.
    if "torch._dynamo" not in sys.modules or not any(_is_compiled(part) for part in module.modules()):
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def _is_compiled(part: nn.Module) -> bool:
    compiled = part._compiled_call_impl is not None or hasattr(part, "_orig_mod")
    return compiled or hasattr(part.forward, "_torchdynamo_orig_callable")
