"""Markov sources: closed forms against enumeration of all strings, an independent computation and simulation."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from interp.markov.sampling import alias_tables
from interp.markov.sources import MarkovSource, entropy

SOURCES = {
    "switching order 1": MarkovSource.switching(1, 0.8, 0.3),
    "switching order 3": MarkovSource.switching(3, 0.1, 0.4),
    "random binary order 2": MarkovSource.random(2, 2, seed=1),
    "random ternary order 2": MarkovSource.random(2, 3, seed=2),
    "uniform start": MarkovSource.random(2, 3, seed=2, initial="uniform"),
}


def strings(size: int, length: int) -> list[np.ndarray]:
    return [np.array(s) for s in itertools.product(range(size), repeat=length)]


def enumerated_law(source: MarkovSource, length: int) -> np.ndarray:
    """The law of all strings of a length, from the transition table by hand."""
    law = []
    for s in strings(source.alphabet_size, length):
        context = tuple(s[: source.order])
        index = int("".join(map(str, context)), source.alphabet_size)
        probability = source.stationary[index]
        for i in range(source.order, length):
            digits = "".join(map(str, s[i - source.order : i]))
            probability *= source.transition[int(digits, source.alphabet_size), s[i]]
        law.append(probability)
    return np.array(law)


@pytest.mark.parametrize(
    ("p", "q", "unigram", "rate"),
    [
        (0.8, 0.8, 0.6931471806, 0.5004024235),
        (0.9, 0.9, 0.6931471806, 0.3250829734),
        (0.8, 0.3, 0.5859526183, 0.5807383352),
        (0.1, 0.4, 0.5004024235, 0.3946687121),
    ],
)
@pytest.mark.parametrize("order", [1, 2, 5])
def test_switching_source_has_the_entropies_of_its_chain(
    order: int, p: float, q: float, unigram: float, rate: float
) -> None:
    source = MarkovSource.switching(order, p, q)
    assert source.symbol_entropy() == pytest.approx(unigram, abs=1e-9)
    assert source.entropy_rate() == pytest.approx(rate, abs=1e-9)
    assert source.symbol_law()[1] == pytest.approx(p / (p + q), abs=1e-12)
    for context in range(order + 3):
        assert source.ngram_loss(context) == pytest.approx(unigram if context < order else rate, abs=1e-9)


@pytest.mark.parametrize("name", ["switching order 3", "random binary order 2", "random ternary order 2"])
def test_closed_forms_agree_with_enumeration(name: str) -> None:
    source = SOURCES[name]
    blocks = {n: enumerated_law(source, n) for n in range(source.order, source.order + 4)}
    for n, law in blocks.items():
        assert law.sum() == pytest.approx(1, abs=1e-12)
        assert np.allclose(source.block_law(n), law, atol=1e-13)
        assert source.block_entropy(n) == pytest.approx(float(entropy(law)), abs=1e-10)
    # Fewer symbols than the order: sums over what comes before, or (stationarity) after.
    size, law = source.alphabet_size, blocks[source.order]
    for n in range(1, source.order):
        cube = law.reshape(size**n, -1)
        assert np.allclose(source.block_law(n), cube.sum(1), atol=1e-13)
        assert np.allclose(source.block_law(n), law.reshape(-1, size**n).sum(0), atol=1e-12)
    # The rate is what one more symbol adds.
    n = source.order + 3
    rate = float(entropy(blocks[n]) - entropy(blocks[n - 1]))
    assert source.entropy_rate() == pytest.approx(rate, abs=1e-10)


@pytest.mark.parametrize("name", list(SOURCES))
def test_log_probability_is_a_law_of_strings(name: str) -> None:
    source = SOURCES[name]
    for n in (1, source.order, source.order + 2):
        total = sum(np.exp(source.log_probability(s)) for s in strings(source.alphabet_size, n))
        assert total == pytest.approx(1, abs=1e-12)
    if source.initial == "stationary":
        n = source.order + 2
        ours = np.exp([source.log_probability(s) for s in strings(source.alphabet_size, n)])
        assert np.allclose(ours, enumerated_law(source, n), atol=1e-13)


def test_uniform_start_begins_uniform() -> None:
    source = SOURCES["uniform start"]
    assert source.log_probability(np.array([2, 0])) == pytest.approx(-2 * np.log(3))
    first = np.array([source.sample(2, seed) for seed in range(900)])
    counts = np.bincount(first[:, 0] * 3 + first[:, 1], minlength=9)
    assert (abs(counts - 100) < 45).all()  # 4.8 standard deviations


def test_stationary_law_is_the_limit_of_the_chain() -> None:
    source = MarkovSource.random(3, 3, seed=4)
    law = np.full(27, 1 / 27)
    for _ in range(500):  # by hand, context by context
        after = np.zeros(27)
        for context, symbol in itertools.product(range(27), range(3)):
            after[context % 9 * 3 + symbol] += law[context] * source.transition[context, symbol]
        law = after
    assert np.allclose(source.stationary, law, atol=1e-12)


@pytest.mark.parametrize("name", list(SOURCES))
def test_samples_follow_the_source(name: str) -> None:
    source, n = SOURCES[name], 400_000
    x = source.sample(n, seed=3)
    counts = np.zeros((source.n_contexts, source.alphabet_size))
    np.add.at(counts, (source.contexts(x), x[source.order :]), 1)
    totals = counts.sum(1, keepdims=True)
    error = np.sqrt(source.transition * (1 - source.transition) / totals)
    assert (abs(counts / totals - source.transition) < 5 * error + 1e-12).all()
    surprise = -source.log_probabilities(x).mean()
    assert abs(surprise - source.entropy_rate()) < 5 * source.loss_deviation() / np.sqrt(n)


def test_alias_tables_hold_exactly_the_laws() -> None:
    laws = np.random.default_rng(0).dirichlet(np.full(7, 0.3), size=40)
    laws[0] = np.eye(7)[2]
    tables = alias_tables(laws.copy())
    rebuilt = tables.keep / 7
    for context in range(40):
        np.add.at(rebuilt[context], tables.other[context], (1 - tables.keep[context]) / 7)
    assert np.allclose(rebuilt, laws, atol=1e-14)


def test_same_seed_same_string_and_longer_strings_go_on() -> None:
    source = SOURCES["random ternary order 2"]
    long = source.sample(1000, seed=5)
    assert np.array_equal(long[:10], source.sample(10, seed=5))
    assert np.array_equal(long[:1], source.sample(1, seed=5))
    assert not np.array_equal(long, source.sample(1000, seed=6))
    assert long.dtype == np.uint8
    assert MarkovSource.random(1, 300).sample(5).dtype == np.int32


def test_the_symbol_order_steps_back_decides() -> None:
    x = MarkovSource.switching(3, 0.9, 0.95).sample(100_000, seed=1)
    switched = x[3:] != x[:-3]
    assert switched[x[:-3] == 0].mean() == pytest.approx(0.9, abs=0.01)
    assert switched[x[:-3] == 1].mean() == pytest.approx(0.95, abs=0.01)
    assert (x[1:] != x[:-1]).mean() == pytest.approx(2 * (0.9 / 1.85) * (0.95 / 1.85), abs=0.01)


def test_periodic_source_is_allowed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    source = MarkovSource.switching(3, 1, 1)
    assert source.entropy_rate() == 0
    x = source.sample(60, seed=0)
    assert np.array_equal(x[3:], 1 - x[:-3])
    assert source.log_probability(x) == pytest.approx(-3 * np.log(2))


def test_tables_of_any_shape_and_from_files(tmp_path: Path) -> None:
    table = np.random.default_rng(1).dirichlet(np.ones(3), size=(3, 3))
    source = MarkovSource(table)
    assert (source.alphabet_size, source.order) == (3, 2)
    assert np.allclose(source.transition[5], table[1, 2])  # oldest symbol most significant
    np.save(tmp_path / "table.npy", table)
    (tmp_path / "table.json").write_text(json.dumps(table.tolist()))
    for name in ("table.npy", "table.json"):
        assert np.allclose(MarkovSource.from_file(tmp_path / name).transition, source.transition)
    for content in (b"", b"0.1 0.9"):
        (tmp_path / "no_array.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"no_array\.npy holds no array of numbers as numpy\.save"):
            MarkovSource.from_file(tmp_path / "no_array.npy")


def test_reducible_chains_are_refused_and_transient_contexts_are_not() -> None:
    stuck = np.array([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="2 parts"):
        MarkovSource(stuck).entropy_rate()
    chosen = MarkovSource(stuck, stationary=np.array([0.25, 0.75]))
    assert chosen.symbol_entropy() == pytest.approx(0.5623351446)
    leaving = MarkovSource(np.array([[0.5, 0.5], [0.0, 1.0]]))
    assert np.allclose(leaving.stationary, [0, 1])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MarkovSource.switching(0, 0.5, 0.5), "order = 0"),
        (lambda: MarkovSource.switching(40, 0.5, 0.5), "cells"),
        (lambda: MarkovSource.switching(1, 0, 0.5), "p = 0"),
        (lambda: MarkovSource.switching(1, 0.5, 1.5), "q = 1.5"),
        (lambda: MarkovSource.random(1, 1), "alphabet_size"),
        (lambda: MarkovSource(np.array([0.5, 0.5])), "shape"),
        (lambda: MarkovSource([[0.5, 0.5], [1.0]]), "no table"),
        (lambda: MarkovSource(np.full((3, 2), 0.5)), "3 rows"),
        (lambda: MarkovSource(np.array([[0.5, 0.4], [0.5, 0.5]])), "row 0 sums to 0.9"),
        (lambda: MarkovSource(np.array([[1.5, -0.5], [0.5, 0.5]])), "below 0"),
        (lambda: MarkovSource(np.full((2, 2), 0.5), stationary=np.array([0.4, 0.6])), "changes it"),
        (lambda: MarkovSource(np.full((2, 2), 0.5), initial="first"), "initial"),
        (lambda: MarkovSource.random(13, 2).stationary, "too many"),
        (lambda: SOURCES["switching order 1"].sample(0), "n = 0"),
        (lambda: SOURCES["switching order 1"].log_probability(np.array([0, 2])), "symbol 2"),
        (lambda: SOURCES["switching order 1"].ngram_loss(-1), "context"),
        (lambda: MarkovSource.from_file("table.txt"), ".json or .npy"),
    ],
)
def test_errors_name_what_is_wrong(make, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
