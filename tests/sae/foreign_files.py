"""Small folders as other libraries write them, and, in NumPy, what those libraries compute from them.

Written from the libraries' code alone: nothing of ours is used but the names of kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

D, F = 16, 40
K = 5
SIZES = [8, 12, 20]  # of the groups of a matryoshka

Arrays = Mapping[str, Any]


def relu(z):
    return np.maximum(z, 0)


def largest(score, k):
    """Which of each row are the k largest."""
    order = np.argsort(-score, axis=1, kind="stable")[:, :k]
    chosen = np.zeros(score.shape, bool)
    np.put_along_axis(chosen, order, True, axis=1)
    return chosen


def gated(xc, W, b_gate, b_mag, r_mag):
    """W is [d F]."""
    p = xc @ W
    return np.where(p + b_gate > 0, relu(np.exp(r_mag) * p + b_mag), 0)


def above(z, threshold):
    return z * (z > threshold)


def norms(W_dec):
    """Of W_dec [F d]."""
    return np.linalg.norm(W_dec, axis=1)


@dataclass(frozen=True)
class Case:
    """A kind of dictionary in a format.

    Attributes:
        shapes: of the tensors of weights, as they are stored.
        encode: activations and stored tensors -> codes.
        decode: codes and stored tensors -> reconstruction.
        more: tensors that are no weights.
        settings: beyond the usual ones.
    """

    format: str
    kind: str
    architecture: str
    shapes: Mapping[str, Any]
    encode: Callable[[np.ndarray, Arrays], np.ndarray]
    decode: Callable[[np.ndarray, Arrays], np.ndarray]
    more: Mapping[str, Tensor] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return f"{self.format}-{self.name or self.kind}"

    def tensors(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(len(self.kind) + len(self.shapes))
        drawn = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in self.shapes.items()}
        if "threshold" in drawn:
            drawn["threshold"] = drawn["threshold"].abs()
        return {**drawn, **self.more}


W = {"W_enc": (D, F), "W_dec": (F, D), "b_dec": D}
ONE = {**W, "b_enc": F}


def decode(f, t):
    return f @ t["W_dec"] + t["b_dec"]


def z(x, t):
    """Centred pre-activations of what stores W_enc."""
    return (x - t["b_dec"]) @ t["W_enc"] + t["b_enc"]


def by_norm(x, t):
    return largest(z(x, t) * norms(t["W_dec"]), K) * relu(z(x, t))


THETA = {"topk_threshold": torch.tensor(0.37, dtype=torch.float64)}

SAELENS = [
    Case("saelens", "standard", "standard", ONE, lambda x, t: relu(z(x, t)), decode),
    Case(
        "saelens",
        "gated",
        "gated",
        {**W, "b_gate": F, "b_mag": F, "r_mag": F},
        lambda x, t: gated(x - t["b_dec"], t["W_enc"], t["b_gate"], t["b_mag"], t["r_mag"]),
        decode,
    ),
    Case(
        "saelens",
        "jumprelu",
        "jumprelu",
        {**ONE, "threshold": F},
        lambda x, t: above(z(x, t), t["threshold"]),
        decode,
    ),
    Case(
        "saelens",
        "topk",
        "topk",
        ONE,
        lambda x, t: largest(z(x, t), K) * relu(z(x, t)),
        decode,
        settings={"k": K, "rescale_acts_by_decoder_norm": False},
    ),
    Case(
        "saelens",
        "topk",
        "topk",
        ONE,
        by_norm,
        decode,
        settings={"k": K, "rescale_acts_by_decoder_norm": True},
        name="topk rescaled",
    ),
    Case(
        "saelens",
        "abstopk",
        "topk",
        ONE,
        lambda x, t: largest(np.abs(z(x, t)), K) * z(x, t),
        decode,
        settings={"k": K, "rescale_acts_by_decoder_norm": False},
    ),
]
# Of training, which SAELens writes as jumprelu when it ends.
CHECKPOINTS = [
    Case(
        "saelens",
        "batchtopk",
        "batchtopk",
        ONE,
        lambda x, t: above(relu(z(x, t)), t["topk_threshold"]),
        decode,
        THETA,
        {"k": 4.5, "rescale_acts_by_decoder_norm": False, "topk_threshold_lr": 0.01},
    ),
    Case(
        "saelens",
        "batchtopk",
        "batchtopk",
        ONE,
        lambda x, t: relu(z(x, t)) * (z(x, t) * norms(t["W_dec"]) > t["topk_threshold"]),
        decode,
        THETA,
        {"k": 4.5, "rescale_acts_by_decoder_norm": True, "topk_threshold_lr": 0.01},
        "batchtopk rescaled",
    ),
    Case(
        "saelens",
        "matryoshka_batchtopk",
        "matryoshka",
        ONE,
        lambda x, t: above(relu(z(x, t)), t["topk_threshold"]),
        decode,
        THETA,
        {"k": 4, "rescale_acts_by_decoder_norm": False, "matryoshka_widths": [8, 20, 40]},
    ),
]

LINEAR = {"encoder.weight": (F, D), "encoder.bias": F, "decoder.weight": (D, F)}
K_TENSOR = {"k": torch.tensor(K, dtype=torch.int32)}
THRESHOLD = {"threshold": torch.tensor(0.41)}


def linear_z(x, t):
    return x @ t["encoder.weight"].T + t["encoder.bias"]


def linear_decode(bias):
    return lambda f, t: f @ t["decoder.weight"].T + t[bias]


DICTIONARY_LEARNING = [
    Case(
        "dictionary_learning",
        "AutoEncoder",
        "standard",
        {**LINEAR, "bias": D},
        lambda x, t: relu(linear_z(x - t["bias"], t)),
        linear_decode("bias"),
    ),
    Case(
        "dictionary_learning",
        "AutoEncoderNew",
        "standard",
        {**LINEAR, "decoder.bias": D},
        lambda x, t: relu(linear_z(x, t)),
        linear_decode("decoder.bias"),
    ),
    Case(
        "dictionary_learning",
        "GatedAutoEncoder",
        "gated",
        {
            "encoder.weight": (F, D),
            "decoder.weight": (D, F),
            "decoder_bias": D,
            "gate_bias": F,
            "mag_bias": F,
            "r_mag": F,
        },
        lambda x, t: gated(
            x - t["decoder_bias"], t["encoder.weight"].T, t["gate_bias"], t["mag_bias"], t["r_mag"]
        ),
        linear_decode("decoder_bias"),
    ),
    Case(
        "dictionary_learning",
        "JumpReluAutoEncoder",
        "jumprelu",
        {**ONE, "threshold": F},
        lambda x, t: above(x @ t["W_enc"] + t["b_enc"], t["threshold"]),
        decode,
    ),
    Case(
        "dictionary_learning",
        "AutoEncoderTopK",
        "topk",
        {**LINEAR, "b_dec": D},
        lambda x, t: largest(linear_z(x - t["b_dec"], t), K) * relu(linear_z(x - t["b_dec"], t)),
        linear_decode("b_dec"),
        {**K_TENSOR, **THRESHOLD},
        {"k": K},
    ),
    Case(
        "dictionary_learning",
        "BatchTopKSAE",
        "batchtopk",
        {**LINEAR, "b_dec": D},
        lambda x, t: above(relu(linear_z(x - t["b_dec"], t)), t["threshold"]),
        linear_decode("b_dec"),
        {**K_TENSOR, **THRESHOLD},
        {"k": K},
    ),
    Case(
        "dictionary_learning",
        "MatryoshkaBatchTopKSAE",
        "matryoshka",
        ONE,
        lambda x, t: above(relu(z(x, t)), t["threshold"]),
        decode,
        {**K_TENSOR, **THRESHOLD, "group_sizes": torch.tensor(SIZES)},
        {"k": K, "group_weights": [1 / 3] * 3, "group_sizes": SIZES},
    ),
]

SPARSIFY = [
    Case(
        "sparsify",
        "topk",
        "topk",
        {"encoder.weight": (F, D), "encoder.bias": F, "W_dec": (F, D), "b_dec": D},
        lambda x, t: largest(linear_z(x - t["b_dec"], t), K) * relu(linear_z(x - t["b_dec"], t)),
        decode,
        settings={"k": K},
    )
]

GEMMA_SCOPE = [
    Case(
        "gemma_scope",
        "jump_relu",
        "jumprelu",
        {**ONE, "threshold": F},
        lambda x, t: above(relu(x @ t["W_enc"] + t["b_enc"]), t["threshold"]),
        decode,
    )
]

E = 12  # a transcoder's output
MAPS = {"W_enc": (D, F), "W_dec": (F, E), "b_enc": F, "b_dec": E}
SQUARE = {"encoder.weight": (F, D), "encoder.bias": F, "W_dec": (F, D), "b_dec": D}


def linear(x, t):
    """Beside the code."""
    if "affine_skip_connection" in t:
        return x @ t["affine_skip_connection"]
    return x @ t["W_skip"].T if "W_skip" in t else 0.0


TRANSCODERS = [
    Case(
        "saelens",
        f"{jump}{skip}transcoder",
        "jumprelu_transcoder" if jump else "standard_transcoder",
        {**MAPS, **({"threshold": F} if jump else {}), **({"W_skip": (E, D)} if skip else {})},
        lambda x, t: above(relu(x @ t["W_enc"] + t["b_enc"]), t.get("threshold", 0.0)),
        decode,
        settings={"d_out": E, "apply_b_dec_to_input": False},
    )
    for jump in ("", "jumprelu_")
    for skip in ("", "skip_")
]
TRANSCODERS += [
    Case(
        "sparsify",
        "topk",
        "transcoder",
        {**SQUARE, **({"W_skip": (D, D)} if skip else {})},
        lambda x, t: largest(linear_z(x, t), K) * relu(linear_z(x, t)),
        decode,
        settings={"k": K, "transcode": True, "skip_connection": skip},
        name=f"transcoder{' skip' * skip}",
    )
    for skip in (False, True)
]
TRANSCODERS += [
    Case(
        "gemma_scope",
        "jump_relu",
        "jumprelu_transcoder",
        {**MAPS, "threshold": F, "affine_skip_connection": (D, E)},
        lambda x, t: above(relu(x @ t["W_enc"] + t["b_enc"]), t["threshold"]),
        decode,
        name="skip transcoder",
    )
]

WRITTEN = [*SAELENS, *DICTIONARY_LEARNING, *SPARSIFY, *GEMMA_SCOPE, *TRANSCODERS]
READ = [*WRITTEN, *CHECKPOINTS]


def case(name: str) -> Case:
    """By what pytest calls it."""
    return next(one for one in READ if str(one) == name)


def write(folder: Path, one: Case, /, tensors: dict[str, Tensor] | None = None, **settings: Any) -> Arrays:
    """Write a folder of that kind; a setting of None is left out. Returns its tensors."""
    tensors = one.tensors() if tensors is None else tensors
    folder.mkdir(exist_ok=True, parents=True)
    {
        "saelens": _saelens,
        "dictionary_learning": _dictionary_learning,
        "sparsify": _sparsify,
        "gemma_scope": _gemma_scope,
    }[one.format](folder, one, tensors, {**one.settings, **settings})
    return tensors


def arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def read_tensors(folder: Path, format: str) -> dict[str, Tensor]:
    """The tensors of a folder, by the libraries' own means."""
    from safetensors.torch import load_file

    if format == "dictionary_learning":
        return torch.load(folder / "ae.pt", weights_only=True)
    if format == "gemma_scope":
        with np.load(folder / "params.npz") as stored:
            return {name: torch.from_numpy(stored[name]) for name in stored.files}
    return load_file(folder / ("sae.safetensors" if format == "sparsify" else "sae_weights.safetensors"))


def _dump(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def _saelens(folder: Path, one: Case, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
    save_file(tensors, folder / "sae_weights.safetensors")
    usual = {
        "architecture": one.kind,
        "d_in": D,
        "d_sae": F,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": "6.5.0",
            "model_name": "gpt2",
            "hook_name": "blocks.5.hook_resid_post",
            "context_size": 128,
        },
    }
    _dump(folder / "cfg.json", {**usual, **settings})


def _dictionary_learning(
    folder: Path, one: Case, tensors: dict[str, Tensor], settings: dict[str, Any]
) -> None:
    torch.save(tensors, folder / "ae.pt")
    trainer = {
        "dict_class": one.kind,
        "activation_dim": D,
        "dict_size": F,
        "lm_name": "gpt2",
        "submodule_name": "resid_post.5",
        **settings,
    }
    kept = {k: v for k, v in trainer.items() if v is not None}
    _dump(folder / "config.json", {"trainer": kept, "buffer": {}})


def _sparsify(folder: Path, one: Case, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
    save_file(tensors, folder / "sae.safetensors")
    usual = {
        "activation": "topk",
        "expansion_factor": 32,
        "normalize_decoder": True,
        "num_latents": F,
        "k": 32,
        "multi_topk": False,
        "skip_connection": False,
        "transcode": False,
        "d_in": D,
    }
    _dump(folder / "cfg.json", {**usual, **settings})


def _gemma_scope(folder: Path, one: Case, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
    np.savez(folder / "params.npz", **arrays(tensors))
