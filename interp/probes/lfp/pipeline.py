"""From a base model to a report on what tuning by feedback wrote into it, in stages that can be stopped anywhere.

Marks et al. 2024, "Interpreting Learned Feedback Patterns in Large Language Models" (arXiv 2310.08164): tune, rank the
layers by how far they moved, train dictionaries on their MLP outputs in both models, read the feedback from the
features, ablate those that the probe relies on, describe them.  Every stage asks for the ones that it needs, so each is
usable alone, and is kept in a folder of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.config import from_dict, to_dict
from interp.core.files import read_sealed_json, write_json, write_sealed_json
from interp.core.plotting import save_figure
from interp.core.transcripts import content_key
from interp.probes.lfp import feedback_plots
from interp.probes.lfp.ablation import ablation_effect
from interp.probes.lfp.comparison import ReadModel, compare_feedback, compare_pairs
from interp.probes.lfp.config import LFPConfig
from interp.probes.lfp.contexts import TopContexts, top_contexts
from interp.probes.lfp.data import LFPData
from interp.probes.lfp.description import describe_features
from interp.probes.lfp.divergence import parameter_divergence, select_layers
from interp.probes.lfp.explain import Explainer, LexiconExplainer
from interp.probes.lfp.features import collect_triples, feature_places
from interp.probes.lfp.feedback_report import STAGES, LFPReport
from interp.probes.lfp.gap import activation_gap
from interp.probes.lfp.judge import Judge, LexiconJudge
from interp.probes.lfp.lexicon import vader_lexicon, vader_word_reward
from interp.probes.lfp.matching import mmcs
from interp.probes.lfp.probe import FeedbackProbe, rescale_to_range
from interp.probes.lfp.saes import FeedbackSAEs, load_feedback_saes, train_feedback_saes
from interp.probes.lfp.sampling import Reward
from interp.probes.lfp.stages import run_stage, set_aside, up_to
from interp.probes.lfp.tuned import TunedModel, load_tuned
from interp.probes.lfp.tuning import PreferenceTuning, tune_on_preferences, tune_on_reward

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

BASE, TUNED = "base", "tuned"


class LFPPipeline:
    """The stages of one run. Each attribute named like a stage is its result, computed or read when first asked for.

        pipeline = LFPPipeline(model, data, config, "lfp/")
        pipeline.rank["layers"]   # tunes, then ranks
        print(pipeline.report())  # all the rest

    Args:
        model: the base model.
        data, config: the inputs and settings.
        out: the run's folder, a subfolder a stage. A finished stage is used again while its own inputs are the same
            and computed anew when they change; one that was cut off goes on from what it kept.
        tuned: a model tuned by other means, in place of the first stage.
        reward: texts to numbers, tuned on and measured; VADER's sum of valences by default. Finished stages know it by
            its name only.
        explainer, judge: describe features and score the descriptions; a lexicon's, which needs nobody, by default.
        progress: show progress bars of the dictionaries' training and the contexts.

    Raises:
        ValueError: preference tuning without pairs; whatever a stage refuses.
    """

    def __init__(
        self,
        model: LanguageModel,
        data: LFPData,
        config: LFPConfig | None = None,
        out: str | os.PathLike[str] = "lfp",
        *,
        tuned: LanguageModel | TunedModel | None = None,
        reward: Reward = vader_word_reward,
        explainer: Explainer | None = None,
        judge: Judge | None = None,
        progress: bool = True,
    ) -> None:
        self.base, self.data, self.config = model, data, config or LFPConfig()
        self.out = Path(out)
        self._given, self._reward, self._progress = tuned, reward, progress
        self._lexicon: Mapping[str, float] = vader_lexicon() if data.lexicon is None else data.lexicon
        self._explainer = explainer or LexiconExplainer(self._valence, seed=self.config.seed)
        self._judge = judge or LexiconJudge(self._valence)
        if isinstance(self.config.tuning, PreferenceTuning) and not data.pairs and tuned is None:
            raise ValueError("tuning is by preferences, but data.pairs is empty: give pairs, or RewardTuning")
        if model.n_layers and self.config.layers.k > model.n_layers:
            raise ValueError(f"layers.k = {self.config.layers.k}: {model.name} has {model.n_layers} layers")

    def _valence(self, word: str) -> float:
        return self._lexicon.get(word.strip().lower(), 0.0)

    @cached_property
    def tune(self) -> dict[str, Any]:
        """How tuning went: method, history, behaviour before and after; {} for a model tuned by other means."""
        if self._given is not None:
            set_aside(self.out, ["tune"])
            return self._given.to_dict() if isinstance(self._given, TunedModel) else {}
        by_pairs = isinstance(self.config.tuning, PreferenceTuning)
        inputs = {
            "model": _identity(self.base),
            "config": to_dict(self.config.tuning),
            "reward": self._reward_name,
            "data": content_key(self._pairs if by_pairs else self.data.prompts, self.data.eval_prompts),
        }
        return self._stage("tune", inputs, self._tune)

    def _tune(self, folder: Path) -> dict[str, Any]:
        config, prompts = self.config.tuning, list(self.data.eval_prompts)
        if isinstance(config, PreferenceTuning):
            result = tune_on_preferences(
                self.base, self.data.pairs, config, folder, reward=self._reward, eval_prompts=prompts
            )
        else:
            result = tune_on_reward(
                self.base, list(self.data.prompts), self._reward, config, folder, eval_prompts=prompts
            )
        save_figure(result.plot(), folder / "tuning.png")
        return result.to_dict()

    def _stage(
        self, name: str, inputs: Mapping[str, Any], compute: Callable[[Path], dict[str, Any]]
    ) -> dict[str, Any]:
        return run_stage(self.out, name, inputs, compute, later=STAGES[STAGES.index(name) + 1 :])

    @cached_property
    def tuned(self) -> LanguageModel:
        """The tuned model."""
        if isinstance(self._given, TunedModel):
            return self._given.model
        if self._given is not None:
            return self._given
        return load_tuned(self._folder("tune"), device=self.base.device).model

    def _folder(self, stage: str) -> Path:
        """Of a stage, which is run first where it isn't finished."""
        getattr(self, stage)
        return self.out / stage

    @cached_property
    def rank(self) -> dict[str, Any]:
        """How far each layer moved, absolute and relative, and the layers chosen."""
        inputs = {**self._models, "config": to_dict(self.config.layers)}
        return self._stage("rank", inputs, self._rank)

    def _rank(self, folder: Path) -> dict[str, Any]:
        choice = self.config.layers
        moved = parameter_divergence(self.base, self.tuned)
        relative = parameter_divergence(self.base, self.tuned, relative=True)
        layers = select_layers(relative if choice.relative else moved, choice.k, choice.how)
        save_figure(feedback_plots.plot_divergence(moved, relative, layers), folder / "layers.png")
        return {"divergence": list(moved.items()), "relative": list(relative.items()), "layers": layers}

    @cached_property
    def saes(self) -> dict[str, Any]:
        """Quality of the dictionaries of both models, and how well those of a layer match (MMCS)."""
        return self._stage("saes", self._sae_inputs, self._saes)

    @cached_property
    def _sae_inputs(self) -> dict[str, Any]:
        return {
            **self._models,
            "layers": self.rank["layers"],
            "config": to_dict(self.config.dictionaries),
            "texts": content_key(self.data.texts),
            "seed": self.config.seed,
        }

    def _saes(self, folder: Path) -> dict[str, Any]:
        config = self.config.dictionaries
        trained: dict[str, FeedbackSAEs] = {}
        for name, model in ((BASE, self.base), (TUNED, self.tuned)):
            trained[name] = train_feedback_saes(
                model,
                list(self.data.texts),
                self.rank["layers"],
                d_sae=max(1, round(config.expansion * model.width(f"mlp_out.{self.rank['layers'][0]}"))),
                l1_coefficient=config.l1_coefficient,
                steps=config.steps,
                batch_size=config.batch_size,
                tokens=config.tokens,
                context_size=config.context_size,
                seed=self.config.seed,
                out=folder / name,
                progress=self._progress,
            )
        quality = [{"model": name, **to_dict(row)} for name, saes in trained.items() for row in saes.quality]
        matched = [[layer, mmcs(trained[BASE][layer], sae).mean] for layer, sae in trained[TUNED].items()]
        return {"quality": quality, "mmcs": matched}

    @cached_property
    def base_saes(self) -> FeedbackSAEs:
        """The base model's dictionaries by layer."""
        return load_feedback_saes(self._folder("saes") / BASE)

    @cached_property
    def tuned_saes(self) -> FeedbackSAEs:
        """The tuned model's dictionaries by layer."""
        return load_feedback_saes(self._folder("saes") / TUNED)

    @cached_property
    def probe(self) -> dict[str, Any]:
        """Feedback read from the tuned model's features and from all that it must be held against."""
        inputs = {
            "saes": content_key(self._sae_inputs),
            "triples": content_key([to_dict(t) for t in self.data.triples], dict(self._lexicon)),
            "pairs": content_key(self._pairs),
            "config": to_dict(self.config.probe),
            "seed": self.config.seed,
        }
        return self._stage("probe", inputs, self._probe)

    def _probe(self, folder: Path) -> dict[str, Any]:
        settings, seed = self.config.probe, self.config.seed
        tuned, base = ReadModel(self.tuned, self.tuned_saes), ReadModel(self.base, self.base_saes)
        found = compare_feedback(tuned, base, self.data.triples, self._lexicon, settings, seed=seed)
        pairs = None
        if self.data.pairs:
            read = compare_pairs(tuned, base, self.data.pairs, n_folds=settings.n_folds, seed=seed)
            pairs = {
                name: {
                    key: [float(share), *share.interval]
                    for key, share in (("accuracy", r.accuracy), ("pair_accuracy", r.pair_accuracy))
                }
                for name, r in read.items()
            }
        write_sealed_json(folder / "probe.json", found.probe.state())
        save_figure(feedback_plots.plot_columns(found.controls.to_dict()), folder / "controls.png")
        save_figure(feedback_plots.plot_words(found.words()), folder / "words.png")
        save_figure(found.deltas.plot(), folder / "deltas.png")
        return {
            "columns": found.controls.to_dict(),
            "tau_gain": found.tau_gain,
            "words": found.words(),
            "deltas": found.deltas.rows(),
            "raw": found.tuned.raw.tolist(),
            "pairs": pairs,
        }

    @cached_property
    def fitted_probe(self) -> FeedbackProbe:
        """The probe fitted on all words of the tuned model."""
        return FeedbackProbe.from_state(read_sealed_json(self._folder("probe") / "probe.json"))

    @cached_property
    def ablate(self) -> dict[str, Any]:
        """Reward of the tuned model's texts with the probe's top features silent, and with random ones."""
        features = self._top(self.config.ablation.n_features)
        inputs = {
            "saes": content_key(self._sae_inputs),
            "features": list(features.items()),
            "prompts": content_key(self.data.eval_prompts),
            "reward": self._reward_name,
            "config": to_dict(self.config.ablation),
            "sampling": self._sampling,
            "seed": self.config.seed,
        }
        return self._stage("ablate", inputs, lambda folder: self._ablate(folder, features))

    def _ablate(self, folder: Path, features: dict[int, list[int]]) -> dict[str, Any]:
        config = self.config.ablation
        found = ablation_effect(
            self.tuned,
            list(self.data.eval_prompts),
            self._reward,
            self.tuned_saes,
            features,
            n_random=config.n_random,
            samples=config.samples,
            seed=self.config.seed,
            **self._sampling,
        )
        save_figure(found.plot(), folder / "ablation.png")
        return {
            "rows": [vars(row) for row in found.rows],
            "features": list(found.features.items()),
            "p_value": found.p_value,
        }

    @property
    def _sampling(self) -> dict[str, Any]:
        return {
            "max_new_tokens": self.config.tuning.max_new_tokens,
            "temperature": self.config.tuning.temperature,
        }

    @cached_property
    def describe(self) -> dict[str, Any]:
        """What the probe's top features fire on, the descriptions' scores, and the activation gap."""
        features = self._top(self.config.description.n_features)
        inputs = {
            "saes": content_key(self._sae_inputs),
            "features": list(features.items()),
            "texts": content_key(self.data.texts),
            "raw": content_key(self.probe["raw"]),
            "lexicon": content_key(dict(self._lexicon)),
            "explainer": [self._explainer.name, self._explainer.settings],
            "judge": [self._judge.name, self._judge.settings],
            "config": to_dict(self.config.description),
            "seed": self.config.seed,
        }
        return self._stage("describe", inputs, lambda folder: self._describe(folder, features))

    def _describe(self, folder: Path, features: dict[int, list[int]]) -> dict[str, Any]:
        config, path = self.config.description, folder / "contexts.json"
        if not path.is_file():
            found = top_contexts(
                self.tuned,
                self.data.texts[: config.n_texts],
                self.tuned_saes,
                features,
                n_top=config.n_top,
                n_quiet=config.n_top,
                max_length=config.max_length,
                seed=self.config.seed,
                show_progress=self._progress,
            )
            write_sealed_json(path, to_dict(found))
        contexts = from_dict(TopContexts, read_sealed_json(path))
        described = describe_features(
            contexts, self._explainer, self._judge, n_each=config.n_each, seed=self.config.seed
        )
        write_json(folder / "judgements.json", [to_dict(j) for j in described.scores.judgements])
        return {**described.to_dict(), "gap": self._gap(described.related)}

    def _gap(self, related: list[tuple[int, int]]) -> dict[str, Any]:
        """The activation gap on the triples' texts, or why there is none."""
        if not related:
            return {"why": "no feature was found to have to do with the task"}
        places = feature_places(self.tuned_saes)
        values = list(self._lexicon.values())
        features = collect_triples(self.tuned, self.data.triples, self.tuned_saes).rows()
        read = rescale_to_range(np.asarray(self.probe["raw"]), min(values), max(values))
        threshold = self.config.description.threshold
        if not (read >= threshold).any() or (read >= threshold).all():
            return {"why": f"no inputs on both sides of a predicted feedback of {threshold:g}"}
        gap = activation_gap(features, [places.index(p) for p in related], read, threshold=threshold)
        return to_dict(gap)

    def report(self, until: str = STAGES[-1]) -> LFPReport:
        """Run all stages, or those up to one of them, and write the report in ``out/report``."""
        found = LFPReport({name: getattr(self, name) for name in up_to(STAGES, until)})
        found.save(self.out)
        return found

    def _top(self, n: int) -> dict[int, list[int]]:
        """By layer, the latents that the probe relies on most."""
        return self.fitted_probe.top_features(min(n, len(self.fitted_probe.coef_)))

    @property
    def _models(self) -> dict[str, Any]:
        return {BASE: _identity(self.base), TUNED: _identity(self.tuned)}

    @property
    def _pairs(self) -> list[dict[str, Any]]:
        return [to_dict(pair) for pair in self.data.pairs]

    @property
    def _reward_name(self) -> str:
        return getattr(self._reward, "__qualname__", type(self._reward).__name__)


def run_lfp(
    model: LanguageModel,
    data: LFPData,
    config: LFPConfig | None = None,
    out: str | os.PathLike[str] = "lfp",
    *,
    until: str = STAGES[-1],
    **options: Any,
) -> LFPReport:
    """Run the pipeline, or go on with it, up to a stage; arguments as for `LFPPipeline`."""
    return LFPPipeline(model, data, config, out, **options).report(until)


def _identity(model: LanguageModel) -> dict[str, Any]:
    """What results depend on: not the folder that a model was loaded from."""
    return {key: value for key, value in model.fingerprint().items() if key != "name"}
