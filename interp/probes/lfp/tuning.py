"""Tuning a language model on feedback: a reward of its own texts (RLOO), or pairs of better and worse ones (DPO).

Marks et al. 2024, arXiv 2310.08164, tune on a sum of word valences by PPO and on preference pairs by DPO.  Here RLOO
takes the place of PPO.  Reward, KL to the base and length are always told together: a sum over words pays for longer
texts, and far enough from the base any reward can be had.  A model of 190,000 parameters earns 2.2 at 0.6 nats a token
in sentences (lr 5e-4, beta 0.1, 120 steps), and 6.5 at 10 nats a token by "joyful joyful joyful ..." (lr 1e-3, beta
0.02, no bound); `max_kl=1` stops the latter at step 14.  ``scripts/reproduce/lfp.py --which b`` measures it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from interp.core.config import to_dict
from interp.core.device import derive_seed
from interp.core.files import read_json, write_json
from interp.core.identity import Identity
from interp.core.lock import RunLock
from interp.probes.lfp import trl_run
from interp.probes.lfp.sampling import (
    Reward,
    checked_prompts,
    continuations,
    measure,
    policy_divergence,
    scores,
)
from interp.probes.lfp.tuned import MODEL, RESULT, Behaviour, TunedModel, load_tuned, save_result
from interp.probes.lfp.tuning_config import FeedbackTuning, PreferenceTuning, RewardTuning

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

__all__ = [
    "PreferencePair",
    "PreferenceTuning",
    "RewardTuning",
    "tune_on_preferences",
    "tune_on_reward",
]
RUN, WORK = "run.json", "work"
T = TypeVar("T", bound=FeedbackTuning)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreferencePair:
    """A prompt with a better and a worse answer, each as it follows the prompt (with its leading blank, if any)."""

    prompt: str
    chosen: str
    rejected: str

    def __post_init__(self) -> None:
        if self.chosen == self.rejected:
            raise ValueError(
                f"chosen and rejected are the same, {self.chosen!r}: they say nothing, leave the pair out"
            )


def tune_on_reward(
    model: LanguageModel,
    prompts: Sequence[str],
    reward: Reward,
    config: RewardTuning | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    eval_prompts: Sequence[str] | None = None,
    resume: bool = True,
) -> TunedModel:
    """Tune a copy of a model to write what a reward function likes, by trl's RLOOTrainer.

    Args:
        prompts: what it writes after.
        reward: texts written (without prompt) -> a number each; the advantage of a text is its reward minus
            beta times its log-ratio to the base, minus the mean of that over the other texts of its prompt.
        config: defaults to `RewardTuning()`; a tiny model takes lr=5e-4.
        out: a folder for checkpoints and the tuned model. The same call goes on there after a kill, with the bits
            of a run that was never stopped (same machine and number of threads), and returns a finished result
            at once.
        eval_prompts: for the measurement before and after; by default 64 of `prompts`.
        resume: False starts anew and removes what `out` holds of an earlier run.

    Raises:
        ImportError: trl is not installed.
        ValueError: no prompts, a model that can't be tuned, a reward that is not a finite number per text, or an
            `out` that holds a run of other settings.

    Example:
        tuned = tune_on_reward(model, ["the film was", "a dull meal"], vader_word_reward, out="tuned")
    """
    trl = trl_run.require_trl()
    from datasets import Dataset

    config = RewardTuning() if config is None else _of_kind(config, RewardTuning)
    given = checked_prompts(prompts)

    def score(completions: list[str], **_: Any) -> list[float]:
        return scores(reward, completions).tolist()

    def train(work: Path) -> tuple[Any, str]:
        module, tokenizer = trl_run.load_policy(work)
        settings = trl.RLOOConfig(
            **trl_run.arguments(config, model, work, keep=out is not None),
            num_generations=config.samples_per_prompt,
            max_completion_length=config.max_new_tokens,
            temperature=config.temperature,
            shuffle_dataset=False,
        )
        trainer = trl.RLOOTrainer(
            model=module,
            reward_funcs=score,
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": _one_pass(given, config)}),
            processing_class=tokenizer,
        )
        return trainer, trl_run.run(trainer, config, work)

    about = {"method": "rloo", "reward": getattr(reward, "__qualname__", type(reward).__name__)}
    texts = _some(given) if eval_prompts is None else checked_prompts(eval_prompts)
    return _tune(model, config, about, [given, texts], train, texts, reward, out, resume)


def tune_on_preferences(
    model: LanguageModel,
    pairs: Sequence[PreferencePair],
    config: PreferenceTuning | None = None,
    out: str | os.PathLike[str] | None = None,
    *,
    reward: Reward | None = None,
    eval_prompts: Sequence[str] | None = None,
    resume: bool = True,
) -> TunedModel:
    """Tune a copy of a model to prefer the chosen answers, by trl's DPOTrainer.

    Args:
        pairs: at least one.
        config: defaults to `PreferenceTuning()`.
        reward: measured on what the model writes, beside KL and length; it takes no part in tuning.
        out, eval_prompts, resume: as for `tune_on_reward`; evaluation is on 64 of the pairs' prompts by default.

    Raises:
        as `tune_on_reward`.
    """
    trl = trl_run.require_trl()
    from datasets import Dataset

    from interp.models.loading import load_model

    config = PreferenceTuning() if config is None else _of_kind(config, PreferenceTuning)
    listed = list(pairs)
    if not listed:
        raise ValueError("pairs is empty: give at least one PreferencePair")
    prompts = checked_prompts([pair.prompt for pair in listed])
    texts = _some(prompts) if eval_prompts is None else checked_prompts(eval_prompts)

    def train(work: Path) -> tuple[Any, str]:
        module, tokenizer = trl_run.load_policy(work)
        settings = trl.DPOConfig(
            **trl_run.arguments(config, model, work, keep=out is not None), max_length=config.max_length
        )
        columns = {
            name: [getattr(pair, name) for pair in listed] for name in ("prompt", "chosen", "rejected")
        }
        trainer = trl.DPOTrainer(
            model=module, args=settings, train_dataset=Dataset.from_dict(columns), processing_class=tokenizer
        )
        live = load_model(module, tokenizer=tokenizer)

        def measured(step: int) -> dict[str, float]:
            if step % config.measure_every and step != config.steps:
                return {}
            now = _behaviour(live, model, texts, reward, config)
            values = {"kl": now.kl, "kl_per_text": now.kl_per_text, "length": now.length}
            return values if now.reward is None else {**values, "reward": now.reward}

        return trainer, trl_run.run(trainer, config, work, measured)

    about = {"method": "dpo", "reward": None if reward is None else getattr(reward, "__qualname__", "given")}
    content = [[pair.prompt, pair.chosen, pair.rejected] for pair in listed]
    return _tune(model, config, about, [content, texts], train, texts, reward, out, resume)


def _tune(
    model: LanguageModel,
    config: FeedbackTuning,
    about: dict[str, Any],
    data: Any,
    train: Callable[[Path], tuple[Any, str]],
    eval_prompts: list[str],
    reward: Reward | None,
    out: str | os.PathLike[str] | None,
    resume: bool,
) -> TunedModel:
    """Prepare the folder, train, save the model, measure; or return what is there already."""
    from interp.models.loading import load_model

    trl_run.check_model(model)
    digest = hashlib.sha256(json.dumps(data).encode()).hexdigest()
    print_of_model = {key: value for key, value in model.fingerprint().items() if key != "name"}
    identity = Identity.of("tuning", **about, config=to_dict(config), data=digest, model=print_of_model)
    with _folder(out) as folder, RunLock(folder, "tuning"):
        if _finished(folder, identity, resume):
            logger.info("%s holds the finished tuning", folder)
            shutil.rmtree(folder / WORK, ignore_errors=True)
            return load_tuned(folder, device=model.device)
        work = folder / WORK
        write_json(folder / RUN, identity.to_dict())
        with trl_run.by_itself():
            trl_run.save_base(model, work)
            trainer, stopped = train(work)
            shutil.rmtree(folder / MODEL, ignore_errors=True)
            trainer.model.save_pretrained(folder / MODEL)
            model.tokenizer.save_pretrained(folder / MODEL)
            tuned = load_model(folder / MODEL, device=model.device)
        result = TunedModel(
            tuned,
            about["method"],
            trl_run.history(trainer.state.log_history),
            _behaviour(model, model, eval_prompts, reward, config),
            _behaviour(tuned, model, eval_prompts, reward, config),
            trainer.state.global_step,
            stopped,
            None if out is None else folder / MODEL,
        )
        save_result(result, folder / RESULT)
        shutil.rmtree(work)
    return result


def _finished(folder: Path, identity: Identity, resume: bool) -> bool:
    """Whether the folder holds this run's result; ValueError where it holds another run."""
    if not resume:
        for path in (folder / RUN, folder / RESULT):
            path.unlink(missing_ok=True)
        for path in (folder / WORK, folder / MODEL):
            shutil.rmtree(path, ignore_errors=True)
    if not (folder / RUN).exists():
        return False
    path = folder / RUN
    identity.check(
        Identity.from_dict(read_json(path, dict), path),
        folder,
        "give the same, another folder, or resume=False to replace it",
    )
    return (folder / RESULT).exists()


def _behaviour(
    model: LanguageModel,
    base: LanguageModel,
    prompts: list[str],
    reward: Reward | None,
    config: FeedbackTuning,
) -> Behaviour:
    written = continuations(
        model,
        prompts,
        max_new_tokens=config.max_new_tokens,
        samples=config.eval_samples,
        temperature=config.temperature,
        seed=config.seed,
    )
    kl = policy_divergence(model, base, written)
    mean = measure(written, reward) if reward is not None else None
    return Behaviour(
        None if mean is None else mean.mean,
        None if mean is None or math.isnan(mean.standard_error) else mean.standard_error,
        float(written.lengths.mean()),
        kl.per_token,
        kl.per_text,
        f"{written.prompts[0]} … {written.texts[0]}",
    )


def _of_kind(config: Any, kind: type[T]) -> T:
    if not isinstance(config, kind):
        raise TypeError(f"config is a {type(config).__name__}: give a {kind.__name__}")
    return config


def _one_pass(prompts: list[str], config: RewardTuning) -> list[str]:
    """The prompts of all steps in their order, each shuffling of the given ones after the other.

    trl 1.16 draws its order anew at each epoch from a generator that a resumed run starts afresh, so there is one
    epoch only.
    """
    random = np.random.default_rng(derive_seed(config.seed, "order of prompts"))
    n = config.steps * (config.batch_size // config.samples_per_prompt)
    order = np.concatenate([random.permutation(len(prompts)) for _ in range(-(-n // len(prompts)))])
    return [prompts[i] for i in order[:n]]


def _some(prompts: list[str], n: int = 64) -> list[str]:
    """At most n of the distinct prompts, spread over all."""
    distinct = list(dict.fromkeys(prompts))
    step = max(1, len(distinct) // n)
    return distinct[::step][:n]


@contextmanager
def _folder(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="interp-tuning-") as temporary:
        yield Path(temporary)
