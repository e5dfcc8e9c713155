"""Options as text: settings, a run's configuration fed back, the list that explains them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from interp.core.config import from_dict, load_config, to_dict
from interp.sae.config import FROM_DATA, RunConfig, SAETrainConfig, configure, option_groups
from interp.sae.option_text import flat, list_options, parse_settings, read_options
from interp.sae.registry import architectures
from interp.sae.training import SAERunConfig, train

TRAINED = architectures(trained=True)


def test_settings_are_read_as_yaml_reads_values() -> None:
    asked = ["architecture=topk", "form.k=4", "loss.multi=true", "lr=1e-3", "grad_clip=null", "run.steps=5"]
    asked.append("resample_at=[0.2, 0.5]")
    assert parse_settings(asked) == {
        "architecture": "topk",
        "k": 4,
        "multi": True,
        "lr": 1e-3,
        "grad_clip": None,
        "steps": 5,
        "resample_at": [0.2, 0.5],
    }


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("k", "name=value"),
        ("loss.k=3", "did you mean|loss has no such field"),
        ("los.k=3", "did you mean 'loss'"),
        ("form.d_in=3", "form has no such field"),
        ("lr=[1", "no value that YAML knows"),
    ],
)
def test_settings_that_say_nothing_are_refused(setting: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_settings([setting])


@pytest.mark.parametrize("name", TRAINED)
def test_every_option_is_listed_and_explained(name: str) -> None:
    text = list_options(name)
    for group, kind in {**option_groups(name), "run": RunConfig}.items():
        assert f"\n{group}:\n" in text
        for field in dataclasses.fields(kind):
            if field.name not in FROM_DATA:
                about = text.split(f"  {field.name} = ")[1].split("\n")[1]
                assert about.startswith("      "), f"{name}: {kind.__name__}.{field.name} is not explained"


@pytest.mark.parametrize("name", TRAINED)
def test_configurations_come_back_as_they_were(name: str) -> None:
    config = configure({"architecture": name})
    assert from_dict(SAETrainConfig, to_dict(config)) == config
    assert configure(flat(config)) == config


def test_the_configuration_beside_a_run_makes_the_run_again(tmp_path) -> None:
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    options = {
        "architecture": "batchtopk",
        "d_sae": 16,
        "k": 2.5,
        "steps": 6,
        "batch_size": 32,
        "precision": "64",
    }
    one = train(x.double(), out=tmp_path / "one", progress=False, checkpoint_every=None, **options)
    asked = read_options(tmp_path / "one" / "config.yaml")
    assert asked["k"] == 2.5
    other = train(x.double(), progress=False, **asked)
    assert all(torch.equal(a, b) for a, b in zip(one.sae.parameters(), other.sae.parameters(), strict=True))
    assert load_config(tmp_path / "one" / "config.yaml", SAERunConfig).sae == one.config.sae


def test_another_architectures_configuration_is_named(tmp_path) -> None:
    mapping = to_dict(configure({"architecture": "topk"}))
    with pytest.raises(ValueError, match=r"loss\.multi.*GatedLoss|unknown key 'form.k'"):
        from_dict(SAETrainConfig, {**mapping, "architecture": "gated"})
    with pytest.raises(ValueError, match="missing key 'form'"):
        from_dict(SAETrainConfig, {"architecture": "gated"})
    with pytest.raises(ValueError, match="unknown key 'other'"):
        from_dict(SAETrainConfig, {**mapping, "other": 1})
