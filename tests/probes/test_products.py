"""What comes out: reports, tables, geometry, files, figures, and the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from interp.cli.probe import app
from interp.probes.bank import ProbeSpec
from interp.probes.conllu_files import write_conllu
from interp.probes.decoded_trees import ReadOut, read_out
from interp.probes.evaluate import evaluate_probes
from interp.probes.experiment import ProbeExperiment
from interp.probes.geometry import level_consistency, prototype_angles, spectrum
from interp.probes.grammar import ControlledGrammar
from interp.probes.planted import planted_activations
from interp.probes.saving import load_probes, save_probes
from interp.probes.silver import load_parser, prose_sentences, silver_name, silver_trees
from interp.probes.splits import load_treebanks
from interp.probes.syntax_plots import plot_cosines, plot_curves, plot_polar, plot_tree
from interp.probes.training import FittedProbes, ProbeTraining, fit_probes
from interp.probes.treebank import relation_types
from tests.models.tiny import byte_tokenizer, tiny_model

TRAIN, TEST = ControlledGrammar().split(80, 30, seed=5)
RELATIONS = relation_types(TRAIN)
WORDS = [
    planted_activations(trees, RELATIONS, direction=0.8, seed=i) for i, trees in enumerate((TRAIN, TEST))
]


@pytest.fixture(scope="module")
def fitted() -> FittedProbes:
    specs = [ProbeSpec(0, 40, angular=0.0), ProbeSpec(0, 40, angular=5.0)]
    return fit_probes(WORDS[0], TRAIN, specs, ProbeTraining(lr=2e-2, max_epochs=30, progress=False))


@pytest.fixture(scope="module")
def readings(fitted: FittedProbes) -> list[ReadOut]:
    return read_out(fitted.bank, WORDS[1], TEST)


def test_a_report_says_what_its_trees_are(fitted: FittedProbes) -> None:
    report = evaluate_probes(fitted.bank, WORDS[1], TEST, treebank="planted (gold)")
    text = str(report)
    assert "planted (gold): 30 sentences" in text
    assert "uas and las are means over sentences" in text
    assert "over edges" in str(evaluate_probes(fitted.bank, WORDS[1], TEST, average="micro"))
    assert list(report.to_frame()["probe"]) == ["structural", "polar"]
    assert "uuas" in text
    assert "root_accuracy" not in text  # no probe here has a depth term
    frame = report.to_frame()
    assert list(frame["angular"]) == [0.0, 5.0]
    assert report.best() is report.rows[1]
    for row in report.rows:
        assert row.las <= row.uas <= row.uuas
    assert report.plot().axes[0].get_xlabel() == "layer (0: embedding)"


def test_tables_add_up(readings: list[ReadOut]) -> None:
    reading = readings[1]
    micro = reading.scores("micro")
    for table in (reading.by_relation(), reading.by_depth(), reading.by_tree_depth()):
        edges = table["edges"].to_numpy()
        assert edges.sum() == sum(len(tree) - 1 for tree in TEST)
        for name in ("uuas", "uas", "las"):
            assert (table[name].to_numpy() * edges).sum() / edges.sum() == pytest.approx(getattr(micro, name))
    assert set(reading.by_relation()["relation"]) <= set(RELATIONS)


def test_unknown_relations_count_as_wrong(fitted: FittedProbes) -> None:
    from dataclasses import replace

    strange = [replace(TEST[0], relations=("never",) * len(TEST[0])), *TEST[1:]]
    reading = read_out(fitted.bank, WORDS[1], strange)[1]
    table = reading.by_relation().set_index("relation")
    assert table.loc["(unknown)", "label_accuracy"] == 0
    assert table.loc["(unknown)", "edges"] == len(TEST[0]) - 1
    plain = read_out(fitted.bank, WORDS[1], TEST)[1]
    assert reading.scores().uuas == plain.scores().uuas
    assert reading.balanced_label_accuracy < plain.balanced_label_accuracy


def test_directions_survive_nesting(readings: list[ReadOut]) -> None:
    structural, polar = (level_consistency(reading) for reading in readings)
    assert polar.mean > 0.9  # planted so
    assert abs(polar.cross) < 0.2
    assert structural.mean < polar.mean
    assert polar.same["det"] == polar.between("det", "det")
    assert "level 0 against 1" in str(polar)
    with pytest.raises(ValueError, match="no relation occurs at both"):
        level_consistency(readings[1], (0, 7))


def test_angles_and_dimensions(fitted: FittedProbes, readings: list[ReadOut]) -> None:
    angles = prototype_angles(readings[1])
    assert np.allclose(np.diag(angles), 0, atol=1e-4)
    assert angles.loc["nsubj", "det"] == pytest.approx(90, abs=15)
    shares = spectrum(fitted.bank, 1)
    assert shares[-1] == pytest.approx(1)
    assert (np.diff(shares) >= 0).all()


def test_saved_probes_are_the_same(fitted: FittedProbes, tmp_path: Path) -> None:
    save_probes(fitted.bank, tmp_path, model="none")
    again = load_probes(tmp_path)
    assert (again.specs, again.relations) == (fitted.bank.specs, fitted.bank.relations)
    assert torch.equal(again.transform(WORDS[1]), fitted.bank.transform(WORDS[1]))
    with pytest.raises(ValueError, match="holds no probes"):
        load_probes(tmp_path / "elsewhere")


def test_figures_show_what_they_should(readings: list[ReadOut]) -> None:
    polar = plot_polar(readings[1], ["nsubj", "det"], title="which probe")
    assert polar.get_suptitle() == "which probe"
    assert [ax.get_title().split()[0] for ax in polar.axes] == ["nsubj", "det"]
    mine = polar.axes[1].collections[1].get_offsets()
    assert np.median(mine[:, 0]) < np.radians(40)  # det lies at its prototype
    cosines = plot_cosines({"structural": readings[0], "polar": readings[1]})
    assert len(cosines.axes) == 3
    tree, edges = TEST[0], readings[1].sentences()[0]
    panel = plot_tree(tree, edges).axes[0]
    drawn = [text.get_text() for text in panel.texts]
    assert [text for text in drawn if text in tree.words][: len(tree)] == list(tree.words)
    assert "probe" in drawn
    (root,) = [text for text in panel.texts if text.get_text() == "root"]
    assert root.xy[0] == tree.root
    said = [text.get_text() for text in panel.get_legend().get_texts()]
    assert said == ["right", "wrong label or direction", "no such edge"]
    assert plot_tree(tree).axes[0].get_legend() is None  # nothing to compare with
    assert plot_curves({"a": [(8, 0.5), (2, 0.25)]}, xlabel="rank", log_x=True).axes[0].get_xscale() == "log"


class FakeParser:
    """Parses every sentence as a chain; says what spaCy would say about itself."""

    meta = {"lang": "en", "name": "fake", "version": "1"}  # noqa: RUF012

    def pipe(self, sentences: list[str]) -> Any:
        for text in sentences:
            tokens, at = [], 0
            for i, word in enumerate(text.split(" ")):
                tokens.append(SimpleNamespace(i=i, text=word, idx=at, dep_="next", pos_="X", is_space=False))
                at += len(word) + 1
            for i, token in enumerate(tokens):
                token.head = tokens[max(0, i - 1)]
            doc = SimpleNamespace(text=text)
            yield type("Doc", (), {"__iter__": lambda _, t=tokens: iter(t), "text": doc.text})()


def test_silver_trees_come_from_a_parser_and_say_so() -> None:
    (tree,) = silver_trees(["A b c."], FakeParser())
    assert (tree.words, tree.heads, tree.relations[1]) == (("A", "b", "c."), (-1, 0, 1), "next")
    assert silver_name(FakeParser()) == "silver, parsed by spaCy en_fake 1"
    with pytest.raises(ImportError, match="pip install spacy no-such-parser"):
        load_parser("no_such_parser")


def test_prose_is_told_from_code() -> None:
    text = "The first argument is a string. x = f(1)\n\nIt may be\nlonger than one line of text. No.\n>>> print(1)."
    assert prose_sentences([text], 2) == [
        "The first argument is a string.",
        "It may be longer than one line of text.",
    ]
    with pytest.raises(ValueError, match="only 2 sentences"):
        prose_sentences([text], 3)


def test_treebanks_share_no_sentence(tmp_path: Path) -> None:
    banks = load_treebanks(ProbeExperiment(n_sentences=50))
    assert (len(banks.train), len(banks.validation), len(banks.test)) == (32, 8, 10)
    assert "gold" in banks.name
    write_conllu(tmp_path / "own.conllu", TRAIN[:20])
    own = load_treebanks(ProbeExperiment(treebank=str(tmp_path / "own.conllu"), n_sentences=20))
    assert {tree.words for tree in own.test} | {tree.words for tree in own.train} <= {t.words for t in TRAIN}
    with pytest.raises(ValueError, match=r"no such CoNLL-U file; did you mean 'grammar'.*silver"):
        load_treebanks(ProbeExperiment(treebank="grammer"))


def test_what_is_tested_on_is_not_trained_on(tmp_path: Path) -> None:
    """Whatever tree it has there; and the name is that of what is scored."""
    from dataclasses import replace

    train, test = tmp_path / "train.conllu", tmp_path / "gold.conllu"
    twice = replace(TRAIN[20], relations=("dep",) * len(TRAIN[20]))
    write_conllu(train, [*TRAIN[:30], twice])
    write_conllu(test, [replace(TRAIN[i], relations=("dep",) * len(TRAIN[i])) for i in range(12)])
    banks = load_treebanks(ProbeExperiment(treebank=str(train), test_treebank=str(test)))
    parts = [{tree.words for tree in part} for part in (banks.train, banks.validation, banks.test)]
    assert [len(part) for part in parts] == [14, 4, 12]
    assert len(set.union(*parts)) == 30
    assert banks.name == "gold.conllu (gold), trained on train.conllu (gold)"


def test_the_best_probe_is_a_polar_one_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a structural one does better on the validation sentences."""
    import interp.probes.experiment as module
    from interp.models.loading import load_model

    def fit(*arguments: Any, **how: Any) -> FittedProbes:
        fitted = fit_probes(*arguments, **how)
        assert [spec.kind for spec in fitted.bank.specs] == ["structural"] * 2 + ["polar"] * 2
        return FittedProbes(fitted.bank, fitted.history, np.array([[0.9, 0.8, 0.2, 0.3]]))

    monkeypatch.setattr(module, "fit_probes", fit)
    model = load_model(tiny_model("llama", max_position_embeddings=256), tokenizer=byte_tokenizer())
    asked = ProbeExperiment(layers=(1, 2), n_sentences=20, max_epochs=1, rank=4)
    result = module.run_experiment(model, asked, out=tmp_path / "out", device="cpu", progress=False)
    assert (result.best.kind, result.best.layer) == ("polar", 2)
    assert "by relation, of all edges: polar probe of layer 2, rank 4 (best on validation)" in str(result)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["best"]["layer"] == 2


def test_a_store_of_other_layers_is_named_by_its_own_argument(tmp_path: Path) -> None:
    from interp.models.loading import load_model
    from interp.probes.words import word_activations

    model = load_model(tiny_model("llama", max_position_embeddings=256), tokenizer=byte_tokenizer())
    store = tmp_path / "store"
    first = word_activations(model, TRAIN[:3], [1], store=store, progress=False)
    again = word_activations(model, TRAIN[:3], [1], pooling="last", store=store, progress=False)
    assert again.layers == first.layers
    with pytest.raises(ValueError, match=r"store='.*' keeps the layers \[1\], asked for are \[0, 2\]"):
        word_activations(model, TRAIN[:3], [0, 2], store=store, progress=False)
    with pytest.raises(ValueError, match=r"store='.*' keeps activations of other sentences"):
        word_activations(model, TRAIN[:4], [1], store=store, progress=False)


def saved_model(folder: Path) -> str:
    tiny_model("llama", max_position_embeddings=256).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


def test_the_command_leaves_everything(tmp_path: Path) -> None:
    model, out = saved_model(tmp_path / "model"), tmp_path / "out"
    common = ["--model", model, "--sentences", "40", "--max-epochs", "2", "--rank", "8", "--device", "cpu"]
    arguments = ["polar", *common, "--out", str(out), "--layers", "0,-1", "--control"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "controlled grammar (gold)" in result.stdout
    assert "random weights" in result.stdout
    saved = json.loads((out / "results.json").read_text())
    assert [row["layer"] for row in saved["probes"]["rows"]] == [0, 3, 0, 3]
    assert load_probes(out).layers == (0, 3)
    for name in ("layers.png", "polar.png", "tree_0.png"):
        assert (out / name).stat().st_size > 5000
    depth = ["structural", *common, "--out", str(tmp_path / "depth"), "--layers", "1", "--target", "depth"]
    result = CliRunner().invoke(app, depth, catch_exceptions=False)
    assert "root_accuracy" in result.stdout


def test_punctuation_and_broken_sentences_reach_every_part(tmp_path: Path) -> None:
    from dataclasses import replace

    from interp.probes.controls import linear_order_scores

    model, out, bank = saved_model(tmp_path / "model"), tmp_path / "out", tmp_path / "own.conllu"
    dotted = [
        replace(
            tree,
            words=(*tree.words, "."),
            heads=(*tree.heads, tree.root),
            relations=(*tree.relations, "punct"),
            levels=None,
            tags=(*["X"] * len(tree), "PUNCT"),
            text=f"{tree.text} .",
            spans=None,
        )
        for tree in TRAIN[:30]
    ]
    write_conllu(bank, dotted)
    bank.write_text(bank.read_text() + "1\tOh\t_\tX\t_\t_\t5\troot\t_\t_\n\n")
    common = ["polar", "--model", model, "--out", str(out), "--treebank", str(bank), "--layers", "1"]
    common += ["--max-epochs", "1", "--rank", "4", "--device", "cpu", "--exclude-punct"]
    result = CliRunner().invoke(app, common, catch_exceptions=False)
    assert (
        "own.conllu': left out 1 of 31 sentences, which are not CoNLL-U\n  sentence 31, line "
        in result.stdout
    )
    saved = json.loads((out / "results.json").read_text())
    assert [len(part["faults"]) for part in saved["left out"]] == [1]
    parts = load_treebanks(ProbeExperiment(treebank=str(bank), exclude_punct=True))
    bare = [
        replace(
            tree,
            **{name: getattr(tree, name)[:-1] for name in ("words", "heads", "relations", "tags", "spans")},
        )
        for tree in (*parts.train, *parts.test)
    ]
    expected = linear_order_scores(bare[: len(parts.train)], bare[len(parts.train) :])
    assert saved["linear order"] == pytest.approx(vars(expected))
    assert f"{sum(len(tree) - 1 for tree in bare[len(parts.train) :])} edges" in result.stdout
    refused = CliRunner().invoke(app, [*common, "--strict"])
    assert re.search(
        "own.conllu' is not CoNLL-U: sentence 31, line .* has the head 5", str(refused.exception)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exclude-punct"], "these trees have no tags to know punctuation by"),
        (["--layers", "first"], "write 'all' or numbers"),
        (["--treebank", "missing.conllu"], "no such CoNLL-U file"),
        (["--sentences", "3"], "at least 10"),
        (["--sentences", "1000000000000"], "at most 1,000,000"),
        (["--rank", "0"], "rank = 0 must be at least 1"),
        (["--rank", "33"], "rank=33 is more than the 32 dimensions"),
        (["--max-epochs", "0"], "max_epochs=0"),
        (["--lr", "0"], "lr=0.0"),
        (["--angular-weight", "-1"], "angular=-1.0: a weight must be"),
        (["--angular-weight", "nan"], "angular=nan: a weight must be"),
        (["--angular-weight", "0"], "angular_weights: 0.0 is there twice"),
        (["--pooling", "middle"], "pooling = 'middle'"),
        (["--seed", "-1"], "seed = -1 must be at least 0"),
        (["--store", "{model}/config.json"], "config.json is a file, not a folder"),
        (["--out", "{model}/config.json"], "config.json is a file, not a folder"),
    ],
)
def test_the_command_refuses_kindly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("activations are read before the options are looked at")

    monkeypatch.setattr("interp.probes.experiment.word_activations", never)
    model = saved_model(tmp_path / "model")
    arguments = [argument.format(model=model) for argument in arguments]
    result = CliRunner().invoke(app, ["polar", "--model", model, "--out", str(tmp_path / "o"), *arguments])
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_help_teaches() -> None:
    for command in ("polar", "structural"):
        said = CliRunner(env={"COLUMNS": "300"}).invoke(app, [command, "--help"]).stdout
        assert "Example: interp probe" in said
        assert "'interp steer' calls layer n - 1" in said


def test_a_layer_of_probes_is_the_one_before_of_steering() -> None:
    from interp.models.loading import load_model
    from interp.probes.words import layer_sites

    model = load_model(tiny_model("llama"), tokenizer=byte_tokenizer())
    assert {l: str(site) for l, site in layer_sites(model).items()} == {
        0: "resid_pre.0",
        **{l: f"resid_post.{l - 1}" for l in range(1, model.n_layers + 1)},
    }
    for negative in (-1, -model.n_layers):
        (site,) = layer_sites(model, [negative]).values()
        assert site == model.check_site(f"resid_post.{negative}")  # from the end both count alike
    assert list(layer_sites(model, np.array([0, 2]))) == [0, 2]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"layer 4: .* has the layers 0 .embedding. to 3"):
        layer_sites(model, [4])
