"""Folders with a peft adapter: the model they belong to, and the adapter put into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from interp.core.files import read_json
from interp.models.wrapped import unwrapped


def base_of(folder: str) -> str | None:
    """The folder or hub name of the model that an adapter's folder was made for; None where it is no such folder.

    Raises:
        ValueError: an adapter that doesn't tell.
    """
    settings = Path(folder).expanduser() / "adapter_config.json"
    if not settings.is_file() or settings.with_name("config.json").is_file():
        return None
    base = read_json(settings).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ValueError(
            f"{settings} names no base_model_name_or_path: load that model, put the adapter into it with "
            "peft.PeftModel.from_pretrained and give the live model to load_model"
        )
    return base


def with_adapter(module: nn.Module, folder: str) -> nn.Module:
    """The model with the adapter of a folder in its layers."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ValueError(
            f"source={folder!r} is an adapter, which takes the package peft to load: pip install peft"
        ) from error
    wrapped: Any
    try:
        wrapped = PeftModel.from_pretrained(module, folder)  # type: ignore[arg-type]
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ValueError(f"source={folder!r}: the folder holds no loadable adapter ({error})") from error
    return unwrapped(wrapped).eval()
