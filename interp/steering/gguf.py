"""Control vectors in GGUF, as llama.cpp (`--control-vector`) and vgel/repeng read them.

``direction.k`` is added to the output of block k, counted from 0: our ``resid_post.k``. In both programs there is no
direction for block 0: llama.cpp refuses a file that has one.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import torch

from interp.core.files import atomic_write
from interp.core.messages import warn_once
from interp.steering.vector import SteeringVector

log = logging.getLogger(__name__)

ARCHITECTURE = "controlvector"
_DIRECTION = re.compile(r"direction\.(\d+)")


def save_gguf(vector: SteeringVector, path: str | os.PathLike[str], *, model_hint: str | None = None) -> Path:
    """Write a control vector: float32 tensors ``direction.k``, without block 0.

    Args:
        model_hint: the architecture, e.g. "llama" (`LanguageModel.family`); None: the vector's ``meta["family"]``.

    Raises ValueError if the vector is not at resid_post, has nothing but layer 0, or names no architecture.
    """
    if vector.site != "resid_post":
        raise ValueError(f"a control vector is added to the output of blocks, this vector to {vector.site}")
    hint = vector.meta.get("family") if model_hint is None else model_hint
    if not hint:
        raise ValueError("model_hint: the vector doesn't say; give the model's architecture, e.g. 'llama'")
    layers = [layer for layer in vector.layers if layer > 0]
    if not layers:
        raise ValueError("the vector has layer 0 only, and llama.cpp can't steer after block 0")
    if len(layers) < len(vector.layers):
        warn_once(log, f"layer 0 of {path}", "layer 0 is left out: llama.cpp can't steer after block 0")
    from gguf import GGUFWriter

    path = Path(path)
    with atomic_write(path) as temporary:
        writer = GGUFWriter(temporary, ARCHITECTURE)
        writer.add_string(f"{ARCHITECTURE}.model_hint", hint)
        writer.add_uint32(f"{ARCHITECTURE}.layer_count", len(layers))
        for layer in layers:
            writer.add_tensor(f"direction.{layer}", vector[layer].detach().float().cpu().contiguous().numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


def load_gguf(path: str | os.PathLike[str]) -> SteeringVector:
    """Read a control vector's file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not GGUF, not a control vector, or holds none of its tensors.
    """
    from gguf import GGUFReader

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path} is not a readable GGUF file: {error}") from error

    def text(key: str) -> str:
        field = reader.get_field(key)
        return "" if field is None else str(field.contents())

    if text("general.architecture") != ARCHITECTURE:
        raise ValueError(f"{path} is a {text('general.architecture')!r} file, not a {ARCHITECTURE!r}")
    found = {int(m[1]): t for t in reader.tensors if (m := _DIRECTION.fullmatch(t.name))}
    if not found:
        raise ValueError(f"{path} holds no tensor named direction.<layer>")
    directions = {layer: torch.from_numpy(tensor.data.copy()).float() for layer, tensor in found.items()}
    meta = {"site": "resid_post", "family": text(f"{ARCHITECTURE}.model_hint"), "source": path.name}
    return SteeringVector(directions, meta)
