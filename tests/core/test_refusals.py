"""What the Trainer refuses, and how it says so."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput
from interp.core.trainer import Trainer
from tests.core.tasks import Fused, Linear, fit, float_stream, quiet, regression

CPU = Runtime("cpu")


def test_a_nan_loss_names_the_step_and_the_last_good_checkpoint(tmp_path):
    class Poisoned(Linear):
        def loss(self, batch, ctx):
            output = super().loss(batch, ctx)
            return LossOutput(output.sum * (math.nan if ctx.step == 7 else 1.0), output.count)

    task = Poisoned()
    with pytest.raises(
        FloatingPointError, match=r"loss is nan at step 8; last good checkpoint: .*step_00000006"
    ):
        fit(task, ArrayStream(regression()), log_every=100, checkpoint_every=3, out_dir=str(tmp_path))
    assert task.model.weight.isfinite().all()


def test_a_nan_from_a_fused_update_is_not_saved(tmp_path):
    class Poisoned(Fused):
        def update(self, batch, ctx):
            return {"loss": math.nan if ctx.step == 5 else 1.0}

    with pytest.raises(FloatingPointError, match=r"step 6; last good checkpoint: .*step_00000004"):
        fit(Poisoned(), float_stream(), log_every=100, checkpoint_every=2, out_dir=str(tmp_path))


def test_a_nan_gradient_names_its_parameter():
    class Rooted(Linear):
        def loss(self, batch, ctx):
            output = super().loss(batch, ctx)
            return LossOutput(output.sum + self.model.weight.sum().abs().sqrt(), output.count)

    with pytest.raises(FloatingPointError, match=r"the gradient of model\.weight is nan at step 1"):
        fit(Rooted(), ArrayStream(regression()), grad_clip=1.0)


def test_a_loss_that_counts_nothing_is_refused():
    x, y = regression(10)
    with pytest.raises(ValueError, match="counted nothing in step 1"):
        fit(Linear(), ArrayStream((x, y, torch.zeros(10))))


def test_fp16_needs_cuda():
    with pytest.raises(ValueError, match="precision = 'fp16' needs a CUDA device, got cpu"):
        Runtime("cpu", "fp16")


def test_config_and_runtime_agree_on_the_precision():
    with pytest.raises(ValueError, match="precision = 'bf16' in the config, '32' in the runtime"):
        Trainer(quiet(precision="bf16"), CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_epochs": 1}, "exactly one of max_steps and max_epochs"),
        ({"max_steps": None}, "exactly one of max_steps and max_epochs"),
        ({"max_steps": 0}, "max_steps = 0"),
        ({"batch_size": 0}, "batch_size = 0"),
        ({"accumulate": 0}, "accumulate = 0"),
        ({"keep_last": 0}, "keep_last = 0"),
        ({"log_every": 0}, "log_every = 0"),
        ({"eval_every": 0}, "eval_every = 0"),
        ({"checkpoint_every": -1}, "checkpoint_every = -1"),
        ({"grad_clip": 0.0}, "grad_clip = 0.0"),
        ({"seed": -1}, "seed = -1"),
        ({"precision": "fp32"}, "precision = 'fp32' is not known"),
    ],
)
def test_a_bad_setting_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        quiet(**changes)


@pytest.mark.parametrize("changes", [{"accumulate": 2}, {"grad_clip": 1.0}])
def test_a_fused_task_can_not_be_split_or_clipped(changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes))} = .*takes its own steps"):
        fit(Fused(), float_stream(), **changes)


def test_validation_needs_a_loss_and_a_stream():
    with pytest.raises(TypeError, match="valid needs a task with loss"):
        fit(Fused(), float_stream(), valid=float_stream())
    with pytest.raises(ValueError, match="eval_every = 2, but there is no valid stream"):
        fit(Linear(), ArrayStream(regression()), eval_every=2)


def test_a_task_without_loss_or_update_is_refused():
    class Nothing:
        def modules(self):
            return {"model": nn.Linear(1, 1)}

    with pytest.raises(TypeError, match="Nothing needs loss and configure_optimizers, or update"):
        fit(Nothing(), float_stream())


def test_a_task_without_modules_is_refused():
    class Empty(Linear):
        def modules(self):
            return {}

    with pytest.raises(ValueError, match=r"task\.modules\(\) is empty"):
        fit(Empty(), ArrayStream(regression()))


class Endless:
    """A stream without a length, of empty batches."""

    epoch = samples = 0

    def next_batch(self, size, rank=0, world=1):
        return torch.zeros(0, 4), torch.zeros(0, 1)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_stream_of_empty_batches_is_refused():
    with pytest.raises(ValueError, match="empty batch"):
        fit(Linear(), Endless())


def test_epochs_and_evaluation_need_a_length():
    with pytest.raises(ValueError, match="max_epochs needs a stream with a length"):
        fit(Linear(), Endless(), max_steps=None, max_epochs=1)
    with pytest.raises(ValueError, match="evaluation needs a stream with a length"):
        Trainer(quiet(), CPU).evaluate(Linear(), Endless())


def test_evaluation_inside_an_epoch_is_refused():
    stream = ArrayStream(regression(20))
    stream.next_batch(7)
    with pytest.raises(ValueError, match="7 samples into an epoch"):
        Trainer(quiet(), CPU).evaluate(Linear(), stream)
