"""Studies, figures, the command line and the short form of the reproduction."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from interp.cli.markov import app
from interp.markov.bpe import BPETokenizer
from interp.markov.loss_plots import plot_attention, plot_sweep
from interp.markov.ngram import NGramModel
from interp.markov.sources import MarkovSource
from interp.markov.tokenizer import CharTokenizer, FixedLengthTokenizer
from interp.markov.unigram_study import UnigramStudy, unigram_study

ROOT = Path(__file__).resolve().parents[2]
SOURCE = MarkovSource.switching(2, 0.8, 0.8)


@pytest.fixture(scope="module")
def study() -> UnigramStudy:
    kinds = [CharTokenizer(), FixedLengthTokenizer(4), BPETokenizer(10), BPETokenizer(40)]
    return unigram_study(SOURCE, kinds, train_symbols=50_000, test_symbols=100_000, progress=False)


def test_characters_and_blocks_are_at_their_closed_forms(study: UnigramStudy) -> None:
    characters, blocks, bpe, larger = study.rows
    assert characters.loss == pytest.approx(SOURCE.symbol_entropy(), abs=1e-4)
    assert characters.gap == pytest.approx(1, abs=1e-3)
    assert blocks.loss == pytest.approx(0.5967748, abs=0.004)
    assert larger.loss < bpe.loss < blocks.loss
    assert bpe.loss <= bpe.held_out < bpe.loss + 1e-3
    assert bpe.bigram == pytest.approx(SOURCE.entropy_rate(), abs=0.005)


def test_study_is_a_table_and_figures(study: UnigramStudy) -> None:
    frame = study.to_frame()
    assert list(frame["name"]) == ["characters", "blocks of 4", "BPE 10", "BPE 40"]
    assert {"upper", "heavy_entropy", "symbols_per_token"} <= set(frame.columns)
    assert "BPE 40" in str(study)
    assert "held_out, bigram: models of the training text" in str(study)
    left, right = study.plot().axes
    assert len(left.get_lines()) == 3 + 2  # methods, H(pi), entropy rate
    assert right.get_yscale() == "log"
    assert len(study.plot_frequencies().axes) == 3
    assert len(plot_attention(np.eye(4)[None].repeat(2, 0)).axes) == 2


def test_the_legend_of_a_sweep_covers_no_line() -> None:
    levels = {"symbol_entropy": [0.7, 0.7], "entropy_rate": [0.5, 0.4]}
    frame = pd.DataFrame({"method": ["BPE"] * 2, "order": [1, 2], "loss": [0.69, 0.41], **levels})
    figure = plot_sweep(frame, "order")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().x0 > figure.axes[0].get_window_extent().x1


def test_tokenizers_are_not_changed(study: UnigramStudy) -> None:
    tokenizer = BPETokenizer(5)
    unigram_study(SOURCE, [tokenizer], train_symbols=2000, test_symbols=2000, progress=False)
    assert tokenizer.tokens_ == ()


def test_held_out_loss_is_fitted_on_the_training_text() -> None:
    row = unigram_study(SOURCE, [CharTokenizer()], train_symbols=100, test_symbols=5000, progress=False).rows[
        0
    ]
    from interp.core.device import derive_seed

    train = SOURCE.sample(100, derive_seed(0, "tokenizer text"))
    test = SOURCE.sample(5000, derive_seed(0, "test text"))
    expected = NGramModel(1, 2).fit(train).cross_entropy(test, np.ones(2, int)).per_symbol
    assert row.held_out == pytest.approx(expected)


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_cli_source_prints_exact_and_measured() -> None:
    out = invoke("source", "--order", 3, "--p", 0.8, "--q", 0.8, "--n", 100_000)
    rows = [line.split() for line in out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert [row[:2] for row in rows] == [
        ["0", "0.69315"],
        ["1", "0.69315"],
        ["2", "0.69315"],
        ["3", "0.50040"],
        ["4", "0.50040"],
    ]
    assert all(abs(float(row[1]) - float(row[2])) < 0.01 for row in rows)


def test_cli_source_leaves_out_what_is_too_large_to_count() -> None:
    out = invoke("source", "--kernel", "random", "--alphabet-size", 300, "--order", 1, "--n", 5000)
    assert [line.split()[2] == "-" for line in out.splitlines()[3:6]] == [False, False, True]
    assert "-: more than" in out


def test_cli_source_writes_no_negative_zero(tmp_path: Path) -> None:
    np.save(tmp_path / "cycle.npy", np.roll(np.eye(3), 1, axis=1))
    assert "-0.0" not in invoke("source", "--kernel", tmp_path / "cycle.npy", "--n", 1000)


def test_cli_unigram_train_and_sweep(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps([[0.1, 0.9], [0.7, 0.3]]))
    out = invoke(
        "unigram", "--kernel", table, "--tokenizer", "lzw", "--vocab-sizes", "8,32", "--encoder", "likelihood",
        "--train-symbols", 5000, "--test-symbols", 5000, "--out", tmp_path / "unigram",
    )  # fmt: skip
    assert "LZW, likelihood 32" in out
    assert (tmp_path / "unigram" / "dictionary_sizes.png").stat().st_size > 5000
    small = (
        "--steps",
        4,
        "--batch-size",
        2,
        "--context-symbols",
        32,
        "--width",
        8,
        "--device",
        "cpu",
        "--test-symbols",
        3000,
    )
    out = invoke("train", "--out", tmp_path / "run", *small, "--vocab-size", 4)
    assert "BPE 4, 4 steps" in out
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    again = invoke("train", "--out", tmp_path / "run", *small, "--vocab-size", 4)
    assert again[again.index("BPE 4, 4 steps") :] == out[out.index("BPE 4, 4 steps") :]
    changed = CliRunner().invoke(
        app, [str(a) for a in ("train", "--out", tmp_path / "run", *small, "--vocab-size", 4, "--p", 0.7)]
    )
    assert isinstance(changed.exception, ValueError)
    assert "task.source was 'MarkovSource(2 symbols, order 2, H(pi) 0.6931" in str(changed.exception)
    once = invoke(
        *(
            "sweep",
            "--values",
            "4,6",
            "--seeds",
            "0",
            "--tokenizer",
            "characters",
            "--out",
            tmp_path / "once",
        ),
        *small,
    )
    assert once.count("characters vocab_size=") == 1  # a size means nothing to it
    sweep = ("sweep", "--over", "n_layers", "--values", "1,2", "--seeds", "0", "--out", tmp_path / "sweep")
    shown = invoke(*sweep, *small)
    assert "bpe n_layers=2" in shown
    assert "is no bound" in shown
    changed = CliRunner().invoke(app, [str(a) for a in (*sweep, *small, "--p", 0.7)])
    assert "--no-resume" in str(changed.exception)
    assert "bpe n_layers=2" in invoke(*sweep, *small, "--p", 0.7, "--no-resume")
    assert (tmp_path / "sweep" / "n_layers.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("source", "--kernel", "table.txt"), ".json or .npy"),
        (("source", "--p", "0"), "p = 0"),
        (("unigram", "--vocab-sizes", "4;8"), "whole numbers with commas"),
        (("unigram", "--tokenizer", "bep"), "did you mean 'bpe'"),
        (("sweep", "--over", "width", "--out", "x"), "vocab_size, order, n_layers"),
        (("sweep", "--seeds", "0,0", "--out", "x"), "seeds: 0 is there twice"),
        (("sweep", "--values", "4,4", "--out", "x"), "--values: 4 is there twice"),
        (("unigram", "--vocab-sizes", "4,10,4"), "--vocab-sizes: 4 is there twice"),
        (("unigram", "--tokenizer", "bpe", "--tokenizer", "bpe"), "--tokenizer: 'bpe' is there twice"),
        (("sweep", "--tokenizer", "lzw", "--tokenizer", "lzw", "--out", "x"), "'lzw' is there twice"),
        (("source", "--text", "sample.txt"), "ends in .jsonl"),
        (
            ("unigram", "--vocab-sizes", "4", "--train-symbols", "0", "--out", __file__),
            "is a file, not a folder",
        ),
        (("source", "--n", "1000000000000000"), "n = 1000000000000000"),
        (("source", "--n", "3"), "n = 3 must be at least 4"),
        (("source", "--seed", "-1"), "seed = -1 must not be negative"),
    ],
)
def test_cli_errors_teach(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert not result.stdout
    assert isinstance(result.exception, ValueError)
    assert said in str(result.exception)


@pytest.mark.slow
def test_reproduction_in_its_short_form(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "reproduce" / "markov_tokenization.py"
    command = [sys.executable, str(script), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results["checks"]) > 30
    assert all(check["passed"] for check in results["checks"])
    for figure in ("dictionary_sizes", "token_frequencies", "transformers"):
        assert (tmp_path / f"{figure}.png").stat().st_size > 10_000


def test_a_failing_check_is_shown_and_fails_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "reproduce")
    path = ROOT / "scripts" / "reproduce" / "markov_tokenization.py"
    spec = importlib.util.spec_from_file_location("markov_tokenization", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script
    spec.loader.exec_module(script)
    found = script.Reproduction(Path(), [0], [0], True)
    found.near("A", "two is three", 2.0, 3.0, 0.5)
    found.near("A", "two is two", 2.0, 2.1, 0.5)
    assert [check.passed for check in found.checks] == [False, True]
