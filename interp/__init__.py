"""interp: from a language model and text to evaluated, browsable sparse dictionaries.

Public names are resolved on first use, so ``import interp`` costs nothing beyond the standard library.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Site": "interp.models.sites",
    "LanguageModel": "interp.models.language_model",
    "load_model": "interp.models.loading",
    "load_text": "interp.activations.text",
    "harvest": "interp.activations.harvest",
    "ActivationStore": "interp.activations.store",
    "GatedSAE": "interp.sae.architectures.gated",
    "StandardSAE": "interp.sae.architectures.standard",
    "load_sae": "interp.sae.loading",
    "register_architecture": "interp.sae.registry",
    "push_to_hub": "interp.sae.formats.hub",
    "train": "interp.sae.training",
    "evaluate": "interp.sae.evaluate",
    "report": "interp.sae.dashboard.report_folder",
    "Trainer": "interp.core.trainer",
    "TrainerConfig": "interp.core.trainer",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'interp' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
