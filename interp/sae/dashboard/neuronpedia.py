"""Feature pages as files that Neuronpedia's bulk import reads.

    {out}/{model_id}/{layer}-{source_set}/
        release.jsonl  model.jsonl  sourceset.jsonl  source.jsonl
        features/batch-N.jsonl.gz  activations/batch-N.jsonl.gz

The layout and field names are those that `jbloomAus/SAEDashboard` writes and `hijohnnylin/neuronpedia` imports.  The
export is a pure function of the table: the same table gives the same bytes.  No network is involved.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.files import atomic_write
from interp.core.messages import check_name
from interp.models.sites import Site
from interp.sae.dashboard.features import Example, Feature, FeatureTable

if TYPE_CHECKING:
    from interp.sae.dictionary import Dictionary

_DECIMALS = 4


def export_neuronpedia(
    table: FeatureTable,
    out: str | Path,
    *,
    model_id: str,
    source_set: str,
    creator_id: str = "",
    creator_name: str = "",
    release: str | None = None,
    description: str = "",
    sae: Dictionary | None = None,
    dataset: str = "",
    created_at: datetime | None = None,
    batch_size: int = 128,
) -> Path:
    """Write a table's features in Neuronpedia's layout.

    Args:
        table: what `collect_features` returned; its displayed features are exported.
        out: folder of exports.
        model_id, source_set: Neuronpedia's names of the model and of the set of SAEs, e.g. "smollm2-135m" and
            "res-gated"; the source is called "{layer}-{source_set}".
        creator_id, creator_name: who publishes.
        release, description: of the release; the source set's name if not given.
        sae: adds the decoder directions as vectors for steering.
        dataset: what the text was.
        created_at: stamped on every row; None: the epoch, so that the files depend on nothing but the table.
        batch_size: features per file.

    Returns:
        The source's folder.

    Raises:
        ValueError: the table's site has no layer, so the source can't be named; a name that can't be a folder's.
    """
    check_name("model_id", model_id)
    check_name("source_set", source_set)
    site = Site.parse(table.site)
    if site.layer is None:
        raise ValueError(f"site {table.site} has no layer, but Neuronpedia names a source by its layer")
    source = f"{site.layer}-{source_set}"
    folder = Path(out) / model_id / source
    stamp = (created_at or datetime.fromtimestamp(0, timezone.utc)).isoformat()
    common = {"modelId": model_id, "creatorId": creator_id, "createdAt": stamp}
    title = description or release or source_set

    _write_rows(
        folder / "release.jsonl",
        [
            {
                "name": release or source_set,
                "description": title,
                "descriptionShort": title,
                "creatorName": creator_name,
                "creatorNameShort": creator_name,
                "creatorId": creator_id,
                "urls": [],
                "visibility": "PUBLIC",
                "createdAt": stamp,
            }
        ],
    )
    _write_rows(
        folder / "model.jsonl",
        [
            {
                "id": model_id,
                "displayName": model_id,
                "displayNameShort": model_id,
                "instruct": "instruct" in model_id.lower() or model_id.endswith("-it"),
                "creatorId": creator_id,
                "createdAt": stamp,
                "updatedAt": stamp,
            }
        ],
    )
    _write_rows(
        folder / "sourceset.jsonl",
        [
            {
                **common,
                "name": source_set,
                "description": title,
                "creatorName": creator_name,
                "releaseName": release or source_set,
                "visibility": "PUBLIC",
            }
        ],
    )
    _write_rows(
        folder / "source.jsonl",
        [
            {
                **common,
                "id": source,
                "setName": source_set,
                "dataset": dataset,
                "num_prompts": table.n_contexts,
                "num_tokens_in_prompt": None,
                "visibility": "PUBLIC",
            }
        ],
    )
    for number, first in enumerate(range(0, max(len(table.features), 1), batch_size)):
        part = table.features[first : first + batch_size]
        name = f"batch-{number}.jsonl.gz"
        _write_rows(
            folder / "features" / name,
            ({**common, "layer": source, **_feature(feature, table, sae, site)} for feature in part),
        )
        _write_rows(
            folder / "activations" / name,
            (
                {**common, "layer": source, "dataSource": dataset or None, **row}
                for feature in part
                for row in _activations(feature, table, f"{model_id}/{source}")
            ),
        )
    return folder


def _feature(feature: Feature, table: FeatureTable, sae: Dictionary | None, site: Site) -> dict[str, Any]:
    counts, width = feature.histogram_counts, feature.histogram_width
    effect = feature.logits
    edges = effect.histogram_edges if effect else []
    vector = [] if sae is None else [float(v) for v in sae.W_dec[feature.index].detach().float()]
    return {
        "index": str(feature.index),
        "maxActApprox": _round(feature.max_activation),
        "frac_nonzero": feature.density,
        "freq_hist_data_bar_heights": counts,
        "freq_hist_data_bar_values": [_round((i + 0.5) * width) for i in range(len(counts))],
        "logits_hist_data_bar_heights": effect.histogram_counts if effect else [],
        "logits_hist_data_bar_values": [_round((a + b) / 2) for a, b in pairwise(edges)],
        "pos_str": [table.vocabulary.string(t) for t, _ in effect.promoted] if effect else [],
        "pos_values": [_round(v) for _, v in effect.promoted] if effect else [],
        "neg_str": [table.vocabulary.string(t) for t, _ in effect.suppressed] if effect else [],
        "neg_values": [_round(v) for _, v in effect.suppressed] if effect else [],
        "topkCosSimIndices": [i for i, _ in feature.neighbours],
        "topkCosSimValues": [_round(v) for _, v in feature.neighbours],
        "neuron_alignment_indices": [],
        "neuron_alignment_values": [],
        "neuron_alignment_l1": [],
        "correlated_neurons_indices": [],
        "correlated_neurons_pearson": [],
        "correlated_neurons_l1": [],
        "correlated_features_indices": [],
        "correlated_features_pearson": [],
        "correlated_features_l1": [],
        "decoder_weights_dist": [],
        "hasVector": bool(vector),
        "vector": [_round(v) for v in vector],
        "hookName": f"blocks.{site.layer}.hook_{site.name}",
    }


def _activations(feature: Feature, table: FeatureTable, source: str) -> Iterable[dict[str, Any]]:
    quantiles = max(len(feature.groups) - 1, 1)
    for number, group in enumerate(feature.groups):
        bin_fields: dict[str, float | None] = {"binMin": None, "binMax": None, "binContains": None}
        if number > 0:
            bin_fields = {
                "binMin": _round(group.low),
                "binMax": _round(group.high),
                "binContains": _round(1 / quantiles),
            }
        for place, example in enumerate(group.examples):
            key = f"{source}/{feature.index}/{number}/{place}"
            yield {
                "id": "c" + hashlib.sha256(key.encode()).hexdigest()[:24],
                "index": str(feature.index),
                **_example(example, table),
                **bin_fields,
            }


def _example(example: Example, table: FeatureTable) -> dict[str, Any]:
    values = [_round(v) for v in example.values]
    largest = max(range(len(values)), key=values.__getitem__)
    return {
        "tokens": [table.vocabulary.string(t) for t in example.token_ids],
        "values": values,
        "maxValue": values[largest],
        "maxValueTokenIndex": largest,
        "minValue": min(values),
        "qualifyingTokenIndex": example.peak,
        "dataIndex": str(example.document),
    }


def _round(value: float) -> float:
    return round(float(value), _DECIMALS)


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    encoded = data.encode("utf-8", "backslashreplace")
    with atomic_write(path) as temporary:
        # No time stamp in the gzip header: equal tables give equal files.
        temporary.write_bytes(gzip.compress(encoded, 5, mtime=0) if path.suffix == ".gz" else encoded)
