"""VADER's entries and the reward, by hand."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from interp.probes.lfp.lexicon import vader_lexicon, vader_word_reward, word_valence


def test_the_lexicon_is_vaders() -> None:
    lexicon = vader_lexicon()
    assert len(lexicon) == 7506
    assert (min(lexicon.values()), max(lexicon.values())) == (-3.9, 3.4)
    assert [word_valence(w) for w in ("good", " Great", "terrible", "table")] == [1.9, 3.1, -2.1, 0.0]
    with pytest.raises(TypeError):
        lexicon["good"] = 0.0  # type: ignore[index]


def test_the_reward_sums_words_and_clips() -> None:
    texts = [
        "A good film, a GREAT film!",  # 1.9 + 3.1
        "not good",  # negation is not looked at
        "terrible :)",  # -2.1 and the emoticon's 2.0
        "nothing to see here",
        "",
        "great " * 30,  # 93 / 5 is clipped
        "terrible " * 30,
    ]
    expected = [5.0 / 5, 1.9 / 5, (-2.1 + word_valence(":)")) / 5, 0.0, 0.0, 10.0, -10.0]
    assert np.allclose(vader_word_reward(texts), expected)
    assert word_valence(":)") == 2.0
    assert np.allclose(vader_word_reward(["good"], scale=1.0, clip=1.5), [1.5])


def test_a_hyphenated_entry_is_one_word() -> None:
    entry = next(word for word in vader_lexicon() if "-" in word and word.replace("-", "").isalpha())
    assert vader_word_reward([f"so {entry} again"], scale=1.0)[0] == pytest.approx(word_valence(entry))
    assert vader_word_reward(["great-looking film-good"], scale=1.0)[0] == pytest.approx(3.1 + 1.9)


@pytest.mark.parametrize(("scale", "clip"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_bad_scales_are_refused(scale: float, clip: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        vader_word_reward(["good"], scale, clip)


def test_one_string_is_refused() -> None:
    with pytest.raises(TypeError, match="list of texts"):
        vader_word_reward("good")  # type: ignore[arg-type]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(ImportError, match=r"interp-toolkit\[feedback\]"):
        vader_lexicon.__wrapped__()
