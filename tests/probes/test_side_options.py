"""Punctuation, roots, depth, lone words and labels: every option against a plain computation of its own."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.best_epochs import KeepBestOfEach
from interp.probes.controls import linear_order_scores
from interp.probes.correlation import distance_spearman
from interp.probes.decoded_trees import ReadOut, read_out
from interp.probes.evaluate import evaluate_probes
from interp.probes.polar import PolarProbe
from interp.probes.readout import nearest_words, orient_from_root
from interp.probes.scores import AttachmentScores, attachment_scores
from interp.probes.structural import StructuralProbe
from interp.probes.training import ProbeTraining, fit_probes
from interp.probes.treebank import ROOT, DependencyTree, Edge
from interp.probes.words import WordActivations

RELATIONS = ("a", "b", "c")
D, K = 7, 4
SLOPES = (1.0, 2.0, 7.0)


def random_trees(count: int, longest: int, seed: int) -> list[DependencyTree]:
    """Trees of 1 to `longest` words; a third of the words, roots too, are punctuation."""
    random = np.random.default_rng(seed)
    trees = []
    for _ in range(count):
        n = int(random.integers(1, longest + 1))
        order, heads = random.permutation(n), np.full(n, ROOT)
        for place in range(1, n):
            heads[order[place]] = order[random.integers(place)]
        trees.append(
            DependencyTree(
                tuple(f"w{i}" for i in range(n)),
                tuple(heads.tolist()),
                tuple(random.choice(RELATIONS, n).tolist()),
                tags=tuple(random.choice(["X", "X", "PUNCT"], n).tolist()),
            )
        )
    return trees


def random_words(trees: list[DependencyTree], seed: int = 0) -> WordActivations:
    random = np.random.default_rng(seed)
    return WordActivations.from_sentences([random.standard_normal((len(tree), D)) for tree in trees])


def random_bank(*specs: ProbeSpec, seed: int = 0) -> ProbeBank:
    bank = ProbeBank(specs, D, (0,), RELATIONS)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (bank.weight, bank.centre, bank.prototypes):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return bank


TREES, SHORT = random_trees(60, 9, 1), random_trees(40, 5, 2)


def scored(tree: DependencyTree, exclude_punct: bool) -> list[int]:
    return [i for i, tag in enumerate(tree.tags or ()) if not (exclude_punct and tag == "PUNCT")]


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def plain_decode(
    z: np.ndarray, prototypes: np.ndarray, words: list[int], *, rooted: bool, root: int | None
) -> set[Edge]:
    """The least of all trees over some words by trying them all, oriented as the paper says or from a root."""
    if len(words) < 2:
        return set()
    pairs = list(itertools.combinations(words, 2))
    trees = [
        tree
        for tree in itertools.combinations(pairs, len(words) - 1)
        if nx.is_connected(graph := nx.Graph(tree)) and len(graph) == len(words)
    ]
    assert len(trees) == len(words) ** (len(words) - 2)  # Cayley
    best = min(trees, key=lambda tree: sum(((z[u] - z[v]) ** 2).sum() for u, v in tree))
    free: dict[tuple[int, int], float] = {}
    out = set()
    for u, v in best:
        values = [cosine(z[u] - z[v], p) for p in prototypes]
        kind = int(np.argmax(np.abs(values)))
        edge = (u, v) if values[kind] > 0 else (v, u)
        free[edge] = abs(values[kind])
        out.add((*edge, RELATIONS[kind]))
    if not rooted:
        return out

    def agreement(candidate: int) -> tuple[int, float]:
        kept = [free[edge] for edge in nx.dfs_edges(nx.Graph(best), candidate) if edge in free]
        return len(kept), sum(kept)

    top = max(words, key=agreement) if root is None else root
    return {
        (u, v, RELATIONS[int(np.argmax([cosine(z[u] - z[v], p) for p in prototypes]))])
        for u, v in nx.dfs_edges(nx.Graph(best), top)
    }


def plain_scores(
    found: list[set[Edge]], trees: list[DependencyTree], exclude_punct: bool, average: str
) -> AttachmentScores:
    rows = []
    for edges, tree in zip(found, trees, strict=True):
        words = set(scored(tree, exclude_punct))
        gold = {edge for edge in tree.edges() if {edge[0], edge[1]} <= words}
        hits = [
            len({frozenset(e[:2]) for e in gold} & {frozenset(e[:2]) for e in edges}),
            len({e[:2] for e in gold} & {e[:2] for e in edges}),
            len(gold & edges),
        ]
        if gold:
            rows.append((len(gold), *hits))
    counts = np.array(rows, dtype=float)
    if average == "micro":
        return AttachmentScores(*(counts[:, 1:].sum(0) / counts[:, 0].sum()).tolist())
    return AttachmentScores(*(counts[:, 1:] / counts[:, :1]).mean(0).tolist())


@pytest.mark.parametrize("exclude_punct", [False, True])
@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("root_weight", [0.0, 1.0])
def test_read_outs_are_those_of_all_trees_tried(
    exclude_punct: bool, rooted: bool, root_weight: float
) -> None:
    words, bank = random_words(SHORT), random_bank(ProbeSpec(0, K, root=root_weight))
    (reading,) = read_out(bank, words, SHORT, rooted=rooted, exclude_punct=exclude_punct)
    expected = []
    for z, tree in zip(np.split(reading.points, reading.starts[1:-1]), SHORT, strict=True):
        places = scored(tree, exclude_punct)
        centre = bank.centre[0].detach().double().numpy()
        root = min(places, key=lambda i, z=z: ((z[i] - centre) ** 2).sum(), default=None)
        expected.append(
            plain_decode(z, reading.prototypes, places, rooted=rooted, root=root if root_weight else None)
        )
    assert [set(edges) for edges in reading.sentences()] == expected
    for average in ("macro", "micro"):
        wanted = plain_scores(expected, SHORT, exclude_punct, average)
        for found in (
            reading.scores(average),
            attachment_scores(reading.sentences(), SHORT, average=average, exclude_punct=exclude_punct),
        ):
            assert (found.uuas, found.uas, found.las) == pytest.approx((wanted.uuas, wanted.uas, wanted.las))


def test_longer_trees_without_punctuation_are_networkxs() -> None:
    (reading,) = read_out(random_bank(ProbeSpec(0, K)), random_words(TREES), TREES, exclude_punct=True)
    for z, tree, edges in zip(
        np.split(reading.points, reading.starts[1:-1]), TREES, reading.sentences(), strict=True
    ):
        graph = nx.Graph()
        for i, j in itertools.combinations(scored(tree, True), 2):
            graph.add_edge(i, j, weight=((z[i] - z[j]) ** 2).sum())
        expected = {frozenset(edge) for edge in nx.minimum_spanning_edges(graph, data=False)}
        assert {frozenset(edge[:2]) for edge in edges} == expected


def test_equal_roots_tie_whatever_the_order_of_their_edges() -> None:
    """Two chains that meet: each end agrees with half of the edges, the same cosines in another order."""
    step = np.array([[1, rise] for rise in SLOPES], dtype=float)
    left = np.cumsum([[0, 0], *-step], axis=0)  # the head is the left one of each pair
    z = np.concatenate([left, left[-1] + np.cumsum(step, axis=0)])  # and here the right one
    u, v, starts, axis = np.arange(6), np.arange(1, 7), np.array([0, 7]), np.array([[1.0, 0.0]])
    strengths = [cosine(row, axis[0]) for row in step]
    assert sum(strengths) < sum(reversed(strengths))  # by rounding alone
    edges = orient_from_root(u, v, z, axis, starts)
    assert sorted(zip(edges.heads.tolist(), edges.dependents.tolist(), strict=True)) == [
        (i, i + 1) for i in range(6)
    ]


def test_a_root_is_never_punctuation_and_never_elsewhere() -> None:
    z, starts = np.array([[0.0], [1.0], [3.0], [0.5], [7.0]]), np.array([0, 3, 5])
    keep = np.array([False, True, True, False, False])
    assert nearest_words(z, np.zeros(1), starts, keep).tolist() == [1, -1]
    with pytest.raises(ValueError, match=r"roots\[0\]=2: no edge of sentence 0 touches this word"):
        orient_from_root(np.array([0]), np.array([1]), z, np.eye(1), starts, np.array([2, 3]))


def test_root_arcs_are_no_edges_and_bad_places_are_named() -> None:
    tree = DependencyTree(("x", "y", "z"), (1, ROOT, 1), ("a", "root", "b"))
    only_roots = attachment_scores([[(ROOT, 1, "root"), (ROOT, 0, "root"), (ROOT, 2, "root")]], [tree])
    assert (only_roots.uuas, only_roots.uas, only_roots.las) == (0.0, 0.0, 0.0)
    # In a second sentence, where the place before the first word is a word of the first.
    whole = [(ROOT, 1, "root"), *tree.edges()]
    assert attachment_scores([whole, whole], [tree, tree]).las == 1.0
    assert attachment_scores([tree.edges(), [(ROOT, 0, "root")]], [tree, tree]).uuas == 0.5
    for edge in [
        (3, 0, "a"),
        (0, 3, "a"),
        (0, -1, "a"),
        (-2, 0, "a"),
        (1, 1, "a"),
        (0.5, 1, "a"),
        ("x", 0, "a"),
        (0, 1),
    ]:
        with pytest.raises(ValueError, match=r"predicted\[1\] has the edge .*: give .* two of the 3 words"):
            attachment_scores([[], [edge]], [tree, tree])  # type: ignore[list-item]


def test_linear_order_without_punctuation_counted_by_hand() -> None:
    x, p = "X", "PUNCT"
    trees = [
        # a , b c .  without punctuation: a-b and b-c, both of which are edges
        DependencyTree(
            tuple("a,bc."), (2, 2, ROOT, 2, 2), ("l", "p", "root", "r", "p"), tags=(x, p, x, x, p)
        ),
        # d e f g h i .  d heads all but i: of the five links d-e and h-i are edges
        DependencyTree(
            tuple("defghi."), (ROOT, 0, 0, 0, 0, 4, 0), ("root", *"rrrrrp"), tags=(x, x, x, x, x, x, p)
        ),
    ]
    found = linear_order_scores(trees, trees, average="micro", exclude_punct=True)
    assert (found.uuas, found.uas, found.las) == pytest.approx((4 / 7, 3 / 7, 3 / 7))
    found = linear_order_scores(trees, trees, exclude_punct=True)
    assert found.uuas == pytest.approx((2 / 2 + 2 / 5) / 2)
    with_punctuation = linear_order_scores(trees, trees, average="micro")
    assert with_punctuation.uuas == pytest.approx(4 / 10)  # `, b`, `b c`, `d e`, `h i`


def test_correlations_and_roots_without_punctuation() -> None:
    trees = random_trees(30, 12, 3)
    words, bank = random_words(trees), random_bank(ProbeSpec(0, K, distance=0, angular=0, depth=1))
    for exclude_punct in (False, True):
        (row,) = evaluate_probes(bank, words, trees, exclude_punct=exclude_punct).rows
        by_length: dict[int, list[float]] = {}
        depth_by_length: dict[int, list[float]] = {}
        roots = []
        for z, tree in zip(words.starts.diff().tolist() and _points(bank, words), trees, strict=True):
            places = scored(tree, exclude_punct)
            gold, norms = tree.distances(), (z**2).sum(1)
            if len(places) > 1 and tree.root in places:
                roots.append(min(places, key=lambda i, norms=norms: norms[i]) == tree.root)
            if len(places) < 5:
                continue
            by_length.setdefault(len(places), []).extend(
                spearmanr([((z[i] - z[j]) ** 2).sum() for j in places], gold[i, places]).statistic
                for i in places
            )
            if len(set(tree.depths[places].tolist())) > 1:
                depth_by_length.setdefault(len(places), []).append(
                    spearmanr(norms[places], tree.depths[places]).statistic
                )
        means = [[np.mean(group) for group in groups.values()] for groups in (by_length, depth_by_length)]
        assert row.distance_spearman == pytest.approx(np.mean(means[0]))
        assert row.depth_spearman == pytest.approx(np.mean(means[1]))
        assert row.root_accuracy == pytest.approx(np.mean(roots))
    lone = [tree for tree in trees if len(tree) == 1]
    assert np.isnan(distance_spearman([np.zeros((1, 1)) for _ in lone], lone))


def _points(bank: ProbeBank, words: WordActivations) -> list[np.ndarray]:
    return np.split(bank.transform(words)[0].double().numpy(), words.starts[1:-1].numpy())


# -- training ------------------------------------------------------------------------------------------------------

ONE_EPOCH = ProbeTraining(lr=1e-2, max_epochs=1, batch_size=8, progress=False, device="cpu")
SPECS = (
    ProbeSpec(0, K),
    ProbeSpec(0, K, angular=0.0),
    ProbeSpec(0, K, distance=0.0, angular=0.0, depth=1.0),
)


@pytest.mark.parametrize("exclude_punct", [False, True])
def test_epochs_are_chosen_by_the_scores_that_are_reported(exclude_punct: bool) -> None:
    train, held_out = random_trees(40, 8, 4), random_trees(30, 8, 5)
    validation = (random_words(held_out, 1), held_out)
    config = replace(ONE_EPOCH, exclude_punct=exclude_punct)
    fitted = fit_probes(random_words(train), train, SPECS, config, validation=validation)
    assert fitted.validation_scores is not None
    readings = read_out(fitted.bank, *validation, exclude_punct=exclude_punct)
    wanted = [
        readings[0].scores().las,
        readings[1].scores().las,
        plain_depth_score(readings[2], exclude_punct),
    ]
    assert fitted.validation_scores[0].tolist() == pytest.approx(wanted, abs=1e-6)
    # Without labels to tell apart, by the pairs alone.
    plain = [replace(tree, relations=("a",) * len(tree)) for tree in train]
    fitted = fit_probes(random_words(train), plain, SPECS[1:2], config, validation=validation)
    assert fitted.validation_scores is not None
    (reading,) = read_out(fitted.bank, *validation, exclude_punct=exclude_punct)
    assert fitted.validation_scores[0, 0] == pytest.approx(reading.scores().uuas)
    assert reading.scores().uuas > reading.scores().las


def plain_depth_score(reading: ReadOut, exclude_punct: bool) -> float:
    found = []
    for norms, tree in zip(reading.depths(), reading.trees, strict=True):
        places = scored(tree, exclude_punct)
        if len(places) > 1 and len(set(tree.depths[places].tolist())) > 1:
            found.append(spearmanr(norms[places], tree.depths[places]).statistic)
    return float(np.mean(found))


def test_a_depth_probe_keeps_the_epoch_with_the_best_depths() -> None:
    train, held_out = random_trees(40, 8, 6), random_trees(30, 8, 7)
    validation = (random_words(held_out, 1), held_out)
    config = replace(ONE_EPOCH, max_epochs=12, patience=12)
    fitted = fit_probes(random_words(train), train, SPECS[2:], config, validation=validation)
    assert fitted.validation_scores is not None
    scores = fitted.validation_scores[:, 0]
    assert scores.argmax() < len(scores) - 1  # nothing to learn here: the last epoch is not the best
    (reading,) = read_out(fitted.bank, *validation)
    assert plain_depth_score(reading, False) == pytest.approx(scores.max(), abs=1e-6)
    assert fitted.best_epochs == (int(scores.argmax()) + 1,)


def test_probes_in_reverse_order_of_depth_are_kept_too() -> None:
    """The least correlation there is, -1, is still a score: some epoch is kept."""
    trees = [DependencyTree(("x", "y"), (ROOT, 0), ("root", "a"))] * 3
    words = WordActivations.from_sentences([np.array([[2.0, 0.0], [0.1, 0.0]])] * 3)
    bank = ProbeBank([ProbeSpec(0, 1, distance=0, angular=0, depth=1)], 2, (0,), ("a",))
    chooser = KeepBestOfEach(bank, lambda: None, words, trees, patience=1)
    assert chooser.evaluate() == [-1.0]
    with torch.no_grad():
        bank.weight.zero_()
    assert chooser.evaluate() == [-1.0]  # all equally deep: no correlation at all


def test_sentences_of_one_word_change_nothing() -> None:
    trees = [tree for tree in random_trees(40, 8, 8) if len(tree) > 1]
    words = random_words(trees)
    lone = DependencyTree(("w",), (ROOT,), ("root",), tags=("X",))
    rows = [words.sentence(i)[0] for i in range(len(trees))]
    mixed_rows, mixed_trees = [torch.full((1, D), 50.0)], [lone]
    for row, tree in zip(rows, trees, strict=True):
        mixed_rows += [row, torch.full((1, D), -80.0)]
        mixed_trees += [tree, lone]
    mixed = WordActivations.from_sentences(mixed_rows)
    config = replace(ONE_EPOCH, max_epochs=3)
    specs = [*SPECS, ProbeSpec(0, K, root=1.0)]
    alone = fit_probes(words, trees, specs, config, validation=(words, trees))
    together = fit_probes(mixed, mixed_trees, specs, config, validation=(mixed, mixed_trees))
    assert torch.equal(alone.bank.weight, together.bank.weight)
    assert torch.equal(alone.bank.mean, together.bank.mean)
    assert torch.allclose(alone.bank.prototypes, together.bank.prototypes, atol=1e-5)
    assert np.allclose(alone.validation_scores, together.validation_scores, atol=1e-6)  # type: ignore[arg-type]
    only = [lone] * 3
    with pytest.raises(ValueError, match="all 3 sentences have one word only, so there is no edge"):
        fit_probes(random_words(only), only, SPECS, config)
    with pytest.raises(ValueError, match="validation: no sentence has two words"):
        fit_probes(words, trees, SPECS, config, validation=(random_words(only), only))


def test_weights_and_layers_of_any_numeric_kind() -> None:
    train = random_trees(40, 8, 9)
    rows = [random_words(train).sentence(i)[0] for i in range(len(train))]
    how = {"rank": 3, "max_epochs": 2, "lr": 1e-2}
    probes = [
        PolarProbe(angular_weight=weights, **how).fit(rows, train, validation=(rows, train))  # type: ignore[arg-type]
        for weights in ((0.5, 4.0), [0.5, 4.0], np.array([0.5, 4.0]))
    ]
    assert len({probe.angular_weight_ for probe in probes}) == 1
    assert all(np.array_equal(probe.projection_, probes[0].projection_) for probe in probes)
    one = [
        PolarProbe(angular_weight=w, **how).fit(rows, train).projection_
        for w in (2, np.float32(2), np.array(2))
    ]
    assert np.array_equal(one[0], one[1])
    assert np.array_equal(one[0], one[2])
    for wrong in (np.ones((2, 2)), []):
        with pytest.raises(ValueError, match=r"angular_weight=.*: give a number, or several in a row"):
            PolarProbe(angular_weight=wrong, **how).fit(rows, train)  # type: ignore[arg-type]
    spec = ProbeSpec(np.int64(0), np.int32(3), seed=np.int64(0))  # type: ignore[arg-type]
    assert all(type(value) is int for value in (spec.layer, spec.rank, spec.seed))
    with pytest.raises(TypeError, match=r"rank = 2\.5 is a float"):
        ProbeSpec(0, 2.5)  # type: ignore[arg-type]
    lone = [DependencyTree(("w",), (ROOT,), ("root",))] * 2
    for probe in (PolarProbe(**how), StructuralProbe(**how)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="one word only, so there is no edge to learn from"):
            probe.fit([np.ones((1, D))] * 2, lone)
