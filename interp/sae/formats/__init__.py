"""Dictionaries in other libraries' files. What an architecture is there, it says itself: see `interp.sae.foreign`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from interp.core.messages import one_of

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from interp.sae.dictionary import Dictionary
    from interp.sae.formats.shared import Format

NAMES = ("sparsify", "saelens", "dictionary_learning", "gemma_scope")  # in which order folders are tried


def format_of(name: str) -> Format:
    """A format by its name. Raises ValueError naming those that there are."""
    one_of("format", name, NAMES)
    found: Any = importlib.import_module(f"interp.sae.formats.{name}")
    return found.FORMAT  # type: ignore[no-any-return]


def all_formats() -> Iterator[Format]:
    """Each format."""
    return map(format_of, NAMES)


def save_as(sae: Dictionary, folder: str | os.PathLike[str], format: str) -> Path:
    """Write a dictionary as another library reads it, taking raw activations; ValueError where that has no words."""
    return format_of(format).save(sae, folder)
