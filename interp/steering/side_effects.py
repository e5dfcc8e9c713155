"""What steering costs: how much worse, and how different, the model becomes where the behaviour is not at stake.

On neutral text: perplexity, and KL divergence from the unsteered model.  In what the steered model writes: its
perplexity under the unsteered model, which rises as the text falls apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.core.intervals import Array
from interp.core.progress import progress as progress_bar
from interp.models.inputs import TokenBatch
from interp.steering.apply import steer
from interp.steering.prompts import BASE, PromptVariation, render
from interp.steering.steerability import Steerability, steerability

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel
    from interp.steering.vector import SteeringVector

_LOGITS_AT_ONCE = 2**25  # two passes are compared: 256 MiB in float32 together


@dataclass(frozen=True)
class SideEffects:
    """Damage to neutral text, by multiplier.

    Attributes:
        multipliers: [k].
        perplexity: [k] exp of the mean cross-entropy per token.
        kl: [k] KL(unsteered || steered) of the next-token distributions in nats, mean over tokens.
        unsteered_perplexity: at multiplier 0.
        n_tokens: how many predictions were compared.
    """

    multipliers: Array
    perplexity: Array
    kl: Array
    unsteered_perplexity: float
    n_tokens: int

    @property
    def ratio(self) -> Array:
        """[k] perplexity over the unsteered model's."""
        return self.perplexity / self.unsteered_perplexity

    def to_frame(self) -> pd.DataFrame:
        """One row per multiplier."""
        import pandas as pd

        columns = {
            "multiplier": self.multipliers,
            "perplexity": self.perplexity,
            "ratio": self.ratio,
            "kl": self.kl,
        }
        return pd.DataFrame(columns).set_index("multiplier")

    def plot(self) -> Figure:
        """Perplexity and KL against the multiplier."""
        from interp.core.plotting import new_figure

        figure, (left, right) = new_figure(1, 2)
        left.plot(self.multipliers, self.perplexity, marker="o")
        left.axhline(self.unsteered_perplexity, color="grey", linewidth=0.8)
        left.set(xlabel="multiplier", ylabel="perplexity", title="neutral text; grey: unsteered")
        right.plot(self.multipliers, self.kl, marker="o")
        right.set(xlabel="multiplier", ylabel="nats per token", title="KL from the unsteered model")
        return figure

    def __str__(self) -> str:
        rows = [
            f"  {m:>10.2f} {p:>11.3f} {r:>7.3f} {kl:>8.4f}"
            for m, p, r, kl in zip(self.multipliers, self.perplexity, self.ratio, self.kl, strict=True)
        ]
        title = f"side effects on {self.n_tokens:,} tokens of neutral text, unsteered perplexity "
        header = f"  {'multiplier':>10} {'perplexity':>11} {'ratio':>7} {'KL':>8}"
        return "\n".join([title + f"{self.unsteered_perplexity:.3f}", header, *rows])


def side_effects(
    model: LanguageModel,
    vector: SteeringVector,
    *,
    multipliers: Sequence[float] = (-1.0, -0.5, 0.5, 1.0),
    texts: Sequence[str] | None = None,
    max_tokens: int = 64,
    operator: str = "add",
    progress: bool = True,
) -> SideEffects:
    """Run neutral text with and without steering at every token (all of the vector's layers).

    Args:
        texts: None: 24 held-out documents of the Python documentation.
        max_tokens: of each text, from its beginning.
        operator: see `steer`.

    Raises:
        ValueError: no multipliers, or no text of two tokens.
    """
    if not len(multipliers):
        raise ValueError("multipliers=[]: give at least one")
    tokens = neutral_tokens(model, texts, max_tokens)
    count, clean_loss = 0, 0.0
    loss, divergence = np.zeros((2, len(multipliers)))
    at_once = max(1, _LOGITS_AT_ONCE // (tokens.input_ids.shape[1] * (model.d_vocab or 1)))
    starts = range(0, len(tokens), at_once)
    for first in progress_bar(starts, desc="side effects", unit="batch", enabled=progress and "auto"):
        batch = TokenBatch(*(t[first : first + at_once] for t in _fields(tokens)))
        mask = batch.attention_mask[:, 1:].bool()
        clean, wanted = _log_probabilities(model, batch, mask)
        count += len(wanted)
        clean_loss -= float(clean.gather(1, wanted).cpu().double().sum())
        for n, multiplier in enumerate(multipliers):
            with steer(model, vector, multiplier, operator=operator):
                steered, _ = _log_probabilities(model, batch, mask)
            loss[n] -= float(steered.gather(1, wanted).cpu().double().sum())
            divergence[n] += float((clean.exp() * (clean - steered)).sum(-1).cpu().double().sum())
    return SideEffects(
        np.asarray(multipliers, dtype=np.float64),
        np.exp(loss / count),
        divergence / count,
        float(np.exp(clean_loss / count)),
        count,
    )


def neutral_tokens(model: LanguageModel, texts: Sequence[str] | None, max_tokens: int = 64) -> TokenBatch:
    """The beginning of neutral texts. Raises ValueError where none has two tokens."""
    tokens = model.tokenize(_neutral_texts() if texts is None else list(texts), max_length=max_tokens)
    if not tokens.attention_mask[:, 1:].any():
        raise ValueError("texts: none has two tokens, so that there is nothing to predict")
    return tokens


def _neutral_texts() -> list[str]:
    from interp.activations.text import load_text

    documents = load_text("python-docs", split="heldout", limit=600)
    return [text for text in documents if len(text) > 400][:24]


def _fields(tokens: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    return tokens.input_ids, tokens.attention_mask, tokens.position_ids


def _log_probabilities(model: LanguageModel, batch: TokenBatch, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of the next token wherever there is one [n vocab], and which it is [n 1]."""
    logits = model.logits(batch)[:, :-1]
    mask = mask.to(logits.device)
    targets = batch.input_ids.to(logits.device)[:, 1:][mask]
    return logits[mask].float().log_softmax(-1), targets[:, None]


@dataclass(frozen=True)
class Continuations:
    """What a model writes after each of n prompts at each of k multipliers.

    Attributes:
        multipliers: [k].
        prompts: [n].
        texts: [n][k].
        perplexity: [n k] of each continuation behind its prompt, under the unsteered model.
    """

    multipliers: Array
    prompts: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    perplexity: Array

    @property
    def fluency(self) -> Array:
        """[k] the geometric mean of the continuations' perplexities."""
        return np.exp(np.log(self.perplexity).mean(0))

    def score(self, scorer: Callable[[str], float]) -> Array:
        """[n k] a number for every text, such as its sentiment by a lexicon."""
        return np.array([[float(scorer(text)) for text in row] for row in self.texts])

    def steerability(self, scorer: Callable[[str], float], **options: Any) -> Steerability:
        """Per-prompt slopes of the score over the multiplier."""
        return steerability(self.multipliers, self.score(scorer), **options)

    def to_frame(self) -> pd.DataFrame:
        """One row per prompt and multiplier."""
        import pandas as pd

        rows = [
            {"prompt": prompt, "multiplier": m, "perplexity": p, "text": text}
            for prompt, row, ps in zip(self.prompts, self.texts, self.perplexity, strict=True)
            for m, p, text in zip(self.multipliers, ps, row, strict=True)
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        rows = [
            f"  {m:>10.2f} {f:>11.2f}  {self.texts[0][n][:80]!r}"
            for n, (m, f) in enumerate(zip(self.multipliers, self.fluency, strict=True))
        ]
        header = f"  {'multiplier':>10} {'perplexity':>11}  the first prompt's continuation"
        return "\n".join([f"continuations of {len(self.prompts)} prompts", header, *rows])


def continuations(
    model: LanguageModel,
    prompts: Sequence[str],
    vector: SteeringVector,
    *,
    multipliers: Sequence[float] = (-1.0, 0.0, 1.0),
    max_new_tokens: int = 24,
    temperature: float = 0.0,
    seed: int = 0,
    variation: PromptVariation = BASE,
    chat: bool | None = None,
    operator: str = "add",
    batch_size: int = 16,
    progress: bool = True,
) -> Continuations:
    """Let the steered model go on after each prompt, and judge what it wrote by the unsteered one.

    Steered are the prompt's last token and everything generated.

    Args:
        temperature, seed: of `LanguageModel.generate`; the same seed at every multiplier.

    Raises:
        ValueError: no prompts or multipliers.
    """
    if not len(prompts) or not len(multipliers):
        raise ValueError(
            f"prompts and multipliers: got {len(prompts)} and {len(multipliers)}; give at least one"
        )
    rows = [render(model, prompt, None, variation, chat).ids for prompt in prompts]
    texts: list[list[str]] = [[] for _ in rows]
    perplexity: list[list[float]] = [[] for _ in rows]
    steps = [(m, first) for m in multipliers for first in range(0, len(rows), batch_size)]
    for multiplier, first in progress_bar(steps, desc="writing", unit="batch", enabled=progress and "auto"):
        part = rows[first : first + batch_size]
        batch = _padded(part)
        with steer(model, vector, multiplier, positions="generation", operator=operator):
            new = model.generate(batch, max_new_tokens, temperature=temperature, seed=seed)
        written = [_up_to_the_end(ids, model.special_token_ids) for ids in new.tolist()]
        for i, (ids, value) in enumerate(zip(written, _perplexities(model, part, written), strict=True)):
            texts[first + i].append(model.tokenizer.decode(ids, skip_special_tokens=True))
            perplexity[first + i].append(value)
    return Continuations(
        np.asarray(multipliers, dtype=np.float64),
        tuple(prompts),
        tuple(map(tuple, texts)),
        np.array(perplexity),
    )


def _padded(rows: Sequence[list[int]]) -> TokenBatch:
    from interp.models.tokenization import pad_right

    return pad_right(rows, 0)


def _up_to_the_end(ids: list[int], special: frozenset[int]) -> list[int]:
    """Without what fills a row that ended early; the end token itself stays, it was written too."""
    end = next((i for i, token in enumerate(ids) if token in special), None)
    return ids if end is None else ids[: end + 1]


def _perplexities(
    model: LanguageModel, prompts: Sequence[list[int]], written: Sequence[list[int]]
) -> list[float]:
    whole = _padded([prompt + new for prompt, new in zip(prompts, written, strict=True)])
    losses = model.loss(whole).values
    result = []
    for row, prompt, new in zip(losses, prompts, written, strict=True):
        own = row[len(prompt) - 1 : len(prompt) - 1 + len(new)]
        result.append(float(own.cpu().double().mean().exp()))
    return result
