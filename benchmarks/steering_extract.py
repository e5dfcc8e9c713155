"""What does reading all layers of contrastive pairs cost over a bare forward pass, and do other libraries agree?

Cost: activations of every layer of SmolLM2-135M for pairs of short reviews, against a forward pass of the same batches
without a single hook, interleaved in one process on one thread (CPU time of the best round).  Rows that reach the first
block are counted as well: they must be two a pair, however many layers are read.

Agreement: with --peer-python, the vectors of `steering-vectors` and `repeng` for the same model and pairs, made by
benchmarks/steering_peers.py in an environment of their own, since they need transformers 4 and numpy 1.

    python benchmarks/steering_extract.py [--pairs 12] [--rounds 5] [--peer-python peers/bin/python] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from interp.core.files import write_json
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.steering.apply import steer
from interp.steering.extraction import extract, fit
from interp.steering.generators import sentiment_reviews
from interp.steering.pair_activations import PairActivations, collect, render_pairs
from interp.steering.pairs import PairDataset
from interp.steering.prompts import batch_of

BATCH = 8
STRENGTH = 1.5


def cost(model: LanguageModel, pairs: PairDataset, rounds: int) -> dict[str, float]:
    texts = sorted(render_pairs(model, pairs.pairs), key=len)
    batches = [batch_of(texts[i : i + BATCH], model.tokenizer) for i in range(0, len(texts), BATCH)]
    counted = 0

    def count(_module: object, args: tuple[Tensor, ...]) -> None:
        nonlocal counted
        counted += len(args[0])

    @torch.no_grad()
    def bare() -> None:
        for batch in batches:
            model.backbone(input_ids=batch.input_ids, use_cache=False)

    ways: dict[str, Callable[[], object]] = {
        "bare forward": bare,
        "collect, all layers": lambda: collect(model, pairs, read="last", batch_size=BATCH),
        "collect, one layer (the last)": lambda: collect(model, pairs, -1, read="last", batch_size=BATCH),
        "extract, all layers": lambda: extract(model, pairs, read="last", batch_size=BATCH),
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    rows: dict[str, int] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            counted = 0
            handle = model.module.model.layers[0].register_forward_pre_hook(count)
            before = time.process_time()
            way()
            spent[name].append(time.process_time() - before)
            handle.remove()
            rows[name] = counted
    best = {name: min(times) for name, times in spent.items()}
    print(
        f"{len(texts)} texts, {sum(map(len, texts))} tokens, {model.n_layers} layers, best of {rounds} rounds"
    )
    print(f"{'way':<32}{'CPU s':>8}{'ratio':>8}{'rows':>7}")
    for name, seconds in best.items():
        print(f"{name:<32}{seconds:>8.2f}{seconds / best['bare forward']:>8.3f}{rows[name]:>7}")
    result = {f"{name}: ratio": seconds / best["bare forward"] for name, seconds in best.items()}
    return {**result, **{f"{name}: rows": float(n) for name, n in rows.items()}, "texts": float(len(texts))}


def agreement(model: LanguageModel, pairs: PairDataset, peer_python: str) -> dict[str, float]:
    """Ours against a peer's vectors: cosines over all layers but the last, the last's, and whether signs agree.

    `repeng` reads the last layer behind the model's final norm; we read every layer before it.
    """
    texts = render_pairs(model, pairs.pairs)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model.module.save_pretrained(folder / "model")
        model.tokenizer.save_pretrained(folder / "model")
        _for_transformers_4(folder / "model" / "config.json")
        job = {"texts": [text.text for text in texts], "strength": STRENGTH, "layer": 15}
        write_json(folder / "job.json", job)
        script = Path(__file__).with_name("steering_peers.py")
        subprocess.run([peer_python, str(script), str(folder)], check=True)
        theirs = torch.load(folder / "answers.pt", weights_only=True)
    for text, ids in zip(texts, theirs["ids"], strict=True):
        if text.ids != ids:
            raise SystemExit("the peers' tokens differ: nothing to compare")
    read = {index: collect(model, pairs, read=index) for index in (-1, -2)}
    figures: dict[str, float] = {}
    print(
        f"\n{'peer':<28}{'layers':>8}{'least |cosine|':>16}{'last layer':>12}{'signs':>8}{'norms differ by':>17}"
    )
    for name, answer in theirs["vectors"].items():
        acts: PairActivations = read[answer["read"]]
        ours = fit(acts, answer["method"])
        cosines, norms = {}, []
        for layer, direction in answer["directions"].items():
            a, b = ours[layer].double(), direction.double()
            cosines[layer] = float(a @ b / (a.norm() * b.norm()))
            norms.append(abs(float(b.norm() / a.norm()) - 1))
        last = cosines.pop(model.n_layers - 1)
        least, same = min(map(abs, cosines.values())), sum(c > 0 for c in cosines.values())
        figures |= {f"{name}: least cosine": least, f"{name}: last layer": last, f"{name}: same sign": same}
        signs = f"{same}/{len(cosines)}"
        print(f"{name:<28}{len(cosines):>8}{least:>16.6f}{last:>12.6f}{signs:>8}{max(norms):>17.1e}")
    mean = fit(read[-2]).only(15)
    ids = torch.tensor([texts[0].ids])
    with steer(model, mean, STRENGTH):
        ours_logits = model.logits(ids)[0]
    worst = float((ours_logits - theirs["logits"]).abs().max() / theirs["logits"].abs().max())
    moved = float((ours_logits - model.logits(ids)[0]).abs().max() / theirs["logits"].abs().max())
    figures["steered logits, relative difference"] = worst
    print(f"steered logits: relative difference {worst:.1e} (steering itself moves them by {moved:.1e})")
    return figures


def _for_transformers_4(config: Path) -> None:
    """The two keys that transformers 4 reads under their old names."""
    values = json.loads(config.read_text())
    values["rope_theta"] = values.get("rope_parameters", {}).get("rope_theta", 10_000.0)
    values["torch_dtype"] = values.get("dtype", "float32")
    write_json(config, values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", help="a Python with steering-vectors and repeng")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, pairs = load_model("smollm2-135m"), sentiment_reviews(options.pairs)
    figures = cost(model, pairs, options.rounds)
    if options.peer_python:
        figures |= agreement(model, pairs, options.peer_python)
    if options.out:
        write_json(options.out, figures)


if __name__ == "__main__":
    main()
