"""The example of the docs: an architecture in one file, used by everything that uses dictionaries."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
from interp.core.callbacks import Callback
from interp.sae import registry
from interp.sae.evaluate import evaluate
from interp.sae.formats.saelens import load_saelens, save_saelens
from tests.sae import tiny_world

DOCS = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
OPTIONS: dict[str, Any] = {
    "d_sae": 24,
    "batch_size": 64,
    "progress": False,
    "log_every": 5,
    "checkpoint_every": 5,
}


@pytest.fixture(scope="module")
def log_sae(tmp_path_factory):
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)[0]
    assert len(code.splitlines()) < 120
    folder = tmp_path_factory.mktemp("package")
    (folder / "log_sae_of_the_docs.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        importlib.import_module("log_sae_of_the_docs")
        yield registry.architecture("log")
    del registry._known["log"], sys.modules["log_sae_of_the_docs"]


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_log(self, trainer: Any, step: int, metrics: dict[str, float]) -> None:
        if step >= self.step:
            raise KeyboardInterrupt


def test_it_trains_to_what_its_loss_asks_for(log_sae) -> None:
    g = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(24, 16, generator=g), dim=1)
    codes = (torch.rand(4000, 24, generator=g) < 0.08) * (1 + torch.rand(4000, 24, generator=g))
    run = interp.train(
        codes @ directions, architecture="log", lr=1e-2, steps=600, log_coefficient=1.0, **OPTIONS
    )
    W = torch.nn.functional.normalize(run.sae.W_dec.detach(), dim=1)
    assert ((W @ directions.T).max(0).values > 0.9).float().mean() > 0.75
    assert run.history.last["backend"] == "dense"


def test_it_resumes_evaluates_reports_and_exports(log_sae, tmp_path) -> None:
    store, model = tiny_world.store(tmp_path / "store", 60), tiny_world.model()
    whole = interp.train(store, architecture="log", steps=20, out=tmp_path / "whole", **OPTIONS)
    stopped = {**OPTIONS, "callbacks": [StopAt(10)]}
    with pytest.raises(KeyboardInterrupt):
        interp.train(store, architecture="log", steps=20, out=tmp_path / "run", **stopped)
    going = {**OPTIONS, "callbacks": [StopAt(100)]}
    run = interp.train(store, architecture="log", steps=20, out=tmp_path / "run", **going)
    assert all(torch.equal(a, b) for a, b in zip(run.sae.parameters(), whole.sae.parameters(), strict=True))

    loaded = interp.load_sae(tmp_path / "run")
    assert type(loaded) is log_sae
    measured = evaluate(loaded, model, tiny_world.contexts(20), progress=False)
    assert measured.architecture == "log"
    assert measured.n_tokens > 0
    page = interp.report(tmp_path / "run", store, model, out=tmp_path / "report")
    assert page is not None
    assert (tmp_path / "report" / "index.html").is_file()

    x = torch.randn(5, loaded.cfg.d_in)
    back = load_saelens(save_saelens(loaded, tmp_path / "theirs"))
    assert torch.allclose(back(x).x_hat, loaded(x).x_hat, atol=1e-5)
    assert "log_coefficient = 1.0" in interp_options("log")


def interp_options(name: str) -> str:
    from interp.sae.option_text import list_options

    return list_options(name)


def test_names_are_taken_once(log_sae) -> None:
    with pytest.raises(ValueError, match=r"'log' is .*LogSAE already"):
        interp.register_architecture(type("Other", (log_sae,), {"__module__": "elsewhere"}))
    with pytest.raises(TypeError, match="architecture"):
        interp.register_architecture(type("Nameless", (torch.nn.Module,), {}))
