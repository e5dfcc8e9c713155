"""Sparse autoencoders on the MLP outputs of chosen layers, by the paper's recipe (Marks et al. 2024, section 3).

Where ours differs: padding, special tokens and position 0 are no training data (one attention sink outweighs ten
thousand tokens), and activations are scaled to a mean norm of sqrt(d), so that an L1 coefficient means the same in
every layer; ``normalization="none"`` leaves them as they are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interp.activations.harvest import harvest, parse_tokens
from interp.activations.packing import TokenContexts, pack
from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream
from interp.activations.text import load_text
from interp.core.config import from_dict
from interp.core.files import read_sealed_json, write_sealed_json
from interp.core.identity import Identity
from interp.models.sites import Site
from interp.sae.dictionary import Dictionary
from interp.sae.evaluate import evaluate
from interp.sae.loading import load_sae
from interp.sae.training import TrainedSAE, train

if TYPE_CHECKING:
    import pandas as pd

    from interp.models.language_model import LanguageModel

# Tied, squared error averaged over dimensions, Adam at a constant rate, biases from zero.
RECIPE: dict[str, Any] = {
    "architecture": "tied",
    "mse_reduction": "mean",
    "lr": 1e-3,
    "beta1": 0.9,
    "b_dec_init": "zero",
    "l1_warmup": 0.0,
    "lr_warmup": 0.0,
    "lr_decay": 0.0,
}
REPORT, ACTIVATIONS = "saes.json", "activations"
_SHARD = 16_384  # tokens that a kill of the harvest costs at most
_ENOUGH = 10_000  # tokens on which a latent must stay silent to count as dead


@dataclass(frozen=True)
class SAEQuality:
    """How good a layer's dictionary is on the tokens that it was trained on.

    Attributes:
        n_tokens: measured.
        fvu: fraction of variance unexplained.
        l0: latents that fire on a token, on average.
        dead: share of the latents that fired on no token (means little below 10,000).
    """

    layer: int
    d_sae: int
    n_tokens: int
    fvu: float
    l0: float
    dead: float


class FeedbackSAEs(dict[int, Dictionary]):
    """Dictionaries by layer, in ascending order, and `quality`, a row for each."""

    def __init__(self, saes: Mapping[int, Dictionary], quality: Sequence[SAEQuality]) -> None:
        super().__init__({layer: saes[layer] for layer in sorted(saes)})
        self.quality = tuple(quality)

    def to_frame(self) -> pd.DataFrame:
        """One row a layer."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.quality]).set_index("layer")

    def __str__(self) -> str:
        lines = ["layer  latents  tokens      FVU     L0   dead"]
        for q in self.quality:
            few = "" if q.n_tokens >= _ENOUGH else "  (few tokens: dead means little)"
            lines.append(
                f"{q.layer:<5}  {q.d_sae:<7}  {q.n_tokens:<8}  {q.fvu:.4f}  {q.l0:5.1f}  {q.dead:5.1%}{few}"
            )
        return "\n".join(lines)


def train_feedback_saes(
    model: LanguageModel,
    texts: Any,
    layers: Sequence[int],
    *,
    d_sae: int | None = None,
    l1_coefficient: float = 1e-3,
    steps: int = 2000,
    batch_size: int = 512,
    tokens: int | str | None = None,
    context_size: int = 256,
    normalization: str = "mean_norm",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> FeedbackSAEs:
    """Train one tied SAE a layer on its MLP outputs; one pass over the texts serves all layers.

    Args:
        texts: anything that `load_text` takes.
        layers: one or more.
        d_sae: latents; None: as many as the activations have dimensions, the paper's "small" dictionary.
        l1_coefficient: of the scaled activations; the squared error is a mean over dimensions.
        steps, batch_size: optimiser steps of so many tokens.
        tokens: at most so many of the text's ("100k").
        context_size: most tokens of a text in one context; the rest makes further ones.
        normalization: see `interp.sae.config.RunConfig`.
        seed: of the texts' order and the training.
        out: folder to save in: ``layer-3/`` and so on (`load_sae` reads them) and ``saes.json``. A call with the same
            arguments goes on where one was killed, and returns what is there when all is done; the activations are
            removed then. None: nothing is kept.

    Raises:
        ValueError: a layer that the model lacks, no text, or an `out` that holds dictionaries made otherwise.
    """
    if not layers:
        raise ValueError("layers is empty: name at least one, e.g. those of select_layers(...)")
    sites = [model.check_site(Site("mlp_out", layer)) for layer in layers]
    chosen = sorted({cast(int, site.layer) for site in sites})
    context_size = min(context_size, model.n_ctx or context_size)
    contexts = pack(
        load_text(texts), model, context_size=context_size, max_tokens=parse_tokens(tokens), seed=seed
    )
    identity = Identity.of(
        "set of dictionaries",
        layers=chosen,
        d_sae=d_sae,
        l1_coefficient=l1_coefficient,
        steps=steps,
        batch_size=batch_size,
        normalization=normalization,
        seed=seed,
        text=contexts.identity()["sha256"],
        weights=model.fingerprint()["weights"],
    )
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return _train(model, contexts, identity, Path(folder), progress)
    if (Path(out) / REPORT).is_file():
        return _finished(Path(out), identity)
    return _train(model, contexts, identity, Path(out), progress)


def _train(
    model: LanguageModel, contexts: TokenContexts, identity: Identity, folder: Path, progress: bool
) -> FeedbackSAEs:
    settings = identity.covers
    layers, seed = settings["layers"], settings["seed"]
    sites = [f"mlp_out.{layer}" for layer in layers]
    store = cast(
        ActivationStore,
        harvest(
            model,
            contexts,
            sites,
            folder / ACTIVATIONS,
            dtype="float32",
            shard_tokens=_SHARD,
            progress=progress,
        ),
    )
    shared = {
        key: settings[key] for key in ("l1_coefficient", "steps", "batch_size", "normalization", "seed")
    }
    saes, quality = {}, []
    for layer, site in zip(layers, sites, strict=True):
        options = {**RECIPE, **shared, "d_sae": settings["d_sae"] or model.width(site)}
        run = folder / _name(layer)
        trained = train(store, site=site, out=run, device=str(model.device), progress=progress, **options)
        saes[layer] = cast(TrainedSAE, trained).sae
        quality.append(_quality(saes[layer], layer, StoreStream(store, site, seed=seed)))
    write_sealed_json(
        folder / REPORT, {"identity": identity.to_dict(), "quality": [asdict(row) for row in quality]}
    )
    shutil.rmtree(folder / ACTIVATIONS)
    return FeedbackSAEs(saes, quality)


def load_feedback_saes(folder: str | os.PathLike[str]) -> FeedbackSAEs:
    """Read what `train_feedback_saes` saved. Raises ValueError where it didn't finish."""
    folder = Path(folder)
    if not (folder / REPORT).is_file():
        raise ValueError(
            f"{folder} holds no {REPORT}: train_feedback_saes didn't finish there; call it again"
        )
    kept = read_sealed_json(folder / REPORT, ("quality",))
    rows = [from_dict(SAEQuality, row) for row in kept["quality"]]
    return FeedbackSAEs({row.layer: load_sae(folder / _name(row.layer)) for row in rows}, rows)


def _finished(folder: Path, identity: Identity) -> FeedbackSAEs:
    path = folder / REPORT
    kept = Identity.from_dict(read_sealed_json(path, ("identity",))["identity"], path)
    identity.check(kept, folder, "choose another folder or remove this one")
    shutil.rmtree(folder / ACTIVATIONS, ignore_errors=True)  # a kill may have come just before
    return load_feedback_saes(folder)


def _name(layer: int) -> str:
    return f"layer-{layer}"


def _quality(sae: Dictionary, layer: int, stream: StoreStream) -> SAEQuality:
    measured = evaluate(sae, stream=stream, progress=False)
    return SAEQuality(
        layer, sae.cfg.d_sae, measured.n_tokens, measured.fvu, measured.l0, 1.0 - measured.alive
    )
