"""Ablation: the formula at the site, and a model in which one feature is known to carry the reward."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.lfp.ablation import ablate_features, ablation_effect, active_shares
from interp.probes.lfp.sampling import continuations
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig
from tests.models.tiny import D_MODEL

LETTER = "z"
TEXTS = ["the film was", "a dull meal"]


def random_sae(seed: int, n: int = 48) -> TiedSAE:
    return TiedSAE(TiedSAEConfig(D_MODEL, n), seed=seed)


@pytest.fixture(scope="module")
def planted(tiny_llama: LanguageModel) -> tuple[LanguageModel, dict[int, TiedSAE]]:
    """A model that writes z as long as direction 0 is in the last block's MLP output, and an SAE of that block.

    Latent 0 reads and writes direction 0; latents 1 to 4 fire everywhere on directions that mean nothing; 5 to 7
    never fire.
    """
    module = copy.deepcopy(tiny_llama.module)
    letter = tiny_llama.tokenize(LETTER, add_bos=False).input_ids[0, 0]
    with torch.no_grad():
        for block in module.model.layers:  # type: ignore[union-attr]
            for layer in (block.self_attn.o_proj, block.mlp.down_proj):  # type: ignore[union-attr]
                layer.weight.zero_()  # type: ignore[operator, union-attr]
        module.model.embed_tokens.weight.mul_(0.1)[:, 0] = 0  # type: ignore[operator, union-attr]
        module.lm_head.weight.zero_()  # type: ignore[operator, union-attr]
        module.lm_head.weight[letter, 0] = 10.0  # type: ignore[operator, index, union-attr]
    last = module.model.layers[-1].mlp  # type: ignore[index, union-attr]
    push = torch.zeros(D_MODEL)
    push[0] = 5.0
    last.register_forward_hook(lambda _module, _inputs, output: output + push)  # type: ignore[union-attr]
    sae = TiedSAE(TiedSAEConfig(D_MODEL, 8), seed=None)
    with torch.no_grad():
        sae.W[torch.arange(8), torch.arange(8)] = 1.0
        sae.b_enc[1:5] = 0.1
        sae.b_enc[5:] = -1.0
    return load_model(module, tokenizer=tiny_llama.tokenizer), {2: sae}


def share_of_letter(texts: Sequence[str]) -> list[float]:
    return [text.count(LETTER) / 6 for text in texts]


def test_error_preserving_subtracts_what_the_latents_write(tiny_llama: LanguageModel) -> None:
    sae, site = random_sae(0), "mlp_out.1"
    ids = tiny_llama.tokenize(TEXTS)
    clean = tiny_llama.activations(ids, site)[site]
    with ablate_features(tiny_llama, {1: sae}, {1: [3, 7, 7]}):
        seen = tiny_llama.activations(ids, site)[site]
    rows = sae.W / sae.W.norm(dim=1, keepdim=True)
    codes = torch.relu(clean @ rows.T + sae.b_enc)
    expected = clean - codes[..., [3, 7]] @ rows[[3, 7]]
    real = ids.attention_mask.bool()
    real[:, 0] = False
    assert bool((codes[..., [3, 7]][real] > 0).any())
    torch.testing.assert_close(seen[real], expected[real])
    torch.testing.assert_close(seen[:, 0], clean[:, 0], rtol=0, atol=0)


def test_reconstruct_puts_the_reconstruction_in_place_in_every_layer(tiny_llama: LanguageModel) -> None:
    saes = {1: random_sae(1), 2: random_sae(2)}
    ids = tiny_llama.tokenize(TEXTS[0])
    clean = tiny_llama.activations(ids, "mlp_out.1")["mlp_out.1"]
    with ablate_features(tiny_llama, saes, {2: [5]}, "reconstruct"):
        seen = tiny_llama.activations(ids, ["mlp_out.1", "mlp_out.2"])
    torch.testing.assert_close(seen["mlp_out.1"][:, 1:], saes[1](clean).x_hat[:, 1:])
    with ablate_features(tiny_llama, saes, {}, "reconstruct"):
        whole = tiny_llama.activations(ids, "mlp_out.2")["mlp_out.2"]
    assert not torch.equal(seen["mlp_out.2"], whole)


def test_silencing_nothing_or_what_is_silent_changes_nothing(
    tiny_llama: LanguageModel, planted: tuple[LanguageModel, dict[int, TiedSAE]]
) -> None:
    ids = tiny_llama.tokenize(TEXTS)
    clean = tiny_llama.logits(ids)
    with ablate_features(tiny_llama, {1: random_sae(0)}, {}):
        assert torch.equal(tiny_llama.logits(ids), clean)
    model, saes = planted
    clean = model.logits(ids)
    with ablate_features(model, saes, {2: [5, 6, 7]}):
        torch.testing.assert_close(model.logits(ids), clean, rtol=0, atol=1e-5)


def test_hooks_are_gone_after_an_error(tiny_llama: LanguageModel) -> None:
    modules = list(tiny_llama.module.modules())
    before = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules)
    with pytest.raises(KeyError), ablate_features(tiny_llama, {1: random_sae(0)}, {1: [0]}):
        raise KeyError("inside")
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in modules) == before


def test_shares_of_active_tokens(planted: tuple[LanguageModel, dict[int, TiedSAE]]) -> None:
    model, saes = planted
    written = continuations(model, TEXTS, max_new_tokens=6)
    assert active_shares(model, saes, written, batch_size=1)[2].tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_the_feature_that_carries_the_reward_is_found_and_random_ones_are_not(
    planted: tuple[LanguageModel, dict[int, TiedSAE]],
) -> None:
    model, saes = planted
    report = ablation_effect(
        model, TEXTS, share_of_letter, saes, {2: [0]}, n_random=4, samples=8, max_new_tokens=6
    )
    as_it_is = report.rows[0]
    assert as_it_is.reward > 0.99
    assert report.effect < -0.95  # without it every byte is equally likely
    assert max(map(abs, report.random_effects)) < 0.02
    assert report.p_value == pytest.approx(1 / 5)
    assert [row.n_features for row in report.rows] == [0, 1, 1, 1, 1, 1, 0, 1]
    assert [row.active for row in report.rows] == [0, 1, 1, 1, 1, 1, 0, 1]
    assert as_it_is.change == as_it_is.kl == 0
    chosen = report.select("chosen features")[0]
    assert chosen.kl == pytest.approx(math.log(260), rel=0.01)
    assert report.select("chosen features", "reconstruct")[0].change < -0.95
    assert report.select("nothing", "reconstruct")[0].change > -0.05
    assert str(report).count("\n") == 8
    assert len(report.to_frame()) == 8
    assert len(report.plot().axes[0].get_yticklabels()) == 7


def test_random_features_fire_as_often_as_the_chosen_ones(tiny_llama: LanguageModel) -> None:
    saes = {1: random_sae(0, 256)}
    written = continuations(tiny_llama, TEXTS, max_new_tokens=4)
    shares = active_shares(tiny_llama, saes, written)[1]
    often = [int(k) for k in shares.argsort()[::-1][:4]]
    report = ablation_effect(
        tiny_llama, TEXTS, share_of_letter, saes, {1: often}, n_random=3, max_new_tokens=4
    )
    chosen, others = report.select("chosen features")[0], report.select("random features")
    assert chosen.active == pytest.approx(shares[often].mean())
    assert all(abs(row.active - chosen.active) < 0.1 < chosen.active - shares.mean() for row in others)
    assert len({row.kl for row in others}) == 3  # sets that differ


def test_too_few_others_are_told_and_none_is_an_error(
    planted: tuple[LanguageModel, dict[int, TiedSAE]], caplog: pytest.LogCaptureFixture
) -> None:
    model, saes = planted
    options = {"n_random": 1, "max_new_tokens": 2}
    report = ablation_effect(model, TEXTS, share_of_letter, saes, {2: [0, 1, 2]}, **options)
    assert report.select("random features")[0].n_features == 2
    assert "only 2 other active latents for 3" in caplog.text
    with pytest.raises(ValueError, match="no latent but the 5 chosen ones"):
        ablation_effect(model, TEXTS, share_of_letter, saes, {2: range(5)}, **options)


def test_wrong_arguments_are_named(tiny_llama: LanguageModel) -> None:
    saes = {1: random_sae(0)}
    for features, mode, message in (
        ({0: [1]}, "error_preserving", "layer 0 has no SAE"),
        ({1: [48]}, "error_preserving", r"latents 0 to 47, not \[48\]"),
        ({1: [-1]}, "error_preserving", r"not \[-1\]"),
        ({1: [0]}, "zero", "mode = 'zero' is not known"),
    ):
        with pytest.raises(ValueError, match=message), ablate_features(tiny_llama, saes, features, mode):
            pass
    with pytest.raises(ValueError, match="features is empty"):
        ablation_effect(tiny_llama, TEXTS, share_of_letter, saes, {1: []})
    with pytest.raises(ValueError, match="saes is empty"):
        ablation_effect(tiny_llama, TEXTS, share_of_letter, {}, {1: [0]})
