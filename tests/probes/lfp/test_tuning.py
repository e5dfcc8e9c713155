"""Tuning by reward and by pairs: what it raises, its bound on the KL, and the bits of a run that was killed."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.tuned import load_tuned
from interp.probes.lfp.tuning import (
    PreferencePair,
    PreferenceTuning,
    RewardTuning,
    tune_on_preferences,
    tune_on_reward,
)

PROMPTS = ["the film was", "a dull meal", "some town", "it"]
PAIRS = [
    PreferencePair(prompt, " good", " bad") for prompt in [*PROMPTS, "and", "then"]
]  # two steps an epoch
BY_REWARD = RewardTuning(
    steps=6, batch_size=16, lr=3e-3, beta=0.1, max_new_tokens=4, max_kl=None, checkpoint_every=2
)
BY_PAIRS = PreferenceTuning(
    steps=6, batch_size=4, lr=3e-3, max_new_tokens=4, max_kl=None, checkpoint_every=2, measure_every=3
)


def low_letters(texts: Sequence[str]) -> list[float]:
    """The share of small Latin letters."""
    return [sum("a" <= c <= "z" for c in text) / 4 for text in texts]


class Killed(Exception):
    pass


def killed_at(call: int) -> Callable[[Sequence[str]], list[float]]:
    """`low_letters`, which fails when it is called for the time numbered `call`."""
    calls = 0

    def reward(texts: Sequence[str]) -> list[float]:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        return low_letters(texts)

    reward.__qualname__ = low_letters.__qualname__
    return reward


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def assert_same_run(one: Path, other: Path) -> None:
    ours, theirs = weights(one), weights(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (one / "tuned.json").read_text() == (other / "tuned.json").read_text()


@pytest.fixture(scope="module")
def by_reward(tiny_llama: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward")
    tune_on_reward(tiny_llama, PROMPTS, low_letters, BY_REWARD, folder)
    return folder


def test_reward_rises_and_kl_and_length_are_told(tiny_llama: LanguageModel) -> None:
    before = copy.deepcopy(tiny_llama.module.state_dict())
    generator = torch.get_rng_state()
    settings = replace(BY_REWARD, steps=30, lr=1e-2, eval_samples=64)
    tuned = tune_on_reward(tiny_llama, PROMPTS, low_letters, settings)
    assert tuned.reward_before == pytest.approx(26 / 260, abs=0.05)
    assert tuned.reward_gain is not None
    assert tuned.reward_gain > 0.3
    assert tuned.before.kl == 0 < tuned.kl < 2
    assert tuned.after.kl_per_text == pytest.approx(tuned.kl * tuned.after.length)
    first, last = tuned.history[0], tuned.history[-1]
    assert len(tuned.history) == tuned.steps == last["step"] == 30
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert last["kl_per_text"] == pytest.approx(last["kl"] * last["length"])
    assert tuned.folder is None
    assert tuned.stopped == "all steps taken"
    now = tiny_llama.module.state_dict()
    assert all(torch.equal(now[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), generator)
    assert "after:   reward" in str(tuned)
    assert list(tuned.to_frame()["step"]) == list(range(1, 31))
    assert next(ax.get_title() for ax in tuned.plot().axes) == "reward"


def test_a_run_that_passes_the_kl_bound_stops_and_says_so(
    tiny_llama: LanguageModel, caplog: pytest.LogCaptureFixture
) -> None:
    free = tune_on_reward(tiny_llama, PROMPTS, low_letters, replace(BY_REWARD, steps=20))
    bound = free.history[9]["kl"]
    passed = next(int(row["step"]) for row in free.history if row["kl"] > bound)
    tuned = tune_on_reward(tiny_llama, PROMPTS, low_letters, replace(BY_REWARD, steps=20, max_kl=bound))
    assert tuned.steps == passed < 20
    assert tuned.history == free.history[:passed]
    assert "passed max_kl" in tuned.stopped
    assert "stopping" in caplog.text


@pytest.mark.parametrize("step", [1, 5, 7])  # before the first checkpoint, behind the second, while measuring
def test_a_killed_run_goes_on_with_the_same_bits(
    tiny_llama: LanguageModel, by_reward: Path, tmp_path: Path, step: int
) -> None:
    with pytest.raises(Killed):
        tune_on_reward(tiny_llama, PROMPTS, killed_at(step), BY_REWARD, tmp_path)
    assert not (tmp_path / "tuned.json").exists()
    tune_on_reward(tiny_llama, PROMPTS, low_letters, BY_REWARD, tmp_path)
    assert_same_run(tmp_path, by_reward)
    assert not (tmp_path / "work").exists()


def test_a_checkpoint_that_was_cut_off_is_passed_over(
    tiny_llama: LanguageModel, by_reward: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Killed):
        tune_on_reward(tiny_llama, PROMPTS, killed_at(6), BY_REWARD, tmp_path)
    newest = tmp_path / "work" / "checkpoints" / "checkpoint-4"
    (newest / "trainer_state.json").write_text('{"global_step": 4, "log_hist')
    (newest / "model.safetensors").write_bytes(b"half")
    tune_on_reward(tiny_llama, PROMPTS, low_letters, BY_REWARD, tmp_path)
    assert "checkpoint-4 was cut off" in caplog.text
    assert_same_run(tmp_path, by_reward)


def test_a_finished_run_is_read_and_another_is_refused(tiny_llama: LanguageModel, by_reward: Path) -> None:
    again = tune_on_reward(tiny_llama, PROMPTS, killed_at(1), BY_REWARD, by_reward)
    loaded = load_tuned(by_reward)
    assert (again.history, again.after) == (loaded.history, loaded.after)
    assert loaded.model.fingerprint()["weights"] == load_model(by_reward / "model").fingerprint()["weights"]
    with pytest.raises(ValueError, match=r"another tuning: config\.lr was .*; give the same"):
        tune_on_reward(tiny_llama, PROMPTS, low_letters, replace(BY_REWARD, lr=1e-3), by_reward)
    with pytest.raises(ValueError, match="another tuning: data was"):
        tune_on_reward(tiny_llama, PROMPTS[:2], low_letters, BY_REWARD, by_reward)
    with pytest.raises(ValueError, match="holds no finished tuning"):
        load_tuned(by_reward / "model")


def test_resume_false_replaces_what_is_there(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    for lr in (1e-3, 2e-3):
        settings = replace(BY_REWARD, steps=1, lr=lr)
        tune_on_reward(tiny_llama, PROMPTS, low_letters, settings, tmp_path, resume=False)
    with pytest.raises(ValueError, match=r"config\.lr was"):
        tune_on_reward(tiny_llama, PROMPTS, low_letters, replace(BY_REWARD, steps=1, lr=1e-3), tmp_path)


def preference(model: LanguageModel) -> float:
    """Mean of log p(chosen) - log p(rejected), summed over the answers' tokens and the end that DPO adds."""
    total = 0.0
    end = model.tokenizer.eos_token
    for pair in PAIRS:
        prompt = len(model.tokenize(pair.prompt).input_ids[0])
        for answer, sign in ((pair.chosen, 1), (pair.rejected, -1)):
            losses = model.loss(model.tokenize(pair.prompt + answer + end))
            total -= sign * float(losses.values[0, prompt - 1 :].sum())
    return total / len(PAIRS)


def test_pairs_are_learned_and_the_margin_is_beta_times_the_log_ratio(tiny_llama: LanguageModel) -> None:
    settings = replace(BY_PAIRS, steps=9, batch_size=len(PAIRS), measure_every=4)
    tuned = tune_on_preferences(tiny_llama, PAIRS, settings, reward=low_letters)
    after_eight = tune_on_preferences(tiny_llama, PAIRS, replace(settings, steps=8))
    assert tuned.history[0]["margin"] == pytest.approx(0, abs=1e-6)
    assert tuned.history[0]["loss"] == pytest.approx(math.log(2), abs=1e-4)
    moved = preference(after_eight.model) - preference(tiny_llama)
    assert tuned.history[8]["margin"] == pytest.approx(settings.beta * moved, rel=1e-3)
    assert tuned.history[8]["accuracy"] == 1
    assert moved > 1
    assert [row["step"] for row in tuned.history if "kl" in row] == [4, 8, 9]
    assert tuned.history[8]["kl"] == pytest.approx(tuned.kl)
    assert tuned.history[8]["reward"] == pytest.approx(tuned.reward_after)
    assert after_eight.reward_gain is None
    assert "margin" in str(tuned)


def test_the_kl_bound_holds_for_pairs(tiny_llama: LanguageModel) -> None:
    settings = replace(BY_PAIRS, steps=9, measure_every=2, max_kl=1e-4)
    tuned = tune_on_preferences(tiny_llama, PAIRS, settings)
    assert tuned.steps == 2
    assert tuned.kl > 1e-4
    assert "passed max_kl" in tuned.stopped


def test_a_killed_run_on_pairs_goes_on_with_the_same_bits(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tune_on_preferences(tiny_llama, PAIRS, BY_PAIRS, whole, reward=low_letters)
    with pytest.raises(Killed):
        tune_on_preferences(tiny_llama, PAIRS, BY_PAIRS, killed, reward=killed_at(2))
    tune_on_preferences(tiny_llama, PAIRS, BY_PAIRS, killed, reward=low_letters)
    assert_same_run(killed, whole)


def test_a_model_or_data_that_can_not_be_used_is_named(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    bare = load_model(copy.deepcopy(tiny_llama.module))
    with pytest.raises(ValueError, match="has no tokenizer"):
        tune_on_reward(bare, PROMPTS, low_letters, BY_REWARD, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(TypeError, match="is a PreferenceTuning: give a RewardTuning"):
        tune_on_reward(tiny_llama, PROMPTS, low_letters, BY_PAIRS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is one string"):
        tune_on_reward(tiny_llama, "the film", low_letters, BY_REWARD)
    with pytest.raises(ValueError, match="prompts is empty"):
        tune_on_reward(tiny_llama, [], low_letters, BY_REWARD)
    with pytest.raises(ValueError, match="returned nan"):
        tune_on_reward(tiny_llama, PROMPTS, lambda texts: [math.nan] * len(texts), BY_REWARD)
    with pytest.raises(ValueError, match="pairs is empty"):
        tune_on_preferences(tiny_llama, [], BY_PAIRS)
    with pytest.raises(ValueError, match="chosen and rejected are the same, ' x'"):
        tune_on_preferences(tiny_llama, [PreferencePair("a", " x", " x")], BY_PAIRS)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": 0}, "steps = 0 must be at least 1"),
        ({"lr": 0.0}, "lr = 0.0 must be positive"),
        ({"beta": 0.0}, "without a pull to the base no KL is measured"),
        ({"max_kl": -1.0}, "None for no bound"),
        ({"samples_per_prompt": 3}, "must divide batch_size = 16"),
        ({"samples_per_prompt": 1}, "samples_per_prompt = 1 must be at least 2"),
    ],
)
def test_settings_that_make_no_sense_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(BY_REWARD, **setting)


def test_without_trl_the_error_says_what_to_install(
    tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trl", None)
    for call in (
        lambda: tune_on_reward(tiny_llama, PROMPTS, low_letters),
        lambda: tune_on_preferences(tiny_llama, PAIRS),
    ):
        with pytest.raises(ImportError, match=r"pip install 'interp-toolkit\[feedback\]'"):
            call()
