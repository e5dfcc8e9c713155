"""The loop: what it computes."""

from __future__ import annotations

import pytest
import torch

from interp.core.runtime import Runtime
from interp.core.stream import ArrayStream
from interp.core.task import LossOutput, OptimizerSpec
from interp.core.trainer import Trainer
from tests.core.tasks import Dropout, Fused, Linear, fit, float_stream, quiet, regression

CPU = Runtime("cpu")


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
