"""The loop: what it computes, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from interp.core.callbacks import Callback, EarlyStopping, KeepBest
from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec
from interp.core.trainer import Trainer, TrainerConfig
from tests.core.tasks import Dropout, Fused, Linear, float_stream, regression

CPU = Runtime("cpu")


def quiet(**changes) -> TrainerConfig:
    return TrainerConfig(**{"max_steps": 10, "progress": False, "log_every": 1, **changes})


def fit(task, stream, callbacks=(), valid=None, resume="auto", **changes):
    config = quiet(**changes)
    trainer = Trainer(config, Runtime("cpu", config.precision), callbacks)
    trainer.fit(task, stream, valid, resume)
    return trainer


# ---- what is computed


def test_reaches_the_least_squares_solution():
    x, y = regression()
    task = Linear()
    history = fit(task, ArrayStream((x, y)), max_steps=400, batch_size=60, log_every=400).history
    solution = torch.linalg.lstsq(x, y).solution
    torch.testing.assert_close(task.model.weight.T, solution, rtol=1e-10, atol=1e-10)
    residual = (x @ solution - y).square().mean().item()
    assert history.last["loss"] == pytest.approx(residual, rel=1e-10)


def test_one_step_is_the_optimisers_step_on_the_mean_loss():
    x, y = (part.float() for part in regression(32))
    task, by_hand = Linear(dtype=torch.float32), Linear(dtype=torch.float32)
    fit(task, ArrayStream((x, y), shuffle=False), max_steps=1, batch_size=32)
    (by_hand.model(x) - y).square().sum().div(32).backward()
    by_hand.model.weight.data -= 0.1 * by_hand.model.weight.grad
    assert torch.equal(task.model.weight, by_hand.model.weight)


@pytest.mark.parametrize("accumulate", [2, 4, 5])
@pytest.mark.parametrize("grad_clip", [None, 0.5])
def test_accumulation_is_exact_under_uneven_masks_and_a_short_last_batch(accumulate, grad_clip):
    x, y = regression(47)
    mask = torch.arange(47) % 7 < 2 + torch.arange(47) % 3
    runs = []
    for parts in (1, accumulate):
        task = Linear()
        stream = ArrayStream((x, y, mask), seed=1)
        trainer = fit(task, stream, max_steps=15, batch_size=20, accumulate=parts, grad_clip=grad_clip)
        runs.append((task.model.weight.detach().clone(), trainer.history))
    (whole, history), (pieces, in_parts) = runs
    torch.testing.assert_close(whole, pieces, rtol=0, atol=1e-12)
    for name in ("loss", "rmse2"):
        torch.testing.assert_close(
            torch.tensor(history.column(name)[1]), torch.tensor(in_parts.column(name)[1]), rtol=1e-12, atol=0
        )
    assert history.column("samples")[1][:4] == [20, 40, 47, 67]


def test_a_logged_mean_is_the_sum_over_the_count_of_all_micro_batches():
    x, y = regression(6)
    mask = torch.tensor([1, 0, 0, 1, 1, 1])
    trainer = fit(Linear(), ArrayStream((x, y, mask), shuffle=False), max_steps=1, batch_size=6, accumulate=2)
    row = trainer.history.rows[0]
    expected = (y[:, 0].square() * mask).sum().item() / 4
    assert row["loss"] == pytest.approx(expected, rel=1e-14)
    assert row["rmse2"] == row["loss"]
    assert row["rows"] == 3.0  # a plain number is a mean already


def test_the_schedule_is_a_function_of_the_step_and_is_asked_once_a_step():
    asked = []

    class Scheduled(Linear):
        def configure_optimizers(self, max_steps):
            spec = super().configure_optimizers(max_steps)
            return OptimizerSpec(spec.optimizer, lambda step: asked.append(step) or 1 / (step + 1))

    history = fit(Scheduled(), ArrayStream(regression()), max_steps=100, accumulate=2).history
    assert asked == list(range(100))
    assert history.column("lr")[1] == pytest.approx([0.1 / (step + 1) for step in range(100)])


def test_epochs_end_with_a_short_batch():
    seen = []

    class Counting(Linear):
        def loss(self, batch, ctx):
            seen.append(len(batch[0]))
            assert ctx.max_steps == 6
            return super().loss(batch, ctx)

    fit(Counting(), ArrayStream(regression(25)), max_steps=None, max_epochs=2, batch_size=10)
    assert seen == [10, 10, 5, 10, 10, 5]


def test_gradients_are_clipped_to_the_norm():
    x, y = regression(32)
    task = Linear(lr=1.0)
    history = fit(task, ArrayStream((x, y)), max_steps=1, batch_size=32, grad_clip=0.25).history
    assert task.model.weight.norm().item() == pytest.approx(0.25, rel=1e-5)
    gradient = 2 * (x.T @ y / 32).norm().item()
    assert history.last["grad_norm"] == pytest.approx(gradient)


def test_bf16_computes_in_bfloat16_and_keeps_float32_state():
    seen = []

    class Looking(Linear):
        def loss(self, batch, ctx):
            seen.append((ctx.precision, ctx.modules["model"](batch[0]).dtype))
            return super().loss(batch, ctx)

        def configure_optimizers(self, max_steps):
            self.optimizer = torch.optim.Adam(self.model.parameters())
            return OptimizerSpec(self.optimizer)

    task = Looking(dtype=torch.float32)
    fit(task, float_stream(), max_steps=2, precision="bf16")
    assert seen == [("bf16", torch.bfloat16)] * 2
    assert task.model.weight.dtype == torch.float32
    state = task.optimizer.state[task.model.weight]
    assert {state["exp_avg"].dtype, state["exp_avg_sq"].dtype} == {torch.float32}


def scaled(init_scale: float) -> Runtime:
    """The CPU with the loss scaling that fp16 has on a GPU."""
    runtime = Runtime("cpu")
    runtime.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    return runtime


@pytest.mark.parametrize(
    "changes", [{}, {"accumulate": 3}, {"grad_clip": 0.5}, {"accumulate": 3, "grad_clip": 0.5}]
)
def test_loss_scaling_changes_no_bit(changes):
    weights = []
    for runtime in (CPU, scaled(2.0**10)):
        task = Linear()
        Trainer(quiet(batch_size=20, **changes), runtime).fit(task, ArrayStream(regression()))
        weights.append(task.model.weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize("grad_clip", [None, 1.0])
def test_a_step_whose_scaled_gradient_overflows_is_left_out_and_counted(grad_clip):
    kept = []

    class Overflowing(Linear):
        def loss(self, batch, ctx):
            kept.append(self.model.weight.detach().clone())
            output = super().loss(batch, ctx)
            factor = 1e300 if ctx.step == 3 else 1.0
            return LossOutput(output.sum * factor, output.count)

    runtime = scaled(2.0**40)
    history = Trainer(quiet(grad_clip=grad_clip), runtime).fit(Overflowing(), ArrayStream(regression()))
    assert torch.equal(kept[4], kept[3])
    assert not torch.equal(kept[5], kept[4])
    assert history.column("skipped_steps")[1] == [0] * 3 + [1] * 7
    assert runtime.scaler.get_scale() == 2.0**39


def test_precision_64_makes_modules_and_batches_float64():
    task = Linear(dtype=torch.float32)
    fit(task, float_stream(), max_steps=300, batch_size=60, precision="64")
    assert task.model.weight.dtype == torch.float64
    x, y = regression()
    solution = torch.linalg.lstsq(x.float().double(), y.float().double()).solution
    torch.testing.assert_close(task.model.weight.T, solution, rtol=1e-10, atol=1e-10)


def test_evaluation_is_the_exact_mean_and_leaves_model_and_stream_as_they_were():
    x, y = regression(47)
    mask = torch.arange(47) % 3 > 0
    task = Dropout()
    task.net[1].eval()
    valid = ArrayStream((x.float(), y.float()), seed=5)
    trainer = Trainer(quiet(batch_size=10), CPU)
    first = trainer.evaluate(task, valid)
    assert trainer.evaluate(task, valid) == first
    assert (valid.epoch, valid.samples) == (0, 0)
    assert task.net.training
    assert task.net[3].training
    assert not task.net[1].training
    task.net.eval()
    expected = (task.net(x.float()) - y.float()).square().mean().item()
    assert first["loss"] == pytest.approx(expected, rel=1e-6)
    masked = Trainer(quiet(batch_size=10), CPU).evaluate(Linear(), ArrayStream((x, y, mask)))
    assert masked["loss"] == pytest.approx(
        (y[:, 0].square() * mask).sum().item() / mask.sum().item(), rel=1e-13
    )


def test_evaluations_change_nothing_in_the_training():
    weights = []
    for every in (None, 3):
        task = Dropout()
        valid = float_stream(20, seed=9) if every else None
        fit(task, float_stream(), valid=valid, eval_every=every, max_steps=10)
        weights.append(task.net[0].weight)
    assert torch.equal(*weights)


def test_validation_rows_join_the_training_rows_of_their_step():
    history = fit(
        Linear(), ArrayStream(regression()), valid=ArrayStream(regression(20)), eval_every=4
    ).history
    assert [row["step"] for row in history] == list(range(1, 11))
    assert history.column("valid_loss")[0] == [4, 8, 10]


def test_a_fused_task_takes_its_own_steps():
    task = Fused()
    history = fit(task, float_stream(), max_steps=40, progress=True).history
    assert task.updates == 40
    assert history.column("route")[1] == ["plain"] * 40
    assert history.column("updates")[1] == [float(i) for i in range(1, 41)]
    assert history.rows[-1]["loss"] < history.rows[0]["loss"] / 10


def test_compiled_modules_keep_their_keys_and_numbers(tmp_path):
    runs = {}
    for name, backend in (("plain", False), ("compiled", "eager")):
        task = Dropout()
        trainer = fit(task, float_stream(), max_steps=4, compile=backend, out_dir=str(tmp_path / name))
        runs[name] = trainer.weights()
    assert list(runs["plain"]) == list(runs["compiled"])
    for key, value in runs["plain"].items():
        torch.testing.assert_close(runs["compiled"][key], value)
    for saved, backend in (("plain", "eager"), ("compiled", False)):
        trainer = fit(
            Dropout(seed=1), float_stream(), max_steps=5, compile=backend, out_dir=str(tmp_path / saved)
        )
        assert trainer.step == 5
        assert len(trainer.history) == 5


def test_deterministic_is_in_force_during_the_run_only():
    seen = []

    class Looking(Linear):
        def loss(self, batch, ctx):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return super().loss(batch, ctx)

    fit(Looking(), ArrayStream(regression()), max_steps=1, deterministic=True)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_bar_shows_steps_and_loss(capsys):
    fit(Linear(), ArrayStream(regression()), progress=True, max_steps=4)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("train: 100%")
    assert "4/4" in last
    assert "loss=" in last
    fit(Linear(), ArrayStream(regression()), max_steps=4)
    assert capsys.readouterr().err == ""


def test_the_clock_counts_steps_and_samples():
    history = fit(Linear(), ArrayStream(regression(30)), batch_size=10, log_every=3, max_steps=9).history
    assert history.column("samples")[1] == [30, 60, 90]
    seconds = history.column("seconds")[1]
    rates = history.column("samples_per_second")[1]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    for rate, before, after in zip(rates[1:], seconds, seconds[1:], strict=False):
        assert rate == pytest.approx(30 / (after - before))


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    weights = []
    for seed in (0, 0, 1):
        task = Dropout()
        fit(task, float_stream(), seed=seed)
        weights.append(task.net[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_second_fit_starts_anew():
    trainer = Trainer(quiet(max_steps=3), CPU)
    first = trainer.fit(Linear(), ArrayStream(regression()))
    second = trainer.fit(Linear(), ArrayStream(regression()))
    assert [row["loss"] for row in first] == [row["loss"] for row in second]
    assert len(second) == 3


def test_mappings_and_single_tensors_are_batches_too():
    class Mean(Linear):
        def loss(self, batch, ctx):
            x = batch["x"] if isinstance(batch, dict) else batch
            return LossOutput((ctx.modules["model"](x) - 1).square().sum(), len(x))

    x, _ = regression(20)
    weights = []
    for tensors in (x, {"x": x}):
        task = Mean()
        fit(task, ArrayStream(tensors), batch_size=7, accumulate=3)
        weights.append(task.model.weight)
    assert torch.equal(*weights)


# ---- callbacks


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


# ---- what is refused


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
