"""Taking features out of a model's MLP outputs, and what that does to the reward of what it writes.

Marks et al. 2024, arXiv 2310.08164, ablate the features that a probe of feedback relies on.  Whether a loss of reward
says anything about those features shows beside as many others that are active on the same texts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.device import derive_seed
from interp.core.messages import at_least, one_of
from interp.core.progress import progress
from interp.models.sites import Site
from interp.probes.lfp.features import checked_latents
from interp.probes.lfp.sampling import (
    Continuations,
    Reward,
    continuations,
    divergence,
    measure,
    padded,
    standard_error,
)
from interp.sae.codes import SparseCodes
from interp.sae.rows import TrainedRows
from interp.sae.splice import spliced

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from interp.models.language_model import LanguageModel
    from interp.sae.dictionary import Dictionary

MODES = ("error_preserving", "reconstruct")
NOTHING, CHOSEN, RANDOM = "nothing", "chosen features", "random features"
ALIKE = 5  # latents that fire about as often as a given one, of which a random one is drawn
Features = Mapping[int, Sequence[int]]

logger = logging.getLogger(__name__)


@contextmanager
def ablate_features(
    model: LanguageModel,
    saes: Mapping[int, Dictionary],
    features: Features,
    mode: str = "error_preserving",
) -> Iterator[None]:
    """Run the model with latents of its MLP outputs' SAEs silent.

    Rows for which an SAE was not trained (`TrainedRows`: the first, special tokens, sinks) keep their activations.

    Args:
        saes: by layer, of `mlp_out` in activations as they are.
        features: by layer, the latents to silence.
        mode: `"error_preserving"` subtracts what these latents write, a - sum_k f_k(a) W_k, and leaves all else as it
            is. `"reconstruct"` puts the SAE's reconstruction without them in place, in every layer of `saes`:
            compare it with the reconstruction that lacks nothing (no features), not with the model itself.

    Raises:
        ValueError: an unknown mode, a layer without SAE, or a latent that the SAE doesn't have.

    Example:
        with ablate_features(tuned.model, saes, {3: [5, 17]}):
            mean_reward(tuned.model, prompts, vader_word_reward)
    """
    one_of("mode", mode, MODES)
    chosen = checked_latents(saes, features)
    layers = sorted(saes) if mode == "reconstruct" else [layer for layer in sorted(chosen) if chosen[layer]]
    with ExitStack() as stack:
        for layer in layers:
            edit = _without(chosen.get(layer, []), saes[layer])
            keep_error = mode == "error_preserving"
            place = f"mlp_out.{layer}"
            stack.enter_context(
                spliced(model, saes[layer], place, with_error_term=keep_error, edit_codes=edit)
            )
        yield


@dataclass(frozen=True)
class AblationRow:
    """The model's behaviour under one ablation.

    Attributes:
        name, mode: what was silenced and how; "none" where the model ran as it is.
        n_features: latents silenced, over all layers.
        active: mean share of tokens on which one of them fires.
        reward, standard_error: of what the model writes.
        change, change_error: against the model as it is, with the standard error of the paired difference.
        length: mean number of tokens written.
        kl: KL(as it is || ablated) in nats per token, over texts that the model writes as it is.
    """

    name: str
    mode: str
    n_features: int
    active: float
    reward: float
    standard_error: float
    change: float
    change_error: float
    length: float
    kl: float


@dataclass(frozen=True)
class AblationReport:
    """Reward with features silenced, beside random ones; prints as a table."""

    rows: tuple[AblationRow, ...]
    features: dict[int, list[int]]

    def select(self, name: str, mode: str = "error_preserving") -> list[AblationRow]:
        return [row for row in self.rows if row.name == name and row.mode == mode]

    @property
    def effect(self) -> float:
        """Change of reward by the chosen features, error-preserving."""
        return self.select(CHOSEN)[0].change

    @property
    def random_effects(self) -> list[float]:
        """The same for each set of random active features."""
        return [row.change for row in self.select(RANDOM)]

    @property
    def p_value(self) -> float:
        """Share of sets, the chosen one counted, that lower the reward at least as much as the chosen one."""
        return (1 + sum(change <= self.effect for change in self.random_effects)) / (
            1 + len(self.random_effects)
        )

    def to_frame(self) -> pd.DataFrame:
        """One row per ablation."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows])

    def plot(self) -> Figure:
        """Change of reward by each ablation, with two standard errors."""
        from interp.probes.lfp.tuning_plots import plot_ablation

        return plot_ablation(self)

    def __str__(self) -> str:
        columns = {"features": 9, "active": 8, "reward": 9, "change": 9, "± s.e.": 8, "KL": 9}
        header = f"{'ablated':<18}{'mode':<18}" + "".join(f"{name:>{n}}" for name, n in columns.items())
        lines = [
            f"{r.name:<18}{r.mode:<18}{r.n_features:>9}{r.active:>8.1%}{r.reward:>9.3f}{r.change:>+9.3f}"
            f"{r.change_error:>8.3f}{r.kl:>9.4f}"
            for r in self.rows
        ]
        return "\n".join([header, *lines])


def ablation_effect(
    model: LanguageModel,
    prompts: Sequence[str],
    reward: Reward,
    saes: Mapping[int, Dictionary],
    features: Features,
    *,
    n_random: int = 5,
    seed: int = 0,
    **sampling: Any,
) -> AblationReport:
    """Measure the reward of what the model writes as it is, without the features, and without random ones.

    Every condition writes after the same prompts with the same random numbers, so differences are paired. Random
    sets have as many latents per layer: for each of the features one of the five others that fire most nearly as often
    on texts that the model writes as it is. The mode `reconstruct` follows, with nothing and with the features left
    out.

    Args:
        n_random: sets of random features.
        sampling: as for `continuations`.

    Raises:
        ValueError: as `ablate_features` and `mean_reward`; no features; no active latent to draw from in a layer.
    """
    chosen = checked_latents(saes, features)
    if not any(chosen.values()):
        raise ValueError("features is empty: name at least one latent of one layer")
    at_least("n_random", n_random, 1)
    written = continuations(model, prompts, seed=seed, **sampling)
    active = active_shares(model, saes, written)
    drawn = [_random_features(active, chosen, derive_seed(seed, "ablation", k)) for k in range(n_random)]
    plan: list[tuple[str, str, dict[int, list[int]]]] = [
        (NOTHING, "none", {}),
        (CHOSEN, "error_preserving", chosen),
        *((RANDOM, "error_preserving", some) for some in drawn),
        (NOTHING, "reconstruct", {}),
        (CHOSEN, "reconstruct", chosen),
    ]
    as_it_is = measure(written, reward)
    rows = []
    for name, mode, silent in progress(plan, desc="ablating"):

        def ablated(silent: dict[int, list[int]] = silent, mode: str = mode) -> AbstractContextManager[None]:
            return nullcontext() if mode == "none" else ablate_features(model, saes, silent, mode)

        with ablated():
            now = measure(continuations(model, prompts, seed=seed, **sampling), reward)
        change = now.rewards - as_it_is.rewards
        rows.append(
            AblationRow(
                name,
                mode,
                sum(map(len, silent.values())),
                _mean_share(active, silent),
                now.mean,
                now.standard_error,
                float(change.mean()),
                standard_error(change),
                now.length,
                divergence(model.logits, _inside(ablated, model), written).per_token,
            )
        )
    return AblationReport(tuple(rows), chosen)


def active_shares(
    model: LanguageModel, saes: Mapping[int, Dictionary], written: Continuations, *, batch_size: int = 32
) -> dict[int, NDArray[np.float64]]:
    """By layer, the share of tokens of texts and prompts, where the SAE is for them, on which each latent fires [F]."""
    sites = {layer: Site("mlp_out", layer) for layer in sorted(saes)}
    counts = {layer: torch.zeros(saes[layer].cfg.d_sae, dtype=torch.long) for layer in sites}
    rules = {layer: TrainedRows.of(saes[layer], model.special_token_ids) for layer in sites}
    total = dict.fromkeys(sites, 0)
    for start in range(0, len(written.texts), batch_size):
        rows = slice(start, start + batch_size)
        pairs = zip(written.prompt_ids[rows], written.new_ids[rows], strict=True)
        ids, mask = padded([before + new for before, new in pairs])
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        found = model.activations(ids, list(sites.values()), attention_mask=mask)
        for layer, site in sites.items():
            read = rules[layer].mask(ids, positions, found[site], mask)
            total[layer] += int(read.sum())
            codes = saes[layer].encode_sparse(found[site][read])
            fired = codes.indices[codes.values > 0].long().cpu()
            counts[layer] += torch.bincount(fired, minlength=len(counts[layer]))
    return {layer: (count / max(total[layer], 1)).double().numpy() for layer, count in counts.items()}


def _without(latents: list[int], sae: Dictionary) -> Callable[[SparseCodes], SparseCodes] | None:
    if not latents:
        return None
    kept = sorted(set(range(sae.cfg.d_sae)) - set(latents))
    return lambda codes: codes.select(kept)


def _random_features(
    active: Mapping[int, NDArray[np.float64]], chosen: dict[int, list[int]], seed: int
) -> dict[int, list[int]]:
    random = np.random.default_rng(seed)
    drawn: dict[int, list[int]] = {}
    for layer, latents in chosen.items():
        share = active[layer]
        others = [int(k) for k in np.setdiff1d(np.flatnonzero(share > 0), latents)]
        if latents and not others:
            raise ValueError(
                f"layer {layer}: no latent but the {len(latents)} chosen ones fires on the texts, so there are no "
                "random ones to compare with; choose fewer"
            )
        if len(others) < len(latents):
            logger.warning("layer %d: only %d other active latents for %d", layer, len(others), len(latents))
        drawn[layer] = []
        for latent in random.permutation(latents)[: len(others)]:
            others.sort(key=lambda k: (abs(share[k] - share[latent]), k))
            drawn[layer].append(others.pop(random.integers(min(ALIKE, len(others)))))
        drawn[layer].sort()
    return drawn


def _mean_share(active: Mapping[int, NDArray[np.float64]], features: Features) -> float:
    shares = [active[layer][k] for layer, latents in features.items() for k in latents]
    return float(np.mean(shares)) if shares else 0.0


def _inside(
    context: Callable[[], AbstractContextManager[None]], model: LanguageModel
) -> Callable[..., Tensor]:
    def logits(ids: Tensor, attention_mask: Tensor) -> Tensor:
        with context():
            return model.logits(ids, attention_mask=attention_mask)

    return logits
