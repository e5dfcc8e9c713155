from __future__ import annotations

import errno
import importlib
import logging
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.activations.batching import ContextRunner, resolve_batch_size
from interp.activations.harvest import HarvestEstimate, harvest, parse_tokens
from interp.activations.packing import TokenContexts, pack
from interp.activations.store import ActivationStore
from interp.activations.text import load_text
from interp.core.identity import IdentityMismatch
from interp.models.loading import load_model
from interp.models.sites import Site
from tests.activations import harvest_job
from tests.activations.synthetic import ByteTokenizer, RunningSum, folder_bytes, make_contexts

harvest_module = importlib.import_module("interp.activations.harvest")  # the package's name is the function
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return harvest_job.tiny_model()


@pytest.fixture(scope="module")
def contexts():
    return harvest_job.contexts()


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "store"
    harvest_job.run(str(out))
    return ActivationStore.open(out)


def alone(model, contexts: TokenContexts, site: str) -> torch.Tensor:
    """Activations of every piece (document part) run by itself."""
    pieces = zip(contexts.piece_starts[:-1], contexts.piece_starts[1:], strict=True)
    rows = [
        model.activations(torch.from_numpy(contexts.tokens[a:b].astype(np.int64))[None], site)[site][0]
        for a, b in pieces
    ]
    return torch.cat(rows)


# ---- what is stored


@pytest.mark.parametrize("mode", ["pad", "pack"])
def test_rows_are_the_models_activations_in_the_order_of_contexts(tmp_path, model, mode):
    contexts = pack(harvest_job.text()[:60], ByteTokenizer(), context_size=64, mode=mode)
    store = harvest(
        model,
        contexts,
        harvest_job.SITES,
        tmp_path / "store",
        dtype="float32",
        shard_tokens=800,
        progress=False,
    )
    assert store.n_tokens == contexts.n_tokens
    assert len(store.manifest.shards) > 3
    for site in harvest_job.SITES:
        expected = alone(model, contexts, site)
        got = store.read(site, slice(None))
        assert float((got - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    columns = store.columns()
    for name, column in contexts.rows(0, len(contexts)).items():
        assert torch.equal(getattr(columns, name), torch.from_numpy(column))


def tiny_gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=259, n_positions=64, n_embd=16, n_layer=2, n_head=2)
    module = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        module.transformer.wpe.weight.mul_(20)  # positions that matter
    return module


@pytest.mark.parametrize("build", [tiny_gpt2, harvest_job.tiny_llama], ids=["gpt2", "llama"])
def test_packed_and_isolated_is_as_alone_and_without_isolation_it_is_not(tmp_path, build):
    model = load_model(build(), device="cpu")
    texts = harvest_job.text()[:20]
    stores = {}
    for isolate in (True, False):
        contexts = pack(texts, ByteTokenizer(), context_size=64, mode="pack", isolate_documents=isolate)
        stores[isolate] = harvest(
            model, contexts, "resid_post.1", tmp_path / str(isolate), dtype="float32", progress=False
        )
    expected = alone(model, contexts, "resid_post.1")
    scale = float(expected.norm(dim=-1).mean())
    isolated, mixed = (stores[key].read(None, slice(None)) for key in (True, False))
    assert float((isolated - expected).norm(dim=-1).max()) < 1e-4 * scale
    assert float((mixed - expected).norm(dim=-1).mean()) > 0.05 * scale


def test_rows_do_not_depend_on_the_batch_size(tmp_path, model, contexts):
    stores = [
        harvest(
            model,
            contexts,
            "resid_post.1",
            tmp_path / str(size),
            dtype="float32",
            batch_size=size,
            progress=False,
        )
        for size in (1, 7, "auto")
    ]
    rows = [store.read(None, slice(None)) for store in stores]
    scale = float(rows[0].abs().max())
    assert all(float((other - rows[0]).abs().max()) < 1e-5 * scale for other in rows[1:])


def test_one_forward_pass_serves_all_sites_and_stops_after_the_deepest(tmp_path, contexts):
    module = harvest_job.tiny_llama(n_layers=4)
    ran = dict.fromkeys(range(4), 0)
    for i, layer in enumerate(module.model.layers):
        layer.register_forward_pre_hook(lambda *_, i=i: ran.update({i: ran[i] + 1}))
    model = load_model(module, device="cpu")
    harvest(model, contexts, ["mlp_out.1", "resid_pre.1", "resid_post.0"], tmp_path / "s", progress=False)
    assert ran[0] == ran[1] > 0
    assert ran[2] == ran[3] == 0


def test_text_goes_through_the_models_tokenizer(tmp_path):
    model = RunningSum()
    store = harvest(
        model, ["abc", "defg" * 50], "resid_post.0", tmp_path / "a", tokens="0.1k", progress=False
    )
    assert store.n_tokens == 100
    assert store.special_token_ids == (0, 1, 2)
    text = store.manifest.contexts["text"]
    assert (text["n_documents"], text["n_characters"]) == (1, 200)  # the documents taken: one was enough
    documents = load_text(["abc", "defg" * 50])
    again = harvest(model, documents, "resid_post.0", tmp_path / "b", tokens=100, progress=False)
    assert torch.equal(again.read(None, slice(None)), store.read(None, slice(None)))
    bos = harvest(model, ["abc"], "resid_post.0", tmp_path / "c", add_bos=True, progress=False)
    assert bos.columns().token_ids.tolist() == [1, 100, 101, 102]


def test_text_shorter_than_a_context_makes_one_short_context(tmp_path):
    store = harvest(RunningSum(), ["hi"], "resid_post.1", tmp_path / "s", progress=False)
    assert (store.n_tokens, store.n_contexts) == (2, 1)


# ---- killed, resumed, shared out


def test_killed_at_random_moments_the_finished_store_is_the_same_bytes(tmp_path, uninterrupted):
    done = program("-m", "tests.activations.harvest_job", str(tmp_path / "store"), "2")
    kills = [int(line) for line in done.stdout.split()]
    for seed in range(2):
        assert folder_bytes(tmp_path / f"store{seed}") == folder_bytes(uninterrupted.folder)
    assert min(kills) >= 1
    uninterrupted.verify()


def test_two_ranks_write_the_same_store(tmp_path, uninterrupted):
    out = tmp_path / "store"
    program(
        "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
        "-m", "tests.activations.harvest_job", str(out),
    )  # fmt: skip
    two = ActivationStore.open(out)
    where = [
        {
            (int(c), int(d), int(p))
            for c, d, p in zip(s.columns().context_ids, *s.columns()[2:0:-1], strict=True)
        }
        for s in (two, uninterrupted)
    ]
    assert where[0] == where[1]
    assert len(where[0]) == two.n_tokens
    assert folder_bytes(out) == folder_bytes(uninterrupted.folder)


def test_another_number_of_ranks_may_finish_what_one_began(
    tmp_path, model, contexts, uninterrupted, monkeypatch
):
    options = {"shard_tokens": 500, "batch_size": 4, "progress": False}
    out = tmp_path / "store"
    monkeypatch.setattr(harvest_module, "init_from_env", lambda: None)
    for rank, world in ((0, 3), (1, 2)):
        monkeypatch.setattr(harvest_module, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(harvest_module, "world_size", lambda world=world: world)
        with pytest.raises(ValueError, match="is not finished"):
            harvest(model, contexts, harvest_job.SITES, out, **options)
    monkeypatch.undo()
    harvest(model, contexts, harvest_job.SITES, out, **options)
    assert folder_bytes(out) == folder_bytes(uninterrupted.folder)


def test_a_finished_store_is_not_computed_again(tmp_path):
    model, contexts = RunningSum(), make_contexts()
    harvest(model, contexts, "resid_post.0", tmp_path / "s", progress=False)
    n = len(model.shapes)
    harvest(model, contexts, "resid_post.0", tmp_path / "s", progress=False)
    assert len(model.shapes) == n
    with pytest.raises(ValueError, match="is there already: resume=True"):
        harvest(model, contexts, "resid_post.0", tmp_path / "s", resume=False, progress=False)


def test_another_model_tokenizer_text_or_site_is_refused_by_name(tmp_path):
    model, options = RunningSum(), {"progress": False}
    out = tmp_path / "s"
    harvest(model, ["some text"], "resid_post.0", out, **options)
    other = RunningSum()
    other.table = other.table + 1
    tokenizer = ByteTokenizer()
    tokenizer.get_vocab = lambda: {"a": 1}  # type: ignore[method-assign]
    retokenized = RunningSum()
    retokenized.tokenizer = tokenizer
    cases = [
        ("model.sha256", other, ["some text"], "resid_post.0", {}),
        ("contexts.tokenizer", retokenized, ["some text"], "resid_post.0", {}),
        ("contexts.text.sha256", model, ["some test"], "resid_post.0", {}),
        ("contexts.seed was 0 there and is 1 here", model, ["some text"], "resid_post.0", {"seed": 1}),
        (
            "contexts.context_size was 128 there and is 64 here",
            model,
            ["some text"],
            "resid_post.0",
            {"context_size": 64},
        ),
        ("contexts.mode", model, ["some text"], "resid_post.0", {"mode": "pack"}),
        ("sites.resid_post.1", model, ["some text"], "resid_post.1", {}),
        ("dtype", model, ["some text"], "resid_post.0", {"dtype": "fp16"}),
    ]
    for field, asked, text, site, changed in cases:
        with pytest.raises(IdentityMismatch, match=field):
            harvest(asked, text, site, out, **{**options, **changed})


# ---- estimates, memory, disk


def test_the_estimate_comes_first_and_a_dry_run_writes_nothing(tmp_path, caplog):
    model, contexts = RunningSum(), make_contexts()
    estimate = harvest(model, contexts, "resid_post.0", tmp_path / "s", shard_tokens=500, dry_run=True)
    assert isinstance(estimate, HarvestEstimate)
    assert list(tmp_path.iterdir()) == []
    assert len(model.shapes) == 1
    assert estimate.n_tokens == contexts.n_tokens
    assert estimate.seconds == pytest.approx(contexts.n_tokens / estimate.tokens_per_second)
    with caplog.at_level(logging.INFO):
        store = harvest(model, contexts, "resid_post.0", tmp_path / "s", shard_tokens=500, progress=False)
    assert estimate.n_bytes == sum(p.stat().st_size for p in store.folder.rglob("*.safetensors"))
    assert f"{contexts.n_tokens:,} tokens at" in caplog.text
    assert "minutes" in caplog.text


def test_a_disk_without_room_is_refused_before_the_first_batch(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(100, 90, 10))
    model = RunningSum()
    with pytest.raises(
        OSError, match=r"the harvest needs \d+\.\d\d kB and the disk has 10 bytes: make room"
    ) as error:
        harvest(model, make_contexts(), "resid_post.0", tmp_path / "s", progress=False)
    assert error.value.errno == errno.ENOSPC
    assert model.shapes == []


def test_out_of_memory_halves_the_batch_and_changes_nothing(tmp_path, caplog):
    class Small(RunningSum):
        def activations(self, tokens, *arguments, **options):
            if tokens.numel() > 100:
                raise torch.OutOfMemoryError("out of memory")
            return super().activations(tokens, *arguments, **options)

    contexts = make_contexts(longest=32)
    small, roomy = Small(), RunningSum()
    stores = [
        harvest(
            m, contexts, "resid_post.0", tmp_path / str(i), dtype="float32", batch_size=16, progress=False
        )
        for i, m in enumerate((small, roomy))
    ]
    assert torch.equal(*(store.read(None, slice(None)) for store in stores))
    warnings = [record.message for record in caplog.records if "out of memory" in record.message]
    assert len(warnings) == 3  # 16 contexts of 32 tokens, 8, 4, and 2 fit: remembered from then on
    assert max(b * s for b, s in small.shapes) <= 100

    class Tiny(RunningSum):
        def activations(self, *arguments, **options):
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        harvest(Tiny(), contexts, "resid_post.0", tmp_path / "none", progress=False)


def test_other_errors_of_the_model_are_not_mistaken_for_memory(tmp_path):
    class Broken(RunningSum):
        def activations(self, *arguments, **options):
            self.shapes.append((0, 0))
            raise RuntimeError("a shape mismatch")

    broken = Broken()
    with pytest.raises(RuntimeError, match="a shape mismatch"):
        harvest(broken, make_contexts(), "resid_post.0", tmp_path / "s", progress=False)
    assert len(broken.shapes) == 1


def test_peak_memory_does_not_depend_on_the_number_of_tokens(tmp_path):
    """0.1 and 0.8 million rows of 256 float32 numbers (100 and 820 MB): the same peak."""
    code = """
import sys, numpy as np, torch
from interp.activations.harvest import harvest
from interp.activations.packing import TokenContexts
from tests.activations.synthetic import RunningSum

class Table(RunningSum):
    def activations(self, tokens, sites, **_):
        return {site: self.table[tokens] for site in sites}

def run(n, out):
    starts = np.arange(0, n + 1, 100)
    contexts = TokenContexts(np.arange(n) % 250, starts, np.arange(n // 100), np.arange(n // 100 + 1),
                             context_size=100)
    harvest(Table(d=256), contexts, "resid_post.0", out, dtype="float32", shard_tokens=10_000, progress=False)
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return int(fields["VmHWM"].split()[0]) / 1024

print(run(100_000, sys.argv[1] + "/a"), run(800_000, sys.argv[1] + "/b"))
"""
    small, large = map(float, program("-c", code, str(tmp_path)).stdout.split())
    assert large - small < 40  # the contexts themselves: 800,000 tokens and what describes them


# ---- bad input


def test_nan_activations_name_the_site_and_the_place_and_store_nothing(tmp_path):
    class Bad(RunningSum):
        def activations(self, tokens, *arguments, **options):
            result = super().activations(tokens, *arguments, **options)
            for values in result.values():
                values[tokens == 7] = float("nan")
            return result

    contexts = make_contexts()
    assert (contexts.tokens == 7).any()
    with pytest.raises(ValueError, match=r"activations of resid_post.0 are NaN or Inf .* token 7\)"):
        harvest(Bad(), contexts, "resid_post.0", tmp_path / "s", progress=False)
    assert list((tmp_path / "s" / "shards").iterdir()) == []


def test_bad_arguments_are_named(tmp_path, model, contexts):
    out = tmp_path / "s"
    cases = [
        ({"sites": "resid_pots.1"}, "resid_post"),
        ({"sites": "resid_post.3"}, "3"),
        ({"dtype": "float64"}, "dtype = 'float64'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"shard_tokens": 0}, "shard_tokens=0"),
        ({"sites": []}, "sites is empty"),
    ]
    for changed, message in cases:
        arguments = {"sites": "resid_post.1", "progress": False, **changed}
        with pytest.raises(ValueError, match=message):
            harvest(model, contexts, arguments.pop("sites"), out, **arguments)
    with pytest.raises(ValueError, match="tokenizer"):
        harvest(model, ["text for a model without a tokenizer"], "resid_post.1", out)
    with pytest.raises(ValueError, match="holds no text"):
        harvest(RunningSum(), [""], "resid_post.1", out)
    assert not out.exists()


def test_numbers_of_tokens_are_read():
    values = {"1M": 10**6, "300k": 300_000, "2.5B": 2_500_000_000, "1_000": 1000, 12: 12, " 7 K ": 7000}
    assert {text: parse_tokens(text) for text in values} == values
    assert parse_tokens(None) is None
    for wrong in ("many", "1T", "", "0", 0, -5, "1e6x"):
        with pytest.raises(ValueError, match="tokens="):
            parse_tokens(wrong)


def test_batches_are_of_similar_length_and_within_the_budget():
    lengths = np.array([5, 100, 7, 50, 99, 3, 100, 6])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    contexts = TokenContexts(np.zeros(starts[-1]), starts, np.arange(8), np.arange(9), context_size=100)
    runner = ContextRunner(RunningSum(), contexts, [Site.parse("resid_post.0")], batch_size=2)
    batches = [batch.context_ids.tolist() for batch, _ in runner.run(np.arange(8))]
    assert batches == [[1, 6], [4, 3], [2, 7, 0, 5]]
    assert runner.model.shapes == [(2, 100), (2, 99), (4, 7)]
    assert resolve_batch_size("auto", 128, torch.device("cpu")) == 16
    assert resolve_batch_size("auto", 4096, torch.device("cpu")) == 1


# ---- token ids instead of text


class Running(torch.nn.Module):
    """Anybody's module: embeds, and mixes causally by a running sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(20, 6)
        self.mix = torch.nn.Linear(6, 6)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.mix(self.embed(input_ids).cumsum(1))


def test_token_ids_through_ones_own_module(tmp_path):
    module, ids = Running(), torch.randint(0, 20, (7, 9))
    store = harvest(load_model(module), ids, "mix:out", tmp_path / "store", dtype="float32", progress=False)
    with torch.no_grad():
        expected = module(ids)
    assert torch.equal(store.read("mix:out", slice(None)), expected.flatten(0, 1))
    assert torch.equal(store.columns().token_ids, ids.flatten().int())
    assert store.columns().positions.tolist() == list(range(9)) * 7


@pytest.mark.parametrize("rows", [torch.zeros(0, 4, dtype=torch.long), torch.zeros(2, 3), [[1], []]])
def test_token_ids_must_be_rows_of_integers(rows):
    with pytest.raises(ValueError, match="rows of integers"):
        TokenContexts.from_ids(rows)
