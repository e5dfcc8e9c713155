"""Pairs out of a store must be what reading them directly gives, whatever else the store holds and in what order."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from interp.activations import ActivationStore, TokenContexts, harvest
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.extraction import fit
from interp.steering.pair_activations import PairActivations, collect, render_pairs
from interp.steering.pairs import ContrastivePair, PairDataset
from interp.steering.prompts import PromptVariation
from interp.steering.stored import collect_from_store
from tests.models.tiny import tiny_model

PAIRS = PairDataset(
    (
        *(
            ContrastivePair(f"Do you like {thing}?", *(("(A)", "(B)") if i % 2 else ("(B)", "(A)")))
            for i, thing in enumerate(["tea", "the rain", "music", "a walk"])
        ),
        ContrastivePair("the film was", "fine", "bad", read_index=-1),
        ContrastivePair("the film was", "fine", "dull and long", read_index=-1),  # a text of the pair before
    ),
    "six",
)
OTHERS = ["Something else.", "Do you like tea?", "the film was fine and more", "the film"]


def same(stored: PairActivations, direct: PairActivations, atol: float = 1e-5) -> None:
    assert stored.layers == direct.layers
    for layer in direct.layers:
        for side in ("positive", "negative"):
            a, b = getattr(stored, side)[layer], getattr(direct, side)[layer]
            torch.testing.assert_close(a, b, rtol=0, atol=atol)


def texts(model: LanguageModel, pairs: PairDataset = PAIRS) -> list[str]:
    """In the order that the documents have, some twice, among others."""
    own = [text.text for text in render_pairs(model, pairs)]
    return [*OTHERS[:2], *own, *OTHERS[2:], *own[:3]]


@pytest.fixture(scope="module")
def store(tiny_llama: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> ActivationStore:
    """Of strings, so that the documents are in an order drawn from the seed; several shards."""
    return harvest(  # type: ignore[return-value]
        tiny_llama,
        texts(tiny_llama),
        ["resid_post.0", "resid_post.2", "mlp_out.2"],
        tmp_path_factory.mktemp("stored") / "store",
        dtype="float32",
        context_size=64,
        shard_tokens=100,
        progress=False,
    )


@pytest.mark.parametrize("read", ["answer", "last", "all", -2])
def test_a_store_gives_what_reading_gives(store: ActivationStore, tiny_llama: LanguageModel, read) -> None:
    pairs = PAIRS[:4] if read == -2 else PAIRS
    assert len(store.manifest.shards) > 2
    direct = collect(tiny_llama, pairs, [0, 2], read)
    stored = collect_from_store(store, tiny_llama, pairs, read=read)
    same(stored, direct)
    assert stored.meta == direct.meta
    ours, theirs = fit(stored), fit(direct)
    assert all(cosine > 0.99999 for cosine in ours.cosine(theirs).values())


def test_other_sites_layers_and_some_of_the_pairs(store: ActivationStore, tiny_llama: LanguageModel) -> None:
    mlp = collect_from_store(store, tiny_llama, PAIRS, -1, "last", site="mlp_out")
    same(mlp, collect(tiny_llama, PAIRS, 2, "last", site="mlp_out"))
    some = [PAIRS[5], PAIRS[2]]
    same(collect_from_store(store, tiny_llama, some, 0), collect(tiny_llama, some, 0))


def test_in_another_format(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    """bfloat16 keeps 8 bits: each value is within 2^-8 of itself."""
    at = harvest(
        tiny_llama, texts(tiny_llama), "resid_post.1", tmp_path / "s", context_size=64, progress=False
    )
    direct = collect(tiny_llama, PAIRS, 1)
    largest = float(max(direct.positive[1].abs().max(), direct.negative[1].abs().max()))
    same(collect_from_store(at, tiny_llama, PAIRS), direct, atol=largest * 2**-8)  # type: ignore[arg-type]


def test_through_a_chat_template(tmp_path: Path, tiny_tokenizer) -> None:
    talkative = copy.deepcopy(tiny_tokenizer)
    talkative.chat_template = "<s>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}> "
    model = load_model(tiny_model("llama", max_position_embeddings=256), tokenizer=talkative)
    loud = PromptVariation("LOUD", "Shout.")
    chosen = render_pairs(model, PAIRS, loud)
    contexts = TokenContexts.from_ids([text.ids for text in reversed(chosen)])
    kept = harvest(model, contexts, "resid_post.1", tmp_path / "s", dtype="float32", progress=False)
    same(collect_from_store(kept, model, PAIRS, 1, variation=loud), collect(model, PAIRS, 1, variation=loud))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"of the 12 texts 12 are not.*positive text of pair 0 .*lacks it"):
        collect_from_store(kept, model, PAIRS, 1)  # type: ignore[arg-type]


def test_packed_documents(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    """Isolated ones have seen nothing but themselves; the others have, and are refused."""
    how = {"mode": "pack", "context_size": 64, "dtype": "float32", "progress": False}
    own = PAIRS[4:6]
    listed = ["x" * 50, *(text.text for text in render_pairs(tiny_llama, own)), "y" * 20]
    apart = harvest(tiny_llama, listed, "resid_post.2", tmp_path / "apart", seed=3, **how)  # type: ignore[arg-type]
    mixed = harvest(  # type: ignore[call-overload]
        tiny_llama, listed, "resid_post.2", tmp_path / "mixed", seed=3, isolate_documents=False, **how
    )
    whole = [pair for pair in own if _is_whole(apart, tiny_llama, pair)]
    assert whole
    same(collect_from_store(apart, tiny_llama, whole), collect(tiny_llama, whole, 2))
    with pytest.raises(ValueError, match="behind other documents"):
        collect_from_store(mixed, tiny_llama, whole)


def _is_whole(store: ActivationStore, model: LanguageModel, pair: ContrastivePair) -> bool:
    """Whether neither text of the pair was cut at the end of a context."""
    contexts = ["".join(model.decode_tokens(store.context(i))) for i in range(store.n_contexts)]
    return all(any(text.text in context for context in contexts) for text in render_pairs(model, [pair]))


def test_what_a_store_can_not_give(
    store: ActivationStore, tiny_llama: LanguageModel, tiny_gpt2: LanguageModel
) -> None:
    more = ContrastivePair("Do you like tea?", "(A)", "(C)")
    with pytest.raises(ValueError, match=r"1 are not .*negative text of pair 1 \('Do you like tea\?'\)"):
        collect_from_store(store, tiny_llama, [PAIRS[0], more])
    with pytest.raises(ValueError, match="another architecture"):
        collect_from_store(store, tiny_gpt2, PAIRS)
    retrained = load_model(tiny_model("llama", seed=1), tokenizer=tiny_llama.tokenizer)
    with pytest.raises(ValueError, match="another weights"):
        collect_from_store(store, retrained, PAIRS)
    with pytest.raises(ValueError, match=r"layers=1: .* of layers \[0, 2\]"):
        collect_from_store(store, tiny_llama, PAIRS, 1)
    with pytest.raises(ValueError, match="layers = 'deep'"):
        collect_from_store(store, tiny_llama, PAIRS, "deep")
    with pytest.raises(ValueError, match="of layers none"):
        collect_from_store(store, tiny_llama, PAIRS, site="attn_out")
    with pytest.raises(ValueError, match="outside its"):
        collect_from_store(store, tiny_llama, PAIRS, read=-99)


def test_a_text_that_the_store_holds_in_part_is_refused(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    cut = harvest(
        tiny_llama, texts(tiny_llama), "resid_post.0", tmp_path / "s", context_size=20, progress=False
    )
    with pytest.raises(ValueError, match=r"pair 1 .*lacks it \(as these \d+ tokens, whole\)"):
        collect_from_store(cut, tiny_llama, PAIRS)  # type: ignore[arg-type]
