"""Where text comes from: the embedded corpus, local files, lists of strings, `datasets`.

`pack` (in `packing.py`, offered here as well) turns documents into contexts of tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from interp.activations.document_stream import DocumentStream
from interp.activations.documents import Documents, check_characters
from interp.activations.packing import ContextBatch, TokenContexts, pack
from interp.activations.python_docs import python_docs
from interp.core.files import open_regular, read_json_lines
from interp.core.hub import load_dataset, refuse_misspelt
from interp.core.messages import nearest

__all__ = ["ContextBatch", "DocumentStream", "Documents", "TokenContexts", "load_text", "pack"]

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
) -> Documents | DocumentStream:
    """Documents: held in memory where the source is, and read as they are wanted everywhere else.

    Of a `DocumentStream` nothing but the first document is read here; whoever takes 1,000 tokens of it reads
    little more than these.

    Args:
        source: one of
            - "python-docs": the language reference and the standard library's docstrings (`python_docs.py`);
            - a .txt file (one document), a .jsonl or .parquet file (one document a row), or a folder, read
              recursively in order of path;
            - a folder written by `datasets`' `save_to_disk`;
            - strings, or rows (mappings) with a text column: a list, a live `datasets.Dataset` or
              `IterableDataset`, a generator (which can be read only once);
            - a table in memory (a pandas `DataFrame`, a dictionary of columns), by its text column, or a
              `DatasetDict` (a dictionary of such sources), by `dataset_split`;
            - "hf:name" or any other name: a data set of the Hugging Face hub ("hf:name::config" for one of
              its configurations), streamed.
        split: "all", "train" or "heldout": by document, by the hash of its text.
        heldout_fraction: expected share of held-out documents.
        text_column: the column that holds the text.
        dataset_split: which split of a data set that has several to read.
        limit: read at most this many documents (counted before `split`).

    Raises:
        ValueError: nothing there, no text in it, or a broken file; the message names it. Where the fault lies
            further on in a stream, it is raised when that place is read.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: ask for at least one document")
    if isinstance(source, Documents):
        documents: Documents | DocumentStream = source[:limit]
    elif isinstance(source, DocumentStream):
        documents = source if limit is None else source.limited(limit)
    else:
        documents = _open(source, text_column, dataset_split, limit)
    chosen = documents.split(split, heldout_fraction)
    if isinstance(chosen, Documents):
        logger.info("%s: %d documents, %d characters", chosen.name, len(chosen), chosen.n_characters)
    return chosen


@dataclass(frozen=True)
class _Reread:
    """An iterable that is read from its beginning each time."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


def _open(source: Any, text_column: str, dataset_split: str, limit: int | None) -> Documents | DocumentStream:
    if isinstance(source, str | Path):
        return _named(source, text_column, dataset_split, limit)
    if isinstance(source, Mapping):
        source, name = _part_of(source, text_column, dataset_split)
    else:
        name = type(source).__name__
    if hasattr(source, "__dataframe__"):  # the protocol of tables: pandas, polars, pyarrow
        source = _column(source, text_column)
    if isinstance(source, list | tuple):
        return Documents.from_texts(list(islice(_rows(source, text_column, "the text given"), limit)), name)
    return _live(source, text_column, "the text given", name, limit)


def _named(
    source: str | Path, text_column: str, dataset_split: str, limit: int | None
) -> Documents | DocumentStream:
    if source == "python-docs":
        return Documents.from_texts(python_docs()[:limit], "python-docs")
    path, name = Path(source).expanduser(), str(source)
    if path.is_file() or path.is_dir():
        read = _file if path.is_file() else _folder
        return _stream(_Reread(lambda: islice(read(path, text_column, dataset_split), limit)), path.name)
    if isinstance(source, Path) or name.endswith(_SUFFIXES) or name.startswith(("/", "./", "../", "~")):
        raise ValueError(f"text {name!r}: there is no such file or folder")
    refuse_misspelt("text", name, ["python-docs"])
    rows = _hub(name.removeprefix("hf:"), dataset_split)
    return _live(rows, text_column, f"data set {name!r}", name, limit)


def _live(rows: Iterable[Any], text_column: str, where: str, name: str, limit: int | None) -> DocumentStream:
    has_end = limit is not None or isinstance(rows, Sized)
    read = lambda: islice(_rows(rows, text_column, where), limit)  # noqa: E731
    return _stream(read() if isinstance(rows, Iterator) else _Reread(read), name, has_end=has_end)


def _stream(texts: Iterable[str], name: str, *, has_end: bool = True) -> DocumentStream:
    """A stream whose first document has been looked at, so that a wrong source is known at once."""
    looked_at: list[str] = []
    for text in texts:
        looked_at.append(text)
        if text.strip():
            break
    else:
        raise ValueError(f"{name!r} holds no text ({len(looked_at)} documents, all empty or blank)")
    if isinstance(texts, Iterator):  # what was read of it doesn't come again
        texts = chain(looked_at, texts)
    return DocumentStream(texts, name, has_end)


def _part_of(source: Mapping[Any, Any], text_column: str, dataset_split: str) -> tuple[Any, str]:
    """Of a dictionary of columns the text, of a dictionary of splits the one that is asked for; and its name."""
    if text_column in source and not hasattr(source[text_column], "column_names"):
        column = source[text_column]
        return ([column] if isinstance(column, str) else column), type(source).__name__
    if dataset_split in source:
        return source[dataset_split], f"{type(source).__name__}[{dataset_split}]"
    raise ValueError(
        f"the text given is a {type(source).__name__} of {', '.join(map(repr, source))}: none of these is "
        f"text_column={text_column!r} or dataset_split={dataset_split!r}; name the one to read"
    )


def _column(table: Any, text_column: str) -> list[dict[str, Any]]:
    """The text column of a table, as rows."""
    names = [str(name) for name in getattr(table, "column_names", None) or table.columns]
    if text_column not in names:
        raise ValueError(
            f"the table given has no column {text_column!r}: {nearest(text_column, names)} (argument text_column)"
        )
    column = table[text_column]
    return [{text_column: text} for text in (column.to_pylist() if hasattr(column, "to_pylist") else column)]


def _rows(rows: Iterable[Any], text_column: str, where: str, path: Path | None = None) -> Iterator[str]:
    for number, row in enumerate(rows):
        if isinstance(row, str):
            text = row
        elif isinstance(row, Mapping):
            if text_column not in row:
                raise ValueError(
                    f"row {number} of {where} has no column {text_column!r}: {nearest(text_column, list(row))} "
                    "(argument text_column, --text-column)"
                )
            text = row[text_column]
            if not isinstance(text, str):
                raise ValueError(
                    f"row {number} of {where}: column {text_column!r} holds {text!r}, not text; mend or remove the row"
                )
        else:
            raise TypeError(
                f"row {number} of {where} is a {type(row).__name__}: give strings, or rows with a "
                f"{text_column!r} column"
            )
        try:
            check_characters(text, f"document {number} of {where}")
        except ValueError as error:
            if path is None:
                raise
            raise ValueError(f"{path}, line {_line_number(path, number)}: {error}") from error
        yield text


def _line_number(path: Path, row: int) -> int:
    """Of a row of a JSON Lines file, where blank lines don't count as rows."""
    with open_regular(path) as lines:
        filled = (number for number, line in enumerate(lines, start=1) if line.strip())
        return next(islice(filled, row, None))


def _file(path: Path, text_column: str, _: str = "") -> Iterator[str]:
    if path.suffix == ".txt":
        try:
            yield path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    elif path.suffix == ".jsonl":
        yield from _rows(read_json_lines(path), text_column, str(path), path)
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


def _hub(name: str, dataset_split: str) -> Iterable[Any]:
    path, _, config = name.partition("::")
    try:
        return load_dataset(path, config or None, split=dataset_split, streaming=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"text {name!r} is no local file or folder, and as a data set of the Hugging Face hub it could "
            f"not be loaded ({type(error).__name__}: {error}). Without network give a local .txt, .jsonl or "
            f'.parquet file, a list of strings, or "python-docs"'
        ) from error
