"""The small transformer: its recipe, its training through the Trainer, and our tools on it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.markov.bpe import BPETokenizer
from interp.markov.losses import evaluate_per_symbol
from interp.markov.sources import MarkovSource
from interp.markov.tokenizer import CharTokenizer
from interp.markov.training import TokenLanguageTask, TrainingConfig, TransformerRun, train_transformer
from interp.markov.transformer import TransformerConfig, attention_patterns, build_transformer, linear_weights
from interp.markov.transformer_study import Variant, transformer_study
from interp.models.loading import load_model

SOURCE = MarkovSource.switching(2, 0.8, 0.8)
SMALL = TransformerConfig(width=8, n_layers=2, n_heads=2, context_symbols=32)
SHORT = TrainingConfig(steps=12, batch_size=4, eval_every=4, eval_windows=8, test_symbols=2000)


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    return build_transformer(SMALL, vocab_size=5, context_length=16, seed=3)


def tokens(batch: int = 3, length: int = 16) -> torch.Tensor:
    return torch.randint(0, 5, (batch, length), generator=torch.Generator().manual_seed(0))


def test_architecture_has_no_biases_but_the_output_s(module: torch.nn.Module) -> None:
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    assert [name for name in trained if name.endswith(".bias")] == ["lm_head.bias"]
    frozen = [p for name, p in module.named_parameters() if not p.requires_grad]
    assert frozen
    assert all((p == 0).all() for p in frozen)
    assert module.lm_head.weight is module.transformer.wte.weight
    assert trained["transformer.h.0.mlp.c_fc.weight"].shape == (8, 32)
    assert not any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in module.modules())
    inside = 12 * 8 * 8  # attention 4 w^2, MLP 8 w^2
    assert sum(p.numel() for p in linear_weights(module)) == 2 * inside
    norms = 5 * 8
    assert sum(p.numel() for p in trained.values()) == 2 * inside + norms + 5 * 8 + 16 * 8 + 5


def test_initial_weights_have_the_recipe_s_sizes() -> None:
    module = build_transformer(TransformerConfig(width=128, n_layers=3, n_heads=2), 200, 64, seed=0)
    block = module.transformer.h[1]
    for weight, scale in (
        (module.transformer.wte.weight, 0.02),
        (module.transformer.wpe.weight, 0.02),
        (block.attn.c_attn.weight, 0.02),
        (block.attn.c_proj.weight, 0.02 / math.sqrt(6)),
        (block.mlp.c_proj.weight, 0.02 / math.sqrt(6)),
    ):
        assert weight.std().item() == pytest.approx(scale, rel=0.05)


def test_same_seed_same_weights_and_the_global_generator_stays() -> None:
    before = torch.get_rng_state()
    a, b, c = (build_transformer(SMALL, 5, 16, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.transformer.wte.weight, c.transformer.wte.weight)


def test_learning_rate_is_one_cosine_cycle_and_decay_is_for_linear_maps(module: torch.nn.Module) -> None:
    training = TrainingConfig(steps=400)
    task = TokenLanguageTask(module, np.ones(5, np.int64), training, {})
    spec = task.configure_optimizers(400)
    assert spec.schedule is not None
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        reference, max_lr=2e-3, total_steps=400, pct_start=0.02, div_factor=100, final_div_factor=0.05
    )
    for step in range(400):
        ours = 2e-3 * spec.schedule(step)
        assert ours == pytest.approx(cycle.get_last_lr()[0], abs=2e-3 * (0.2 if step < 8 else 0.01))
        reference.step()
        cycle.step()
    decayed, rest = spec.optimizer.param_groups
    assert (decayed["weight_decay"], rest["weight_decay"]) == (1e-3, 0.0)
    assert {id(p) for p in decayed["params"]} == {id(p) for p in linear_weights(module)}
    assert sum(map(len, (decayed["params"], rest["params"]))) == sum(
        p.requires_grad for p in module.parameters()
    )


def test_attention_patterns_are_the_model_s_own(module: torch.nn.Module) -> None:
    import copy

    eager = copy.deepcopy(module)
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = eager(tokens(), output_attentions=True).attentions
    model = load_model(module)
    for layer in range(2):
        ours = attention_patterns(model, tokens(), layer)
        assert ours.shape == (3, 2, 16, 16)
        torch.testing.assert_close(ours, theirs[layer], atol=1e-6, rtol=1e-5)
    with pytest.raises(ValueError, match="layer = 2"):
        attention_patterns(model, tokens(), 2)


def test_activations_edits_and_an_sae_work_on_it(module: torch.nn.Module) -> None:
    from interp.activations.stream import TensorStream
    from interp.sae.training import train

    model = load_model(module)
    sites = ["resid_pre.0", "attn_out.0", "mlp_out.0", "resid_post.0"]
    acts = model.activations(tokens(), sites)
    total = acts["resid_pre.0"] + acts["attn_out.0"] + acts["mlp_out.0"]
    torch.testing.assert_close(total, acts["resid_post.0"], atol=1e-6, rtol=1e-5)
    clean = model.logits(tokens())
    with model.edit({"resid_post.0": lambda act, positions: act * 0}):
        assert not torch.allclose(model.logits(tokens()), clean)
    torch.testing.assert_close(model.logits(tokens()), clean)
    rows = acts["resid_post.0"].flatten(0, 1)
    result = train(TensorStream(rows), d_sae=16, l1_coefficient=0.01, steps=20, batch_size=16, progress=False)
    assert result.sae.decode(result.sae.encode(rows)).shape == rows.shape


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TransformerRun:
    out = tmp_path_factory.mktemp("run")
    return train_transformer(
        SOURCE, BPETokenizer(6), model=SMALL, training=SHORT, seed=1, out=out, progress=False, device="cpu"
    )


def test_training_reports_nats_per_symbol(run: TransformerRun) -> None:
    steps, losses = run.history.column("valid_loss_per_symbol")
    assert steps == [4, 8, 12]
    test = run.tokenizer.encode(SOURCE.sample(2000, seed=seed_of(1, "test text")))
    again = evaluate_per_symbol(
        run.language_model().logits,
        test,
        run.tokenizer.token_lengths_,
        run.context_length,
        max_windows=SHORT.eval_windows,
    )
    assert losses[-1] == pytest.approx(again.per_symbol, rel=1e-6)
    whole = evaluate_per_symbol(
        run.language_model().logits, test, run.tokenizer.token_lengths_, run.context_length
    )
    assert run.loss == whole
    per_token = run.history.column("valid_loss")[1][-1]
    assert per_token > losses[-1] * 1.5  # BPE 6 has some two symbols a token
    assert run.context_length == round(32 / run.tokenizer.token_lengths_[test].mean())


def seed_of(seed: int, what: str) -> int:
    from interp.core.device import derive_seed

    return derive_seed(seed, what)


def test_an_interrupted_run_ends_with_the_same_bits(run: TransformerRun, tmp_path: Path) -> None:
    options = {"model": SMALL, "seed": 1, "progress": False, "device": "cpu", "checkpoint_every": 4}

    class Stop(Exception):
        pass

    original = TokenLanguageTask.loss
    calls = itertools.count()

    def failing(self, batch, ctx):  # type: ignore[no-untyped-def]
        if ctx.step == 6 and next(calls) == 0:
            raise Stop
        return original(self, batch, ctx)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenLanguageTask, "loss", failing)
        with pytest.raises(Stop):
            train_transformer(SOURCE, BPETokenizer(6), training=SHORT, out=tmp_path, **options)
    assert (tmp_path / "step_00000004").exists()
    resumed = train_transformer(SOURCE, BPETokenizer(6), training=SHORT, out=tmp_path, **options)
    assert resumed.loss == run.loss
    pairs = zip(resumed.module.parameters(), run.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_run_of_other_settings_is_refused(run: TransformerRun, tmp_path: Path) -> None:
    options = {"training": SHORT, "out": tmp_path, "progress": False, "device": "cpu", "model": SMALL}
    train_transformer(SOURCE, CharTokenizer(), **options)
    with pytest.raises(ValueError, match=r"belongs to another run: task"):
        train_transformer(SOURCE, BPETokenizer(6), **options)
    options["training"] = dataclasses.replace(SHORT, steps=20)
    with pytest.raises(ValueError, match=r"training\.steps was 12"):
        train_transformer(SOURCE, CharTokenizer(), **options)


def test_iterations_to_a_share_above_the_rate(run: TransformerRun) -> None:
    rate = SOURCE.entropy_rate()
    steps, losses = run.history.column("valid_loss_per_symbol")
    assert run.iterations_to(10.0) == 4
    assert run.iterations_to(losses[-1] / rate - 1 + 1e-9) == steps[int(np.argmin(losses))]
    assert run.iterations_to(-0.5) is None
    assert "BPE 6" in str(run)
    assert "0.6931, 0.6931, 0.5004, 0.5004" in str(run)
    assert SOURCE.entropy_rate() - 0.03 < run.bigram < run.unigram < SOURCE.symbol_entropy()
    assert json.dumps(run.summary())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TransformerConfig(width=10, n_heads=3), "multiple of n_heads"),
        (lambda: TransformerConfig(n_layers=0), "n_layers"),
        (lambda: TrainingConfig(steps=0), "steps = 0"),
        (lambda: transformer_study({"a/b": Variant(SOURCE, CharTokenizer())}), "folder"),
    ],
)
def test_errors_name_what_is_wrong(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
