"""Configurations to and from files; what does not fit is named."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Optional

import numpy as np
import pytest
import torch
import yaml

from interp.core.config import first_difference, from_dict, load_config, save_config, to_dict
from interp.core.trainer import TrainerConfig


@dataclass(frozen=True)
class Adam:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.0, 0.999)


@dataclass(frozen=True)
class Run:
    name: str
    steps: int
    adam: Adam = field(default_factory=Adam)
    other: Optional[Adam] = None  # noqa: UP045 - both spellings must work
    seeds: tuple[int, ...] = ()
    stages: list[Adam] = field(default_factory=list)
    by_name: dict[str, Adam] = field(default_factory=dict)
    mode: Literal["a", "b"] = "a"
    compile: bool | str = False
    clip: float | None = None
    out: Path | None = None
    extra: dict[str, Any] = field(default_factory=dict)


FULL = Run(
    name="x",
    steps=3,
    adam=Adam(0.5, (0.1, 0.2)),
    other=Adam(2.0),
    seeds=(1, 2),
    stages=[Adam(1.0), Adam()],
    by_name={"sae": Adam(4.0)},
    mode="b",
    compile="eager",
    clip=1.0,
    out=Path("/tmp/run"),
    extra={"a": [1, {"b": None}]},
)


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
@pytest.mark.parametrize("config", [FULL, Run("y", 1)])
def test_a_config_survives_its_file(tmp_path, suffix, config):
    path = tmp_path / f"config{suffix}"
    save_config(path, config)
    assert load_config(path, Run) == config


def test_the_trainers_config_survives(tmp_path):
    config = TrainerConfig(max_epochs=3, compile="eager", grad_clip=1.0, out_dir="x")
    save_config(tmp_path / "c.yaml", config)
    assert load_config(tmp_path / "c.yaml", TrainerConfig) == config


def test_plain_values():
    @dataclass
    class Odd:
        dtype: torch.dtype
        device: torch.device
        number: Any
        path: Path

    odd = Odd(torch.bfloat16, torch.device("cpu"), np.float32(0.5), Path("a/b"))
    assert to_dict(odd) == {"dtype": "bfloat16", "device": "cpu", "number": 0.5, "path": "a/b"}
    json.dumps(to_dict(FULL))


def test_a_whole_number_is_a_float():
    assert isinstance(from_dict(Adam, {"lr": 1}).lr, float)
    assert isinstance(from_dict(Run, {"name": "x", "steps": 1, "clip": 2}).clip, float)


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({"name": "x", "step": 3}, ValueError, r"unknown key 'step' for Run; did you mean 'steps'\?"),
        ({"name": "x"}, ValueError, "missing key 'steps' for Run"),
        (
            {"name": "x", "steps": 1, "adam": {"learning": 1}},
            ValueError,
            r"unknown key 'adam\.learning' for Adam",
        ),
        ({"name": "x", "steps": 1, "stages": [{}, {"l": 1}]}, ValueError, r"unknown key 'stages\[1\]\.l'"),
        ({"name": "x", "steps": 1, "by_name": {"a": {"l": 1}}}, ValueError, r"unknown key 'by_name\.a\.l'"),
        ({"name": "x", "steps": 1, "mode": "c"}, ValueError, "mode = 'c' is not known; .*choices: a, b"),
        (
            {"name": "x", "steps": 1, "adam": {"betas": [0.1]}},
            ValueError,
            r"adam\.betas = .* 1 entries, expected 2",
        ),
        ({"name": "x", "steps": "1"}, TypeError, "steps = '1' is a str, expected int"),
        ({"name": "x", "steps": 1.5}, TypeError, "steps = 1.5 is a float, expected int"),
        ({"name": "x", "steps": True}, TypeError, "steps = True is a bool, expected int"),
        ({"name": "x", "steps": None}, TypeError, "steps = None is a NoneType, expected int"),
        ({"name": 3, "steps": 1}, TypeError, "name = 3 is a int, expected str"),
        (
            {"name": "x", "steps": 1, "adam": {"lr": "fast"}},
            TypeError,
            r"adam\.lr = 'fast' is a str, expected float",
        ),
        ({"name": "x", "steps": 1, "adam": {"betas": [0, "b"]}}, TypeError, r"adam\.betas\[1\] = 'b'"),
        ({"name": "x", "steps": 1, "clip": "no"}, TypeError, "clip = 'no' is a str, expected float"),
        ({"name": "x", "steps": 1, "compile": 3}, TypeError, "compile = 3 is a int, expected bool | str"),
        ({"name": "x", "steps": 1, "seeds": 4}, TypeError, "seeds = 4 is a int, expected"),
        ({"name": "x", "steps": 1, "adam": 4}, TypeError, "adam: expected a mapping, got 4"),
    ],
)
def test_what_does_not_fit_is_named(mapping, error, message):
    with pytest.raises(error, match=message):
        from_dict(Run, mapping)


def test_broken_and_foreign_files_are_named(tmp_path):
    (tmp_path / "a.yaml").write_text("a: [1")
    with pytest.raises(ValueError, match=r"a\.yaml is not valid YAML"):
        load_config(tmp_path / "a.yaml", Run)
    for act in (
        lambda: load_config(tmp_path / "a.toml", Run),
        lambda: save_config(tmp_path / "a.toml", FULL),
    ):
        with pytest.raises(ValueError, match=r"a\.toml: a configuration is a \.yaml"):
            act()
    (tmp_path / "empty.yaml").write_text("")
    assert load_config(tmp_path / "empty.yaml", Adam) == Adam()


def test_yaml_is_plain_and_in_the_order_of_the_fields(tmp_path):
    save_config(tmp_path / "c.yaml", FULL)
    text = (tmp_path / "c.yaml").read_text()
    assert "!!" not in text
    assert list(yaml.safe_load(text)) == list(to_dict(FULL))


def test_the_first_difference_is_named_with_both_values():
    saved = {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": [1]}
    assert first_difference(saved, {"a": {"b": 1, "c": [1, {"d": 2}]}, "e": [1]}) is None
    assert first_difference(saved, {**saved, "a": {"b": 1, "c": [1, {"d": 3}]}}) == ("a.c[1].d", 2, 3)
    assert first_difference(saved, {**saved, "e": [1, 2]}) == ("e", [1], [1, 2])
    assert first_difference(saved, {**saved, "f": 4}) == ("f", None, 4)


@dataclass(frozen=True)
class Slow:
    steps: int = 1
    patience: int = 1


@dataclass(frozen=True)
class Fast:
    steps: int = 1
    rate: float = 1.0


@dataclass(frozen=True)
class Paced:
    pace: Slow | Fast = field(default_factory=Slow)


def test_of_two_dataclasses_the_one_with_these_keys_is_meant():
    assert from_dict(Paced, {"pace": {"steps": 2}}) == Paced(Slow(2))
    assert from_dict(Paced, {"pace": {"steps": 2, "rate": 3}}) == Paced(Fast(2, 3.0))
    with pytest.raises(ValueError, match=r"unknown key 'pace\.rat' for Slow"):
        from_dict(Paced, {"pace": {"steps": 2, "rat": 3}})
    with pytest.raises(TypeError, match=r"pace\.rate = 'x' is a str"):
        from_dict(Paced, {"pace": {"rate": "x"}})
    with pytest.raises(TypeError, match="pace = 3 is a int"):
        from_dict(Paced, {"pace": 3})
