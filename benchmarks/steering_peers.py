"""Vectors of `steering-vectors` and `repeng` for a folder that benchmarks/steering_extract.py has prepared.

peers/bin/pip install "transformers<5" "numpy<2" repeng==0.4.0 steering-vectors==0.12.2
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from repeng.extract import ControlVector, DatasetEntry
from steering_vectors import train_steering_vector
from steering_vectors.aggregators import logistic_aggregator, mean_aggregator, pca_aggregator
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    job = json.loads((folder / "job.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "model", padding_side="right")
    texts: list[str] = job["texts"]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    vectors: dict[str, Any] = {}
    aggregators = {
        "mean": mean_aggregator(),
        "pca": pca_aggregator(),
        "logistic": logistic_aggregator({"max_iter": 1000}),
    }
    steering = {}
    for method, aggregator in aggregators.items():
        made = train_steering_vector(
            model, tokenizer, pairs, read_token_index=-2, aggregator=aggregator, batch_size=4
        )
        steering[method] = made
        directions = dict(made.layer_activations)
        vectors[f"steering-vectors {method}"] = {"method": method, "read": -2, "directions": directions}
    entries = [DatasetEntry(positive, negative) for positive, negative in pairs]
    for method in ("pca_center", "pca_diff"):
        control = ControlVector.train(model, tokenizer, entries, method=method, batch_size=4)
        directions = {layer: torch.from_numpy(direction) for layer, direction in control.directions.items()}
        vectors[f"repeng {method}"] = {"method": method, "read": -1, "directions": directions}
    one = steering["mean"]
    one.layer_activations = {job["layer"]: one.layer_activations[job["layer"]]}
    ids = tokenizer(texts[0], return_tensors="pt")
    with torch.no_grad(), one.apply(model, multiplier=job["strength"]):
        logits = model(**ids).logits[0]
    answers = {"ids": [tokenizer(text)["input_ids"] for text in texts], "vectors": vectors, "logits": logits}
    torch.save(answers, folder / "answers.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
