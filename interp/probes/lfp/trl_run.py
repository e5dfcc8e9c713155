"""Running a trl trainer on a copy of one of our models: settings, a KL bound, checkpoints, going on after a kill.

trl 1.16 has no PPO trainer any more; RLOO (Ahmadian et al. 2024, arXiv 2402.14740) is its online method with a reward
function and a KL penalty, DPO (Rafailov et al. 2023, arXiv 2305.18290) the one for pairs.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.device import RngBundle
from interp.core.files import read_json
from interp.core.progress import progress

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.probes.lfp.tuning_config import FeedbackTuning

BASE, CHECKPOINTS = "base", "checkpoints"
STATE = "trainer_state.json"  # the file that transformers writes last into a checkpoint
NAMES = {
    "completions/mean_length": "length",
    "rewards/accuracies": "accuracy",
    "rewards/margins": "margin",
}
KEPT = ("step", "reward", "kl", "kl_per_text", "length", "accuracy", "margin", "entropy", "loss")

logger = logging.getLogger(__name__)


def require_trl() -> Any:
    """The module trl; ImportError that says what to install."""
    try:
        import trl
    except ImportError as error:
        raise ImportError(
            "tuning on feedback needs trl (Python 3.11 or newer): pip install 'interp-toolkit[feedback]'"
        ) from error
    return trl


def check_model(model: LanguageModel) -> None:
    """Raise ValueError for a model that can't be tuned."""
    if model.engine != "huggingface" or model.truncated_from is not None:
        raise ValueError(
            f"model={model.name!r}: tuning needs a whole model of engine='huggingface', this one is "
            f"{model.engine!r}{' with only its first layers' if model.truncated_from else ''}"
        )
    if model.tokenizer is None:
        raise ValueError(
            f"model={model.name!r} has no tokenizer: load it with load_model(..., tokenizer=...)"
        )


def save_base(model: LanguageModel, work: Path) -> None:
    """Write the model where trl reads both the policy to be tuned and the reference from."""
    shutil.rmtree(work / BASE, ignore_errors=True)
    model.module.save_pretrained(work / BASE)  # type: ignore[operator]
    model.tokenizer.save_pretrained(work / BASE)


def load_policy(work: Path) -> tuple[Any, Any]:
    """A float32 copy of the base, to be trained, and its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    module = AutoModelForCausalLM.from_pretrained(work / BASE, dtype=torch.float32)
    return module, AutoTokenizer.from_pretrained(work / BASE)


def arguments(config: FeedbackTuning, model: LanguageModel, work: Path, *, keep: bool) -> dict[str, Any]:
    """The settings that trl's trainers share; `keep`: write checkpoints."""
    every = config.checkpoint_every if keep else 0
    return {
        "output_dir": str(work / CHECKPOINTS),
        "max_steps": config.steps,
        "per_device_train_batch_size": config.batch_size,
        "learning_rate": config.lr,
        "lr_scheduler_type": config.schedule,
        "warmup_steps": config.warmup_steps,
        "max_grad_norm": config.max_grad_norm,
        "beta": config.beta,
        "seed": config.seed,
        "save_strategy": "steps" if every else "no",
        "save_steps": every or 1,
        "save_total_limit": 2,  # a kill while one is written leaves the other
        "logging_steps": 1,
        "use_cpu": model.device.type == "cpu",
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "report_to": "none",
        "disable_tqdm": True,
    }


def last_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint that was written to its end; newer ones, cut off by a kill, are removed."""
    found = sorted((work / CHECKPOINTS).glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    for path in reversed(found):
        try:
            read_json(path / STATE, dict, nan=True)
        except (OSError, ValueError):
            logger.warning("%s was cut off while it was written: going back to the one before", path)
            shutil.rmtree(path)
        else:
            return path
    return None


def history(log: list[dict[str, Any]]) -> tuple[dict[str, float], ...]:
    """Our rows of the trainer's log, one per step."""
    rows = []
    for entry in log:
        if "loss" not in entry:
            continue  # the summary at the end
        named = {NAMES.get(key, key): value for key, value in entry.items()}
        if "kl" in named and "kl_per_text" not in named:
            named["kl_per_text"] = named["kl"] * named["length"]
        rows.append({key: named[key] for key in KEPT if named.get(key) is not None})
    return tuple(rows)


def run(
    trainer: Any,
    config: FeedbackTuning,
    work: Path,
    measure: Callable[[int], dict[str, float]] | None = None,
) -> str:
    """Train to the end, or until the KL passes its bound; returns why it ended.

    Args:
        measure: gives reward, KL and length at a step for trainers that don't sample by themselves, or {} where
            the step is not one to measure at.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    watch = _watch(config, measure)
    trainer.add_callback(watch)
    found = last_checkpoint(work)
    if found is not None:
        logger.info("going on from %s", found)
    trainer.train(resume_from_checkpoint=None if found is None else str(found))
    return watch.stopped


def _watch(config: FeedbackTuning, measure: Callable[[int], dict[str, float]] | None) -> Any:
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Shows progress and ends the run when the KL passes its bound."""

        stopped = "all steps taken"

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.bar = progress(total=state.max_steps, desc="tuning", unit="step")
            self.bar.update(state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in logs:
                return
            if measure is not None:
                measured = measure(state.global_step)
                logs |= measured
                state.log_history[-1].update(measured)
            kl = logs.get("kl")
            shown = ", ".join(f"{k} {logs[k]:.3f}" for k in ("reward", "kl") if k in logs)
            if shown:
                self.bar.set_postfix_str(shown, refresh=False)
            self.bar.update(1)
            if config.max_kl is not None and kl is not None and kl > config.max_kl:
                self.stopped = f"KL {kl:.3f} nats a token passed max_kl = {config.max_kl:g}"
                logger.warning("step %d: %s; stopping", state.global_step, self.stopped)
                control.should_training_stop = True
                control.should_save = False  # a run that goes on from here would take one step more

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.bar.close()

    return Watch()


@contextmanager
def by_itself() -> Iterator[None]:
    """Leave the global random generators, which trl seeds, as they were, and keep the libraries' own bars away."""
    from datasets.utils import logging as datasets_bars
    from transformers.utils import logging as transformers_bars

    generators = RngBundle.capture()
    shown = [bars for bars in (datasets_bars, transformers_bars) if bars.is_progress_bar_enabled()]
    for bars in shown:
        bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # trl 1.16 sets `gradient_checkpointing`, which transformers 5.24 renamed.
            warnings.filterwarnings("ignore", r".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        generators.restore()
        for bars in shown:
            bars.enable_progress_bar()
