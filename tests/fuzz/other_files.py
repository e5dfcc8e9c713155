"""Transcripts, potentials, probes and files that people write, for the fuzz."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classic_ml.selection.potential_file import PotentialFile
from interp.core.identity import Identity
from interp.core.transcripts import Question, TranscriptFile
from interp.markov.sources import MarkovSource
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.conllu_files import read_conllu
from interp.probes.saving import load_probes, save_probes
from interp.steering.datasets import load_pairs


@dataclass(frozen=True)
class Answer:
    text: str
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Answer:
        if not isinstance(values["text"], str):
            raise TypeError("text is no text")
        return cls(values["text"])


def _questions() -> list[Question[Answer]]:
    return [Question(Identity.of("reply", prompt=f"prompt {k}"), lambda: Answer("")) for k in range(4)]


def make_transcript(folder: Path) -> None:
    store = TranscriptFile(folder / "transcripts.jsonl", Answer.from_dict)
    for k, question in enumerate(_questions()):
        store.put(question, Answer(f"answer {k} \u00fc"))


def read_transcript(folder: Path) -> Any:
    logging.getLogger("interp.core.transcripts").setLevel(logging.ERROR)
    store = TranscriptFile(folder / "transcripts.jsonl", Answer.from_dict)
    return [store.get(question) for question in _questions()]


def no_wrong_reply(found: Any, right: Any) -> bool:
    """A reply that can't be read is asked for again."""
    return all(reply in (None, good) for reply, good in zip(found, right, strict=True))


POTENTIAL = Identity.of("potential", pool="a")


def make_potential(folder: Path) -> None:
    file = PotentialFile(folder / "potential.safetensors", 6, 10, POTENTIAL)
    file.save(4, torch.arange(6.0, dtype=torch.float64), at_once=True)


def read_potential(folder: Path) -> Any:
    return PotentialFile(folder / "potential.safetensors", 6, 10, POTENTIAL).load()


def make_probes(folder: Path) -> None:
    torch.manual_seed(0)
    specs = [ProbeSpec(layer=1, rank=2), ProbeSpec(layer=2, rank=3, depth=0.5)]
    save_probes(ProbeBank(specs, 4, [1, 2], ["nsubj", "obj"]), folder, model="tiny")


def read_probes(folder: Path) -> Any:
    bank = load_probes(folder)
    return dict(bank.state_dict()), list(bank.relations), list(bank.specs)


def make_people(folder: Path) -> None:
    """What people write by hand: contrastive pairs, a table of probabilities, a treebank."""
    (folder / "pairs.jsonl").write_text(
        "".join(f'{{"prompt": "Is it {k}? ", "positive": "Yes", "negative": "No"}}\n' for k in range(3))
    )
    (folder / "table.json").write_text("[[0.5, 0.5], [0.25, 0.75]]\n")
    row = "\t".join
    lines = [
        row([str(k), word, word, "NOUN", "_", "_", str(k - 1), "dep" if k > 1 else "root", "_", "_"])
        for k, word in enumerate("abc", 1)
    ]
    (folder / "trees.conllu").write_text("\n".join(lines) + "\n\n")


def read_people(folder: Path) -> Any:
    logging.getLogger("interp.probes").setLevel(logging.ERROR)
    pairs = load_pairs(folder / "pairs.jsonl")
    table = MarkovSource.from_file(folder / "table.json").transition
    trees = read_conllu(folder / "trees.conllu")
    assert np.allclose(table.sum(1), 1)
    assert np.isfinite(table).all()
    return [len(pairs), table.shape, len(trees)]
