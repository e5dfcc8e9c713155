"""Learned feedback patterns in the polarity model, parts b and c of lfp.py: everything is known here but the answer.

The base model is that of polarity_model.py, trained on reviews that end after one to four sentences, so that it can
learn to write on for the sake of a reward that is a sum.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from checks import Findings
from polarity_model import END, NextWord, gate, reviews, untrained

from interp.core.plotting import new_figure
from interp.core.stream import ArrayStream
from interp.core.trainer import Trainer, TrainerConfig
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.models.sites import Site
from interp.probes.lfp.ablation import ablate_features
from interp.probes.lfp.config import (
    AblationSettings,
    DictionarySettings,
    LayerChoice,
    LFPConfig,
    ProbeSettings,
)
from interp.probes.lfp.data import LFPData
from interp.probes.lfp.lexicon import vader_word_reward, word_valence
from interp.probes.lfp.pipeline import LFPPipeline
from interp.probes.lfp.triples import build_lexicon_triples
from interp.probes.lfp.tuned import TunedModel
from interp.probes.lfp.tuning import PreferencePair, PreferenceTuning, RewardTuning, tune_on_reward
from interp.steering.generators import polarity_sentences
from interp.steering.words import NEGATIVE, NEUTRAL, POSITIVE, SUBJECTS

STEPS, BATCH = 600, 32
TRIPLES = (
    "a {word}",
    *(f"the {s} was {{word}}" for s in SUBJECTS),
    *(f"i think the {s} is {{word}}" for s in SUBJECTS),
)
RLOO = RewardTuning(
    steps=120, batch_size=64, lr=5e-4, beta=0.1, max_kl=1.0, max_new_tokens=12, eval_samples=8
)
HACKING = replace(RLOO, lr=1e-3, beta=0.02, max_kl=None)
DPO = PreferenceTuning(
    steps=150, batch_size=8, lr=1e-4, beta=0.1, max_kl=1.0, max_new_tokens=12, eval_samples=8
)


def ending_reviews(n: int, seed: int) -> list[str]:
    """Reviews cut after one to four sentences, with the end-of-text token."""
    rng = random.Random(f"ends {seed}")
    cut = []
    for review in reviews(n, seed):
        sentences = review.removesuffix(" .").split(" . ")
        cut.append(" . ".join(sentences[: rng.randint(1, 4)]) + f" . {END}")
    return cut


def train_base(out: Path, quick: bool, seed: int = 0) -> LanguageModel:
    """The base model, about a minute on one core; kept in a folder of the results, where it is found again."""
    steps = STEPS // 8 if quick else STEPS
    folder = out / f"base-{steps}-{seed}"
    if not (folder / "tokenizer.json").exists():
        model = untrained(seed)
        padding = model.tokenizer.pad_token_id
        rows = model.tokenizer(ending_reviews(steps * BATCH, seed))["input_ids"]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
        config = TrainerConfig(max_steps=steps, batch_size=BATCH, seed=seed, progress=False)
        Trainer(config).fit(NextWord(model.module, padding, 3e-3), ArrayStream(ids, shuffle=False))
        model.module.save_pretrained(folder)  # type: ignore[operator]
        model.tokenizer.save_pretrained(folder)
    return load_model(folder)


def prefixes(n: int, seed: int) -> tuple[str, ...]:
    """The first two to six words of reviews."""
    rng = random.Random(f"prefixes {seed}")
    return tuple(" ".join(review.split()[: rng.randint(2, 6)]) for review in reviews(n, seed))


def sentiment_data(model: LanguageModel, quick: bool) -> LFPData:
    """Prefixes to write after, and triples of the adjectives that VADER rates at 1 or more, of either sign."""
    lexicon = {word: word_valence(word) for word in (*POSITIVE, *NEGATIVE) if abs(word_valence(word)) >= 1}
    triples = build_lexicon_triples(TRIPLES, lexicon, 720, 0, model.tokenizer, neutral=NEUTRAL, share=0.5)
    texts = [text.removesuffix(f" {END}") for text in ending_reviews(200 if quick else 2000, seed=1)]
    return LFPData(prefixes(512, 2), prefixes(64, 3), tuple(texts), tuple(triples), lexicon=lexicon)


def settings(tuning: RewardTuning | PreferenceTuning, quick: bool) -> LFPConfig:
    return LFPConfig(
        tuning=tuning,
        layers=LayerChoice(k=2),
        dictionaries=DictionarySettings(expansion=2, l1_coefficient=1e-3, steps=200 if quick else 2000),
        probe=ProbeSettings(n_bootstrap=200 if quick else 1000),
        ablation=AblationSettings(n_features=20, n_random=2 if quick else 5, samples=1 if quick else 4),
    )


def by_reward(found: Findings) -> None:
    """Part b: RLOO on the sum of valences, then the whole pipeline, then the same with too little restraint."""
    quick = found.quick
    base = train_base(found.out, quick)
    if not quick:
        after_positive, after_negative = gate(base)
        found.at_least("b", "base: P(positive word | positive word before)", 0.8, after_positive)
        found.at_most("b", "base: P(positive word | negative word before)", 0.1, after_negative)
    tuning = replace(RLOO, steps=30, lr=1e-3, eval_samples=2) if quick else RLOO
    data = sentiment_data(base, quick)
    pipeline = LFPPipeline(base, data, settings(tuning, quick), found.out / "reward", progress=False)
    report = pipeline.report("ablate" if quick else "describe")
    tune = report.results["tune"]
    before, after = tune["before"], tune["after"]
    found.at_least("b", "RLOO: gain of mean reward", 0.5, after["reward"] - before["reward"])
    found.at_most("b", "RLOO: KL to the base, nats a token", 1.0, after["kl"])
    found.remarks.append(
        f"b  RLOO: reward {before['reward']:.3f} -> {after['reward']:.3f} (reference -0.05 -> 1.07), KL "
        f"{after['kl']:.2f} a token, {after['kl_per_text']:.1f} a text; length {before['length']:.1f} -> "
        f"{after['length']:.1f}; P(positive | negative before) is now {gate(pipeline.tuned)[1]:.3f} (reference 0.98)"
    )
    read_checks(found, report.results)
    silent_checks(found, pipeline)
    found.numbers["b"] = {"tune": tune, "rank": report.results["rank"], "columns": report.columns()}
    found.numbers["b"] |= {"ablation": report.results["ablate"], "verdict": report.verdict()}
    found.remarks += [f"b  {sentence}" for sentence in report.verdict()[1:]]
    found.figures["b_columns"] = report.plot()
    if not quick:
        overoptimise(found, base, data, pipeline)


def read_checks(found: Findings, results: Any) -> None:
    columns = results["probe"]["columns"]
    if not found.quick:  # where the base knows no polarity, nothing can be read
        found.at_least(
            "b",
            "probe of the tuned model: sign accuracy, held-out words",
            0.75,
            columns["tuned"]["sign_accuracy"][0],
        )
    found.at_most(
        "b",
        "shuffled labels: sign accuracy, mean of 10",
        0.62,
        columns["shuffled labels"]["sign_accuracy"][0],
    )
    beside = {"base model", "raw activations", "random probe", "direct supervision"} - set(columns)
    found.check(
        "b",
        "the report has base and controls beside the tuned model",
        "all",
        "all" if not beside else f"no {beside}",
        not beside,
    )
    moved = [value for _, value in sorted(map(tuple, results["rank"]["divergence"]))]
    found.remarks.append(
        f"b  divergence by layer {', '.join(f'{m:.2f}' for m in moved)}; chosen {results['rank']['layers']}"
    )


def silent_checks(found: Findings, pipeline: LFPPipeline) -> None:
    """What must hold of ablation in any model; whether the reward falls is a finding, not a gate."""
    model, saes = pipeline.tuned, pipeline.tuned_saes
    ids = model.tokenize(list(pipeline.data.texts[:8]))
    clean = model.logits(ids)
    with ablate_features(model, saes, {layer: [] for layer in saes}):
        off = float((model.logits(ids) - clean).abs().max())
    found.check("b", "silencing no feature changes no logit", "< 1e-5", f"{off:.1e}", off < 1e-5)
    layer = max(saes)
    site = Site("mlp_out", layer)
    acts = model.activations(ids, site)[site]
    rows, codes = saes[layer].W_dec, saes[layer].encode(acts)
    with torch.no_grad(), ablate_features(model, saes, {layer: [0, 1, 2]}):
        seen = model.activations(ids, site)[site]
        expected = acts - codes[..., :3] @ rows[:3]
    inside = ids.attention_mask.bool() & (ids.position_ids > 0)
    off = float((seen - expected)[inside].abs().max())
    found.check("b", "ablated activations are a - sum_k f_k W_k", "< 1e-4", f"{off:.1e}", off < 1e-4)


def overoptimise(found: Findings, base: LanguageModel, data: LFPData, pipeline: LFPPipeline) -> None:
    """Twice the rate and a fifth of the pull: the reward goes up, the language is gone, and the bound stops it."""
    runs: dict[str, TunedModel] = {}
    for name, config in (("no bound", HACKING), ("max_kl=1", replace(HACKING, max_kl=1.0))):
        runs[name] = tune_on_reward(
            base,
            data.prompts,
            vader_word_reward,
            config,
            found.out / f"hacking-{name.replace(' ', '-')}",
            eval_prompts=data.eval_prompts,
        )
    free, bound = runs["no bound"], runs["max_kl=1"]
    found.at_least("b", "lr 1e-3, beta 0.02, no bound: KL runs away", 3.0, free.kl)
    found.check(
        "b",
        "the same with max_kl = 1 stops",
        f"< {HACKING.steps} steps",
        f"{bound.steps} steps",
        bound.steps < HACKING.steps,
    )
    found.remarks.append(
        f"b  reward hacking: reward {free.after.reward:.2f}, KL {free.kl:.2f} a token, "
        f"length {free.after.length:.1f} of at most 12: {free.after.example!r}"
    )
    found.remarks.append(
        f"b  with max_kl = 1: {bound.stopped}; at its end KL {bound.kl:.2f}: {bound.after.example!r}"
    )
    found.numbers["b hacking"] = {
        name: [vars(run.before), vars(run.after), list(run.history)] for name, run in runs.items()
    }
    figure, axes = new_figure(1, 3, size=(11.0, 3.2))
    histories = {
        "lr 5e-4, beta 0.1": pipeline.tune["history"],
        **{f"lr 1e-3, beta 0.02, {n}": r.history for n, r in runs.items()},
    }
    for ax, key, title in zip(
        axes,
        ("reward", "kl", "length"),
        ("reward", "KL, nats a token", "tokens written (at most 12)"),
        strict=True,
    ):
        for (name, rows), style in zip(histories.items(), ("-", "-", "--"), strict=True):
            ax.plot([row["step"] for row in rows], [row[key] for row in rows], style, label=name)
        ax.set(xlabel="step", title=title)
    axes[0].legend(fontsize=8)
    found.figures["b_tuning"] = figure


def preference_pairs(n: int, seed: int) -> tuple[PreferencePair, ...]:
    """After a neutral sentence, a positive one rather than a negative one."""
    by_polarity: dict[str, list[str]] = {"positive": [], "negative": [], "neutral": []}
    for sentence in polarity_sentences(6 * n, seed=seed):
        words = set(sentence.split())
        kind = "positive" if words & set(POSITIVE) else "negative" if words & set(NEGATIVE) else "neutral"
        by_polarity[kind].append(sentence)
    columns = (by_polarity[kind][:n] for kind in ("neutral", "positive", "negative"))
    return tuple(PreferencePair(p, f" {up}", f" {down}") for p, up, down in zip(*columns, strict=True))


def by_pairs(found: Findings) -> None:
    """Part c: DPO on pairs, and a probe that tells chosen from rejected, in the tuned and in the base model."""
    if found.quick:
        found.remarks.append("c  left out with --quick")
        return
    base = train_base(found.out, quick=False)
    data = replace(sentiment_data(base, quick=False), pairs=preference_pairs(1200, seed=4))
    pipeline = LFPPipeline(base, data, settings(DPO, quick=False), found.out / "pairs", progress=False)
    report = pipeline.report("probe")
    tune, pairs = report.results["tune"], report.results["probe"]["pairs"]
    last = tune["history"][-20:]
    told = sum(row["accuracy"] for row in last) / len(last)
    found.at_least("c", "DPO: chosen told from rejected by implicit reward, last 20 steps", 0.9, told)
    found.at_most("c", "DPO: KL to the base, nats a token", 1.0, tune["after"]["kl"])
    tuned, untuned = pairs["tuned"]["accuracy"][0], pairs["base model"]["accuracy"][0]
    found.at_least("c", "probe of single texts, tuned model: accuracy, held-out prompts", 0.9, tuned)
    found.at_most("c", "its distance from the base model's", 0.1, abs(tuned - untuned))
    within = pairs["tuned"]["pair_accuracy"][0]
    found.at_least("c", "the same probe, the two texts of a pair compared: accuracy", 0.9, within)
    found.remarks.append(
        f"c  DPO: reward of texts {tune['before']['reward']:.2f} -> {tune['after']['reward']:.2f}, {tune['stopped']}"
    )
    found.remarks.append(
        f"c  pair probe: tuned {tuned:.3f}, base model {untuned:.3f}: it is no evidence of learned feedback"
    )
    found.numbers["c"] = {"tune": tune, "pairs": pairs, "columns": report.columns()}
