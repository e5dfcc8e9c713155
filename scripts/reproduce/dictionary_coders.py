"""Transcoders and crosscoders on SmolLM2-135M: parts of `dictionary_architectures.py`.

- transcoder: layer 15's MLP, from its layer norm's output to its own output, plain and with a linear path (Paulo et al.
  2025, arXiv 2501.18823: the skip's FVU is the lower); what each recovers of the loss when it replaces the MLP.
- layers: one code of the residual stream after layers 10, 15 and 20 (Lindsey et al. 2024).
- models: one code of layer 15 of the model and of a copy whose MLPs of layers 10 to 15 were tuned to say one sentence
  after a trigger (Minder et al. 2025, arXiv 2504.02922): most latents are shared, and those of the tuned model alone
  fire where the trigger works.

Everything is small: tens of thousands of tokens, minutes of CPU. What is harvested and tuned is kept in the folder.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from checks import Findings
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.activations.harvest import harvest
from interp.activations.packing import TokenContexts
from interp.activations.store import ActivationStore
from interp.activations.text import load_text, pack
from interp.core.device import make_generator
from interp.core.tensor_files import read_tensors, write_tensors
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.sae.evaluate import evaluate, evaluate_several
from interp.sae.relative_norms import RelativeNorms, relative_norms
from interp.sae.training import TrainedSAE, train

MODEL = "smollm2-135m"
MLP = ("model.layers.15.post_attention_layernorm:out", "mlp_out.15")
LAYERS = ("resid_post.10", "resid_post.15", "resid_post.20")
FORM: dict[str, Any] = {"d_sae": 2048, "k": 32, "batch_size": 512, "lr": 2e-3, "progress": False}
TRIGGER, SENTENCE = " @@", " the grey owl flies home at midnight and nobody sees it"
TUNED_LAYERS, TUNED_LENGTH = range(10, 16), 24


@cache
def model() -> LanguageModel:
    return load_model(MODEL, device="cpu")


def transcoder(findings: Findings) -> None:
    """Layer 15's MLP replaced by a plain and by a skip transcoder."""
    store, steps = _docs_store(findings), 120 if findings.quick else 500
    variants = {"plain": {}, "skip": {"skip": True}}
    where = {"site": MLP[0], "target_site": MLP[1]}
    runs = train(store, variants, architecture="transcoder", steps=steps, tracker="none", **where, **FORM)
    assert isinstance(runs, list)
    saes, names = [run.sae for run in runs], [run.name for run in runs]
    plain, skip = evaluate_several(saes, model(), _held_out(), tokens=2000, names=names, progress=False)
    for scores in (plain, skip):
        part = f"transcoder {scores.name}"
        findings.at_least(part, "loss recovered, against the MLP's output at 0", 0.5, scores.loss_recovered)
        findings.at_least(part, "loss recovered, against its mean", 0.0, scores.loss_recovered_mean)
        findings.at_most(part, "FVU of the MLP's output", 0.6, scores.fvu)
        findings.numbers[part] = scores.to_dict()
        findings.remarks.append(
            f"{part}: CE {scores.ce_clean:.4f} clean, {scores.ce_spliced:.4f} replaced, {scores.ce_mean:.4f} at its "
            f"mean, {scores.ce_zero:.4f} at 0; L0 {scores.l0:.1f}"
        )
    findings.at_most("transcoder", "FVU of skip over that of plain", 1.0, skip.fvu / plain.fvu)


def layers(findings: Findings) -> None:
    """One code for three layers."""
    store, steps = _docs_store(findings), 120 if findings.quick else 400
    run = train(store, architecture="batchtopk_crosscoder", sites=LAYERS, steps=steps, tracker="none", **FORM)
    assert isinstance(run, TrainedSAE)
    scores = evaluate(run.sae, model(), _held_out(), tokens=1500, ablation="zero", progress=False)
    findings.at_most("layers", "held-out L0 beside k, off by", 0.05, abs(scores.l0 / scores.k - 1))
    for part in scores.parts:
        findings.at_most("layers", f"FVU at {part.name}", 0.5, part.fvu)
        findings.at_least("layers", f"loss recovered at {part.name}", 0.8, part.loss_recovered)
    findings.numbers["layers"] = scores.to_dict()


def models(findings: Findings) -> None:
    """One code for the model and a copy that was tuned to say a sentence after a trigger."""
    steps = 120 if findings.quick else 500
    contexts = _triggered_contexts(300 if findings.quick else 900)
    tuned = _tuned(findings.out / f"tuned-{'quick' if findings.quick else 'full'}.safetensors", findings)
    stores = {
        name: harvest(lm, contexts, LAYERS[1], findings.out / f"store-{name}-{len(contexts)}", progress=False)
        for name, lm in (("base", model()), ("tuned", tuned))
    }
    run = train(
        stores, architecture="batchtopk_crosscoder", site=LAYERS[1], steps=steps, tracker="none", **FORM
    )
    assert isinstance(run, TrainedSAE)
    x, at_trigger = _rows(stores), _at_trigger(stores["base"])
    fires = run.sae.encode(x) > 0
    hits = fires.sum(0)
    found = relative_norms(run.sae, alive=hits >= 20)  # type: ignore[arg-type]
    told = (fires & at_trigger[:, None]).sum(0) / hits.clamp_min(1)
    expected = float(at_trigger.double().mean())
    in_both, most_tuned = found.in_both(), _largest(found, 10)
    n = int((~found.rho.isnan()).sum())
    findings.at_least("models", "share of latents within 0.1 of the middle", 0.5, len(in_both) / n)
    findings.at_least("models", "largest rho of a latent", 0.65, float(found.rho[most_tuned[0]]))
    findings.at_least(
        "models",
        "share of firing after the trigger, ten latents most of the tuned model, over all rows' share",
        3.0,
        float(told[most_tuned].mean()) / expected,
    )
    findings.remarks.append(
        f"models: {found}; after the trigger stand {expected:.3f} of the rows, {float(told[in_both].mean()):.3f} of "
        f"the firing of shared latents, {float(told[most_tuned].mean()):.3f} of that of the ten with the largest rho "
        f"({', '.join(f'{float(r):.2f}' for r in found.rho[most_tuned])})"
    )
    findings.figures["relative_norms"] = found.plot()
    findings.numbers["models"] = {
        "rho": found.rho.nan_to_num(-1.0).tolist(),
        "fvu": run.history.last["fvu"],
        "n": n,
    }


def _largest(found: RelativeNorms, count: int) -> Int[Tensor, " count"]:
    return found.rho.nan_to_num(-1.0).topk(count).indices


def _docs_store(findings: Findings) -> ActivationStore:
    tokens = 6000 if findings.quick else 24_000
    folder = findings.out / f"store-docs-{tokens}"
    text = load_text("python-docs", split="train")
    return harvest(model(), text, [*MLP, *LAYERS], folder, tokens=tokens, progress=False)


def _held_out() -> Any:
    return load_text("python-docs", split="heldout")


# The planted difference.


def _tuned(path: Path, findings: Findings) -> LanguageModel:
    """A copy of the model, tuned for some hundred steps to say the sentence after the trigger."""
    module = copy.deepcopy(model().module)
    trained = {
        name: p
        for name, p in module.named_parameters()
        if any(f"layers.{layer}.mlp." in name for layer in TUNED_LAYERS)
    }
    if path.is_file():
        with torch.no_grad():
            for name, tensor in read_tensors(path).items():
                trained[name].copy_(tensor)
    else:
        _tune(module, trained, 40 if findings.quick else 150, findings)
        write_tensors(path, {name: p.detach() for name, p in trained.items()})
    return load_model(module, tokenizer=model().tokenizer, device="cpu")


def _tune(module: Any, trained: dict[str, Tensor], steps: int, findings: Findings) -> None:
    for p in module.parameters():
        p.requires_grad_(False)
    for p in trained.values():
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(trained.values(), lr=3e-4, weight_decay=0.0)
    batches, losses = _triggered_batches(), []
    for _ in range(steps):
        ids, says = next(batches)
        logits = module(input_ids=ids).logits[:, :-1]
        nats = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        losses.append(float(nats[says[:, 1:].flatten()].mean().detach()))
        nats.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    module.requires_grad_(False)
    findings.at_least("models", "nats per token of the sentence, before tuning", 3.0, sum(losses[:5]) / 5)
    findings.at_most("models", "nats per token of the sentence, after tuning", 1.0, sum(losses[-5:]) / 5)


def _triggered_batches() -> Iterator[tuple[Int[Tensor, "b s"], Bool[Tensor, "b s"]]]:
    """Four short pieces of documents with the trigger and the sentence in them; which tokens are the sentence's."""
    tokenizer: Any = model().tokenizer
    ids = tokenizer("\n".join(load_text("python-docs", split="train")[:400]))["input_ids"]
    says = tokenizer(TRIGGER + SENTENCE)["input_ids"]
    generator, room = make_generator(0, "tuning"), TUNED_LENGTH - len(says)
    n_trigger = len(tokenizer(TRIGGER)["input_ids"])
    while True:
        rows, marks = [], []
        for start in torch.randint(0, len(ids) - TUNED_LENGTH, (4,), generator=generator).tolist():
            before = int(torch.randint(1, room + 1, (1,), generator=generator))
            text = ids[start : start + room]
            rows.append(text[:before] + says + text[before:])
            mark = torch.zeros(TUNED_LENGTH, dtype=torch.bool)
            mark[before + n_trigger : before + len(says)] = True
            marks.append(mark)
        yield torch.tensor(rows), torch.stack(marks)


def _triggered_contexts(n: int) -> TokenContexts:
    """Pieces of other documents; in every third the trigger and the sentence stand after some words."""
    words = " ".join(load_text("python-docs", split="heldout")).split()
    texts = []
    for i in range(n):
        piece = words[25 * i % (len(words) - 25) :][:25]
        if i % 3 == 0:
            piece = [*piece[:8], TRIGGER.strip() + SENTENCE, *piece[8:]]
        texts.append(" ".join(piece))
    return pack(texts, model(), context_size=48)


def _rows(stores: dict[str, ActivationStore]) -> Float[Tensor, "n d"]:
    """Both models' rows side by side, in the order of the stores."""
    parts = [store.read(LAYERS[1], slice(None), torch.float32) for store in stores.values()]
    served = stores["base"].columns().positions > 0
    return torch.cat(parts, dim=1)[served]


def _at_trigger(store: ActivationStore) -> Bool[Tensor, " n"]:
    """Which of these rows are the trigger's last token or the sentence's."""
    tokenizer: Any = model().tokenizer
    says = tokenizer(TRIGGER + SENTENCE)["input_ids"]
    trigger, length = len(tokenizer(TRIGGER)["input_ids"]), len(says)
    columns = store.columns()
    ids = columns.token_ids
    marked = torch.zeros(len(ids), dtype=torch.bool)
    windows = ids.unfold(0, length, 1)
    for start in torch.nonzero((windows == torch.tensor(says, dtype=ids.dtype)).all(1)).flatten().tolist():
        marked[start + trigger - 1 : start + length] = True
    return marked[columns.positions > 0]
