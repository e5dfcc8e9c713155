"""What happens between steps: early stopping, the best weights, callbacks of one's own."""

from __future__ import annotations

import pytest
import torch

from interp.core.callbacks import Callback, EarlyStopping, KeepBest
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput
from tests.core.tasks import Linear, fit, regression


def test_early_stopping_waits_for_its_patience():
    stopping = EarlyStopping("valid_loss", patience=2)
    losses = iter([5.0, 3.0, 4.0, 3.0, 1.0])

    class Scripted(Linear):
        def loss(self, batch, ctx):
            output = super().loss(batch, ctx)
            if torch.is_grad_enabled():
                return output
            return LossOutput(torch.tensor(next(losses)), 1)

    stream, valid = ArrayStream(regression()), ArrayStream(regression(5))
    trainer = fit(Scripted(), stream, (stopping,), valid, eval_every=2, max_steps=100)
    assert trainer.step == 8  # best at step 4, then 4.0 and 3.0 are no better
    assert stopping.best == 3.0
    assert "valid_loss has not improved in 2 evaluations" in trainer.stop_reason


def test_keep_best_writes_the_weights_of_the_best_evaluation(tmp_path):
    from safetensors.torch import load_file

    path = tmp_path / "best.safetensors"
    best = KeepBest(path)
    kept = {}

    class Worsening(Linear):
        def after_step(self, ctx):
            kept[ctx.step + 1] = self.model.weight.detach().clone()
            if ctx.step >= 4:
                self.model.weight.data.add_(3.0)

    stream, valid = ArrayStream(regression()), ArrayStream(regression())
    history = fit(Worsening(), stream, (best,), valid, eval_every=1).history
    steps, losses = history.column("valid_loss")
    assert steps[losses.index(min(losses))] == 4
    assert torch.equal(load_file(path)["model.weight"], kept[4])
    assert best.best == min(losses)


def test_a_callback_sees_the_logged_numbers_and_may_stop_the_run():
    seen = []

    class Watch(Callback):
        def on_log(self, trainer, step, metrics):
            seen.append((step, metrics["loss"]))
            if step == 6:
                trainer.stop("enough")

    trainer = fit(Linear(), ArrayStream(regression()), (Watch(),), log_every=3)
    assert (trainer.step, trainer.stop_reason) == (6, "enough")
    assert seen == [(row["step"], row["loss"]) for row in trainer.history]


@pytest.mark.parametrize("arguments", [{"patience": 0}, {"mode": "lowest"}])
def test_early_stopping_names_a_bad_argument(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        EarlyStopping(**arguments)


def test_a_monitor_that_is_not_measured_is_named():
    stopping = EarlyStopping("valid_accuracy")
    with pytest.raises(ValueError, match=r"'valid_accuracy' was not measured; measured: valid_loss"):
        fit(Linear(), ArrayStream(regression()), (stopping,), ArrayStream(regression()), eval_every=1)
