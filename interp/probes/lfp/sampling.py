"""What a model writes after prompts: its reward, its length, and how far it has moved from another model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.device import derive_seed
from interp.core.messages import at_least
from interp.models.generation import end_tokens

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from interp.models.language_model import LanguageModel

Reward = Callable[[Sequence[str]], "ArrayLike"]
Logits = Callable[..., Tensor]


@dataclass(frozen=True)
class Continuations:
    """Texts that a model wrote after prompts; those of one prompt stand together.

    Attributes:
        prompts: one for every text.
        texts: what was written, without special tokens.
        prompt_ids, new_ids: token ids; the new ones end with the end-of-text token where it was written.
        samples: texts per prompt.
    """

    prompts: tuple[str, ...]
    texts: tuple[str, ...]
    prompt_ids: tuple[tuple[int, ...], ...]
    new_ids: tuple[tuple[int, ...], ...]
    samples: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens written, [n]."""
        return np.array([len(ids) for ids in self.new_ids])


@dataclass(frozen=True)
class RewardMeasurement:
    """The mean reward of what a model writes.

    Attributes:
        mean: over all texts.
        standard_error: of the mean, from the means of prompts (from the texts, where there is one prompt only);
            NaN of a single text.
        length: mean number of tokens written.
        rewards: of each text, [prompts samples].
        texts: what was written, in the order of `rewards`.
    """

    mean: float
    standard_error: float
    length: float
    rewards: NDArray[np.float64]
    texts: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per text."""
        import pandas as pd

        prompt, sample = np.indices(self.rewards.shape)
        columns = {"prompt": prompt.ravel(), "sample": sample.ravel(), "reward": self.rewards.ravel()}
        return pd.DataFrame({**columns, "text": self.texts})

    def __str__(self) -> str:
        return f"reward {self.mean:.3f} ± {self.standard_error:.3f}, {self.length:.1f} tokens, {len(self.texts)} texts"


@dataclass(frozen=True)
class PolicyDivergence:
    """KL(model || reference) in nats over texts that the model wrote.

    Attributes:
        per_token: mean over tokens written.
        per_text: mean over texts of the sum over a text's tokens.
        standard_error: of `per_text`.
    """

    per_token: float
    per_text: float
    standard_error: float


def continuations(
    model: LanguageModel,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 12,
    samples: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 64,
) -> Continuations:
    """Let a model go on from each prompt, `samples` times.

    Args:
        temperature: 0 takes the likeliest token each time.
        seed: same seed, same texts (of the same model and batch size).

    Raises:
        ValueError: no prompts, or a count below 1.
    """
    given = checked_prompts(prompts)
    for name, value in (("samples", samples), ("batch_size", batch_size), ("max_new_tokens", max_new_tokens)):
        at_least(name, value, 1)
    repeated = [prompt for prompt in given for _ in range(samples)]
    ends = set(end_tokens(model))
    before: list[tuple[int, ...]] = []
    new: list[tuple[int, ...]] = []
    for number, start in enumerate(range(0, len(repeated), batch_size)):
        batch = model.tokenize(repeated[start : start + batch_size])
        own = derive_seed(seed, "continuations", number)
        ids = model.generate(batch, max_new_tokens, temperature=temperature, seed=own)
        new += [_until_end(row, ends) for row in ids.tolist()]
        before += map(tuple, batch.rows())
    texts = model.tokenizer.batch_decode([list(ids) for ids in new], skip_special_tokens=True)
    return Continuations(tuple(repeated), tuple(texts), tuple(before), tuple(new), samples)


def measure(written: Continuations, reward: Reward) -> RewardMeasurement:
    """The reward of texts already written.

    Raises:
        ValueError: `reward` returns another number of values than it got texts, or one that is not finite.
    """
    rewards = scores(reward, written.texts).reshape(-1, written.samples)
    return RewardMeasurement(
        float(rewards.mean()), standard_error(rewards), float(written.lengths.mean()), rewards, written.texts
    )


def mean_reward(
    model: LanguageModel, prompts: Sequence[str], reward: Reward, **sampling: Any
) -> RewardMeasurement:
    """The mean reward of what a model writes after prompts; sampling options as for `continuations`.

    Example:
        mean_reward(model, ["the film was", "a meal with"], vader_word_reward, samples=8)
    """
    return measure(continuations(model, prompts, **sampling), reward)


def policy_divergence(
    model: LanguageModel, reference: LanguageModel, written: Continuations, *, batch_size: int = 32
) -> PolicyDivergence:
    """KL(model || reference) over texts that `model` wrote at temperature 1.

    At each token both next-token distributions are compared in full. That has the same expectation as the
    log-ratio of the tokens drawn, which tuning libraries log, and far less noise.
    """
    return divergence(model.logits, reference.logits, written, batch_size=batch_size)


def divergence(
    ours: Logits, theirs: Logits, written: Continuations, *, batch_size: int = 32
) -> PolicyDivergence:
    """As `policy_divergence`, of any two functions from token ids and mask to logits."""
    sums: list[float] = []
    for start in range(0, len(written.texts), batch_size):
        rows = slice(start, start + batch_size)
        pairs = list(zip(written.prompt_ids[rows], written.new_ids[rows], strict=True))
        ids, mask = padded([before + new for before, new in pairs])
        p = ours(ids, attention_mask=mask).float().log_softmax(-1)
        q = theirs(ids, attention_mask=mask).float().log_softmax(-1).to(p.device)
        kl: Float[Tensor, "b s"] = (p.exp() * (p - q)).sum(-1)
        for row, (before, new) in zip(kl, pairs, strict=True):
            sums.append(float(row[len(before) - 1 : len(before) + len(new) - 1].double().sum()))
    texts = np.array(sums).reshape(-1, written.samples)
    per_token = float(texts.sum() / written.lengths.sum())
    return PolicyDivergence(per_token, float(texts.mean()), standard_error(texts))


def scores(reward: Reward, texts: Sequence[str]) -> NDArray[np.float64]:
    """The rewards of texts [n], checked; raises as `measure` does."""
    values = np.asarray(reward(list(texts)), dtype=np.float64)
    if values.shape != (len(texts),):
        raise ValueError(
            f"reward returned values of shape {values.shape} for {len(texts)} texts: return one number a text"
        )
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"reward returned {values[at]} for {texts[at]!r}: rewards must be finite")
    return values


def checked_prompts(prompts: Sequence[str]) -> list[str]:
    """The prompts as a list; TypeError for one string, ValueError for none or for a blank one."""
    if isinstance(prompts, str):
        raise TypeError(f"prompts = {prompts!r} is one string: give a list of prompts")
    listed = list(prompts)
    if not listed:
        raise ValueError("prompts is empty: give at least one")
    if blank := [at for at, prompt in enumerate(listed) if not prompt.strip()]:
        raise ValueError(f"prompts[{blank[0]}] is blank: a model needs something to go on from")
    return listed


def _until_end(ids: list[int], ends: set[int]) -> tuple[int, ...]:
    last = next((k for k, token in enumerate(ids) if token in ends), len(ids) - 1)
    return tuple(ids[: last + 1])


def padded(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
    """Ids and mask of texts, padded on the right."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def standard_error(values: NDArray[np.float64]) -> float:
    """Of the mean of values [prompts samples]: from the prompts' means, or from one prompt's samples; else NaN."""
    means = values.mean(1) if len(values) > 1 else values[0]
    return float(means.std(ddof=1) / math.sqrt(len(means))) if len(means) > 1 else math.nan
