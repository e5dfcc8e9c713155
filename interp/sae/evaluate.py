"""`evaluate`: an SAE measured on activations, and spliced into its model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.activations.harvest import parse_tokens
from interp.activations.text import Documents, DocumentStream, TokenContexts
from interp.core.messages import one_of
from interp.core.progress import progress as progress_bar
from interp.models.fingerprint import of_other_weights
from interp.models.sites import Site, is_site
from interp.sae.evaluation_rows import Batches, contexts_of, stream_rows
from interp.sae.measured import Measured
from interp.sae.rows import TrainedRows
from interp.sae.scores import SAEEvaluation
from interp.sae.splice import SplicedRun

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
_LOGITS_AT_ONCE = 2**26  # numbers in one batch of logits: 256 MiB in float32


def evaluate(
    sae: Source,
    model: LanguageModel | None = None,
    text: Text | None = None,
    *,
    site: Site | str | Sequence[Site | str] | None = None,
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

    A transcoder replaces its output site, by what it makes of the input site; the ablations are of the output. A
    crosscoder replaces each of its sites in turn, and that is what its `parts` report. Prefixes and budgets that were
    trained are measured, and spliced, besides the whole dictionary: `parts`, too.

    In the model the SAE replaces the activations it was trained for: position 0 of each segment (the
    attention sink), special tokens and rows of a norm above the training's bound are left as they are, in the
    splice and in the ablations alike.  Cross-entropies and KL are means over all next-token predictions of
    the text.  Each batch runs through the model once clean and once per replacement; activations are encoded
    once, sparsely.

    Args:
        sae: a dictionary, or a folder that `load_sae` reads.
        model, text: the model, and contexts, documents, or anything that `load_text` takes.
        site: where to splice; None: where the SAE was trained. Of a transcoder its input and output, of a crosscoder
            all.
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
    site: Site | str | Sequence[Site | str] | None = None,
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
    measured = [Measured(sae, name) for sae, name in named]

    if stream is not None:
        if model is not None or text is not None:
            raise ValueError("give a stream, or a model and text, not both")
        where = (
            _names(site) or tuple(getattr(stream, "sites", ())) or (str(getattr(stream, "site", "stream")),)
        )
        for x in stream_rows(stream, limit, batch_size or _STREAM_ROWS, progress):
            for one in measured:
                for each in (one, *one.parts):
                    each.add(x, " + ".join(where))
        return [one.result(where, "stream") for one in measured]
    if model is None or text is None:
        raise ValueError("nothing to measure on: give a model and text, or a stream of activations")

    place = _place(loaded, model, site)
    contexts = contexts_of(text, model, context_size or loaded[0].metadata.context_size or 128, limit)
    padded_tokens = max(contexts.context_size, _LOGITS_AT_ONCE // (model.d_vocab or 1))
    if batch_size is not None:
        padded_tokens = batch_size * contexts.context_size
    batches = Batches(contexts, limit, padded_tokens)
    run = SplicedRun(model, place.sites)
    special = {*contexts.special_token_ids, *model.special_token_ids}
    rules = [TrainedRows.of(sae, special) if positions == "trained" else TrainedRows() for sae in loaded]
    _run(run, place, batches, measured, rules, ablations, with_error_term, progress)
    fingerprint = model.fingerprint() if any(sae.metadata.model_fingerprint for sae in loaded) else {}
    results = []
    for one, rule in zip(measured, rules, strict=True):
        result = _result(run, place, one, rule, positions)
        result.model, result.text = model.name, str(contexts.origin.get("text", {}).get("name", ""))
        result.with_error_term, result.limit = with_error_term, limit
        result.differs = _differs(one.sae, model, fingerprint, place, positions, with_error_term)
        if result.differs:
            logger.warning("%s is evaluated not as it was trained: %s", one.name, ", ".join(result.differs))
        results.append(result)
    return results


@dataclass(frozen=True)
class _Place:
    """The sites that a dictionary is trained on, in their order, and those of them that it replaces."""

    sites: tuple[Site, ...]
    replaced: tuple[Site, ...]

    def rows(self, act: dict[Site, Tensor], mask: Bool[Tensor, "b s"]) -> tuple[Tensor, dict[Site, Tensor]]:
        """The masked rows of the sites side by side, and those of the replaced sites."""
        chosen = {site: act[site][mask] for site in self.sites}
        parts = list(chosen.values())
        whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return whole, {site: chosen[site] for site in self.replaced}


def _run(
    run: SplicedRun,
    place: _Place,
    batches: Batches,
    measured: list[Measured],
    rules: list[TrainedRows],
    ablations: tuple[str, ...],
    with_error_term: bool,
    progress: bool,
) -> None:
    """All forward passes: clean, spliced and zeroed batch by batch, then, the mean being known, mean-ablated."""
    masks: list[dict[TrainedRows, Bool[Tensor, "b s"]]] = []
    total, where = batches.n_tokens * (1 + ("mean" in ablations)), " + ".join(map(str, place.sites))
    bar = progress_bar(total=total, desc=f"evaluating {where}", unit="token", enabled=progress)
    with torch.no_grad(), bar:
        for batch in batches:
            act = run.clean(batch)
            about = (batch.input_ids, batch.position_ids, act[place.sites[0]], batch.attention_mask)
            masks.append({rule: rule.mask(*about) for rule in rules})
            for one, rule in zip(measured, rules, strict=True):
                rows, replaced = place.rows(act, masks[-1][rule])
                for each in (one, *one.parts):
                    decoded = each.add(rows, where)
                    for (site, y), y_hat in zip(replaced.items(), decoded, strict=True):
                        if with_error_term:
                            y_hat = y_hat + (y.to(y_hat.dtype) - y_hat)
                        run.replaced((each, site), batch, site, masks[-1][rule], y_hat)
            if "zero" in ablations:
                for rule, mask in masks[-1].items():
                    for site in place.replaced:
                        run.replaced(("zero", rule, site), batch, site, mask, 0.0)
            bar.update(batch.n_tokens)
        if "mean" in ablations:
            means = {rule: [s.mean for s in one.by_site] for one, rule in zip(measured, rules, strict=True)}
            for batch, by_rule in zip(batches, masks, strict=True):
                for rule, mask in by_rule.items():
                    for site, mean in zip(place.replaced, means[rule], strict=True):
                        run.replaced(("mean", rule, site), batch, site, mask, mean, kl=False)
                bar.update(batch.n_tokens)


def _result(
    run: SplicedRun, place: _Place, one: Measured, rule: TrainedRows, positions: str
) -> SAEEvaluation:
    """A dictionary's own figures, and what its splices and those of its parts came to."""

    def figures(each: Measured | None, site: Site) -> dict[str, float]:
        return run.figures((each, site), ("zero", rule, site), ("mean", rule, site))

    result = one.result(tuple(map(str, place.sites)), positions)
    result.n_predictions = run.n_predictions
    if len(place.replaced) == 1:
        whole, parts = (
            figures(one, place.replaced[0]),
            [figures(each, place.replaced[0]) for each in one.parts],
        )
    else:  # each site by itself: there is no one splice of them all
        whole = {"ce_clean": figures(None, place.replaced[0])["ce_clean"]}
        parts = [figures(one, site) for site in place.replaced]
    for name, value in whole.items():
        setattr(result, name, value)
    told = ("ce_spliced", "loss_recovered", "loss_recovered_mean")
    result.parts = tuple(
        replace(part, **{name: found[name] for name in told})
        for part, found in zip(result.parts, parts, strict=True)
    )
    return result


def _loaded(sae: Source) -> Dictionary:
    if isinstance(sae, str | Path):
        from interp.sae.loading import load_sae

        return load_sae(sae)
    return sae


def _names(site: Site | str | Sequence[Site | str] | None) -> tuple[str, ...]:
    """The names of what was asked for."""
    if site is None:
        return ()
    return (str(site),) if isinstance(site, Site | str) else tuple(map(str, site))


def _trained_at(sae: Dictionary) -> tuple[str, ...]:
    """Where a dictionary was trained, as far as it knows."""
    known = sae.metadata
    return known.sites or ((known.site,) if known.site else ())


def _place(
    saes: list[Dictionary], model: LanguageModel, site: Site | str | Sequence[Site | str] | None
) -> _Place:
    places = set()
    for sae in saes:
        wanted = _names(site) or _trained_at(sae)
        if not wanted:
            raise ValueError("site: this SAE does not say where it was trained; name the site")
        if site is None and sae.metadata.extra.get("models"):
            raise ValueError(
                f"the SAE was trained on several models ({', '.join(wanted)}): evaluate it on a StoreStream of their "
                "stores"
            )
        if len(wanted) != len(sae.widths):
            raise ValueError(
                f"site: a {sae.architecture} dictionary of {len(sae.widths)} sites, here are {len(wanted)}: "
                f"{', '.join(wanted)}"
            )
        sites = tuple(model.check_site(one) for one in wanted)
        for one, width in zip(sites, sae.widths, strict=True):
            if model.width(one) != width:
                raise ValueError(
                    f"the SAE takes activations of width {width}, {one} of {model.name} has {model.width(one)}"
                )
        places.add(_Place(sites, sites[1:] if sae.sites == "pair" else sites))
    if len(places) > 1:
        named = ", ".join(sorted(" + ".join(map(str, place.sites)) for place in places))
        raise ValueError(f"these SAEs were trained at several sites ({named}): evaluate one site at a time")
    return places.pop()


def _differs(
    sae: Dictionary,
    model: LanguageModel,
    fingerprint: dict[str, Any],
    place: _Place,
    positions: str,
    with_error_term: bool,
) -> tuple[str, ...]:
    """In what an evaluation is not of the SAE where, and as, it was trained."""
    known, found = sae.metadata, []
    trained = _trained_at(sae)
    if trained and all(map(is_site, trained)) and tuple(map(Site.parse, trained)) != place.sites:
        found.append(f"at {' + '.join(map(str, place.sites))}, trained at {' + '.join(trained)}")
    if of_other_weights(known.model_fingerprint, fingerprint):
        found.append(f"{model.name} has other weights than the model it was trained on ({known.model_name})")
    if positions == "all" and known.skip_positions:
        found.append("every position replaced")
    if with_error_term:
        found.append("its error added back")
    return tuple(found)
