"""Text is a stream: read as far as it is wanted and no further, and the same again for the same seed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pytest

from interp.activations.document_stream import WINDOW_CHARACTERS, WINDOW_DOCUMENTS, DocumentStream
from interp.activations.documents import Documents
from interp.activations.harvest import HarvestEstimate, harvest
from interp.activations.packing import pack
from interp.activations.text import load_text
from interp.core.identity import IdentityMismatch
from tests.activations.synthetic import ByteTokenizer, RunningSum, folder_bytes

ROOT = Path(__file__).parents[2]
SITE = "resid_post.0"


class Counting(ByteTokenizer):
    """Counts the documents it is given."""

    n_documents = 0

    def __call__(self, texts, **options):
        self.n_documents += (
            0 if isinstance(texts, str) else len(texts)
        )  # one text: what BOS it puts before it
        return super().__call__(texts, **options)


class Source:
    """Documents without end (or `n` of them), each time anew; remembers the highest number pulled."""

    def __init__(self, n: int | None = None, first: int = 0) -> None:
        self.n, self.first, self.pulled = n, first, 0

    def __iter__(self):
        numbers = itertools.count(self.first) if self.n is None else range(self.first, self.first + self.n)
        for i in numbers:
            self.pulled += 1
            yield {"text": f"document number {i} of many"}


def counting_model() -> RunningSum:
    model = RunningSum()
    model.tokenizer = Counting()
    return model


# ---- only as far as needed


@pytest.mark.parametrize("as_generator", [True, False])
def test_an_endless_source_gives_the_tokens_asked_for(tmp_path, as_generator):
    source, model = Source(), counting_model()
    store = harvest(
        model, iter(source) if as_generator else source, SITE, tmp_path / "s", tokens=1000, progress=False
    )
    assert store.n_tokens == 1000
    assert source.pulled <= WINDOW_DOCUMENTS + 200
    # 1000 tokens are 38 documents of 26; the tokenizer's look-ahead is what 4 characters a token would need
    assert 38 <= model.tokenizer.n_documents <= 200


def test_an_iterable_data_set_is_pulled_only_as_far_as_needed(tmp_path):
    source = Source(20_000)
    rows = datasets.IterableDataset.from_generator(lambda: iter(source))
    assert harvest(RunningSum(), rows, SITE, tmp_path / "s", tokens=500, progress=False).n_tokens == 500
    assert source.pulled <= WINDOW_DOCUMENTS + 200
    source.pulled = 0
    packed = pack(load_text(rows), ByteTokenizer(), max_tokens=100)  # in order: nothing is mixed
    assert packed.n_tokens == 100
    assert source.pulled <= 20


def test_a_dry_run_tokenises_what_one_batch_needs(tmp_path):
    source, model = Source(), counting_model()
    options = {"batch_size": 2, "context_size": 16, "shard_tokens": 500}
    estimate = harvest(model, iter(source), SITE, tmp_path / "s", tokens="1M", dry_run=True, **options)
    assert isinstance(estimate, HarvestEstimate)
    assert estimate.n_tokens == 1_000_000
    row_bytes = 8 * 2 + 4 + 24  # values, norm, columns
    assert estimate.n_bytes == 1_000_000 * row_bytes
    assert estimate.memory_bytes == 2 * 500 * row_bytes
    assert len(model.shapes) == 1
    assert model.tokenizer.n_documents <= 20
    assert list(tmp_path.iterdir()) == []
    # Without a number of tokens they are estimated from the characters: here exactly, a byte is a token.
    texts = [row["text"] for row in Source(3000)]
    n_tokens = sum(map(len, texts))
    (tmp_path / "text.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    for text in (texts, tmp_path / "text.jsonl"):
        model = counting_model()
        assert harvest(model, text, SITE, tmp_path / "s", dry_run=True, **options).n_tokens == n_tokens
        assert model.tokenizer.n_documents <= 20


def test_a_text_without_a_known_end_needs_a_number_of_tokens(tmp_path):
    for source in (iter(Source()), Source(), datasets.IterableDataset.from_generator(lambda: iter(Source()))):
        for dry_run in (False, True):
            with pytest.raises(ValueError, match=r"no known end: say how many tokens.*tokens=.*limit="):
                harvest(RunningSum(), source, SITE, tmp_path / "s", dry_run=dry_run)
    assert not (tmp_path / "s").exists()
    limited = load_text(iter(Source()), limit=3)
    assert pack(limited, ByteTokenizer()).piece_docs.tolist() == [0, 1, 2]


def test_memory_does_not_grow_with_the_text():
    """60 MB of documents read through, mixed, split and packed to 10,000 tokens."""
    code = """
import resource
from interp.activations.packing import pack
from interp.activations.text import load_text
from tests.activations.synthetic import ByteTokenizer
def documents():
    for i in range(6_000):
        yield f"{i:09d} " * 1000
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
class Rows:
    def __iter__(self): return documents()
    def __len__(self): return 6_000
stream = load_text(Rows(), split="train").shuffled(0)
pack(stream, ByteTokenizer(), max_tokens=10_000)
before = peak()
print(stream.n_characters > 5.4e7, peak() - before)
"""
    enough, megabytes = run(code).split()
    assert enough == "True"
    assert float(megabytes) < 25  # the window holds 4 million characters; and slack


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


# ---- the same documents again


def test_a_stream_gives_what_documents_in_memory_give():
    """Split, ids and order (unmixed) do not depend on how the text is read."""
    texts = [f"text {i}" if i % 7 else "  " for i in range(2000)]
    inside = Documents.from_texts(texts)
    stream = load_text(iter(texts), limit=10**6)
    assert isinstance(stream, DocumentStream)
    assert list(stream.items()) == list(inside.items())
    stream = load_text((t for t in texts), split="heldout", heldout_fraction=0.1)
    assert list(stream.items()) == list(inside.split("heldout", 0.1).items())
    with pytest.raises(ValueError, match="one side of a split"):
        stream.split("train")


def test_mixing_is_a_function_of_the_seed_and_loses_nothing():
    stream = load_text(Source(3000), limit=3000)
    first, again, other = (list(stream.shuffled(seed).items()) for seed in (1, 1, 2))
    assert first == again != other
    plain = list(stream.items())
    assert sorted(first) == sorted(other) == sorted(plain) != first
    # Nothing comes earlier than the window allows, and documents do travel.
    places = {id_: place for place, (id_, _) in enumerate(first)}
    assert all(place > id_ - WINDOW_DOCUMENTS for id_, place in places.items())
    assert max(abs(place - id_) for id_, place in places.items()) > WINDOW_DOCUMENTS / 2


def test_the_window_is_bounded_by_characters_too():
    length, pulled = WINDOW_CHARACTERS // 8, 0

    def long_documents():
        nonlocal pulled
        while True:
            pulled += 1
            yield "x" * length

    next(load_text(long_documents()).shuffled(0).items())
    assert pulled == 9  # one more than fits


def test_a_stream_resumes_exactly_and_a_changed_source_is_refused(tmp_path):
    options = {"tokens": 900, "shard_tokens": 200, "progress": False, "context_size": 32, "batch_size": 2}
    whole = harvest(RunningSum(), iter(Source()), SITE, tmp_path / "whole", **options)

    class Dies(RunningSum):
        def activations(self, tokens, *arguments, **more):
            if sum(rows * columns for rows, columns in self.shapes) > 500:
                raise KeyboardInterrupt
            return super().activations(tokens, *arguments, **more)

    with pytest.raises(KeyboardInterrupt):
        harvest(Dies(), iter(Source()), SITE, tmp_path / "s", **options)
    with pytest.raises(IdentityMismatch, match=r"contexts.text.sha256"):
        harvest(RunningSum(), Source(first=1), SITE, tmp_path / "s", **options)
    harvest(RunningSum(), iter(Source()), SITE, tmp_path / "s", **options)
    assert folder_bytes(tmp_path / "s") == folder_bytes(whole.folder)


def test_only_rank_0_reads_and_tokenises_and_the_store_is_the_same(tmp_path):
    out = tmp_path / "two"
    subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
            "-m", "tests.activations.test_document_stream", str(out),
        ],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    counts = {name: tuple(map(int, (tmp_path / name).read_text().split())) for name in ("rank0", "rank1")}
    assert counts["rank1"] == (0, 1)  # the first document was looked at
    assert counts["rank0"][0] >= 400
    job(tmp_path / "one", Source())
    assert folder_bytes(out) == folder_bytes(tmp_path / "one")


def job(out: Path, source: Source) -> int:
    model = counting_model()
    harvest(model, source, SITE, out, tokens="10k", shard_tokens=700, batch_size=4, progress=False)
    return model.tokenizer.n_documents


# ---- sources as people have them


def test_tables_and_dictionaries_are_read_by_their_text_column():
    columns = {"text": ["one", "two"], "other": ["x", "y"]}
    for source in (columns, pd.DataFrame(columns), pa.table(columns)):
        assert list(load_text(source)) == ["one", "two"]
        assert list(load_text(source, text_column="other")) == ["x", "y"]
    assert list(load_text({"text": "one row"})) == ["one row"]
    assert list(load_text(pd.Series(["one", "two"]))) == ["one", "two"]
    with pytest.raises(ValueError, match=r"table given has no column 'texts': did you mean 'text'"):
        load_text(pd.DataFrame(columns), text_column="texts")
    with pytest.raises(ValueError, match=r"column 'text' holds nan, not text"):
        load_text(pd.DataFrame({"text": ["one", float("nan")]}))


def test_a_dictionary_of_splits_is_read_by_dataset_split():
    make = datasets.Dataset.from_dict
    splits = {"train": make({"text": ["one"]}), "test": make({"text": ["two"]})}
    for source in (splits, datasets.DatasetDict(splits), datasets.IterableDatasetDict(splits)):
        assert list(load_text(source)) == ["one"]
        assert list(load_text(source, dataset_split="test")) == ["two"]
        with pytest.raises(ValueError, match=r"of 'train', 'test': none of these is .*dataset_split='valid'"):
            load_text(source, dataset_split="valid")
    assert list(load_text({"train": ["a", "b"], "test": ["c"]}, dataset_split="test")) == ["c"]


def test_half_a_surrogate_pair_is_named_by_file_line_and_document(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "fine \\ud83d\\ude00"}\n\n{"text": "bad \\ud800 here"}\n')
    with pytest.raises(ValueError, match=r"data.jsonl, line 3: document 1 of .*'\\ud800' at character 4"):
        list(load_text(path))
    with pytest.raises(ValueError, match=r"data.jsonl, line 3"):
        harvest(RunningSum(), path, SITE, tmp_path / "s", progress=False)
    with pytest.raises(ValueError, match=r"document 1 of the text given holds '\\ud800'"):
        load_text(["fine", "\ud800"])
    with pytest.raises(ValueError, match=r"document 0 of 'texts' holds '\\udfff'"):
        pack(["\udfff"], ByteTokenizer())


if __name__ == "__main__":
    source, folder = Source(), Path(sys.argv[1])
    tokenised = job(folder, source)
    (folder.parent / f"rank{os.environ['RANK']}").write_text(f"{tokenised} {source.pulled}")
