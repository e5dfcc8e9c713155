"""What tells one model from another: every bit of its weights, and all else that its activations depend on.

Nothing is remembered: neither a tensor's version counter nor its address tells of a write through `.data` or NumPy.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.bit_sums import tensor_digest

_COMPARABLE = ("architecture", "n_layers", "dtype", "engine", "weight_processing", "hashing")
_Seen = dict[tuple[Any, ...], tuple[weakref.ref[Tensor], str]]
# Of a configuration, what doesn't reach the activations: where it came from, and defaults for generating and training.
_IMMATERIAL = {
    "architectures",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "id2label",
    "label2id",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "problem_type",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


def weights_hash(values: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and all bits of every tensor; of what is no tensor, over its value.

    Equal values give the same hash on whatever devices and in whatever layout they lie. Tied weights count under
    each of their names, tied or copied. The values are asked for one at a time.

    Raises:
        ValueError: a tensor without numbers (on the meta device), or a value of a type it can't look into.
    """
    digest = hashlib.sha256()
    seen: _Seen = {}
    for name in sorted(values):
        digest.update(f"{name} {_described(name, values[name], seen)}\n".encode())
    return digest.hexdigest()


def _described(name: str, value: Any, seen: _Seen) -> str:
    if isinstance(value, Tensor):
        parts = _dense_parts(name, value)
        if parts is not None:
            return f"{type(value).__name__}[{', '.join(_described(name, part, seen) for part in parts)}]"
        key = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if (
            key not in seen or seen[key][0]() is None
        ):  # an address tells of a tied weight only while that lives
            seen[key] = weakref.ref(value), tensor_digest(value)
        return seen[key][1]
    if isinstance(value, Mapping):
        inner = (f"{key!r}: {_described(name, value[key], seen)}" for key in sorted(value, key=repr))
        return f"{{{', '.join(inner)}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_described(name, part, seen) for part in value)}]"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        return repr(value)
    raise ValueError(
        f"{name} is a {type(value).__name__}, whose numbers can't be read, so the model's identity can't be known: "
        "load the model in a format that keeps its weights in tensors"
    )


def _dense_parts(name: str, tensor: Tensor) -> Sequence[Any] | None:
    """What a tensor that isn't a plain block of numbers consists of; None for a plain one."""
    if hasattr(tensor, "full_tensor"):  # spread over processes; all of them ask
        return [tensor.full_tensor()]
    if tensor.device.type == "meta":
        raise ValueError(
            f"{name} is on the meta device and nothing says where its numbers are, so the model's identity can't be "
            "known: load the weights, or have accelerate offload them"
        )
    if tensor.is_quantized:
        scheme = tensor.qscheme()
        if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            scale: list[Any] = [tensor.q_scale(), tensor.q_zero_point()]
        else:
            scale = [
                tensor.q_per_channel_scales(),
                tensor.q_per_channel_zero_points(),
                tensor.q_per_channel_axis(),
            ]
        return [str(scheme), tensor.int_repr(), *scale]
    if hasattr(tensor, "__tensor_flatten__"):  # a format with tensors inside, as torchao's
        inner, context = tensor.__tensor_flatten__()
        return [*(getattr(tensor, part) for part in inner), repr(context)]
    if tensor.layout != torch.strided:
        dense = tensor.to_dense()
        return [str(tensor.layout), dense]
    return None


def config_hash(config: Any) -> str | None:
    """SHA-256 of a transformers configuration: what numbers the code takes besides the weights."""
    if config is None:
        return None
    content = json.dumps(_material(config.to_dict()), sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _material(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {str(key): entry for key, entry in value.items()}
        return {k: _material(v) for k, v in kept.items() if k not in _IMMATERIAL and not k.startswith("_")}
    return [_material(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def libraries(*more: str) -> dict[str, str]:
    """Versions of the packages whose code computes the activations. A build's name (`+cpu`) is no version."""
    return {name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "transformers", *more)}


def remote_code(module: nn.Module) -> str | None:
    """SHA-256 of the Python files that came with the model, where its class isn't from an installed package."""
    home = sys.modules.get(type(module).__module__)
    file = getattr(home, "__file__", None)
    if file is None or not type(module).__module__.startswith("transformers_modules"):
        return None
    digest = hashlib.sha256()
    for path in sorted(Path(file).parent.glob("*.py")):
        digest.update(f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def of_other_weights(known: Mapping[str, Any] | None, found: Mapping[str, Any]) -> bool:
    """Whether two fingerprints of `LanguageModel.fingerprint` tell of different weights for certain.

    The same weights hash differently in another number format, engine or processing, with fewer layers loaded, or
    by another way of hashing: of such pairs, and of an unknown one, nothing is said.
    """
    if known is None or any(known.get(key) != found.get(key) for key in _COMPARABLE):
        return False
    return known.get("weights") != found.get("weights")
