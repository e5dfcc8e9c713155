"""The controlled grammar: its templates as published, agreement, levels, splits."""

from __future__ import annotations

import pytest

from interp.probes.grammar import NOUNS, PREPOSITIONS, TEMPLATES, VERBS, ControlledGrammar

HEADS = {
    "short": "1 2 -1 4 2",
    "prepositional": "1 5 4 4 1 -1 7 5",
    "relative": "1 6 5 4 5 1 -1 8 6",
    "long_nested": "1 9 8 4 8 7 7 4 1 -1 11 9 14 14 11",
}
LEVELS = {
    "short": "0 0 0 0 0",
    "prepositional": "0 0 1 1 1 0 0 0",
    "relative": "0 0 1 1 1 1 0 0 0",
    "long_nested": "0 0 1 1 1 2 2 2 1 0 0 0 1 1 1",
}


@pytest.mark.parametrize("kind", sorted(HEADS))
def test_templates(kind: str) -> None:
    for tree in ControlledGrammar().sample(10, kind=kind):
        assert " ".join(map(str, tree.heads)) == HEADS[kind]
        assert " ".join(map(str, tree.levels or ())) == LEVELS[kind]
        assert tree.is_projective()
    assert set(TEMPLATES) == set(HEADS)


def test_relative_pronoun_is_the_object_there() -> None:
    (tree,) = ControlledGrammar().sample(1, kind="long_nested")
    assert (tree.words[2], tree.relations[2], tree.relations[4]) == ("that", "obj", "nsubj")


def test_free_sentences() -> None:
    trees = ControlledGrammar().sample(1000, seed=1)
    lengths = [len(tree) for tree in trees]
    assert (min(lengths), 24 <= max(lengths) <= 26) == (5, True)
    assert 12 < sum(lengths) / 1000 < 14
    assert all(tree.is_projective() for tree in trees)
    assert {r for tree in trees for _, _, r in tree.edges()} == {
        *("nsubj", "obj", "det", "amod", "nmod", "case", "acl:relcl")
    }


def test_verbs_agree_with_their_subjects() -> None:
    for tree in ControlledGrammar().sample(300, seed=2):
        for head, word, relation in tree.edges():
            subject = tree.words[word]
            if relation == "nsubj":
                if subject == "that":
                    subject = tree.words[tree.heads[head]]
                assert (subject in NOUNS) == (tree.words[head] not in VERBS), tree.text


def test_max_depth() -> None:
    for depth in range(3):
        trees = ControlledGrammar().sample(20, max_depth=depth)
        assert max(level for tree in trees for level in tree.levels or ()) == depth


def test_same_seed_same_sentences_and_splits_share_none() -> None:
    grammar = ControlledGrammar()
    assert grammar.sample(50, seed=4) == grammar.sample(50, seed=4)
    assert grammar.sample(50, seed=4) != grammar.sample(50, seed=5)
    first, second = grammar.split(300, 200)
    assert (len(first), len(second)) == (300, 200)
    assert not {tree.words for tree in first} & {tree.words for tree in second}
    third = grammar.sample(100, seed=0, without=first)
    assert not {tree.words for tree in first} & {tree.words for tree in third}


def test_held_out_nouns() -> None:
    grammar = ControlledGrammar(held_out_nouns=("dog", "cat"))
    seen = {word for tree in grammar.sample(200) for word in tree.words}
    unseen = {word for tree in grammar.unseen().sample(50) for word in tree.words}
    assert not seen & {"dog", "dogs", "cat", "cats"}
    assert not unseen & {form for noun in NOUNS[2:] for form in (noun, noun + "s")}
    assert seen | unseen <= set(grammar.vocabulary)
    assert set(PREPOSITIONS) <= set(grammar.vocabulary)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "shrt"}, "did you mean 'short'"),
        ({"n": 0}, "n must be at least 1"),
        ({"max_depth": -1}, "max_depth not negative"),
    ],
)
def test_refusals(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControlledGrammar().sample(**{"n": 1, **arguments})


def test_a_grammar_that_runs_out_says_so() -> None:
    small = ControlledGrammar(nouns=("dog",), p_adj=0)
    with pytest.raises(ValueError, match="hardly more than"):
        small.sample(5000, max_depth=0)


@pytest.mark.parametrize(
    "arguments", [{"p_adj": 1.5}, {"p_nmod": 0.7, "p_relcl": 0.5}, {"held_out_nouns": NOUNS}]
)
def test_bad_grammars(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"p_|held_out"):
        ControlledGrammar(**arguments)  # type: ignore[arg-type]
