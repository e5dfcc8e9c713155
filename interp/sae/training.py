"""`train`: from a stream of activations to sparse dictionaries in run folders."""

from __future__ import annotations

import copy
import functools
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from interp.activations.source import ActivationSource, Provenance
from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream, TensorStream
from interp.core.callbacks import Callback
from interp.core.config import save_config, to_dict
from interp.core.history import History
from interp.core.lock import RunLock
from interp.core.messages import check_name
from interp.core.runtime import Runtime
from interp.core.tracking import make_tracker
from interp.core.trainer import Trainer, TrainerConfig
from interp.sae.config import RUN_FIELDS, RunConfig, SAETrainConfig, configure
from interp.sae.dictionary import Dictionary
from interp.sae.metadata import SAEMetadata
from interp.sae.run_folder import CONFIG_FILE, PREVIOUS, SAE, set_aside
from interp.sae.task import SAETask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Source = ActivationSource | ActivationStore | Tensor | np.ndarray | str | os.PathLike[str]

_log = logging.getLogger(__name__)

__all__ = ["RunConfig", "SAETask", "SAETrainConfig", "TrainedSAE", "train"]


@dataclass(frozen=True)
class SAERunConfig:
    """A run folder's ``config.yaml``."""

    run: RunConfig
    sae: SAETrainConfig


@dataclass(repr=False)
class TrainedSAE:
    """A finished dictionary. It takes raw activations: the activation scale is folded into its weights.

    Attributes:
        name: of the run.
        sae, metadata: the dictionary and where it comes from.
        history: the logged rows (losses in the scaled units of training).
        config: how it was trained.
        out: its folder: ``config.yaml``, ``metrics.jsonl``, ``sae/config.json``, ``sae/weights.safetensors``.
    """

    name: str
    sae: Dictionary
    history: History
    config: SAERunConfig
    out: Path | None = None

    @property
    def metadata(self) -> SAEMetadata:
        return self.sae.metadata

    def plot(self, metrics: Sequence[str] = ("loss", "l0", "fvu", "dead")) -> Figure:
        """Training curves."""
        return self.history.plot(metrics)

    def __str__(self) -> str:
        last = self.history.last
        shown = {"L0": "l0", "FVU": "fvu", "dead": "dead", "loss": "loss"}
        numbers = ", ".join(f"{label} {last[key]:.4g}" for label, key in shown.items() if key in last)
        where = f"; saved in {self.out}" if self.out is not None else ""
        return (
            f"{self.name}: {self.sae.architecture} SAE, {self.sae.cfg.d_in} -> {self.sae.cfg.d_sae} latents, "
            f"{self.config.run.steps} steps; on the last batch {numbers}{where}"
        )

    __repr__ = __str__


def train(
    source: Source | Mapping[str, ActivationStore | str | os.PathLike[str]],
    variants: Mapping[str, Mapping[str, Any]] | Sequence[Mapping[str, Any]] | None = None,
    *,
    architecture: str = "gated",
    d_sae: int = 4608,
    l1_coefficient: float | None = None,
    site: str | None = None,
    sites: Sequence[str] | None = None,
    target_site: str | None = None,
    steps: int = 3000,
    batch_size: int = 1024,
    lr: float | None = None,
    backend: str = "auto",
    seed: int = 0,
    tracker: str = "jsonl",
    resume: str | os.PathLike[str] | None = "auto",
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    log_every: int = 10,
    checkpoint_every: int | None = 500,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> TrainedSAE | list[TrainedSAE]:
    """Train one dictionary, or several side by side on one pass over the activations.

        train("store/", architecture="gated", d_sae=9216, l1_coefficient=3.0, out="run/")
        train("store/", {"gated": {}, "l1": {"architecture": "standard", "d_sae": 6912}}, out="runs/")

    Args:
        source: a stream of activations, a store or its folder, or a tensor or array [n d]; for a crosscoder over models
            the store of each, by name, all of the same contexts.
        variants: for several dictionaries, the options in which each differs; by name, or a list, whose names
            are then made from the options. Each ends with the same bits as if it were trained alone.
        architecture, d_sae, l1_coefficient, lr: the commonest options of a dictionary. None: as the architecture's
            recipe and `interp.sae.config` say.
        site: which of a store's sites, where it has several; a transcoder's input.
        sites: a crosscoder's.
        target_site: a transcoder's output.
        steps, batch_size, backend, seed: see :class:`interp.sae.config.RunConfig`.
        tracker: ``"jsonl"``, ``"wandb"`` or ``"none"``.
        resume: ``"auto"`` continues an unfinished run in `out`, a checkpoint's folder that one, None starts
            anew.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` ...
        out: the run's folder; with `variants` each dictionary gets one in it, of its name.
        log_every: steps between logged rows.
        checkpoint_every: steps between checkpoints; None: only one at the end.
        progress: show a progress bar.
        callbacks: of the Trainer.
        options: any other field of :mod:`interp.sae.config`, by its name.

    Returns:
        One result, or a list in the order of `variants`.

    Raises:
        ValueError: an option that isn't known or out of range; activations that are NaN or of a wrong width;
            an `out` that holds a run with other settings (the message names the first that differs).
    """
    run_options = {key: options.pop(key) for key in list(options) if key in RUN_FIELDS}
    run = RunConfig(steps=steps, batch_size=batch_size, backend=backend, seed=seed, **run_options)
    stream, provenance = _open(source, _sites(site, sites, target_site), run)
    _say_passes(stream, run)
    commonest = {"l1_coefficient": l1_coefficient, "lr": lr}
    asked = {key: value for key, value in commonest.items() if value is not None}
    common = {"architecture": architecture, "d_sae": d_sae, **asked, **options}
    named = _named(variants)
    configs = {name: configure({**common, **changes}) for name, changes in named.items()}
    folder = None if out is None else Path(out)
    runs = [] if folder is None else [folder / name for name in configs]
    task = SAETask(
        stream,
        configs,
        run,
        device=device,
        log_every=log_every,
        before_first_step=functools.partial(set_aside, runs),
    )
    runtime = Runtime(device, run.precision)
    if runtime.world_size > 1:
        raise ValueError(
            f"WORLD_SIZE = {runtime.world_size}: SAE training runs in one process; start it without "
            "torchrun, or several runs with CUDA_VISIBLE_DEVICES set"
        )
    logs = make_tracker(tracker, folder, config=task.config(), name=folder.name if folder else None)
    trainer = Trainer(
        TrainerConfig(
            max_steps=steps,
            batch_size=batch_size,
            precision=run.precision,
            seed=seed,
            log_every=log_every,
            checkpoint_every=checkpoint_every,
            progress=progress,
            out_dir=None if folder is None else os.fspath(folder),
        ),
        runtime=runtime,
        callbacks=callbacks,
        tracker=logs,
    )
    held = (
        nullcontext() if folder is None else RunLock(folder, "training")
    )  # until the dictionaries are written
    try:
        with held:
            history = trainer.fit(task, stream, resume=resume)
            results = [_result(name, task, history, provenance, folder, stream) for name in configs]
            logs.summary({key: value for key, value in history.last.items() if value is not None})
    finally:
        logs.finish()
    return results if variants is not None else results[0]


def _sites(
    site: str | None, sites: Sequence[str] | None, target_site: str | None
) -> str | Sequence[str] | None:
    """The sites that are read side by side, or the one."""
    if sites is not None and (site, target_site) != (None, None):
        raise ValueError(f"sites = {list(sites)}: give sites, or site and target_site")
    if target_site is None:
        return site if sites is None else list(sites)
    if site is None:
        raise ValueError(f"target_site = {target_site!r}: name the input, too, as site")
    return [site, target_site]


def _open(source: Any, site: str | Sequence[str] | None, run: RunConfig) -> tuple[Any, SAEMetadata]:
    """A stream, and what it tells about where the activations come from."""
    if isinstance(source, str | os.PathLike):
        source = ActivationStore.open(Path(source))
    if isinstance(source, Mapping):
        source = {name: _store(one) for name, one in source.items()}
    if isinstance(source, ActivationStore | dict):
        source = StoreStream(source, site, seed=run.seed, max_norm_multiple=run.max_norm_multiple)
        _log.info("%s: %s", source.site, source.counts)
    elif site is not None:
        raise ValueError(
            f"site = {site!r} chooses among a store's sites; this source has only one, or its own"
        )
    if isinstance(source, Tensor | np.ndarray):
        return TensorStream(source, seed=run.seed), SAEMetadata(skip_positions=())
    return source, _metadata(source)


def _store(source: ActivationStore | str | os.PathLike[str]) -> ActivationStore:
    return source if isinstance(source, ActivationStore) else ActivationStore.open(Path(source))


def _metadata(source: Any) -> SAEMetadata:
    """What a stream tells of its rows: by its `provenance`, or (of one's own stream) by its `counts`."""
    counts, told = getattr(source, "counts", None), getattr(source, "provenance", Provenance())
    skipped = (0,) if counts is not None and counts.dropped_position0 else ()
    special = bool(counts.dropped_special) if counts is not None else None
    model, contexts = told.model or {}, told.contexts or {}
    sites = tuple(getattr(source, "sites", ()))
    stores = getattr(source, "stores", {})
    models = {name: store.manifest.model for name, store in stores.items()} if len(stores) > 1 else {}
    return SAEMetadata(
        site=getattr(source, "site", None) if len(sites) < 2 else None,
        sites=sites if len(sites) > 1 else (),
        model_name=model.get("name"),
        model_fingerprint=dict(model) or None,
        skip_positions=skipped if told.skip_positions is None else told.skip_positions,
        special_tokens_excluded=special if told.skip_special is None else told.skip_special,
        max_norm=told.max_norm,
        context_size=contexts.get("context_size"),
        text=contexts.get("text"),
        extra={"models": models} if models else {},
    )


def _say_passes(stream: Any, run: RunConfig) -> None:
    """How often the run reads the stream, where it has an end."""
    if not hasattr(stream, "__len__") or not len(stream):
        return
    rows = len(stream)
    if run.batch_size > rows:
        _log.warning("batch_size = %d, but there are %d rows: each step takes them all", run.batch_size, rows)
    per_step = min(run.batch_size, rows)
    passes = run.steps * per_step / rows
    _log.info("%d steps of %d tokens: %.3g passes over %d rows", run.steps, per_step, passes, rows)


def _named(variants: Any) -> dict[str, dict[str, Any]]:
    if variants is None:
        return {"": {}}
    if isinstance(variants, Mapping):
        named = {str(name): dict(changes) for name, changes in variants.items()}
    else:
        named = {}
        for changes in variants:
            label = "_".join(f"{key}={value}" for key, value in changes.items()) or "sae"
            if label in named:
                raise ValueError(f"variants: {label!r} comes twice; give names to variants that are alike")
            named[label] = dict(changes)
    if not named:
        raise ValueError("variants is empty: leave it out to train one dictionary")
    for name in named:
        check_name("variants: a name", name)
    return named


def _result(
    name: str, task: SAETask, history: History, known: SAEMetadata, folder: Path | None, stream: Any
) -> TrainedSAE:
    """Fold the activation scale, attach what is known, and write the dictionary's folder."""
    from interp import __version__

    one, run = task.trained[name], task.run
    assert task.scales is not None
    sae = copy.deepcopy(one.sae).cpu()
    loss = to_dict(one.config.loss)
    sae.metadata = replace(
        known,
        site=known.sites[0] if sae.sites == "pair" and known.sites else known.site,
        activation_scale=task.scales[0],
        activation_scale_folded=False,
        normalization=run.normalization,
        training_dtype=one.sae.cfg.dtype if run.precision != "bf16" else "bfloat16 products, float32 state",
        tokens=stream.samples,
        steps=run.steps,
        batch_size=run.batch_size,
        lr=one.config.optimizer.lr,
        l1_coefficient=loss.pop("l1_coefficient", None),
        loss=loss,
        seed=run.seed,
        library_version=__version__,
    )
    sae.fold_activation_scales_(task.scales)
    config = SAERunConfig(run, one.config)
    own, target, label = history, folder, folder.name if folder is not None else sae.architecture
    if name:
        own, target, label = History([_own_row(row, name) for row in history]), None, name
        if folder is not None:
            target = folder / name
            own.rewrite(target)
    if target is not None:
        sae.save_pretrained(target / SAE)
        save_config(target / CONFIG_FILE, config)
        shutil.rmtree(target / PREVIOUS, ignore_errors=True)
    return TrainedSAE(label, sae, own, config, target)


def _own_row(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """One dictionary's numbers out of a row that holds those of several."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): row[key] for key in row if key.startswith(prefix) or "/" not in key}
