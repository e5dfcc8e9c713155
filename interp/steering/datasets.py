"""Reading contrastive pairs: model-written evaluations and our own format, from files or `datasets`.

The model-written evaluations of Perez et al. (2022, arXiv 2212.09251; data in anthropics/evals) come in two forms. A
*persona* record asks whether one would say a statement, answered Yes or No. A *risk* record is a question with lettered
options already. Tan et al. (2024, arXiv 2407.12404) turn persona records into lettered ones; so do we.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp.core.files import atomic_write, read_json, read_json_lines
from interp.core.hub import load_dataset, refuse_misspelt
from interp.core.messages import nearest, one_of
from interp.steering.generators import GENERATORS, ab_pair
from interp.steering.pairs import ContrastivePair, PairDataset

FORMS = ("ab", "yes_no")
_KEYS = ("question", "answer_matching_behavior", "answer_not_matching_behavior")
_OWN_KEYS = ("prompt", "positive", "negative")
_META = re.compile(r"<META_START>.*?<META_END>", flags=re.DOTALL)


def load_pairs(
    source: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    form: str = "ab",
    name: str | None = None,
    persona: tuple[str, str] | None = None,
    dataset_split: str = "train",
    limit: int | None = None,
) -> PairDataset:
    """Read contrastive pairs.

    Args:
        source: one of
            - a name in `GENERATORS`: a data set made here ("likes", "sentiment-reviews", ...);
            - a .jsonl or .json file (a list of records);
            - records, such as a live `datasets.Dataset`;
            - any other name: a data set of the Hugging Face hub; "name::config" for one of its configurations,
              "name::file.jsonl" for one of its files ("Anthropic/model-written-evals::persona/openness.jsonl").
        form: "ab" gives persona records lettered options; "yes_no" leaves them as they are, answered " Yes" and
            " No" and read at the last token.
        name: of the data set; None: from the source.
        persona: the (positive, negative) persona sentences for the prompt variations.
        dataset_split: which split of a hub data set.
        limit: read at most this many records.

    A record is a persona record (`question`, `statement`, `answer_matching_behavior`,
    `answer_not_matching_behavior`), the same without `statement` (options with letters in the question), or
    `prompt`, `positive`, `negative` and perhaps `read_index` (see `ContrastivePair`) and `factors`.

    Raises:
        ValueError: nothing there, a broken file, or a record of another form; the message says which.
    """
    one_of("form", form, FORMS)
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: ask for at least one record")
    if isinstance(source, str) and source in GENERATORS:
        made = GENERATORS[source]()
        return PairDataset(made.pairs[:limit], name or made.name, persona or made.persona)
    found, records = _records(source, dataset_split)
    listed = [record for i, record in enumerate(records) if limit is None or i < limit]
    where = os.fspath(source) if isinstance(source, (str, os.PathLike)) else found
    if not listed:
        raise ValueError(f"{where} holds no pairs; give at least one")
    pairs = tuple(_numbered_pair(record, i, form, where) for i, record in enumerate(listed))
    return PairDataset(pairs, name or found, persona)


def save_pairs(pairs: PairDataset, path: str | os.PathLike[str]) -> None:
    """Write a .jsonl file that `load_pairs` reads back."""
    with atomic_write(path) as temporary:
        temporary.write_text("".join(json.dumps(asdict(pair)) + "\n" for pair in pairs), encoding="utf-8")


def _numbered_pair(record: Mapping[str, Any], i: int, form: str, where: str) -> ContrastivePair:
    try:
        return _pair(record, i, form)
    except (TypeError, ValueError) as error:
        raise ValueError(f"record {i} of {where}: {error}") from error


def _pair(record: Mapping[str, Any], i: int, form: str) -> ContrastivePair:
    if all(key in record for key in _OWN_KEYS):
        extra = {key: record[key] for key in ("read_index", "factors") if key in record}
        return ContrastivePair(*(record[key] for key in _OWN_KEYS), **extra)
    for key in _KEYS:
        if not isinstance(record.get(key), str):
            raise ValueError(
                f"it has no text under {key!r}: {nearest(key, record)}. Records need "
                f"{', '.join(_KEYS)}, or {', '.join(_OWN_KEYS)}"
            )
    question, matching, other = (record[key] for key in _KEYS)
    if "statement" not in record:
        return ContrastivePair(_META.sub("", question), matching.strip(), other.strip())
    if form == "yes_no":
        return ContrastivePair(question, matching, other, read_index=-1)
    # The files alternate Yes and No, so a swap that changes every second record makes letter and Yes/No independent.
    swap = (i // 2) % 2 == 0
    return ab_pair(question, matching.strip(), other.strip(), matching_is_a=not swap)


def _records(source: Any, dataset_split: str) -> tuple[str, Iterable[Mapping[str, Any]]]:
    if not isinstance(source, (str, os.PathLike)):
        return type(source).__name__, source
    path = Path(source).expanduser()
    if path.is_file():
        if path.suffix not in (".json", ".jsonl"):
            raise ValueError(f"{path}: can't read {path.suffix!r} files as pairs, only .jsonl and .json")
        return path.stem, _checked(
            path, read_json_lines(path) if path.suffix == ".jsonl" else read_json(path, list)
        )
    name = str(source)
    looks_local = name.startswith((".", "/", "~")) or (
        "::" not in name and path.suffix in (".json", ".jsonl")
    )
    if isinstance(source, os.PathLike) or looks_local:
        raise ValueError(f"pairs {name!r}: there is no such file; {nearest(name, GENERATORS)}")
    refuse_misspelt("pairs", name, GENERATORS)
    return name, _hub(name, dataset_split)


def _checked(path: Path, records: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            raise ValueError(
                f"record {i} of {path} is a {type(record).__name__}; give objects with named fields"
            )
        yield record


def _hub(name: str, dataset_split: str) -> Iterable[Mapping[str, Any]]:
    path, _, part = name.removeprefix("hf:").partition("::")
    is_file = part.endswith((".jsonl", ".json"))
    which = {"data_files": part} if is_file else {"name": part or None}
    try:
        return load_dataset(path, split=dataset_split, **which)
    except (OSError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"pairs {name!r}: no such file, and as a data set of the Hugging Face hub it could not be loaded "
            f"({type(error).__name__}: {error}). Without network give a .jsonl or .json file, or one of "
            f"{', '.join(GENERATORS)}"
        ) from error
