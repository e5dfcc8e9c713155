"""`report`: a folder with a page that shows an SAE, its figures as images and its data as JSON."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from interp.activations.store import ActivationStore
from interp.core.files import atomic_write
from interp.core.history import History
from interp.core.plotting import save_figure
from interp.models.fingerprint import of_other_weights
from interp.sae.dashboard.collect import FeatureSettings, collect_features, firing_density, own_site
from interp.sae.dashboard.figures import density_figure, loss_figure, pareto_figure
from interp.sae.dashboard.page import Entry, Report, render
from interp.sae.dictionary import Dictionary
from interp.sae.loading import load_sae
from interp.sae.metrics import DensityHistogram, density_histogram
from interp.sae.scores import METRICS_FILE, SAEEvaluation

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel
    from interp.sae.training import TrainedSAE

logger = logging.getLogger(__name__)

_COMPARED_ROWS = 100_000  # on which the firing densities of the SAEs compared are counted


def report(
    sae: Dictionary | TrainedSAE | str | Path | Sequence[Dictionary | TrainedSAE | str | Path],
    store: ActivationStore | str | Path,
    model: LanguageModel | None = None,
    *,
    out: str | Path | None = None,
    evaluation: SAEEvaluation | Sequence[SAEEvaluation] | None = None,
    history: History | Sequence[History] | None = None,
    names: Sequence[str] | None = None,
    n_latents: int = 200,
    latents: Sequence[int] | None = None,
    max_rows: int | None = None,
    settings: FeatureSettings | None = None,
    progress: bool = True,
) -> Path:
    """Write a static, self-contained HTML report.

    Args:
        sae: a dictionary, what `train` returns, or a run or SAE folder; several to compare them. The first is
            browsed.  A run folder brings its training history and, if `evaluate` left one, its metrics.json.
        store: activations with their tokens, at the site of the first SAE.
        model: for token strings and logit effects.  Without it tokens are shown as numbers.
        out: folder to write; None: "report" inside the first run's folder, or in the working directory.
        evaluation: results of `evaluate`, in the order of the SAEs; further ones are points of the frontiers.
        history: training histories, in the order of the SAEs.
        names: what to call the SAEs.
        n_latents, latents, max_rows, settings: see `collect_features`.

    Returns:
        The path of index.html.  Beside it: figures/*.png and features.json.

    Raises:
        ValueError: no SAE, or one that does not fit the store.
    """
    sources = list(sae) if isinstance(sae, list | tuple) else [sae]
    if not sources:
        raise ValueError("sae: give at least one")
    if not isinstance(store, ActivationStore):
        store = ActivationStore.open(store)
    given = [evaluation] if isinstance(evaluation, SAEEvaluation) else list(evaluation or ())
    histories = [history] if isinstance(history, History) else list(history or ())
    dictionaries, entries = [], []
    for i, source in enumerate(sources):
        dictionary, entry = _read(source)
        entry.name = names[i] if names is not None else entry.name
        entry.evaluation = given[i] if i < len(given) else entry.evaluation
        entry.history = histories[i] if i < len(histories) else entry.history
        dictionaries.append(dictionary)
        entries.append(entry)
    _tell_apart(entries)

    first = dictionaries[0]
    if model is not None and of_other_weights(store.manifest.model, model.fingerprint()):
        logger.warning(
            "%s has other weights than %s, whose activations %s holds: the logit effects shown are of another model",
            *(model.name, store.manifest.model.get("name"), store.folder),
        )
    table = collect_features(
        first,
        store,
        model,
        name=entries[0].name,
        n_latents=n_latents,
        latents=latents,
        max_rows=max_rows,
        settings=settings,
        progress=progress,
    )
    entries[0].density = density_histogram(torch.from_numpy(table.hits), table.n_tokens)
    for dictionary, entry in zip(dictionaries[1:], entries[1:], strict=True):
        entry.density = _density(dictionary, store, entry, max_rows, progress)
    page = Report(entries, table, _model_name(model, store), _text_name(store), given[len(sources) :])
    folder = Path(out) if out is not None else _default_folder(sources[0])
    return _write(page, folder)


def _write(page: Report, folder: Path) -> Path:
    figures = {"pareto": pareto_figure(page), "densities": density_figure(page), "losses": loss_figure(page)}
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        if figure is not None:
            save_figure(figure, folder / "figures" / f"{name}.png")
    page.table.save(folder / "features.json")
    target = folder / "index.html"
    with atomic_write(target) as temporary:
        temporary.write_text(render(page), encoding="utf-8")
    logger.info("report: %s", target)
    return target


def _read(source: Any) -> tuple[Dictionary, Entry]:
    if isinstance(source, str | Path):
        folder = Path(source)
        dictionary = load_sae(folder)
        name, history = folder.resolve().name, History.read(folder)
        metrics = folder / METRICS_FILE
        evaluation = SAEEvaluation.of(dictionary, metrics) if metrics.is_file() else None
    elif isinstance(source, Dictionary):
        dictionary, name, history, evaluation = source, source.architecture, History(), None
    else:
        dictionary, name, history, evaluation = source.sae, source.name, source.history, None
        if source.out is not None and (source.out / METRICS_FILE).is_file():
            evaluation = SAEEvaluation.of(dictionary, source.out / METRICS_FILE)
    entry = Entry(
        name=name,
        architecture=dictionary.architecture,
        d_sae=dictionary.cfg.d_sae,
        l1_coefficient=dictionary.metadata.l1_coefficient,
        evaluation=evaluation,
        history=history or None,
    )
    return dictionary, entry


def _tell_apart(entries: list[Entry]) -> None:
    seen: dict[str, int] = {}
    for entry in entries:
        seen[entry.name] = seen.get(entry.name, 0) + 1
        if seen[entry.name] > 1:
            entry.name = f"{entry.name} ({seen[entry.name]})"


def _density(
    sae: Dictionary, store: ActivationStore, entry: Entry, max_rows: int | None, progress: bool
) -> DensityHistogram | None:
    """Counted on the store; of an SAE that the store is not for, as it was evaluated."""
    try:
        own_site(sae, store)
    except ValueError:
        return entry.evaluation.density if entry.evaluation is not None else None
    rows = min(_COMPARED_ROWS, max_rows or _COMPARED_ROWS)
    return firing_density(sae, store, max_rows=rows, progress=progress)


def _model_name(model: LanguageModel | None, store: ActivationStore) -> str | None:
    known = store.manifest.model.get("name")
    return model.name if known is None and model is not None else known


def _text_name(store: ActivationStore) -> str | None:
    text = store.manifest.contexts.get("text")
    return text.get("name") if isinstance(text, dict) else text


def _default_folder(source: Any) -> Path:
    if isinstance(source, str | Path):
        return Path(source) / "report"
    inside = getattr(source, "out", None)
    return Path("report") if inside is None else Path(inside) / "report"
