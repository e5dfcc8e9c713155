"""Fixtures that many parts share: the small real model once a session, and tiny random ones."""

from __future__ import annotations

import functools
import logging
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from interp.core import device
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import byte_tokenizer, tiny_model

logging.getLogger("transformers").setLevel(logging.ERROR)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed-offset",
        type=int,
        default=0,
        help="add this to every seed that numpy's and torch's generators get: a bound must hold for other draws, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Shift all seeds alike: what is equal for equal seeds stays so. Processes that tests start are not shifted."""
    offset = config.getoption("--seed-offset")
    if not offset:
        return
    for owner, name in ((np.random, "default_rng"), (torch, "manual_seed"), (device, "derive_seed")):
        setattr(owner, name, _shifted(getattr(owner, name), offset))


def _shifted(seeded: Any, offset: int) -> Any:
    @functools.wraps(seeded, updated=())
    def call(seed: Any = None, *more: Any, **named: Any) -> Any:
        return seeded(seed + offset if type(seed) is int else seed, *more, **named)

    return call


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored; what is tested must not depend on it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a test (or a reader that it calls) silences must not be silent for the next one in the process."""
    before = _levels()
    yield
    for name in _levels():
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


def _levels() -> dict[str, int]:
    loggers = logging.root.manager.loggerDict.items()
    return {
        name: one.level
        for name, one in loggers
        if name.startswith("interp") and isinstance(one, logging.Logger)
    }


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
