"""Where text comes from: the embedded corpus, local files, lists of strings, `datasets`.

`pack` (in `packing.py`, offered here as well) turns documents into contexts of tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from interp.activations.documents import Documents
from interp.activations.packing import ContextBatch, TokenContexts, pack
from interp.activations.python_docs import python_docs
from interp.core.files import read_json_lines
from interp.core.hub import load_dataset, refuse_misspelt
from interp.core.messages import nearest

__all__ = ["ContextBatch", "Documents", "TokenContexts", "load_text", "pack"]

logger = logging.getLogger(__name__)
_SUFFIXES = (".txt", ".jsonl", ".parquet")


def load_text(
    source: str | Path | Iterable[Any],
    *,
    split: str = "all",
    heldout_fraction: float = 0.05,
    text_column: str = "text",
    dataset_split: str = "train",
    limit: int | None = None,
) -> Documents:
    """Read documents.

    Args:
        source: one of
            - "python-docs": the language reference and the standard library's docstrings (`python_docs.py`);
            - a .txt file (one document), a .jsonl or .parquet file (one document a row), or a folder, read
              recursively in order of path;
            - a folder written by `datasets`' `save_to_disk`;
            - strings, or rows (mappings) with a text column, such as a live `datasets.Dataset`;
            - "hf:name" or any other name: a data set of the Hugging Face hub ("hf:name::config" for one of
              its configurations).
        split: "all", "train" or "heldout": by document, by the hash of its text.
        heldout_fraction: expected share of held-out documents.
        text_column: the column that holds the text.
        dataset_split: which split of a hub or saved data set to read.
        limit: read at most this many documents (counted before `split`).

    Raises:
        ValueError: nothing there, no text in it, or a broken file; the message names it.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: ask for at least one document")
    if isinstance(source, Documents):
        documents = source[:limit]
    else:
        name, texts = _read(source, text_column, dataset_split, limit)
        documents = Documents.from_texts(list(islice(texts, limit)), name)
    chosen = documents.split(split, heldout_fraction)
    logger.info("%s: %d documents, %d characters", chosen.name, len(chosen), chosen.n_characters)
    return chosen


def _read(
    source: str | Path | Iterable[Any], text_column: str, dataset_split: str, limit: int | None
) -> tuple[str, Iterable[str]]:
    if not isinstance(source, str | Path):
        return type(source).__name__, _rows(source, text_column, "the text given")
    if source == "python-docs":
        return source, python_docs()
    path = Path(source).expanduser()
    if path.is_file():
        return path.name, _file(path, text_column)
    if path.is_dir():
        return path.name, _folder(path, text_column, dataset_split)
    name = str(source)
    if isinstance(source, Path) or name.endswith(_SUFFIXES) or name.startswith(("/", "./", "../", "~")):
        raise ValueError(f"text {name!r}: there is no such file or folder")
    refuse_misspelt("text", name, ["python-docs"])
    return name, _hub(name.removeprefix("hf:"), text_column, dataset_split, limit)


def _rows(rows: Iterable[Any], text_column: str, where: str) -> Iterator[str]:
    for number, row in enumerate(rows):
        if isinstance(row, str):
            yield row
        elif isinstance(row, Mapping):
            text = row.get(text_column)
            if text_column not in row:
                raise ValueError(
                    f"row {number} of {where} has no column {text_column!r}: {nearest(text_column, list(row))} "
                    "(argument text_column, --text-column)"
                )
            if not isinstance(text, str):
                raise ValueError(
                    f"row {number} of {where}: column {text_column!r} holds {text!r}, not text; mend or remove the row"
                )
            yield text
        else:
            raise TypeError(
                f"row {number} of {where} is a {type(row).__name__}: give strings, or rows with a "
                f"{text_column!r} column"
            )


def _file(path: Path, text_column: str) -> Iterator[str]:
    if path.suffix == ".txt":
        try:
            yield path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    elif path.suffix == ".jsonl":
        yield from _rows(read_json_lines(path), text_column, str(path))
    elif path.suffix == ".parquet":
        yield from _rows(_parquet(path, text_column), text_column, str(path))
    else:
        raise ValueError(f"{path}: can't read {path.suffix!r} files as text, only {', '.join(_SUFFIXES)}")


def _parquet(path: Path, text_column: str) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable parquet file: {error}") from error
    columns = [text_column] if text_column in file.schema_arrow.names else None
    for batch in file.iter_batches(columns=columns):
        yield from batch.to_pylist()


def _folder(folder: Path, text_column: str, dataset_split: str) -> Iterator[str]:
    if (folder / "dataset_info.json").exists() or (folder / "dataset_dict.json").exists():
        yield from _rows(_saved_dataset(folder, dataset_split), text_column, str(folder))
        return
    files = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    if not files:
        raise ValueError(f"the folder {folder} holds no {', '.join(_SUFFIXES)} files")
    for path in files:
        yield from _file(path, text_column)


def _saved_dataset(folder: Path, dataset_split: str) -> Iterable[Any]:
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    if not isinstance(loaded, datasets.DatasetDict):
        return loaded
    if dataset_split not in loaded:
        raise ValueError(
            f"dataset_split={dataset_split!r} is not in {folder}: {nearest(dataset_split, list(loaded))}"
        )
    return loaded[dataset_split]


def _hub(name: str, text_column: str, dataset_split: str, limit: int | None) -> Iterator[str]:
    path, _, config = name.partition("::")
    try:
        rows = load_dataset(path, config or None, split=dataset_split, streaming=limit is not None)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"text {name!r} is no local file or folder, and as a data set of the Hugging Face hub it could "
            f"not be loaded ({type(error).__name__}: {error}). Without network give a local .txt, .jsonl or "
            f'.parquet file, a list of strings, or "python-docs"'
        ) from error
    yield from _rows(rows, text_column, f"data set {name!r}")
