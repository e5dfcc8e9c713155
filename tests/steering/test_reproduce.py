"""The reproduction's parts at their bounds: where steering works, where it must not, and the real model's letters."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from interp.models.language_model import LanguageModel
from interp.steering.decomposition import decompose_variance
from interp.steering.extraction import extract
from interp.steering.generators import likes
from interp.steering.pair_activations import collect
from interp.steering.propensity import propensity_curve
from interp.steering.words import THINGS

Captured = pytest.CaptureFixture[str]
FOLDER = str(Path(__file__).parents[2] / "scripts" / "reproduce")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    sys.path.insert(0, FOLDER)
    try:
        yield {name: importlib.import_module(name) for name in ("polarity_model", "steering", "steering_toy")}
    finally:
        sys.path.remove(FOLDER)


@pytest.mark.slow
def test_steering_works_in_the_polarity_model_and_its_control_fails(scripts: dict[str, ModuleType]) -> None:
    """Trains for about 40 seconds: the gate, steerability, random directions, held-out words and template, control."""
    found = scripts["steering_toy"].run(progress=False)
    assert [str(check) for check in found.checks if not check.passed] == []
    assert len(found.checks) == 2 + 3 * 7
    assert set(found.figures) == {"toy_curves", "toy_violins"}


def test_quick_writes_its_results(
    scripts: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert scripts["steering"].main(["--quick", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == ["C", "D"]
    assert all(check["passed"] for part in results.values() for check in part["checks"])
    assert (tmp_path / "planted.png").exists()
    assert "11 of 11 checks passed" in capsys.readouterr().out


def test_a_failed_check_is_shown_and_fails_the_run(
    scripts: dict[str, ModuleType],
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steering = scripts["steering"]

    def failing() -> object:
        found = steering.Findings()
        found.at_least("C", "one is at least two", 2, 1)
        return found

    monkeypatch.setattr(steering, "parts_of", lambda seed: {"C": failing})
    assert steering.main(["--which", "C", "--out", str(tmp_path)]) == 1
    assert "FAIL  C  one is at least two" in capsys.readouterr().out


@pytest.mark.real_model
@pytest.mark.slow
def test_a_real_model_is_steered_by_the_letter(smollm2: LanguageModel) -> None:
    """Lettered items, evenly (A) and (B), in SmolLM2: the letter explains the slopes, whose sign it decides."""
    train, test = likes(THINGS[:2]), likes(THINGS[8:10])
    vector = extract(smollm2, train, 16)
    slopes = (
        propensity_curve(smollm2, test, vector, multipliers=(-1.0, 1.0), progress=False).steerability().slopes
    )
    is_a = test.factors()["A"].to_numpy(dtype=bool)
    assert decompose_variance(slopes, {"A": is_a}).shares["A"] >= 0.7
    assert slopes[is_a].mean() * slopes[~is_a].mean() < 0


@pytest.mark.real_model
@pytest.mark.slow
def test_unbalanced_letters_make_the_vector_a_letter(smollm2: LanguageModel) -> None:
    """With 4 (A) and 2 (B), mean cos(Δ_i, v) is (4 - 2) / 6 where the differences are the letter's alone."""
    train = likes(THINGS[:2], share_a=2 / 3)
    assert train.balance() == {"(A)": 4, "(B)": 2}
    activations = collect(smollm2, train, 16)
    assert activations.quality()[16].mean_cosine == pytest.approx(1 / 3, abs=0.1)
