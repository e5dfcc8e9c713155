"""The sweep runner: what a W&B sweep file expands to, and a local sweep end to end."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from scripts import sweep
from tests.models.tiny import byte_tokenizer, tiny_model

GRID = {
    "method": "grid",
    "parameters": {
        "architecture": {"values": ["gated", "standard"]},
        "l1_coefficient": {"values": [0.05, 0.2]},
        "d_sae": {"value": 48},
        "steps": {"value": 12},
        "batch_size": {"value": 128},
    },
}


def test_grid_is_the_product_in_file_order() -> None:
    points = sweep.configurations(GRID, None, 0)
    assert [(p["architecture"], p["l1_coefficient"]) for p in points] == [
        ("gated", 0.05),
        ("gated", 0.2),
        ("standard", 0.05),
        ("standard", 0.2),
    ]
    assert sweep.run_names(points)[3] == "architecture=standard_l1_coefficient=0.2"


def test_random_is_seeded_and_in_range() -> None:
    spec = {
        "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2},
        "d_sae": {"values": [32, 64]},
        "k": {"min": 2, "max": 5},
    }
    file = {"method": "random", "run_cap": 200, "parameters": spec}
    points = sweep.configurations(file, None, 3)
    assert points == sweep.configurations(file, None, 3)
    assert points != sweep.configurations(file, None, 4)
    assert all(1e-4 <= p["lr"] <= 1e-2 for p in points)
    assert {p["k"] for p in points} == {2, 3, 4, 5}
    # log-uniform: half of the draws below the geometric mean
    assert 70 <= sum(p["lr"] < 1e-3 for p in points) <= 130


@pytest.mark.parametrize(
    ("spec", "said"),
    [({"min": 1}, "min and max"), ({"distribution": "beta", "min": 0, "max": 1}, "distribution")],
)
def test_bad_parameters_are_named(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sweep.draw("lr", spec, random.Random(0))


def test_names_that_round_to_the_same_are_told_apart() -> None:
    assert sweep.run_names([{"lr": 0.00012345678}, {"lr": 0.00012345679}]) == [
        "lr=0.0001235-0",
        "lr=0.0001235-1",
    ]


def test_streams_are_shared_where_the_data_is_the_same() -> None:
    configs = [{"steps": 5, "lr": 1}, {"steps": 5, "lr": 2}, {"steps": 9, "lr": 1}]
    assert [len(group) for group in sweep.by_stream(configs)] == [2, 1]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A tiny model, its store and held-out text, in place of what `load_inputs` would load."""
    from interp.activations.harvest import harvest
    from interp.activations.text import load_text
    from interp.models.loading import load_model

    model = load_model(tiny_model("llama"), tokenizer=byte_tokenizer())
    text = load_text([f"Line {i} of a text about nothing in particular. " * 2 for i in range(60)])
    harvest(model, text, "resid_post.1", tmp_path / "store", tokens=3000, context_size=32, progress=False)
    monkeypatch.setattr(sweep, "load_inputs", lambda args: (model, text))
    return SimpleNamespace(store=tmp_path / "store", out=tmp_path / "out")


def arguments(world: SimpleNamespace, file: Path, *more: str) -> list[str]:
    paths = ["--store", str(world.store), "--out", str(world.out), "--model", "tiny", "--tokens", "600"]
    return [str(file), *paths, *more]


def test_local_sweep_writes_one_row_a_configuration_and_reuses_them(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    import yaml

    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(GRID, sort_keys=False))
    sweep.main(arguments(world, file))
    table = pd.read_csv(world.out / "table.csv")
    assert list(table["l1_coefficient"]) == [0.05, 0.2, 0.05, 0.2]
    assert table["loss_recovered"].notna().all()
    assert (world.out / "pareto.png").stat().st_size > 5_000
    first = {p: p.stat().st_mtime_ns for p in world.out.glob("*/sae/weights.safetensors")}
    assert len(first) == 4
    sweep.main(arguments(world, file))
    assert {p: p.stat().st_mtime_ns for p in world.out.glob("*/sae/weights.safetensors")} == first
    pd.testing.assert_frame_equal(pd.read_csv(world.out / "table.csv"), table)


def test_wandb_agent_trains_what_the_server_hands_out(
    world: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import yaml

    logged: list[dict[str, Any]] = []

    class Run:
        id = "abc123"

        def __init__(self) -> None:
            self.config = {
                "architecture": "gated",
                "l1_coefficient": 0.1,
                "d_sae": 32,
                "steps": 6,
                "batch_size": 128,
            }

        def __enter__(self) -> Run:
            return self

        def __exit__(self, *error: object) -> None: ...

        def log(self, values: dict[str, Any]) -> None:
            logged.append(values)

    calls = {}
    fake = SimpleNamespace(
        init=lambda project: Run(),
        sweep=lambda config, project: calls.setdefault("sweep", (config, project)) and "sweep-id",
        agent=lambda sweep_id, function, project, count: (calls.setdefault("agent", sweep_id), function()),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(GRID, sort_keys=False))
    sweep.main(arguments(world, file, "--wandb"))
    assert calls["agent"] == "sweep-id"
    assert calls["sweep"][0]["parameters"]["d_sae"] == {"value": 48}
    assert logged[0]["d_sae"] == 32
    assert (world.out / "abc123" / "sae" / "weights.safetensors").exists()


def test_shipped_sweep_files_are_valid() -> None:
    folder = Path(sweep.__file__).parent / "sweeps"
    counts = {p.stem: len(sweep.configurations(sweep.read_sweep(p), None, 0)) for p in folder.glob("*.yaml")}
    assert counts == {"pareto": 6, "random": 30}
