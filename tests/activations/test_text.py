from __future__ import annotations

import json
import subprocess
import sys

import pytest

from interp.activations.documents import Documents
from interp.activations.text import load_text


def test_python_docs_is_large_and_unique():
    documents = load_text("python-docs")
    assert documents.n_characters > 1_500_000
    assert len(documents) > 700
    assert len(set(documents)) == len(documents)


def test_python_docs_holds_topics_and_docstrings_but_no_tests():
    whole = "\n".join(load_text("python-docs"))
    assert "Assert statements are a convenient way to insert debugging assertions" in whole
    assert "class Thread  in module threading" in whole
    assert "A class that represents a thread of control." in whole
    assert "module test." not in whole
    assert "module idlelib" not in whole


def test_python_docs_is_the_same_in_another_process_and_imports_nothing_it_reads():
    code = (
        "import sys; from interp.activations.text import load_text;"
        "print(load_text('python-docs').fingerprint()['sha256']);"
        "print([m for m in ('turtle', 'antigravity', 'tkinter', 'pydoc_data.topics') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [load_text("python-docs").fingerprint()["sha256"], "[]"]


def test_split_is_by_text_and_moves_nothing_when_documents_are_added():
    texts = [f"document number {i}" for i in range(4000)]
    train, heldout = (load_text(texts, split=s, heldout_fraction=0.1) for s in ("train", "heldout"))
    assert sorted([*train.ids, *heldout.ids]) == list(range(4000))
    assert 320 < len(heldout) < 480  # 400 expected, standard deviation 19
    more = load_text(["another", *texts], split="heldout", heldout_fraction=0.1)
    assert set(heldout) <= set(more) <= set(heldout) | {"another"}


def test_equal_texts_fall_on_the_same_side():
    texts = ["same"] * 50 + [f"other {i}" for i in range(50)]
    heldout = load_text(texts, split="heldout", heldout_fraction=0.5)
    assert heldout.texts.count("same") in (0, 50)


def test_ids_survive_splits_shuffles_and_blank_documents():
    texts = ["zero", "  \n", "two", "", "four"]
    documents = load_text(texts)
    assert documents.ids == (0, 2, 4)
    shuffled = documents.shuffled(seed=1)
    assert {i: texts[i] for i in shuffled.ids} == dict(zip(shuffled.ids, shuffled.texts, strict=True))
    assert shuffled.texts == documents.shuffled(seed=1).texts
    orders = {documents.shuffled(seed=s).ids for s in range(20)}
    assert len(orders) > 1


def test_fingerprint_sees_text_order_and_boundaries():
    prints = {
        Documents.from_texts(texts).fingerprint()["sha256"]
        for texts in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["ab", "c", "d"])
    }
    assert len(prints) == 4


def test_local_files(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "a.txt").write_text("Grüße\n\nfrom a file")
    (tmp_path / "b.jsonl").write_text('{"text": "one", "n": 1}\n\n{"text": "two", "n": 2}\n')
    pq.write_table(pa.table({"text": ["three", "four"], "other": ["x", "y"]}), tmp_path / "c.parquet")
    (tmp_path / "ignored.bin").write_bytes(b"\x00")
    assert list(load_text(tmp_path / "a.txt")) == ["Grüße\n\nfrom a file"]
    assert list(load_text(str(tmp_path / "b.jsonl"))) == ["one", "two"]
    assert list(load_text(tmp_path / "c.parquet", text_column="other")) == ["x", "y"]
    assert list(load_text(tmp_path)) == ["Grüße\n\nfrom a file", "one", "two", "three", "four"]
    assert list(load_text(tmp_path, limit=2)) == ["Grüße\n\nfrom a file", "one"]


def test_data_sets_live_and_saved(tmp_path):
    import datasets

    rows = datasets.Dataset.from_dict({"body": ["one", "two"]})
    assert list(load_text(rows, text_column="body")) == ["one", "two"]
    rows.save_to_disk(tmp_path / "one")
    assert list(load_text(tmp_path / "one", text_column="body")) == ["one", "two"]
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / "several")
    assert list(load_text(tmp_path / "several", text_column="body")) == ["one", "two"]
    with pytest.raises(ValueError, match=r"dataset_split='trian'.*'train'"):
        load_text(tmp_path / "several", text_column="body", dataset_split="trian")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "fine"}\n{"txt": "no"}\n', "row 1 of .*data.jsonl has no column 'text'.*txt"),
        ('{"text": null}\n', "row 0 of .*data.jsonl: column 'text' holds None, not text"),
        ('{"text": "fine"}\n{broken\n', r"data.jsonl, line 2, is not valid JSON"),
        ('{"text": "  "}\n', "holds no text"),
        ("", "holds no text"),
        ("3\n", "row 0 of .*data.jsonl is a int"),
    ],
)
def test_bad_jsonl_is_named(tmp_path, content, message):
    (tmp_path / "data.jsonl").write_text(content)
    with pytest.raises((ValueError, TypeError), match=message):
        list(load_text(tmp_path / "data.jsonl"))


def test_other_bad_sources(tmp_path):
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "bad.parquet").write_bytes(b"not parquet")
    (tmp_path / "notes.md").write_text("x")
    with pytest.raises(ValueError, match=r"latin.txt is not UTF-8"):
        load_text(tmp_path / "latin.txt")
    with pytest.raises(ValueError, match=r"bad.parquet is not a readable parquet file"):
        load_text(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match=r"can't read '.md' files"):
        load_text(tmp_path / "notes.md")
    with pytest.raises(ValueError, match="there is no such file"):
        load_text("./nowhere.txt")
    with pytest.raises(ValueError, match="holds no text"):
        load_text([])
    with pytest.raises(TypeError, match="row 1 of the text given is a int"):
        load_text(["fine", 3])
    with pytest.raises(ValueError, match="split = 'tset'"):
        load_text(["a"], split="tset")
    with pytest.raises(ValueError, match="split='heldout' of 'list' is empty"):
        load_text(["a"], split="heldout", heldout_fraction=1e-6)
    with pytest.raises(ValueError, match="limit=0"):
        load_text(["a"], limit=0)


def test_hub_name_without_network_says_what_to_do(monkeypatch):
    import datasets

    def offline(*args, **kwargs):
        raise ConnectionError("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError, match=r"'some/name'.*Without network.*python-docs"):
        load_text("hf:some/name")


def test_hub_name_passes_configuration_split_and_limit(monkeypatch):
    import datasets

    asked = {}

    def fake(path, config, *, split, streaming):
        asked.update(path=path, config=config, split=split, streaming=streaming)
        return iter([{"text": json.dumps(i)} for i in range(10)])  # a stream, of which nothing is downloaded

    monkeypatch.setattr(datasets, "load_dataset", fake)
    documents = load_text("hf:some/name::fr", dataset_split="validation", limit=3)
    assert list(documents) == ["0", "1", "2"]
    assert asked == {"path": "some/name", "config": "fr", "split": "validation", "streaming": True}
