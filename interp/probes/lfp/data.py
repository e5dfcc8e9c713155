"""What the pipeline works on: prompts to write after, texts to learn features from, contrastive triples, pairs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.config import from_dict, to_dict
from interp.core.device import derive_seed
from interp.core.files import read_json_lines
from interp.core.messages import at_least
from interp.core.transcripts import content_key
from interp.probes.lfp.feedback_report import STAGES
from interp.probes.lfp.sampling import continuations
from interp.probes.lfp.stages import run_stage
from interp.probes.lfp.triples import TEMPLATES, ContrastiveTriple, build_lexicon_triples
from interp.probes.lfp.tuning import PreferencePair

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

OPENINGS = (
    "the {thing} was",
    "this {thing} is",
    "i thought the {thing}",
    "my friend said that the {thing}",
    "after an hour the {thing}",
    "people who know the {thing} say",
    "we went home because the {thing}",
    "last week i tried the {thing} and",
)
THINGS = (
    "film book meal song hotel garden teacher game story concert train party market school river shop singer museum "
    "play letter"
).split()
WORDS_OF_PROMPT = (2, 10)


@dataclass(frozen=True)
class LFPData:
    """The inputs of a run.

    Attributes:
        prompts: the model is tuned on what it writes after these.
        eval_prompts: rewards are measured on what it writes after these.
        texts: dictionaries are trained on them, and features described by them.
        triples: the probe is fitted and read on these.
        pairs: for preference tuning, and for the classification probe.
        lexicon: true feedback by word; None: VADER.
    """

    prompts: tuple[str, ...]
    eval_prompts: tuple[str, ...]
    texts: tuple[str, ...]
    triples: tuple[ContrastiveTriple, ...]
    pairs: tuple[PreferencePair, ...] = ()
    lexicon: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for name in ("prompts", "eval_prompts", "texts", "triples"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} = {value!r} is one string: give several")
            if not value:
                raise ValueError(f"{name} is empty: give at least one")

    def to_dict(self) -> dict[str, Any]:
        """JSON values, from which `from_dict` makes the same data."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LFPData:
        return from_dict(cls, values)


def lexicon_data(
    model: LanguageModel,
    texts: Sequence[str] | None = None,
    *,
    templates: Sequence[str] = TEMPLATES,
    lexicon: Mapping[str, float] | None = None,
    n_prompts: int = 128,
    n_eval_prompts: int = 64,
    n_texts: int = 1000,
    n_triples: int = 1000,
    max_new_tokens: int = 24,
    seed: int = 0,
) -> LFPData:
    """Inputs for the feedback of words.

    Args:
        model: whose tokenizer says which words are one token; it also writes the texts where none are given.
        texts: whose beginnings (2 to 10 words) become the prompts. None: the prompts are short openings
            ("the film was"), and the texts are what the model writes after them.
        templates, lexicon, n_triples: as for `build_lexicon_triples`.
        n_prompts, n_eval_prompts, n_texts: how many of each, at most.
        max_new_tokens: of texts that the model writes.

    Raises:
        ValueError: too few texts, or what `build_lexicon_triples` refuses.
        ImportError: no lexicon is given, and VADER's is not installed.
    """
    counts = {"n_prompts": n_prompts, "n_eval_prompts": n_eval_prompts, "n_texts": n_texts}
    for name, value in {**counts, "n_triples": n_triples}.items():
        at_least(name, value, 1)
    # Whatever can be refused, or is not installed, comes before the model writes its texts.
    triples = build_lexicon_triples(templates, lexicon, n_triples, seed, model.tokenizer)
    rng = np.random.default_rng(derive_seed(seed, "lfp data"))
    if texts is None:
        openings = [o.format(thing=thing) for o, thing in itertools.product(OPENINGS, THINGS)]
    else:
        usable = [text for text in dict.fromkeys(texts) if len(text.split()) > WORDS_OF_PROMPT[1]]
        openings = beginnings(usable, seed=seed)
    openings = list(dict.fromkeys(openings))
    if len(openings) < 2:
        raise ValueError(
            f"texts: {len(openings)} of them can be begun differently (more than {WORDS_OF_PROMPT[1]} words); "
            "give more and longer ones"
        )
    shuffled = [openings[i] for i in rng.permutation(len(openings))]
    n_eval = min(n_eval_prompts, len(openings) // 3 + 1)
    prompts, held = shuffled[n_eval:][:n_prompts], shuffled[:n_eval]
    if texts is None:
        samples = -(-n_texts // len(openings))
        written = continuations(model, openings, max_new_tokens=max_new_tokens, samples=samples, seed=seed)
        texts = [before + new for before, new in zip(written.prompts, written.texts, strict=True)]
        usable = list(dict.fromkeys(texts))
    chosen = [usable[i] for i in rng.permutation(len(usable))[:n_texts]]
    return LFPData(tuple(prompts), tuple(held), tuple(chosen), tuple(triples), lexicon=lexicon)


def beginnings(texts: Sequence[str], *, seed: int = 0) -> list[str]:
    """The first 2 to 10 words of each text."""
    rng = np.random.default_rng(derive_seed(seed, "beginnings"))
    low, high = WORDS_OF_PROMPT
    return [" ".join(text.split()[: rng.integers(low, high + 1)]) for text in texts]


def kept_data(
    out: str | os.PathLike[str],
    model: LanguageModel,
    texts: Sequence[str] | None = None,
    *,
    pairs: Sequence[PreferencePair] = (),
    **settings: Any,
) -> LFPData:
    """As `lexicon_data`, kept in ``out/data``: a run that goes on there doesn't let the model write its texts again."""
    about = {key: value for key, value in model.fingerprint().items() if key != "name"}
    inputs = {"model": about, "texts": None if texts is None else content_key(list(texts)), **settings}

    def make(folder: Path) -> dict[str, Any]:
        return lexicon_data(model, texts, **settings).to_dict()

    made = run_stage(Path(out), "data", inputs, make, later=STAGES)
    return replace(LFPData.from_dict(made), pairs=tuple(pairs))


def load_pairs(path: str | os.PathLike[str]) -> tuple[PreferencePair, ...]:
    """Preference pairs from a .jsonl file, a row each with prompt, chosen and rejected.

    Raises ValueError for a broken line (by its number) or no line at all.
    """
    pairs = tuple(
        from_dict(PreferencePair, row, where=f"{path}, pair {n}")
        for n, row in enumerate(read_json_lines(path), 1)
    )
    if not pairs:
        raise ValueError(
            f"{path} holds no pairs: give lines like {{'prompt': ..., 'chosen': ..., 'rejected': ...}}"
        )
    return pairs
