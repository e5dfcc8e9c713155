from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.steering.extraction import fit
from interp.steering.pair_activations import PairActivations
from interp.steering.vector import CONFIG, WEIGHTS, SteeringVector


def vector(**meta: object) -> SteeringVector:
    return SteeringVector({2: torch.tensor([3.0, 4.0]), 0: torch.tensor([0.0, 2.0])}, dict(meta))


def test_arithmetic() -> None:
    a = vector()
    b = SteeringVector({0: torch.tensor([1.0, 0.0]), 1: torch.tensor([5.0, 5.0])})
    total = a + b
    assert {n: v.tolist() for n, v in total.directions.items()} == {0: [1, 2], 1: [5, 5], 2: [3, 4]}
    assert (a - b)[1].tolist() == [-5, -5]
    assert (2 * a)[2].tolist() == (a * 2)[2].tolist() == [6, 8]
    assert (a / 2)[2].tolist() == [1.5, 2]
    assert (-a)[0].tolist() == [0, -2]
    assert a[2].tolist() == [3, 4]  # nothing was changed in place


def test_norms_and_cosines() -> None:
    a = vector()
    assert a.norms() == {0: 2.0, 2: 5.0}
    assert a.normalize().norms() == pytest.approx({0: 1.0, 2: 1.0})
    assert a.normalize(to=a * 3).norms() == pytest.approx({0: 6.0, 2: 15.0})
    turned = SteeringVector({2: torch.tensor([4.0, 3.0]), 7: torch.ones(2)})
    assert a.cosine(turned) == pytest.approx({2: 24 / 25})
    assert math.isnan(a.cosine(a * 0)[0])
    with pytest.raises(ValueError, match="no layer in common"):
        a.cosine(turned.only(7))
    with pytest.raises(ValueError, match="layer 0 is zero"):
        (a * 0).normalize()


def test_random_like_has_the_norms_and_the_seed() -> None:
    a = vector()
    assert a.random_like(3).norms() == pytest.approx(a.norms())
    assert torch.equal(a.random_like(3)[2], a.random_like(3)[2])
    assert not torch.equal(a.random_like(3)[2], a.random_like(4)[2])


def test_save_and_load(tmp_path: Path) -> None:
    a = vector(site="mlp_out", method="mean", n_pairs=3)
    loaded = SteeringVector.load(a.save(tmp_path / "v"))
    assert loaded.layers == (0, 2)
    assert loaded.meta == a.meta
    assert all(torch.equal(loaded[n], a[n]) for n in a.layers)
    half = a.to(dtype=torch.bfloat16)
    assert SteeringVector.load(half.save(tmp_path / "v"))[2].dtype == torch.bfloat16  # saved over the old one


def test_broken_files_are_named(tmp_path: Path) -> None:
    folder = vector().save(tmp_path / "v")
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"vectors.safetensors is corrupt"):
        SteeringVector.load(folder)
    (folder / WEIGHTS).write_bytes(whole)
    config = json.loads((folder / CONFIG).read_text())
    for change, message in (
        ({"schema_version": 99}, "schema_version 99"),
        ({"meta": None}, "steering.json lacks 'meta'"),
    ):
        changed = {k: v for k, v in {**config, **change}.items() if v is not None}
        (folder / CONFIG).write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            SteeringVector.load(folder)
    (folder / CONFIG).write_text("{")
    with pytest.raises(ValueError, match=r"steering.json is not valid JSON"):
        SteeringVector.load(folder)
    (folder / CONFIG).unlink()
    with pytest.raises(FileNotFoundError, match=r"steering.json is missing"):
        SteeringVector.load(folder)


def test_an_interrupted_save_is_noticed(tmp_path: Path) -> None:
    """New tensors beside the old description: the checksum differs."""
    folder = vector().save(tmp_path / "v")
    old = (folder / CONFIG).read_bytes()
    (vector() * 2).save(folder)
    (folder / CONFIG).write_bytes(old)
    with pytest.raises(ValueError, match="corrupt"):
        SteeringVector.load(folder)


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        ({}, "at least one"),
        ({-1: torch.ones(2)}, "integer from 0 on"),
        ({0: torch.ones(2, 2)}, r"shape \(2, 2\)"),
        ({0: torch.ones(2, dtype=torch.long)}, "floating-point"),
        ({0: torch.tensor([math.nan, 1.0])}, "layer 0 holds NaN"),
        ({0: torch.ones(2), 1: torch.ones(3)}, "different widths"),
    ],
)
def test_what_is_no_vector(directions: dict[int, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SteeringVector(directions)


def test_quality_and_origin_follow_the_arithmetic() -> None:
    """Of -2 v they must be what is measured along -2 v."""
    generator = torch.Generator().manual_seed(0)
    sides = [{n: torch.randn(7, 4, generator=generator) for n in (1, 2)} for _ in range(2)]
    acts = PairActivations(*sides, {"pairs": ["a", "b"]})
    v = fit(acts)
    for factor in (-1.0, -2.5, 0.5, 3):
        measured, kept = acts.quality(factor * v), (factor * v).quality()
        for layer in (1, 2):
            assert asdict(kept[layer]) == pytest.approx(asdict(measured[layer]), rel=1e-5, abs=1e-9)
    assert (-v).quality()[1].mean_cosine == pytest.approx(-v.quality()[1].mean_cosine)
    assert (-1 * (-v)).quality() == v.quality()
    assert (v / -2).quality() == (-v).quality()
    assert (v + v).quality() == v.quality()
    for mixed in (0 * v, v - v, v + fit(acts, "pca"), v - 0.5 * v):
        with pytest.raises(ValueError, match="no quality"):
            mixed.quality()
    other = fit(PairActivations(sides[1], sides[0], {"pairs": ["b", "c"]}))
    assert (v + other).meta["pairs"] == ["a", "b", "c"]  # a sum has seen the pairs of both
    assert (-v).meta["pairs"] == ["a", "b"]


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="widths differ: 2 and 3"):
        vector() + SteeringVector({0: torch.ones(3)})
    with pytest.raises(ValueError, match="sites differ"):
        vector() + vector(site="mlp_out")
    with pytest.raises(ValueError, match="no site of a block"):
        vector(site="resid")
    with pytest.raises(KeyError, match="no layer 5; it has 0, 2"):
        vector()[5]
    with pytest.raises(TypeError, match="got a int"):
        vector() + 1  # type: ignore[operator]
    with pytest.raises(ValueError, match="not extracted from pairs"):
        vector().quality()


def test_apply_is_steer(tiny_llama: LanguageModel) -> None:
    v = SteeringVector({1: torch.ones(32)})
    clean = tiny_llama.activations("abc", "resid_post.1")["resid_post.1"]
    with v.apply(tiny_llama, 2.0, positions=1):
        steered = tiny_llama.activations("abc", "resid_post.1")["resid_post.1"]
    assert torch.equal(steered[:, 0], clean[:, 0])
    assert torch.allclose(steered[:, 1:], clean[:, 1:] + 2)
