"""The training of one or several dictionaries on one stream, as a task of the Trainer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.config import to_dict
from interp.core.device import dtype_name, make_generator, resolve_device
from interp.core.schedules import Schedule
from interp.core.task import StepContext
from interp.sae.config import RunConfig, SAETrainConfig
from interp.sae.dictionary import Dictionary
from interp.sae.init import initial_b_dec
from interp.sae.kernels.lists import Losses
from interp.sae.resampling import fire_at_, resample_dead_
from interp.sae.scaling import activation_scale
from interp.sae.step import StepStats, make_step

_MEDIAN_ROWS = 16_384  # of the sample, for a geometric median
_START_ROWS = 8192  # of the sample, for the quantiles at which latents start to fire

_log = logging.getLogger(__name__)


class SAETask:
    """Dictionaries that are trained side by side: each batch is read once and every dictionary steps on it.

    Each has its own weights, optimiser, schedules and dead-latent counters, and ends with the same bits as if
    it had been trained alone.

    Args:
        stream: what the Trainer reads from; it also needs ``d`` and ``sample(n, seed)``, as every source of
            activations has, and ``widths`` where its rows are of several sites.
        configs: name -> configuration. The names head what is logged; the only one may be "".
        run: what they share.
        device: where to train.
        log_every: steps between two logged rows, as the Trainer's.
        before_first_step: called once, when it is certain that a step will be taken.
    """

    def __init__(
        self,
        stream: Any,
        configs: Mapping[str, SAETrainConfig],
        run: RunConfig,
        *,
        device: str | torch.device = "auto",
        log_every: int = 10,
        before_first_step: Callable[[], None] | None = None,
    ) -> None:
        if not configs:
            raise ValueError("configs is empty: name at least one dictionary to train")
        for needed in ("d", "sample"):
            if not hasattr(stream, needed):
                raise TypeError(
                    f"stream is a {type(stream).__name__} without .{needed}: wrap tensors and arrays in "
                    "interp.activations.stream.TensorStream"
                )
        self.stream, self.run, self.log_every = stream, run, log_every
        self.widths: tuple[int, ...] = tuple(getattr(stream, "widths", (stream.d,)))
        device = resolve_device(device)
        self.trained = {
            name: TrainedInPlace(config, run, self.widths, device) for name, config in configs.items()
        }
        self.scales: tuple[float, ...] | None = None
        self._before_first_step = before_first_step
        self._keys = {name: f"sae{i}" for i, name in enumerate(self.trained)}

    def modules(self) -> dict[str, nn.Module]:
        """The dictionaries, under keys that are safe in file formats."""
        return {self._keys[name]: one.sae for name, one in self.trained.items()}

    def config(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one it continues."""
        run = {
            key: value for key, value in to_dict(self.run).items() if key not in ("backend", "check_every")
        }
        dictionaries = {name: to_dict(one.config) for name, one in self.trained.items()}
        return {"run": run, "dictionaries": dictionaries, "widths": list(self.widths)}

    def update(self, batch: Any, ctx: StepContext) -> dict[str, float | Tensor]:
        """One step of every dictionary."""
        x = batch if isinstance(batch, Tensor) else batch.values
        if ctx.step % self.run.check_every == 0:
            self._check(x, ctx.step)
        if self._before_first_step is not None:
            self._before_first_step()
            self._before_first_step = None
        if self.scales is None:
            self.scales = self._start()
        parts = self._parts(x)
        log = (ctx.step + 1) % self.log_every == 0 or ctx.step + 1 == ctx.max_steps
        values: dict[str, float | Tensor] = {}
        for name, one in self.trained.items():
            x, target = parts[one.sae.sites]
            with ctx.runtime.autocast():
                stats = one.take_step(x, ctx.step, target)
            if log:
                prefix = f"{name}/" if name else ""
                numbers = one.numbers(x, stats, ctx.step, target)
                values.update({prefix + key: value for key, value in numbers.items()})
        return values

    def _parts(self, x: Float[Tensor, "n d"]) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Scaled input and target as each kind of dictionary here takes them, each made once."""
        assert self.scales is not None
        W_dec = next(iter(self.trained.values())).sae.W_dec
        scaled: dict[str, tuple[Tensor, Tensor | None]] = {}
        for sites in {one.sae.sites for one in self.trained.values()}:
            if sites == "pair":
                first, second = x.split(self.widths, dim=1)
                c_in, c_out = self.scales
                scaled[sites] = first.to(W_dec) * c_in, second.to(W_dec) * c_out
            elif len(self.widths) == 1:
                scaled[sites] = x.to(W_dec) * self.scales[0], None
            else:
                columns = [
                    W_dec.new_full((width,), c) for width, c in zip(self.widths, self.scales, strict=True)
                ]
                scaled[sites] = x.to(W_dec) * torch.cat(columns), None
        return scaled

    def after_step(self, ctx: StepContext) -> None:
        """Resample dead latents where it is due."""
        for name, one in self.trained.items():
            if ctx.step + 1 in one.resample_after:
                self._resample(name, one, ctx.step)
            if (ctx.step + 1) % self.run.check_every == 0:
                one.sae.after_many_steps_()

    def _resample(self, name: str, one: TrainedInPlace, step: int) -> None:
        if len(one.dead):
            changed = one.resample(self._sample(one.config.resampling.resample_rows, step), step)
            _log.info("%sresampled %d dead latents after step %d", name and f"{name}: ", changed, step + 1)

    def _start(self) -> tuple[float, ...]:
        """Estimate the scale of each site and set every b_dec."""
        sample = self._raw_sample(self.run.normalization_rows, 0)
        sites = sample.split(self.widths, dim=1)
        self.scales = tuple(activation_scale(part, self.run.normalization) for part in sites)
        shown = ", ".join(f"{c:.6g}" for c in self.scales)
        _log.info("activations scaled by %s (%s over %d rows)", shown, self.run.normalization, len(sample))
        for one in self.trained.values():
            how, rate = one.config.start.b_dec_init, one.config.start.start_fire_rate
            rows = sample[:: max(1, len(sample) // _MEDIAN_ROWS)] if how == "geometric_median" else sample
            decoded = zip(rows.split(self.widths, dim=1), self.scales, strict=True)
            means = [initial_b_dec(part, how) * c for part, c in decoded]
            with torch.no_grad():
                one.sae.b_dec.copy_(means[1] if one.sae.sites == "pair" else torch.cat(means))
                if rate is not None:
                    few = self._parts(sample[:: max(1, len(sample) // _START_ROWS)])[one.sae.sites][0]
                    fire_at_(one.sae, few, torch.arange(one.config.d_sae, device=few.device), rate)
        return self.scales

    def _raw_sample(self, n_rows: int, step: int) -> Float[Tensor, "n d"]:
        n_rows = min(n_rows, len(self.stream))
        seed = make_generator(self.run.seed, "sample", step).initial_seed()
        return self.stream.sample(n_rows, seed=seed)

    def _sample(self, n_rows: int, step: int) -> Float[Tensor, "n d"]:
        return self._parts(self._raw_sample(n_rows, step + 1))["one"][0]

    def _check(self, x: Tensor, step: int) -> None:
        if x.dim() != 2 or x.shape[1] != self.stream.d:
            raise ValueError(
                f"the batch of step {step + 1} has shape {tuple(x.shape)}, d_in = {self.stream.d} asks for "
                f"[n, {self.stream.d}]"
            )
        if not torch.isfinite(x).all():
            bad = int((~torch.isfinite(x)).any(1).sum())
            raise ValueError(
                f"{bad} of {len(x)} activations in the batch of step {step + 1} are NaN or infinite: harvest "
                "again, in float32 or bfloat16"
            )

    def state_dict(self) -> dict[str, Any]:
        """All that must resume besides the weights."""
        saes = {self._keys[name]: one.state_dict() for name, one in self.trained.items()}
        return {"scales": self.scales and list(self.scales), "saes": saes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.scales = state["scales"] and tuple(state["scales"])
        for name, one in self.trained.items():
            one.load_state_dict(state["saes"][self._keys[name]])


class TrainedInPlace:
    """One dictionary with its step, schedules and dead-latent counters."""

    def __init__(
        self, config: SAETrainConfig, run: RunConfig, widths: tuple[int, ...], device: torch.device
    ) -> None:
        self.config, self.run = config, run
        self.sae = build(config, widths, run, device)
        optimizer = config.optimizer
        self.step = make_step(
            self.sae,
            config.loss,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            grad_clip=optimizer.grad_clip,
            backend=run.backend,
        )
        self.silent_tokens: Int[Tensor, " F"] = torch.zeros(config.d_sae, dtype=torch.int64, device=device)
        self.warm_after = round(config.schedule.lr_warmup * run.steps)
        self.dead_after = max(1, round(config.resampling.dead_window * run.steps)) * run.batch_size
        self.resample_after = {max(1, round(share * run.steps)) for share in config.resampling.resample_at}
        self.restarts: list[int] = []
        self.l1 = Schedule(run.steps, warmup_steps=round(config.schedule.l1_warmup * run.steps))
        self.lr = self._lr_schedule()

    def _lr_schedule(self) -> Schedule:
        shares, steps = self.config.schedule, self.run.steps
        return Schedule(
            steps,
            warmup_steps=round(shares.lr_warmup * steps),
            warmup_from=shares.lr_warmup_from,
            warmup_shape=shares.lr_warmup_shape,
            decay="linear" if shares.lr_decay else "none",
            decay_steps=round(shares.lr_decay * steps),
            restarts=tuple(self.restarts),
            restart_steps=max(1, round(shares.lr_restart * steps)),
            restart_from=shares.lr_warmup_from,
        )

    def coefficients(self, step: int) -> tuple[float, float]:
        """(weight of the sparsity, learning rate) of a step."""
        loss, optimizer = self.config.loss, self.config.optimizer
        return loss.weight * self.l1(step), optimizer.lr * self.lr(step)

    def take_step(
        self, x: Float[Tensor, "n d"], step: int, target: Float[Tensor, "n e"] | None = None
    ) -> StepStats:
        """Update the weights and the dead-latent counters."""
        revives = self.sae.dead_term(self.config.loss) is not None
        dead = self.dead if revives else None
        stats = self.step(x, *self.coefficients(step), target=target, dead=dead)
        self.sae.after_step_(Losses(*stats[1:]), warmed_up=step >= self.warm_after)
        self.silent_tokens += len(x)
        self.silent_tokens.masked_fill_(stats.fired > 0, 0)
        return stats

    @property
    def dead(self) -> Int[Tensor, " k"]:
        """Latents that haven't fired for the dead-latent window."""
        return torch.nonzero(self.silent_tokens >= self.dead_after)[:, 0]

    def numbers(
        self, x: Float[Tensor, "n d"], stats: StepStats, step: int, target: Float[Tensor, "n e"] | None = None
    ) -> dict[str, Any]:
        """What is logged."""
        weight, lr = self.coefficients(step)
        y = x if target is None else target
        squared_error = float(stats.error) * len(y)
        if getattr(self.config.loss, "mse_reduction", "sum") == "mean":
            squared_error *= y.shape[1]
        variance = float((y - y.mean(0)).double().pow(2).sum())
        fvu = {"fvu": squared_error / variance} if variance > 0 else {}
        return {
            "loss": float(stats.loss),
            "reconstruction": float(stats.reconstruction),
            "sparsity": float(stats.sparsity),
            "auxiliary": float(stats.auxiliary),
            "l0": float(stats.l0),
            "open_gates": float(stats.open_gates),
            **fvu,
            "dead": len(self.dead) / self.config.d_sae,
            "l1_coefficient": weight,
            "lr": lr,
            "backend": self.step.backend_name,
        }

    def resample(self, sample: Float[Tensor, "n d"], step: int) -> int:
        """Revive dead latents and restart the learning rate; returns how many."""
        generator = make_generator(self.run.seed, "resample", step)
        rate = self.config.resampling.init_fire_rate
        changed = resample_dead_(self.sae, self.step, sample, self.dead, generator, init_fire_rate=rate)
        if len(changed):
            self.silent_tokens[changed] = 0
            self.restarts.append(step)
            self.lr = self._lr_schedule()
        return len(changed)

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step.state_dict(),
            "silent_tokens": self.silent_tokens,
            "restarts": self.restarts,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step.load_state_dict(state["step"])
        self.silent_tokens.copy_(state["silent_tokens"])
        self.restarts = list(state["restarts"])
        self.lr = self._lr_schedule()


def build(
    config: SAETrainConfig,
    widths: tuple[int, ...],
    run: RunConfig,
    device: torch.device | str = "cpu",
    *,
    empty: bool = False,
) -> Dictionary:
    """The untrained dictionary that a configuration describes, for rows of sites of these widths.

    All zeros if it is to be `empty`.
    """
    dtype = dtype_name(torch.float64 if run.precision == "64" else torch.float32)
    kind: Any = config.kind
    cfg = kind.config_class(**kind.shape(widths), dtype=dtype, **config.form)
    return kind(cfg, seed=None if empty else run.seed, device=device)  # type: ignore[no-any-return]
