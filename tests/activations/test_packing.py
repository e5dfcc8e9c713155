from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.activations.packing import TokenContexts, pack
from interp.activations.text import load_text
from tests.activations.synthetic import BOS, ByteTokenizer, RunningSum, make_contexts


def ids(text: str) -> list[int]:
    return [3 + byte for byte in text.encode()]


def test_pad_mode_gives_windows_of_one_document():
    contexts = pack(["abcdefgh", "xy"], ByteTokenizer(), context_size=3)
    assert contexts.lengths.tolist() == [3, 3, 2, 2]
    batch = contexts[:]
    assert batch.input_ids.tolist() == [ids("abc"), ids("def"), [*ids("gh"), 0], [*ids("xy"), 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 0], [1, 1, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 0], [0, 1, 0]]
    assert batch.segment_ids.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, -1], [0, 0, -1]]
    assert batch.doc_ids.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, -1], [1, 1, -1]]
    assert batch.context_ids.tolist() == [0, 1, 2, 3]
    assert not batch.special.any()


def test_pack_mode_fills_contexts_and_isolates():
    contexts = pack(["abc", "defg", "h"], ByteTokenizer(), context_size=5, mode="pack")
    batch = contexts[:]
    assert batch.input_ids.tolist() == [ids("abcde"), [*ids("fgh"), 0, 0]]
    assert batch.doc_ids.tolist() == [[0, 0, 0, 1, 1], [1, 1, 2, -1, -1]]
    assert batch.segment_ids.tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, -1, -1]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]


def test_pack_mode_without_isolation_is_one_segment():
    batch = pack(["abc", "de"], ByteTokenizer(), context_size=5, mode="pack", isolate_documents=False)[:]
    assert batch.segment_ids.tolist() == [[0] * 5]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]]
    assert batch.doc_ids.tolist() == [[0, 0, 0, 1, 1]]


def test_bos_goes_before_every_piece_and_is_special():
    contexts = pack(["abcd", "x"], ByteTokenizer(), context_size=4, mode="pack", add_bos=True)
    batch = contexts[:]
    assert batch.input_ids.tolist() == [[BOS, *ids("abc")], [BOS, *ids("d"), BOS, *ids("x")]]
    assert batch.special.tolist() == [[True, False, False, False], [True, False, True, False]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3], [0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("by_itself", "asked", "expected"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
)
def test_bos_follows_the_tokenizer_unless_asked(by_itself, asked, expected):
    contexts = pack(["ab"], ByteTokenizer(adds_bos=by_itself), add_bos=asked)
    assert contexts.tokens.tolist() == ([BOS] if expected else []) + ids("ab")
    assert contexts.identity()["add_bos"] is expected


def test_max_tokens_is_met_exactly():
    texts = ["abcdefgh", "ijkl", "mnop"]
    for n in range(1, 17):
        for mode in ("pad", "pack"):
            contexts = pack(texts, ByteTokenizer(), context_size=3, mode=mode, max_tokens=n)
            assert contexts.n_tokens == n
            assert contexts.tokens.tolist() == ids("abcdefghijklmnop")[:n]


def test_too_little_text_warns_and_gives_what_there_is(caplog):
    contexts = pack(["abc"], ByteTokenizer(), context_size=128, max_tokens=1000)
    assert contexts.n_tokens == 3
    assert len(contexts) == 1
    assert "has only 3 tokens, 1000 were asked for" in caplog.text


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\x00"), max_size=40), min_size=1),
    size=st.integers(2, 20),
    mode=st.sampled_from(["pad", "pack"]),
    bos=st.booleans(),
)
def test_every_token_exactly_once_in_order(texts, size, mode, bos):
    if not any(text.strip() for text in texts):
        texts = [*texts, "x"]
    contexts = pack(texts, ByteTokenizer(), context_size=size, mode=mode, add_bos=bos)
    batch = contexts[:]
    real = batch.attention_mask.bool()
    tokens, docs = batch.input_ids[real], batch.doc_ids[real]
    for i, text in enumerate(texts):
        expected = ids(text) if text.strip() else []
        assert [t for t in tokens[docs == i].tolist() if t != BOS] == expected
    assert batch.attention_mask.sum(-1).tolist() == contexts.lengths.tolist()
    assert int(contexts.lengths.max()) <= size
    if mode == "pack" and not bos:
        assert (contexts.lengths[:-1] == size).all()
    # Positions restart exactly where a segment begins.
    same = batch.segment_ids[:, 1:] == batch.segment_ids[:, :-1]
    both = real[:, 1:]
    assert (batch.position_ids[:, 1:][both & ~same] == 0).all()
    step = batch.position_ids[:, 1:] - batch.position_ids[:, :-1]
    assert (step[both & same] == 1).all()


@pytest.mark.parametrize("isolate", [True, False])
def test_rows_are_the_batch_without_padding(isolate):
    texts = ["abcdefg", "hi", "jklmnopqrst", "u"]
    contexts = pack(texts, ByteTokenizer(), context_size=4, mode="pack", isolate_documents=isolate)
    batch, rows = contexts[1:5], contexts.rows(1, 5)
    real = batch.attention_mask.bool()
    assert rows["token_ids"].tolist() == batch.input_ids[real].tolist()
    assert rows["positions"].tolist() == batch.position_ids[real].tolist()
    assert rows["doc_ids"].tolist() == batch.doc_ids[real].tolist()
    repeated = batch.context_ids[:, None].expand_as(real)
    assert rows["context_ids"].tolist() == repeated[real].tolist()


def test_contexts_are_seekable_and_negative_indices_count_from_the_end():
    contexts = make_contexts(50)
    together = contexts.batch([40, 3])
    alone = contexts[3]
    assert together.input_ids[1, : alone.input_ids.shape[1]].tolist() == alone.input_ids[0].tolist()
    assert contexts[-1].input_ids.tolist() == contexts[49].input_ids.tolist()
    with pytest.raises(IndexError, match=r"0\.\.49"):
        contexts[50]


def test_identity_tells_apart_what_matters():
    texts = ["abc", "defg"]
    variants = [
        pack(texts, ByteTokenizer(), context_size=4),
        pack(texts, ByteTokenizer(), context_size=5),
        pack(texts, ByteTokenizer(), context_size=4, mode="pack"),
        pack(texts, ByteTokenizer(), context_size=4, mode="pack", isolate_documents=False),
        pack(texts, ByteTokenizer(), context_size=4, add_bos=True),
        pack(["abc", "defh"], ByteTokenizer(), context_size=4),
        pack(texts, ByteTokenizer(), context_size=4, max_tokens=6),
    ]
    identities = [contexts.identity() for contexts in variants]
    assert all(a != b for i, a in enumerate(identities) for b in identities[:i])
    assert pack(texts, ByteTokenizer(), context_size=4).identity() == identities[0]


def test_seed_orders_documents_and_keeps_their_ids():
    texts = [chr(97 + i) * 3 for i in range(20)]
    first, again, other = (pack(texts, ByteTokenizer(), seed=s) for s in (1, 1, 2))
    assert first.identity() == again.identity()
    assert first.piece_docs.tolist() != other.piece_docs.tolist()
    batch = first[:]
    assert all(
        ids(texts[doc]) == row[:3]
        for doc, row in zip(batch.doc_ids[:, 0].tolist(), batch.input_ids.tolist(), strict=True)
    )


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match=r"mode = 'packed'.*'pack'"):
        pack(["a"], ByteTokenizer(), mode="packed")
    with pytest.raises(ValueError, match="context_size=1024 is more than the model's 512"):
        pack(["a"], RunningSum(), context_size=1024)
    with pytest.raises(ValueError, match="context_size=1 leaves no room"):
        pack(["a"], ByteTokenizer(), context_size=1, add_bos=True)
    with pytest.raises(ValueError, match="max_tokens=0"):
        pack(["a"], ByteTokenizer(), max_tokens=0)
    with pytest.raises(ValueError, match="holds no text"):
        pack(["", " "], ByteTokenizer())

    model = RunningSum()
    model.tokenizer = None
    with pytest.raises(ValueError, match="this model has no tokenizer"):
        pack(["a"], model)

    tokenizer = ByteTokenizer()
    tokenizer.bos_token_id = None
    assert pack(["ab"], tokenizer).n_tokens == 2
    with pytest.raises(ValueError, match="add_bos=True, but this tokenizer has no BOS"):
        pack(["ab"], tokenizer, add_bos=True)
    with pytest.raises(ValueError, match="context_size=2"):
        TokenContexts(np.arange(5), np.array([0, 3, 5]), np.arange(2), np.arange(3), context_size=2)


def test_batch_moves_to_a_device_whole():
    batch = make_contexts(4)[:].to("cpu")
    assert len(batch) == 4
    assert batch.n_tokens == int(batch.attention_mask.sum())
    assert batch.special.dtype == torch.bool


def test_documents_keep_their_ids_through_packing():
    documents = load_text(["aa", "", "bb"])
    assert pack(documents, ByteTokenizer()).piece_docs.tolist() == [0, 2]
