"""What tells one model from another: every bit of its weights, and all else that its activations depend on.

Each 8 KB of a tensor give two sums modulo 2^64, of its 64-bit words and of their upper halves, each word times a
fixed random odd number. An odd factor is invertible, so one changed word changes the first sum for certain. Of
changes to several words (a permutation, zeroed columns) the first sum misses one in 2^32 at most where a lower half
differs, the second where only upper halves do; in float32 models either is about one in 2^60. That is the
multilinear hashing of Lemire & Kaser (2014). The sums are integers: the same on every device, with any number of
threads. They are read in the order of the elements, whatever the strides, and go into one SHA-256 with name, dtype
and shape.

Nothing is remembered: neither a tensor's version counter nor its address tells of a write through `.data` or NumPy.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

HASHING = "sums-1"  # another name for another way of hashing: hashes of different ways aren't compared
_COMPARABLE = ("architecture", "n_layers", "dtype", "engine", "weight_processing", "hashing")
_Seen = dict[tuple[Any, ...], tuple[weakref.ref[Tensor], str]]
_WORDS = 1024
_BLOCK = 8 * _WORDS  # bytes
_BLOCKS_AT_A_TIME = {"cpu": 64}  # what stays in a core's cache; any other device:
_BLOCKS_ON_ACCELERATOR = 8192
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


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of dtype, shape and the sums of a dense tensor."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(sums(bytes_of(tensor)).cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    """SHA-256 of the sums of a file's bytes, in a tenth of the time that SHA-256 of the bytes may take."""
    digest = hashlib.sha256(f"{file.stat().st_size} ".encode())
    with file.open("rb") as stream:
        while part := stream.read(1 << 26):
            digest.update(
                sums(torch.frombuffer(bytearray(part), dtype=torch.uint8)).numpy().astype("<i8").tobytes()
            )
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> Tensor:
    """The bytes [n] of a dense tensor's elements in C order, without a copy where they lie so."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def sums(data: Tensor) -> Tensor:
    """The two sums of each block of bytes: int64 [2 blocks]; the last block is filled up with zeros."""
    if data.storage_offset() % 8:  # words must begin where words begin
        data = data.clone()
    whole = len(data) // _BLOCK
    rest = data[whole * _BLOCK :]
    found = torch.empty(2, whole + bool(len(rest)), dtype=torch.int64, device=data.device)
    _sum_blocks(data[: whole * _BLOCK].view(torch.int64).view(whole, _WORDS), found[:, :whole])
    if len(rest):
        _sum_blocks(F.pad(rest, (0, _BLOCK - len(rest))).view(torch.int64).view(1, _WORDS), found[:, whole:])
    return found


def _sum_blocks(words: Tensor, found: Tensor) -> None:
    first, second = _factors(words.device)
    step = _BLOCKS_AT_A_TIME.get(words.device.type, _BLOCKS_ON_ACCELERATOR)
    upper = torch.empty(min(step, len(words)), _WORDS, dtype=torch.int64, device=words.device)
    for start in range(0, len(words), step):
        here = slice(start, start + step)
        part = words[here]
        shifted = torch.bitwise_right_shift(part, 32, out=upper[: len(part)])
        _dot(part, first, found[0, here])
        _dot(shifted, second, found[1, here])


def _dot(words: Tensor, factors: Tensor, out: Tensor) -> None:
    if words.device.type == "cpu":  # needs no room for the terms; other devices don't have it for integers
        torch.mv(words, factors, out=out)
    else:
        torch.sum(words * factors, dim=-1, out=out)


@cache
def _factors(device: torch.device) -> tuple[Tensor, Tensor]:
    """Odd numbers [words], twice; from a hash function, lest they depend on a generator's version."""
    drawn = np.frombuffer(hashlib.shake_256(HASHING.encode()).digest(2 * _BLOCK), dtype="<i8") | 1
    first, second = torch.from_numpy(drawn.astype(np.int64)).view(2, _WORDS).to(device)
    return first, second


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
