"""Devices, number formats, seeds and what the machine is."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import random
import subprocess
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from interp.core.messages import one_of

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
ALIASES = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}
PRECISIONS = ("32", "bf16", "fp16", "64")


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """`auto` is the GPU of this rank (LOCAL_RANK), else Apple's, else the CPU; anything else as torch reads it.

    Raises ValueError when the device is unknown or not there.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device = {device!r} is not one that torch knows; use auto, cpu, cuda:0 or mps"
        ) from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device = {str(device)!r}, but torch sees no CUDA GPU; use device='cpu' or 'auto'")
    return resolved


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A torch dtype from itself or a name (`float32`, `bf16`, ...). Raises ValueError naming the choices."""
    if isinstance(dtype, torch.dtype):
        return dtype
    name = ALIASES.get(dtype, dtype)
    one_of("dtype", name, tuple(DTYPES))
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Autocast for `bf16` and `fp16`; nothing for `32` and `64`. fp16 needs CUDA (its gradients need scaling)."""
    one_of("precision", precision, PRECISIONS)
    if precision == "fp16" and device.type != "cuda":
        raise ValueError(f"precision = 'fp16' needs a CUDA device, got {device}; use 'bf16' or '32'")
    if precision in ("32", "64"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def make_generator(seed: int, *keys: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """An independent torch generator for every (seed, *keys); a pure function of its arguments."""
    numbers = [zlib.crc32(key.encode()) if isinstance(key, str) else key for key in keys]
    word = np.random.SeedSequence([seed, *numbers]).generate_state(2, np.uint32)
    generator = torch.Generator(device=device)
    generator.manual_seed(int(word[0]) << 31 ^ int(word[1]))
    return generator


@dataclass
class RngBundle:
    """The state of every global generator, as tensors and numbers that load without pickle."""

    state: dict[str, Any]

    @classmethod
    def capture(cls) -> RngBundle:
        version, words, gauss = random.getstate()
        name, keys, position, has_gauss, cached = np.random.get_state()
        return cls(
            {
                "python": [version, list(words), gauss],
                "numpy": [name, torch.from_numpy(np.asarray(keys, np.int64)), position, has_gauss, cached],
                "torch": torch.get_rng_state(),
                "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
            }
        )

    def restore(self) -> None:
        version, words, gauss = self.state["python"]
        random.setstate((version, tuple(words), gauss))
        name, keys, position, has_gauss, cached = self.state["numpy"]
        np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        torch.set_rng_state(self.state["torch"])
        if self.state["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(self.state["cuda"])


@functools.cache
def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 natively; without it bf16 is slower than float32."""
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read()
    except OSError:
        return False
    return "avx512_bf16" in text or "amx_bf16" in text or " bf16" in text


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the project that the user works in, if it is one."""
    try:
        out = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return out.stdout.strip() or None if out.returncode == 0 else None


def environment() -> dict[str, Any]:
    """Versions, git commit and hardware, to be kept beside every result."""
    packages = ("interp-toolkit", "torch", "transformers", "transformer-lens", "numpy", "numba", "triton")
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: version for name in packages if (version := _version(name))},
        "git_commit": _git_commit(),
        "cpu_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
