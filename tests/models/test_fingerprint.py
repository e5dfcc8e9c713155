"""A model's identity: another one for any other number, the same one however the numbers lie."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from interp.core import bit_sums
from interp.core.bit_sums import tensor_digest
from interp.models.fingerprint import of_other_weights, weights_hash
from interp.models.loading import load_model
from tests.models.tiny import FAMILIES, tiny_ids, tiny_model

DTYPES = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
    torch.int8: torch.int8,
}
dtypes = st.sampled_from(list(DTYPES))
# From less than a word to several blocks of 8 KB.
shapes = st.tuples(st.integers(1, 70), st.integers(1, 130))


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Any bits at all, NaN and infinities among them."""
    n = int(np.prod(shape)) * dtype.itemsize
    data = np.random.default_rng(seed).integers(0, 256, n, dtype=np.uint8)
    return torch.from_numpy(data).view(dtype).view(shape)


@settings(max_examples=300, deadline=None)
@given(dtypes, shapes, st.integers(0, 1 << 20), st.data())
def test_any_flipped_bit_is_another_tensor(dtype: torch.dtype, shape: Any, seed: int, data: Any) -> None:
    tensor = random_tensor(shape, dtype, seed)
    before = tensor_digest(tensor)
    place = data.draw(st.integers(0, tensor.numel() - 1))
    bit = data.draw(st.integers(0, 8 * dtype.itemsize - 1))
    data_bytes = tensor.reshape(-1)[place : place + 1].view(torch.uint8)
    data_bytes[bit // 8] ^= 1 << (bit % 8)
    assert tensor_digest(tensor) != before


@settings(max_examples=200, deadline=None)
@given(dtypes, st.tuples(st.integers(2, 70), st.integers(2, 130)), st.integers(0, 1 << 20), st.data())
def test_rows_and_columns_have_places(dtype: torch.dtype, shape: Any, seed: int, data: Any) -> None:
    tensor = random_tensor(shape, dtype, seed)
    dim = data.draw(st.integers(0, 1))
    order = torch.tensor(data.draw(st.permutations(range(shape[dim]))))
    moved = tensor.index_select(dim, order)
    same = torch.equal(moved.contiguous().view(torch.uint8), tensor.view(torch.uint8))
    assert (tensor_digest(moved) == tensor_digest(tensor)) == same


@settings(max_examples=100, deadline=None)
@given(dtypes, shapes, st.integers(0, 1 << 20), st.integers(1, 9))
def test_layout_is_no_part_of_it(dtype: torch.dtype, shape: Any, seed: int, offset: int) -> None:
    tensor = random_tensor(shape, dtype, seed)
    wanted = tensor_digest(tensor)
    assert tensor_digest(tensor.t().contiguous().t()) == wanted
    wide = torch.zeros(shape[0], shape[1] + offset, dtype=dtype)
    wide[:, offset:] = tensor
    assert tensor_digest(wide[:, offset:]) == wanted
    flat = torch.zeros(tensor.numel() + offset, dtype=dtype)
    flat[offset:] = tensor.reshape(-1)
    assert tensor_digest(flat[offset:].view(shape)) == wanted
    assert tensor_digest(tensor.reshape(-1)) != wanted  # another shape
    assert tensor_digest(tensor.view(DTYPES[dtype])) == wanted or dtype != torch.int8


@pytest.mark.parametrize("n_bytes", [1, 7, 8, 8191, 8192, 8193, 8192 * 130 + 5])
def test_the_sums_are_what_they_are_said_to_be(n_bytes: int) -> None:
    """Against whole numbers of Python: words and their signed upper halves, each times its odd factor, mod 2^64."""
    data = np.random.default_rng(0).integers(0, 256, n_bytes, dtype=np.uint8).tobytes()
    drawn = hashlib.shake_256(b"sums-1").digest(2 * 8192)
    factors = [int.from_bytes(drawn[i : i + 8], "little") | 1 for i in range(0, len(drawn), 8)]
    expected = []
    for start in range(0, n_bytes, 8192):
        block = data[start : start + 8192].ljust(8192, b"\0")
        first = second = 0
        for i in range(1024):
            word = block[8 * i : 8 * i + 8]
            first += factors[i] * int.from_bytes(word, "little")
            second += factors[1024 + i] * int.from_bytes(word[4:], "little", signed=True)
        expected.append((first % 2**64, second % 2**64))
    found = bit_sums.sums(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    assert [tuple(int(x) % 2**64 for x in column) for column in found.T] == expected


def test_changes_that_cancel_in_a_plain_sum() -> None:
    """Sign bits of upper halves add up to nothing mod 2^64 if flipped in twos; the second sum sees them."""
    zeros = torch.zeros(64, 64)
    seen = {tensor_digest(zeros)}
    for row in range(64):
        for columns in (slice(1, None, 2), slice(0, None, 2), slice(None)):
            signs = zeros.clone()
            signs[row, columns] = -0.0
            seen.add(tensor_digest(signs))
    assert len(seen) == 1 + 64 * 3


def test_every_ablated_neuron_and_every_zeroed_column() -> None:
    """The fault it had: a column of a matrix between the samples."""
    module = tiny_model("llama", intermediate_size=512)
    model = load_model(module)
    weight = module.model.layers[1].mlp.down_proj.weight.data
    seen = {model.fingerprint()["weights"]}
    for neuron in range(512):
        kept = weight[:, neuron].clone()
        weight[:, neuron] = 0
        seen.add(weights_hash({"weight": weight}))
        weight[:, neuron] = kept
    assert len(seen) == 1 + 512
    weight[:, 100:115] = 0  # through `.data`, which no version counter sees
    assert model.fingerprint()["weights"] not in seen
    module.model.layers[1].mlp.up_proj.weight.detach().numpy()[3, 4] += 1e-6
    seen |= {model.fingerprint()["weights"]}
    assert len(seen) == 1 + 512 + 1


@pytest.mark.parametrize("family", FAMILIES)
def test_saved_and_loaded_it_is_the_same(family: str, tmp_path: Path, tiny_tokenizer: Any) -> None:
    module = tiny_model(family)
    module.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, tokenizer=tiny_tokenizer).fingerprint()
    live = load_model(module, tokenizer=tiny_tokenizer).fingerprint()
    assert {k: v for k, v in loaded.items() if k != "name"} == {k: v for k, v in live.items() if k != "name"}


def test_threads_layout_and_tying_do_not_matter() -> None:
    module = tiny_model("llama", tie_word_embeddings=True)
    before = load_model(module).fingerprint()
    assert module.lm_head.weight is module.model.embed_tokens.weight
    module.lm_head.weight = nn.Parameter(module.lm_head.weight.detach().clone())
    up = module.model.layers[0].mlp.up_proj
    up.weight = nn.Parameter(up.weight.detach().t().contiguous().t())
    assert not up.weight.is_contiguous()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert load_model(module).fingerprint() == before
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        module.lm_head.weight[7, 7] += 1
    assert load_model(module).fingerprint()["weights"] != before["weights"]


def test_a_part_of_the_layers_is_another_thing_but_not_of_other_weights(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    whole, part = load_model(tmp_path).fingerprint(), load_model(tmp_path, n_layers=2).fingerprint()
    assert whole["weights"] != part["weights"]
    assert not of_other_weights(whole, part)
    assert part == load_model(tmp_path, n_layers=2).fingerprint()
    old = {key: value for key, value in whole.items() if key != "hashing"} | {"weights": "of the former hash"}
    assert not of_other_weights(old, whole)
    assert of_other_weights(whole | {"weights": "others"}, whole)


def test_what_is_computed_when_a_model_is_made_counts_apart() -> None:
    """bfloat16 rotary frequencies: the same weights, other activations."""
    module = tiny_model("llama").to(torch.bfloat16)
    usual = copy.deepcopy(module)
    usual.model.rotary_emb.inv_freq = tiny_model("llama").model.rotary_emb.inv_freq
    a, b = load_model(module), load_model(usual)
    far = tiny_ids(1, 60)
    assert not torch.equal(a.logits(far), b.logits(far))
    assert a.fingerprint()["weights"] == b.fingerprint()["weights"]
    assert a.fingerprint()["derived"] != b.fingerprint()["derived"]


def test_frequencies_that_follow_the_text_do_not_change_the_identity() -> None:
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    module = tiny_model("llama", rope_parameters=scaled, max_position_embeddings=16)
    model = load_model(module)
    before, frequencies = model.fingerprint(), module.model.rotary_emb.inv_freq.clone()
    model.logits(tiny_ids(1, 60))
    assert not torch.equal(module.model.rotary_emb.inv_freq, frequencies)
    assert model.fingerprint() == before


def test_configuration_attention_and_libraries_are_told() -> None:
    plain = load_model(tiny_model("llama")).fingerprint()
    other = load_model(tiny_model("llama", rms_norm_eps=1e-3)).fingerprint()
    assert [key for key in plain if plain[key] != other[key]] == ["config"]
    eager = tiny_model("llama")
    eager.set_attn_implementation("eager")
    assert load_model(eager).fingerprint() == plain | {"attention": "eager"}
    assert (plain["attention"], plain["remote_code"], plain["adapters"]) == ("sdpa", None, None)
    import transformers

    assert plain["libraries"] == {
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }


def test_the_bridge_is_asked_anew_and_its_own_copies_count() -> None:
    """The fault it had: a hash taken when the bridge was made, whatever happened to it since."""
    for family in ("gpt2", "llama"):
        plain, bridged = (
            load_model(tiny_model(family), engine=e) for e in ("huggingface", "transformer_lens")
        )
        before = bridged.fingerprint()
        assert before["weights"] == plain.fingerprint()["weights"]
        assert before["libraries"].keys() == {"torch", "transformers", "transformer-lens"}
        block = bridged.bridge.blocks[1]  # type: ignore[attr-defined]
        with torch.no_grad():
            next(block.ln1.parameters())[3] += 1
        assert bridged.fingerprint()["weights"] != before["weights"]
    with torch.no_grad():  # GPT-2's packed queries, which the bridge keeps a copy of and computes with
        next(block.attn.q.parameters())[0, 0] += 1
    assert bridged.fingerprint() != before


def test_unreadable_numbers_are_an_error() -> None:
    module = tiny_model("llama")
    with torch.device("meta"):
        empty = type(module)(module.config)
    with pytest.raises(ValueError, match=r"on the meta device.*identity can't be known"):
        load_model(empty).fingerprint()
    with pytest.raises(ValueError, match=r"packed is a object, whose numbers can't be read"):
        weights_hash({"packed": object()})


def test_numbers_in_other_clothes() -> None:
    """Sparse and quantised tensors by their contents."""
    dense = torch.zeros(6, 6)
    dense[2, 3] = 1.0
    changed = dense.clone()
    changed[2, 3] = 1.0000001
    assert weights_hash({"w": dense.to_sparse()}) == weights_hash({"w": dense.to_sparse()})
    assert weights_hash({"w": dense.to_sparse()}) != weights_hash({"w": changed.to_sparse()})

    def quantized(scale: float, value: float) -> torch.Tensor:
        return torch.quantize_per_tensor(torch.tensor([0.0, value]), scale, 0, torch.qint8)

    same, other_scale, other_value = quantized(0.5, 2.0), quantized(0.25, 1.0), quantized(0.5, 1.0)
    assert torch.equal(same.int_repr(), other_scale.int_repr())
    hashes = {weights_hash({"w": t}) for t in (same, quantized(0.5, 2.0), other_scale, other_value)}
    assert len(hashes) == 3


def test_a_file_is_hashed_whole(tmp_path: Path) -> None:
    """The fault it had: 64 samples of a GGUF file, so that another file found the first one's conversion."""
    file = tmp_path / "weights.gguf"
    data = bytearray(np.random.default_rng(0).integers(0, 256, 100_003, dtype=np.uint8).tobytes())
    file.write_bytes(data)
    seen = {bit_sums.file_digest(file)}
    for place in (0, 50_000, 100_002):
        data[place] ^= 1
        file.write_bytes(data)
        seen.add(bit_sums.file_digest(file))
    file.write_bytes(data + b"\0")
    assert len(seen | {bit_sums.file_digest(file)}) == 5
