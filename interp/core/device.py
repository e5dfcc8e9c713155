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
from collections.abc import Iterator
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
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device = {str(device)!r}, but torch sees {torch.cuda.device_count()} CUDA GPUs")
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
    """Seed the global generators of Python, NumPy and torch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def derive_seed(seed: int, *keys: int | str) -> int:
    """A seed below 2**63 for every (seed, *keys), as good as independent of every other's; a pure function.

    Raises ValueError for a negative seed or key.
    """
    numbers = [zlib.crc32(key.encode()) if isinstance(key, str) else int(key) for key in keys]
    if seed < 0:
        raise ValueError(f"seed = {seed} must not be negative")
    if min(numbers, default=0) < 0:
        raise ValueError(f"keys = {keys} of a seed must not be negative")
    # The keys go in as a spawn key: as further entropy, (1,) and (1, 0) would be the same seed.
    word = np.random.SeedSequence(seed, spawn_key=tuple(numbers)).generate_state(1, np.uint64)[0]
    return int(word) >> 1


def make_generator(seed: int, *keys: int | str, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator seeded by `derive_seed(seed, *keys)`."""
    generator = torch.Generator(device=device)
    generator.manual_seed(derive_seed(seed, *keys))
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


@contextlib.contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Within it, where `wanted`, torch refuses operations that may differ from run to run."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


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
    packages = (
        "interp-toolkit",
        "torch",
        "transformers",
        "transformer-lens",
        "numpy",
        "numba",
        "triton",
        "lightning-fabric",
    )
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: version for name in packages if (version := _version(name))},
        "git_commit": _git_commit(),
        "cpu_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
