"""Continuations on a prefix's cache equal the full pass, whatever the architecture, engine, padding and edit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.test_running import hooks_of
from tests.models.tiny import FAMILIES, WINDOW, tiny_ids, tiny_model

LENGTHS = (4, 9, 13)  # of the prompts: within, beyond and twice the sliding window
TAILS = tiny_ids(5, 3, seed=1)
ROWS = [2, 0, 1, 2, 0]


def prompts() -> tuple[Tensor, Tensor]:
    ids = tiny_ids(3, max(LENGTHS))
    return ids, (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()


def by_full_passes(model: LanguageModel) -> Tensor:
    ids, _ = prompts()
    texts = [torch.cat([ids[r, : LENGTHS[r]], tail])[None] for tail, r in zip(TAILS, ROWS, strict=True)]
    return torch.cat([model.logits(text)[:, -TAILS.shape[1] :] for text in texts])


def by_position(act: Tensor, positions: Tensor) -> Tensor:
    return act + 0.1 * positions[..., None]


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_tails_equal_the_full_pass(family: str, edited: bool) -> None:
    model = load_model(tiny_model(family))
    ids, mask = prompts()
    with model.edit({"resid_post.1": by_position} if edited else {}):
        expected = by_full_passes(model)
        prefix = model.prefix(ids, attention_mask=mask)
        for _ in range(2):  # the first use leaves the cache as it was
            torch.testing.assert_close(prefix.logits(TAILS, ROWS), expected, atol=1e-4, rtol=1e-4)
    assert prefix.token_forwards == 3 * 13 + 2 * 5 * 3
    assert prefix.lengths.tolist() == list(LENGTHS)
    assert hooks_of(model.module) == 0


def test_tails_equal_the_full_pass_in_transformer_lens() -> None:
    model = load_model(tiny_model("llama"), engine="transformer_lens")
    ids, mask = prompts()
    prefix = model.prefix(ids, attention_mask=mask)
    torch.testing.assert_close(prefix.logits(TAILS, ROWS), by_full_passes(model), atol=1e-4, rtol=1e-4)


def test_an_edit_of_the_tails_alone_sees_absolute_positions(tiny_llama: LanguageModel) -> None:
    """Opened when the prefix is there already: the full pass has to be told where the tail begins."""
    ids = tiny_ids(1, 2 * WINDOW)
    start = ids.shape[1]

    def behind(act: Tensor, positions: Tensor) -> Tensor:
        return act + positions[..., None] * (positions >= start)[..., None]

    prefix = tiny_llama.prefix(ids)
    tails = TAILS[:3]
    clean = prefix.logits(tails)
    with tiny_llama.edit({"resid_post.0": behind}):
        edited = prefix.logits(tails)
        expected = tiny_llama.logits(torch.cat([ids.expand(3, -1), tails], dim=1))[:, start:]
    torch.testing.assert_close(edited, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(edited, clean, atol=0.1)
    torch.testing.assert_close(prefix.logits(tails), clean)


def test_padding_behind_a_tail_changes_nothing(tiny_gpt2: LanguageModel) -> None:
    prefix = tiny_gpt2.prefix(tiny_ids(1, 7))
    short = prefix.logits(TAILS[:1, :1])
    torch.testing.assert_close(prefix.logits(TAILS[:1])[:, :1], short, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [([0, 1], "expected 5 indices"), ([0, 0, 0, 0, 3], "from 0 to 2"), (None, "5 indices")],
)
def test_rows_that_do_not_fit_are_refused(
    tiny_llama: LanguageModel, rows: list[int] | None, message: str
) -> None:
    ids, mask = prompts()
    with pytest.raises(ValueError, match=message):
        tiny_llama.prefix(ids, attention_mask=mask).logits(TAILS, rows)


def test_tails_must_be_rows_of_ids(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match=r"non-empty \[r t\] tensor"):
        tiny_llama.prefix(tiny_ids(1, 4)).logits(TAILS[0])


@pytest.mark.real_model
def test_tails_equal_the_full_pass_on_the_real_model(smollm2: LanguageModel) -> None:
    words = smollm2.tokenize(["The capital of France is Paris and", "Two and two make"])
    tails = smollm2.tokenize([" the capital of", " four, the root"]).input_ids
    prefix = smollm2.prefix(words)
    texts = [torch.tensor([*row, *tail]) for row, tail in zip(words.rows(), tails.tolist(), strict=True)]
    expected = torch.cat([smollm2.logits(text[None])[:, -tails.shape[1] :] for text in texts])
    torch.testing.assert_close(prefix.logits(tails), expected, atol=1e-4, rtol=1e-4)
