"""Which prompts to label: the notebook's recipe in one call, matched to prompts by their numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from classic_ml.selection import RDSSSelector, choose_to_label


@pytest.fixture(scope="module")
def tokens() -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """60 prompts of five topics, 3 to 9 tokens each in shuffled order, one coordinate a thousand times too large."""
    rng = np.random.default_rng(0)
    topic = np.arange(60) % 5
    groups = np.repeat(np.arange(60), rng.integers(3, 10, 60))
    rows = 6 * np.eye(8)[topic[groups]] + rng.standard_normal((len(groups), 8))
    rows[:, 7] = 1000 * rng.standard_normal(len(groups))
    order = rng.permutation(len(groups))
    return torch.from_numpy(rows[order]).float(), torch.from_numpy(groups[order]), topic


def test_it_is_the_recipe_in_one_call(tokens) -> None:
    rows, groups, topic = tokens
    means = np.stack([rows[groups == g].double().numpy().mean(0) for g in range(60)])
    z = (means - means.mean(0)) / means.std(0)
    recipe = RDSSSelector(10).fit(z)
    prompts = [f"prompt {i}" for i in range(60)]
    plan = choose_to_label(rows, 10, groups=groups, items=prompts)
    assert plan.indices.tolist() == recipe.indices_.tolist()
    assert plan.items == [f"prompt {i}" for i in recipe.indices_]
    assert plan.mmd2 == pytest.approx(recipe.mmd2_, rel=1e-4)
    assert plan.mmd2 < 0.8 * plan.random_mmd2
    assert set(topic[plan.indices]) == set(range(5))
    assert "10 to label" in str(plan)
    single = choose_to_label(means, 10)
    assert single.indices.tolist() == plan.indices.tolist()
    assert single.items is None


def test_what_does_not_fit_together_is_refused(tokens) -> None:
    rows, groups, _ = tokens
    for arguments, message in (
        ({"groups": groups[:5]}, "groups must hold a whole number for each"),
        ({"groups": groups + 1}, "from 0 up"),
        ({"groups": groups.double()}, "groups must hold a whole number"),
        ({"groups": groups, "items": ["a"]}, "items has 1 entries, but there are 60"),
        ({"groups": groups, "n_samples": 60}, "n_samples = 60"),
        ({"standardize": "minmax"}, "standardize = 'minmax'"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_to_label(rows, **({"n_samples": 10} | arguments))
