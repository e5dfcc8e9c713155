"""`evaluate`: an SAE measured on activations, and spliced into its model."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.activations.harvest import parse_tokens
from interp.activations.text import (
    ContextBatch,
    Documents,
    DocumentStream,
    TokenContexts,
    load_text,
    pack,
)
from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.fingerprint import of_other_weights
from interp.models.sites import Site, is_site
from interp.sae.metrics import FiringStats, ReconstructionStats, density_histogram
from interp.sae.rows import TrainedRows
from interp.sae.scores import SAEEvaluation
from interp.sae.splice import SplicedRun, encode_rows

if TYPE_CHECKING:
    from interp.core.stream import DataStream
    from interp.models.language_model import LanguageModel
    from interp.sae.dictionary import Dictionary

    Source = Dictionary | str | Path
    Text = TokenContexts | Documents | DocumentStream | Sequence[str] | str | Path

logger = logging.getLogger(__name__)

__all__ = ["SAEEvaluation", "evaluate", "evaluate_several"]

POSITIONS = ("trained", "all")
ABLATIONS = ("zero", "mean")
_STREAM_ROWS = 4096
_GATES_AT_ONCE = 2**22
_LOGITS_AT_ONCE = 2**26  # numbers in one batch of logits: 256 MiB in float32


def evaluate(
    sae: Source,
    model: LanguageModel | None = None,
    text: Text | None = None,
    *,
    site: Site | str | None = None,
    tokens: int | str | None = None,
    stream: DataStream | None = None,
    batch_size: int | None = None,
    context_size: int | None = None,
    ablation: str | Sequence[str] = ABLATIONS,
    with_error_term: bool = False,
    positions: str = "trained",
    name: str | None = None,
    progress: bool = True,
) -> SAEEvaluation:
    """Measure an SAE: on a stream of activations, or on text, spliced into its model.

    In the model the SAE replaces the activations it was trained for: position 0 of each segment (the
    attention sink), special tokens and rows of a norm above the training's bound are left as they are, in the
    splice and in the ablations alike.  Cross-entropies and KL are means over all next-token predictions of
    the text.  Each batch runs through the model once clean and once per replacement; activations are encoded
    once, sparsely.

    Args:
        sae: a dictionary, or a folder that `load_sae` reads.
        model, text: the model, and contexts, documents, or anything that `load_text` takes.
        site: where to splice; None: where the SAE was trained.
        tokens: measure on about the first so many tokens (500_000, "500k"); None: all.
        stream: activations instead of a model and text; read from where it stands to the end of its epoch (or
            `tokens`), after which it is put back.
        batch_size: contexts per forward pass (default: as many as keep the logits under 256 MiB), or rows of
            the stream (4,096).
        context_size: tokens per context where text has to be packed; None: as the SAE was trained, or 128.
        ablation: "zero", "mean" or both; the mean is that of the replaced rows over the whole set.
        with_error_term: add x - x_hat back; the spliced loss must then equal the clean one.
        positions: "trained", or "all" to replace every token.
        name: what to call the SAE in tables; default: its architecture.

    Raises:
        ValueError: nothing to measure on, or the SAE's width is not the site's.
    """
    (result,) = evaluate_several(
        [sae],
        model,
        text,
        site=site,
        tokens=tokens,
        stream=stream,
        batch_size=batch_size,
        context_size=context_size,
        ablation=ablation,
        with_error_term=with_error_term,
        positions=positions,
        names=None if name is None else [name],
        progress=progress,
    )
    return result


def evaluate_several(
    saes: Sequence[Source],
    model: LanguageModel | None = None,
    text: Text | None = None,
    *,
    site: Site | str | None = None,
    tokens: int | str | None = None,
    stream: DataStream | None = None,
    batch_size: int | None = None,
    context_size: int | None = None,
    ablation: str | Sequence[str] = ABLATIONS,
    with_error_term: bool = False,
    positions: str = "trained",
    names: Sequence[str] | None = None,
    progress: bool = True,
) -> list[SAEEvaluation]:
    """`evaluate` for several SAEs of one site on the same tokens.

    The figures are those of evaluating them one by one; the clean forward pass is run once for all, and so
    are the ablations of SAEs that were trained for the same rows: n + 3 passes instead of 4 n.
    """
    loaded = [_loaded(sae) for sae in saes]
    if not loaded or (names is not None and len(names) != len(loaded)):
        raise ValueError(
            f"saes: got {len(loaded)}, names: {names}; give one or more SAEs and a name for each"
        )
    ablations = (ablation,) if isinstance(ablation, str) else tuple(ablation)
    for kind in ablations:
        one_of("ablation", kind, ABLATIONS)
    one_of("positions", positions, POSITIONS)
    limit = parse_tokens(tokens)
    named = zip(loaded, names or [sae.architecture for sae in loaded], strict=True)
    measured = [_Measured(sae, name) for sae, name in named]

    if stream is not None:
        if model is not None or text is not None:
            raise ValueError("give a stream, or a model and text, not both")
        where = str(site or getattr(stream, "site", "stream"))
        for x in _stream_rows(stream, limit, batch_size or _STREAM_ROWS, progress):
            for one in measured:
                one.add(x, where)
        return [one.result(where, "stream") for one in measured]
    if model is None or text is None:
        raise ValueError("nothing to measure on: give a model and text, or a stream of activations")

    place = _site(loaded, model, site)
    contexts = _contexts(text, model, context_size or loaded[0].metadata.context_size or 128, limit)
    padded_tokens = max(contexts.context_size, _LOGITS_AT_ONCE // (model.d_vocab or 1))
    if batch_size is not None:
        padded_tokens = batch_size * contexts.context_size
    batches = _Batches(contexts, limit, padded_tokens)
    run = SplicedRun(model, place)
    special = {*contexts.special_token_ids, *model.special_token_ids}
    rules = [TrainedRows.of(sae, special) if positions == "trained" else TrainedRows() for sae in loaded]
    _run(run, batches, measured, rules, ablations, with_error_term, progress)
    fingerprint = model.fingerprint() if any(sae.metadata.model_fingerprint for sae in loaded) else {}
    results = []
    for one, rule in zip(measured, rules, strict=True):
        result = one.result(str(place), positions)
        result.model, result.text = model.name, str(contexts.origin.get("text", {}).get("name", ""))
        result.with_error_term, result.limit = with_error_term, limit
        result.differs = _differs(one.sae, model, fingerprint, place, positions, with_error_term)
        run.fill(result, one, ("zero", rule), ("mean", rule))
        if result.differs:
            logger.warning("%s is evaluated not as it was trained: %s", one.name, ", ".join(result.differs))
        results.append(result)
    return results


def _run(
    run: SplicedRun,
    batches: _Batches,
    measured: list[_Measured],
    rules: list[TrainedRows],
    ablations: tuple[str, ...],
    with_error_term: bool,
    progress: bool,
) -> None:
    """All forward passes: clean, spliced and zeroed batch by batch, then, the mean being known, mean-ablated."""
    masks: list[dict[TrainedRows, Bool[Tensor, "b s"]]] = []
    total = batches.n_tokens * (1 + ("mean" in ablations))
    bar = progress_bar(total=total, desc=f"evaluating {run.site}", unit="token", enabled=progress)
    with torch.no_grad(), bar:
        for batch in batches:
            act = run.clean(batch)
            about = (batch.input_ids, batch.position_ids, act, batch.attention_mask)
            masks.append({rule: rule.mask(*about) for rule in rules})
            for one, rule in zip(measured, rules, strict=True):
                x = act[masks[-1][rule]]
                x_hat = one.add(x, str(run.site))
                if with_error_term:
                    x_hat = x_hat + (x.to(x_hat.dtype) - x_hat)
                run.replaced(one, batch, masks[-1][rule], x_hat)
            if "zero" in ablations:
                for rule, mask in masks[-1].items():
                    run.replaced(("zero", rule), batch, mask, 0.0)
            bar.update(batch.n_tokens)
        if "mean" in ablations:
            means = {rule: one.reconstruction.mean for one, rule in zip(measured, rules, strict=True)}
            for batch, by_rule in zip(batches, masks, strict=True):
                for rule, mask in by_rule.items():
                    run.replaced(("mean", rule), batch, mask, means[rule], kl=False)
                bar.update(batch.n_tokens)


def _loaded(sae: Source) -> Dictionary:
    if isinstance(sae, str | Path):
        from interp.sae.loading import load_sae

        return load_sae(sae)
    return sae


def _site(saes: list[Dictionary], model: LanguageModel, site: Site | str | None) -> Site:
    places = set()
    for sae in saes:
        wanted = site or sae.metadata.site
        if not wanted:
            raise ValueError("site: this SAE does not say where it was trained; name the site")
        place = model.check_site(wanted)
        if model.width(place) != sae.cfg.d_in:
            raise ValueError(
                f"the SAE takes activations of width {sae.cfg.d_in}, "
                f"{place} of {model.name} has {model.width(place)}"
            )
        places.add(place)
    if len(places) > 1:
        named = ", ".join(sorted(map(str, places)))
        raise ValueError(f"these SAEs were trained at several sites ({named}): evaluate one site at a time")
    return places.pop()


def _differs(
    sae: Dictionary,
    model: LanguageModel,
    fingerprint: dict[str, Any],
    place: Site,
    positions: str,
    with_error_term: bool,
) -> tuple[str, ...]:
    """In what an evaluation is not of the SAE where, and as, it was trained."""
    known, found = sae.metadata, []
    if known.site and is_site(known.site) and Site.parse(known.site) != place:
        found.append(f"at {place}, trained at {known.site}")
    if of_other_weights(known.model_fingerprint, fingerprint):
        found.append(f"{model.name} has other weights than the model it was trained on ({known.model_name})")
    if positions == "all" and known.skip_positions:
        found.append("every position replaced")
    if with_error_term:
        found.append("its error added back")
    return tuple(found)


def _contexts(text: Any, model: LanguageModel, context_size: int, limit: int | None) -> TokenContexts:
    if isinstance(text, TokenContexts):
        return text
    documents = text if isinstance(text, Documents) else load_text(text)
    return pack(documents, model, context_size=context_size, max_tokens=limit)


class _Measured:
    """The SAE's own figures, accumulated over rows of activations."""

    def __init__(self, sae: Dictionary, name: str) -> None:
        self.sae, self.name = sae, name
        self.reconstruction = ReconstructionStats()
        self.firing = FiringStats(sae.cfg.d_sae)
        self.open_gates, self.gated = 0, False

    def add(self, x: Float[Tensor, "n d"], site: str) -> Float[Tensor, "n d"]:
        """Measure some rows of `site` and return their reconstruction."""
        first = self.reconstruction.n == 0
        codes, x_hat = encode_rows(self.sae, x)
        self.reconstruction.update(x, x_hat)
        self.firing.update(len(x), codes.indices, codes.values)
        gates = self.sae.open_gates(x)
        self.gated = gates is not None
        self.open_gates += gates or 0
        if first and len(x) and self.reconstruction.fvu > 1:
            logger.warning(
                "FVU is %.3g on the first %d rows of %s, worse than the mean would be: %s",
                self.reconstruction.fvu,
                self.reconstruction.n,
                site,
                _likely(self.sae, site),
            )
        return x_hat

    def result(self, site: str, positions: str) -> SAEEvaluation:
        r, f = self.reconstruction, self.firing
        return SAEEvaluation(
            name=self.name,
            architecture=self.sae.architecture,
            site=site,
            d_in=self.sae.cfg.d_in,
            d_sae=self.sae.cfg.d_sae,
            n_tokens=r.n,
            l0=f.l0,
            l1=f.l1,
            mse=r.mse,
            fvu=r.fvu,
            gamma=r.gamma(),
            gamma_centered=r.gamma(center=True),
            cosine=r.cosine,
            l2_ratio=r.l2_ratio,
            alive=1.0 - len(f.dead) / self.sae.cfg.d_sae,
            density=density_histogram(f.hits, f.n),
            positions=positions,
            dictionary=self.sae.identity().digest,
            open_gates=self.open_gates / r.n if self.gated else f.l0,
            l1_coefficient=_number(self.sae.metadata.l1_coefficient),
        )


def _likely(sae: Dictionary, given: str) -> str:
    """What is probably wrong where a dictionary doesn't reconstruct the activations of a site at all."""
    trained, folder = sae.metadata.site, sae.metadata.extra.get("folder")
    if not trained:
        named = f", but its folder is {folder!r}" if folder else ""
        return f"the SAE doesn't say at which site it was trained{named}; check the site"
    same = (
        Site.parse(trained) == Site.parse(given) if is_site(trained) and is_site(given) else trained == given
    )
    if same:
        return "the SAE was trained there, so check the model and the scale of the activations"
    return f"the SAE was trained at {trained}, which is the likely site; give its activations"


def _number(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True)
class _Batches:
    """Contexts in batches of similar length."""

    contexts: TokenContexts
    limit: int | None
    padded_tokens: int

    @property
    def n_contexts(self) -> int:
        """The first contexts that hold `limit` tokens, or all."""
        if self.limit is None:
            return len(self.contexts)
        enough = int(np.searchsorted(np.cumsum(self.contexts.lengths), self.limit))
        return min(enough + 1, len(self.contexts))

    @property
    def n_tokens(self) -> int:
        return int(self.contexts.lengths[: self.n_contexts].sum())

    def __iter__(self) -> Iterator[ContextBatch]:
        lengths = self.contexts.lengths[: self.n_contexts]
        longest_first = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(longest_first):
            count = max(1, self.padded_tokens // int(lengths[longest_first[start]]))
            yield self.contexts.batch(longest_first[start : start + count])
            start += count


def _stream_rows(stream: DataStream, limit: int | None, size: int, progress: bool) -> Iterator[Tensor]:
    before, epoch = stream.state_dict(), stream.epoch
    left = math.inf if limit is None else limit
    try:
        with progress_bar(total=limit, desc="evaluating", unit="token", enabled=progress) as bar:
            while left > 0 and stream.epoch == epoch:
                batch: Any = stream.next_batch(int(min(size, left)))
                x = batch if isinstance(batch, Tensor) else batch.values
                left -= len(x)
                bar.update(len(x))
                yield x
    finally:
        stream.load_state_dict(before)
