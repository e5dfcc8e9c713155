"""Reproduce, without a download, what can be known of learned feedback patterns, and check the toolkit by it.

Marks et al. 2024, "Interpreting Learned Feedback Patterns in Large Language Models", arXiv 2310.08164. Its models, data
and annotators are not to be had offline; these parts hold the method to answers that are known.

  a  Planted feedback (a minute). Activations into which valence was written along one direction: the probe must read it
     where it is, and nothing from the base model.
  b  A language model of 190,000 parameters, tuned by RLOO to write words of positive valence (3 minutes). Reward must
     rise within a bound of the KL; the probe must read the sign of held-out words, and nothing from shuffled
     labels. The same figures stand beside it for the base model. Then the same reward with too little restraint.
  c  The same model tuned by DPO on pairs (2 minutes), and a probe that tells chosen from rejected single texts. It was
     expected to do as well on the tuned as on the base model and does not, so two checks fail: see results.json.
  d  SmolLM2-135M-Instruct through the whole pipeline (half an hour). Findings, no bounds.

Each check prints what was expected beside what was measured, with PASS or FAIL; everything goes to OUT as results.json
and PNGs. Exit code 1 when a check fails. A run that was stopped goes on where it was in the same OUT.

    python scripts/reproduce/lfp.py                      # all of it
    python scripts/reproduce/lfp.py --quick              # a and b in short, about a minute
    python scripts/reproduce/lfp.py --which b --out lfp
"""

from __future__ import annotations

import sys

import lfp_toy
from checks import Findings, run

from interp.models.loading import load_model
from interp.probes.lfp.config import AblationSettings, DictionarySettings, LayerChoice, LFPConfig
from interp.probes.lfp.data import kept_data
from interp.probes.lfp.pipeline import LFPPipeline
from interp.probes.lfp.planted import planted_gate
from interp.probes.lfp.tuning import RewardTuning

SMOLLM2 = LFPConfig(
    tuning=RewardTuning(
        steps=40, batch_size=16, lr=5e-5, beta=0.05, warmup_steps=3, eval_samples=2, checkpoint_every=5
    ),
    layers=LayerChoice(k=3),
    dictionaries=DictionarySettings(steps=1500),
    ablation=AblationSettings(samples=2),
)


def planted(found: Findings) -> None:
    """Part a."""
    gates = {}
    for seed in range(1 if found.quick else 3):
        gates[seed] = planted_gate(seed)
        for statement, (value, bound, passed) in gates[seed].checks().items():
            found.check("a", f"seed {seed}, {statement}", bound, f"{value:.3f}", passed)
    found.numbers["a"] = {
        seed: {name: getattr(gate, name).to_dict() for name in ("base", "tuned", "direct")}
        for seed, gate in gates.items()
    }


def smollm2(found: Findings) -> None:
    """Part d."""
    if found.quick:
        found.remarks.append("d  left out with --quick")
        return
    model = load_model("smollm2-135m")
    data = kept_data(found.out / "smollm2", model, None, n_texts=1000, n_triples=600)
    report = LFPPipeline(model, data, SMOLLM2, found.out / "smollm2").report()
    print(report)
    found.remarks += [f"d  {sentence}" for sentence in report.verdict()]
    found.numbers["d"] = {"verdict": report.verdict(), "columns": report.columns()}
    found.numbers["d"] |= {name: report.results[name] for name in ("tune", "rank", "saes", "ablate")}
    found.figures["d_columns"] = report.plot()


PARTS = {"a": planted, "b": lfp_toy.by_reward, "c": lfp_toy.by_pairs, "d": smollm2}


def main(argv: list[str] | None = None) -> int:
    return run(__doc__ or "", PARTS, "lfp-reproduction", argv)


if __name__ == "__main__":
    sys.exit(main())
