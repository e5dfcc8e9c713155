"""Fixtures that many parts share: the small real model once a session, and tiny random ones."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import byte_tokenizer, tiny_model

logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored; what is tested must not depend on it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def smollm2() -> LanguageModel:
    """SmolLM2-135M-Instruct from its package (converted on first use, then about a second)."""
    return load_model("smollm2-135m")


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Any:
    """A byte-level tokenizer with a vocabulary of 260: <s> = 256, </s> = 257."""
    return byte_tokenizer()


@pytest.fixture(scope="session")
def tiny_llama(tiny_tokenizer: Any) -> LanguageModel:
    """A random llama: 3 layers, d_model 32, vocabulary 260, with `tiny_tokenizer`."""
    return load_model(tiny_model("llama"), tokenizer=tiny_tokenizer)


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_tokenizer: Any) -> LanguageModel:
    """A random GPT-2 (learned positions): 3 layers, d_model 32, vocabulary 260, contexts of 64."""
    return load_model(tiny_model("gpt2"), tokenizer=tiny_tokenizer)
