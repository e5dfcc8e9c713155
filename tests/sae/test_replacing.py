"""A run that starts anew in a folder: nothing of the earlier one passes for its own, whenever it is killed."""

from __future__ import annotations

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.callbacks import Callback
from interp.sae.evaluate import evaluate
from interp.sae.loading import load_sae
from interp.sae.scores import SAEEvaluation
from interp.sae.training import train
from tests.sae.training_world import SMALL, X, parameters_equal

SHORT = {**SMALL, "steps": 5}


class Killed(Exception):
    pass


class KillAt30(Callback):
    def on_log(self, trainer, step, metrics):
        if step == 30:
            raise Killed


@pytest.mark.parametrize("names", [None, ("a", "b")])
def test_a_run_that_starts_anew_leaves_no_dictionary_that_could_pass_for_its_own(tmp_path, names):
    variants = None if names is None else {name: {} for name in names}
    folders = [tmp_path / name for name in names or ("",)]
    before = train(X, variants, out=tmp_path, **{**SMALL, "l1_coefficient": 3})
    before = before if isinstance(before, list) else [before]
    anew = {**SMALL, "l1_coefficient": 9, "resume": None, "checkpoint_every": None}
    with pytest.raises(Killed):
        train(X, variants, out=tmp_path, callbacks=[KillAt30()], **anew)
    for folder, old in zip(folders, before, strict=True):
        with pytest.raises(FileNotFoundError, match=r"unfinished run.*sae\.previous"):
            load_sae(folder)
        assert parameters_equal(load_sae(folder / "sae.previous"), old.sae)
        assert not (folder / "config.yaml").exists()
    train(X, variants, out=tmp_path, **anew)
    for folder in folders:
        assert load_sae(folder).metadata.l1_coefficient == 9
        assert not (folder / "sae.previous").exists()


def test_a_batch_that_is_refused_replaces_nothing(tmp_path):
    train(X, out=tmp_path, **SHORT)
    bad = X.clone()
    bad[:, 3] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        train(bad, out=tmp_path, resume=None, **SHORT)
    assert load_sae(tmp_path).metadata.steps == 5


def test_metrics_go_with_the_dictionary_that_they_are_of(tmp_path, caplog):
    first, metrics = train(X, out=tmp_path, **SHORT), tmp_path / "metrics.json"
    evaluate(first.sae, stream=TensorStream(X), progress=False).save(metrics)
    train(X, out=tmp_path, **SHORT)  # finished already: the same dictionary
    found = SAEEvaluation.of(load_sae(tmp_path), metrics)
    assert found is not None
    assert found.n_tokens == len(X)
    kept = metrics.read_bytes()
    second = train(X, out=tmp_path, resume=None, **{**SHORT, "seed": 1})
    assert not metrics.exists()
    metrics.write_bytes(kept)  # as if a kill had come before its removal
    assert SAEEvaluation.of(second.sae, metrics) is None
    assert "was measured on another dictionary" in caplog.text


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", " a", "a ", "", "x" * 201, "a\nb", "C:"])
def test_names_are_names(tmp_path, name):
    with pytest.raises(ValueError, match="will name a file or folder"):
        train(X, {name: {}}, out=tmp_path / "a" / "b", **SHORT)
    assert list(tmp_path.iterdir()) == []
