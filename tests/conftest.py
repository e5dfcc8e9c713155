"""Fixtures that many parts share: the small real model, once a session."""

from __future__ import annotations

import pytest

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model


@pytest.fixture(scope="session")
def smollm2() -> LanguageModel:
    """SmolLM2-135M-Instruct from its package (converted on first use, then about a second)."""
    return load_model("smollm2-135m")
