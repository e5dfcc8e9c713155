"""The Neuronpedia export against the importer's schema: names, types, lengths, and the same bytes twice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interp.activations.store import ActivationStore
from interp.sae.dashboard.collect import FeatureSettings, collect_features
from interp.sae.dashboard.features import FeatureTable
from interp.sae.dashboard.neuronpedia import export_neuronpedia
from tests.sae import tiny_world as world

NUMBER, OPTIONAL = (int, float), (int, float, type(None))
FEATURE = {
    "modelId": str, "layer": str, "index": str, "creatorId": str, "createdAt": str, "maxActApprox": NUMBER,
    "frac_nonzero": NUMBER, "pos_str": list, "pos_values": list, "neg_str": list, "neg_values": list,
    "freq_hist_data_bar_heights": list, "freq_hist_data_bar_values": list,
    "logits_hist_data_bar_heights": list, "logits_hist_data_bar_values": list,
    "neuron_alignment_indices": list, "neuron_alignment_values": list, "neuron_alignment_l1": list,
    "correlated_neurons_indices": list, "correlated_neurons_pearson": list, "correlated_neurons_l1": list,
    "correlated_features_indices": list, "correlated_features_pearson": list, "correlated_features_l1": list,
    "topkCosSimIndices": list, "topkCosSimValues": list, "decoder_weights_dist": list,
    "hasVector": bool, "vector": list, "hookName": str,
}  # fmt: skip
ACTIVATION = {
    "id": str, "tokens": list, "values": list, "maxValue": NUMBER, "maxValueTokenIndex": int,
    "minValue": NUMBER, "index": str, "layer": str, "modelId": str, "dataSource": (str, type(None)),
    "dataIndex": (str, type(None)), "binMin": OPTIONAL, "binMax": OPTIONAL, "binContains": OPTIONAL,
    "qualifyingTokenIndex": int, "creatorId": str, "createdAt": str,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ActivationStore:
    return world.store(tmp_path_factory.mktemp("store") / "s", n=40)


@pytest.fixture(scope="module")
def table(store: ActivationStore) -> FeatureTable:
    settings = FeatureSettings(top_k=5, density_range=(0.0, 1.0), min_contexts=3)
    return collect_features(
        world.random_sae(), store, world.model(), n_latents=7, settings=settings, progress=False
    )


def export(table: FeatureTable, out: Path) -> Path:
    return export_neuronpedia(
        table, out, model_id="tiny", source_set="res-test", sae=world.random_sae(), batch_size=3
    )


def rows(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.decode("utf-8").splitlines()]


def test_the_layout_is_the_importers(table: FeatureTable, tmp_path: Path) -> None:
    folder = export(table, tmp_path)
    assert folder == tmp_path / "tiny" / "1-res-test"
    batches = {f"{kind}/batch-{i}.jsonl.gz" for kind in ("features", "activations") for i in range(3)}
    names = {"release.jsonl", "model.jsonl", "sourceset.jsonl", "source.jsonl"}
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == names | batches
    (source,) = rows(folder / "source.jsonl")
    assert (source["id"], source["modelId"], source["setName"]) == ("1-res-test", "tiny", "res-test")
    (sourceset,) = rows(folder / "sourceset.jsonl")
    (release,) = rows(folder / "release.jsonl")
    assert sourceset["releaseName"] == release["name"]
    (model,) = rows(folder / "model.jsonl")
    assert model["id"] == "tiny"


def test_rows_have_the_importers_fields(table: FeatureTable, tmp_path: Path) -> None:
    folder = export(table, tmp_path)
    features = [row for i in range(3) for row in rows(folder / "features" / f"batch-{i}.jsonl.gz")]
    activations = [row for i in range(3) for row in rows(folder / "activations" / f"batch-{i}.jsonl.gz")]
    for schema, some in ((FEATURE, features), (ACTIVATION, activations)):
        for row in some:
            assert set(row) == set(schema)
            for name, kind in schema.items():
                assert isinstance(row[name], kind), (name, row[name])
    assert [row["index"] for row in features] == [str(f.index) for f in table.features]
    for row, feature in zip(features, table.features, strict=True):
        assert len(row["pos_str"]) == len(row["pos_values"]) == 10
        assert len(row["neg_str"]) == len(row["neg_values"]) == 10
        assert len(row["logits_hist_data_bar_heights"]) == len(row["logits_hist_data_bar_values"]) == 50
        assert len(row["freq_hist_data_bar_heights"]) == len(row["freq_hist_data_bar_values"])
        assert sum(row["freq_hist_data_bar_heights"]) == table.hits[feature.index]
        assert row["frac_nonzero"] == feature.density
        assert row["hasVector"] is True
        assert len(row["vector"]) == 16
        assert row["hookName"] == "blocks.1.hook_resid_post"
        assert row["layer"] == "1-res-test"


def test_activation_rows_are_consistent(table: FeatureTable, tmp_path: Path) -> None:
    folder = export(table, tmp_path)
    activations = [row for i in range(3) for row in rows(folder / "activations" / f"batch-{i}.jsonl.gz")]
    assert len(activations) == sum(len(g.examples) for f in table.features for g in f.groups)
    assert len({row["id"] for row in activations}) == len(activations)
    for row in activations:
        assert len(row["tokens"]) == len(row["values"])
        assert row["values"][row["maxValueTokenIndex"]] == row["maxValue"] == max(row["values"])
        assert row["minValue"] == min(row["values"])
        assert 0 <= row["qualifyingTokenIndex"] < len(row["tokens"])
        assert not any("Ġ" in token for token in row["tokens"])
        if row["binMin"] is None:
            assert row["binMax"] is None
        else:
            peak = row["values"][row["qualifyingTokenIndex"]]
            assert row["binMin"] - 1e-3 <= peak <= row["binMax"] + 1e-3


def test_the_export_is_a_pure_function_of_the_table(table: FeatureTable, tmp_path: Path) -> None:
    first, second = export(table, tmp_path / "a"), export(table, tmp_path / "b")
    for path in first.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (second / path.relative_to(first)).read_bytes()


def test_a_site_without_a_layer_has_no_source(table: FeatureTable, tmp_path: Path) -> None:
    import copy

    other = copy.copy(table)
    other.site = "embed"
    with pytest.raises(ValueError, match="embed has no layer"):
        export(other, tmp_path)


@pytest.mark.parametrize("names", [{"model_id": "../../x"}, {"source_set": "a/b"}, {"model_id": ".."}])
def test_names_are_names(table: FeatureTable, tmp_path: Path, names: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="will name a file or folder"):
        export_neuronpedia(table, tmp_path / "out", **{"model_id": "tiny", "source_set": "res", **names})
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_writes_the_pages(store: ActivationStore, tmp_path: Path) -> None:
    from interp.cli import app

    world.random_sae().save_pretrained(tmp_path / "sae")
    arguments = [
        "export",
        "--sae",
        str(tmp_path / "sae"),
        "--out",
        str(tmp_path / "np"),
        "--to",
        "neuronpedia",
    ]
    with pytest.raises(ValueError, match="needs --store"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    arguments += ["--store", str(store.folder), "--model-id", "tiny", "--n-latents", "5"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    folder = tmp_path / "np" / "tiny" / "1-resid_post-standard"
    assert f"wrote {folder}" in result.output
    assert len(rows(folder / "features" / "batch-0.jsonl.gz")) == 5
    with pytest.raises(ValueError, match="--store has no effect with --to saelens"):
        CliRunner().invoke(
            app,
            ["export", "--sae", str(tmp_path / "sae"), "--out", "x", "--store", "y"],
            catch_exceptions=False,
        )
