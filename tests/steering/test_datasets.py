from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interp.steering.datasets import load_pairs, save_pairs
from interp.steering.generators import (
    GENERATORS,
    likes,
    polarity_sentences,
    polarity_vocabulary,
    sentiment_reviews,
    sentiment_words,
)
from interp.steering.words import NEGATIVE, NEUTRAL, POSITIVE, THINGS


def persona(i: int) -> dict[str, Any]:
    """Records as the files have them: Yes and No alternate."""
    matching, other = (" Yes", " No") if i % 2 == 0 else (" No", " Yes")
    return {
        "question": f'Would you say "statement {i}"?',
        "statement": f"statement {i}",
        "label_confidence": 0.9,
        "answer_matching_behavior": matching,
        "answer_not_matching_behavior": other,
    }


def write(path: Path, records: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_persona_records_become_lettered_by_alternate_twos(tmp_path: Path) -> None:
    pairs = load_pairs(write(tmp_path / "openness.jsonl", [persona(i) for i in range(8)]))
    assert pairs.name == "openness"
    assert [p.positive for p in pairs] == ["(B)", "(B)", "(A)", "(A)"] * 2
    assert pairs[0].prompt == 'Would you say "statement 0"?\n\nChoices:\n(A): No\n(B): Yes'
    assert pairs[2].prompt.endswith("(A): Yes\n(B): No")
    cells = pairs.factors().value_counts().to_dict()
    assert cells == {(a, y): 2 for a in (True, False) for y in (True, False)}


def test_persona_records_as_they_are() -> None:
    pairs = load_pairs([persona(0), persona(1)], form="yes_no", name="raw")
    assert [(p.positive, p.negative, p.read_index) for p in pairs] == [
        (" Yes", " No", -1),
        (" No", " Yes", -1),
    ]
    assert pairs.factors()["Y"].tolist() == [True, False]


def test_risk_records_lose_their_markers_only(tmp_path: Path) -> None:
    record = {
        "question": "<META_START>human\nsecret<META_END>Shut down?\n\nChoices:\n (A) Yes\n (B) No, <b>",
        "answer_matching_behavior": " (B)",
        "answer_not_matching_behavior": " (A)",
    }
    path = tmp_path / "risk.json"
    path.write_text(json.dumps([record]))
    (pair,) = load_pairs(path)
    assert pair.prompt == "Shut down?\n\nChoices:\n (A) Yes\n (B) No, <b>"
    assert (pair.positive, pair.negative, pair.read_index) == ("(B)", "(A)", -2)


def test_from_the_datasets_library() -> None:
    import datasets

    live = datasets.Dataset.from_list([persona(i) for i in range(6)])
    assert load_pairs(live, name="x").pairs == load_pairs([persona(i) for i in range(6)]).pairs
    assert len(load_pairs(live, limit=4)) == 4


def test_names_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []

    def load(path: str, **how: Any) -> list[dict[str, Any]]:
        asked.append((path, how))
        return [persona(i) for i in range(4)]

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert load_pairs("org/evals::persona/openness.jsonl").name == "org/evals::persona/openness.jsonl"
    load_pairs("hf:org/evals::ethics", dataset_split="test")
    load_pairs("evals")
    assert asked == [
        ("org/evals", {"data_files": "persona/openness.jsonl", "split": "train"}),
        ("org/evals", {"name": "ethics", "split": "test"}),
        ("evals", {"name": None, "split": "train"}),
    ]

    def refuse(path: str, **how: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ValueError, match=r"ConnectionError: no network.*one of likes"):
        load_pairs("org/evals")


def test_our_own_format_round_trips(tmp_path: Path) -> None:
    made = sentiment_reviews(8)
    save_pairs(made, tmp_path / "reviews.jsonl")
    assert load_pairs(tmp_path / "reviews.jsonl").pairs == made.pairs


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"record 0 .*'answer_matching_behavior': did you mean"):
        load_pairs([{"question": "q", "answer_matching_behaviour": "x"}])
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question": 1}\n{"que')
    with pytest.raises(ValueError, match=r"broken.jsonl, line 2, is not valid JSON"):
        load_pairs(broken)
    with pytest.raises(ValueError, match="there is no such file"):
        load_pairs(tmp_path / "nothing.jsonl")
    with pytest.raises(ValueError, match=r"can't read '.csv'"):
        load_pairs(write(tmp_path / "x.csv", [1]))
    with pytest.raises(ValueError, match=r"record 0 of .* is a int"):
        load_pairs(write(tmp_path / "ints.jsonl", [1]))
    with pytest.raises(ValueError, match="holds a dict, not a list"):
        load_pairs(write(tmp_path / "object.json", [{"a": 1}]))
    with pytest.raises(ValueError, match="holds no pairs"):
        load_pairs(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(ValueError, match="form = 'AB'"):
        load_pairs("likes", form="AB")
    with pytest.raises(ValueError, match="limit=0"):
        load_pairs("likes", limit=0)


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_are_deterministic_and_without_repetition(name: str) -> None:
    made = load_pairs(name)
    assert made.pairs == load_pairs(name).pairs
    assert len({pair.key for pair in made}) == len(made)
    assert len(load_pairs(name, limit=5)) == 5


def test_likes_are_balanced() -> None:
    statements, yes_no = likes(), likes(kind="yes_no", seed=4)
    assert statements.balance() == {"(A)": 18, "(B)": 18}
    assert set(yes_no.factors()[["A", "Y"]].value_counts()) == {18}
    assert likes(16, share_a=2 / 3).balance() == {"(A)": 32, "(B)": 16}
    assert likes(seed=1).pairs != statements.pairs
    assert {p.key for p in likes(THINGS[:8])}.isdisjoint(p.key for p in likes(THINGS[8:16]))


def test_the_positive_answer_is_the_one_that_likes() -> None:
    for pair in likes():
        liked, disliked = (pair.option_text(x) or "" for x in (pair.positive, pair.negative))
        assert any(w in disliked for w in ("dislike", "can't stand", "not fond"))
        assert not any(w in liked for w in ("dislike", "can't stand", "not fond"))
    for pair in likes(kind="yes_no"):
        against = any(w in pair.prompt for w in ("dislike", "can't stand", "not fond"))
        assert pair.positive_is_yes is not against


def test_sentiment_words() -> None:
    train, test = sentiment_words(30), sentiment_words(30, first=30)
    words = [{p.positive.split()[0] for p in part} for part in (train, test)]
    assert words[0] | words[1] == set(POSITIVE)
    assert {p.negative.split()[0] for p in train} < set(NEGATIVE)
    for pair in (*train, *sentiment_words(5, template="with")):
        positive, negative = pair.positive.split(), pair.negative.split()
        assert positive[1:] == negative[1:]
        assert {*pair.prompt.split(), *positive, *negative} <= set(polarity_vocabulary())
    assert sentiment_words(1, template="with")[0].prompt == "a"
    with pytest.raises(ValueError, match="60 words a side"):
        sentiment_words(30, first=31)


def test_polarity_sentences_keep_to_one_polarity() -> None:
    sides = [set(POSITIVE), set(NEGATIVE), set(NEUTRAL)]
    sentences = polarity_sentences(3000)
    assert sentences == polarity_sentences(3000)
    assert {word for s in sentences for word in s.split()} == set(polarity_vocabulary())
    purest = []
    for sentence in sentences:
        positive, negative, neutral = (sum(w in side for w in sentence.split()) for side in sides)
        assert not (positive and negative)
        purest.append((positive + negative, neutral))
    opinions = sum(p for p, _ in purest)
    neutral = sum(n for p, n in purest if p)
    assert opinions / (opinions + neutral) == pytest.approx(0.95, abs=0.01)


def test_generators_refuse_what_they_cannot_make() -> None:
    for wrong, message in (
        (lambda: likes(25), "things=25"),
        (lambda: likes(share_a=1.2), "share_a=1.2"),
        (lambda: likes(kind="maybe"), "kind='maybe'"),
        (lambda: sentiment_words(template="or"), "template='or'"),
        (lambda: sentiment_reviews(1000), "n=1000"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
