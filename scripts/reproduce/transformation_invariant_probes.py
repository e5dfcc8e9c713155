"""Activations of SmolLM2-135M for transformation_invariant_learning.py: prompt templates, and a steered source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.decomposition import PCA

import interp
from interp.steering import extract, load_pairs
from interp.steering.words import NEGATIVE, POSITIVE, SUBJECTS

LAYER, COMPONENTS = 8, 20
LISTED = {
    "bare": "{}.",
    "quoted": '"{}", she said.',
    "review": "Review: {}\nRating:",
    "told": "I was told that {}, but",
    "question": "{}, or was it the other way round?",
}
UNSEEN = {"title": "Title: {} |", "agree": "Do you agree? {} -"}


@dataclass(frozen=True)
class TemplateData:
    """By template, row i of each the same sentence: (n, 20) principal components at the prompt's last token."""

    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    y_train: np.ndarray
    y_test: np.ndarray
    n_tokens: int
    source: str = "bare"
    n_listed: int = len(LISTED)


def template_data(n_subjects: int = 2) -> TemplateData:
    """120 adjectives with a polarity, each said of `n_subjects` things; train and test share no adjective.

    Standardised, then projected on the components of the training rows under the listed templates.
    """
    model = interp.load_model("smollm2-135m", n_layers=LAYER + 1)
    rng = np.random.default_rng(0)
    words = [(word, 1) for word in POSITIVE] + [(word, 0) for word in NEGATIVE]
    sentences = [
        (f"the {subject} was {word}", label, i)
        for i, (word, label) in enumerate(words)
        for subject in rng.permutation(SUBJECTS)[:n_subjects]
    ]
    y, word_of = np.array([s[1] for s in sentences]), np.array([s[2] for s in sentences])
    train = np.isin(word_of, rng.permutation(len(words))[: round(0.6 * len(words))])
    rows, n_tokens = {}, 0
    for name, template in (LISTED | UNSEEN).items():
        read = []
        for a in range(0, len(sentences), 60):
            batch = model.tokenize([template.format(s[0]) for s in sentences[a : a + 60]])
            (acts,) = model.activations(batch, [f"resid_post.{LAYER}"]).values()
            last = batch.attention_mask.sum(1) - 1
            read.append(acts[torch.arange(len(last)), last])
            n_tokens += int(batch.attention_mask.sum())
        rows[name] = torch.cat(read).double().numpy()
    fitted = np.concatenate([rows[name][train] for name in LISTED])
    mean, spread = fitted.mean(0), fitted.std(0)
    components = PCA(COMPONENTS, random_state=0).fit((fitted - mean) / spread)
    reduced = {name: components.transform((X - mean) / spread) for name, X in rows.items()}
    return TemplateData(
        {name: X[train] for name, X in reduced.items()},
        {name: X[~train] for name, X in reduced.items()},
        y[train],
        y[~train],
        n_tokens,
    )


@dataclass(frozen=True)
class ShiftData:
    """Principal components (n, 20) of tokens, and the step along the steering vector among them (20,)."""

    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    vector: np.ndarray


def shift_data(n_documents: int = 20) -> ShiftData:
    """Tokens of Python's language reference (1) and library (0), as if one had been read while steered up, one down.

    The steering vector is that of "sentiment-reviews" at the layer, 3 standard deviations of the tokens along it long.
    Train and test tokens come from different documents, both from the steered source.
    """
    model = interp.load_model("smollm2-135m", n_layers=LAYER + 1)
    documents = list(interp.load_text("python-docs", split="train"))
    reference = [d for d in documents if "\n****" in d[:200]]
    library = [d for d in documents if "\n****" not in d[:200]]
    rng = np.random.default_rng(0)
    rows, labels, held_out = [], [], []
    for label, texts in ((1, reference), (0, library)):
        for i, k in enumerate(rng.permutation(len(texts))[:n_documents]):
            batch = model.tokenize(texts[k][:2000], max_length=81)
            (acts,) = model.activations(batch, [f"resid_post.{LAYER}"]).values()
            rows.append(acts[0, 1:].double().numpy())  # without the first token, an attention sink
            labels += [label] * len(rows[-1])
            held_out += [i >= 0.6 * n_documents] * len(rows[-1])
    X, y, test = np.concatenate(rows), np.array(labels), np.array(held_out)
    steering = extract(model, load_pairs("sentiment-reviews"), layers=[LAYER], read="all")
    direction = np.asarray(steering.directions[LAYER].double())
    direction = direction / np.linalg.norm(direction)
    step = 3 * (X[~test] @ direction).std() * direction
    X = X + np.where(y == 1, 1, -1)[:, None] * step
    mean, spread = X[~test].mean(0), X[~test].std(0)
    components = PCA(COMPONENTS, random_state=0).fit((X[~test] - mean) / spread)
    reduced = components.transform((X - mean) / spread)
    return ShiftData(
        reduced[~test], reduced[test], y[~test], y[test], components.components_ @ (step / spread)
    )
