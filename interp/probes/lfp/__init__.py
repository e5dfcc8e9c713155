"""Learned feedback patterns: what fine-tuning on feedback wrote into a model, read by probes on SAE features."""

from interp.probes.lfp.config import LFPConfig
from interp.probes.lfp.data import LFPData, lexicon_data
from interp.probes.lfp.feedback_report import LFPReport
from interp.probes.lfp.pipeline import LFPPipeline, run_lfp
from interp.probes.lfp.planted import planted_gate
from interp.probes.lfp.tuning import PreferencePair, tune_on_preferences, tune_on_reward

__all__ = [
    "LFPConfig",
    "LFPData",
    "LFPPipeline",
    "LFPReport",
    "PreferencePair",
    "lexicon_data",
    "planted_gate",
    "run_lfp",
    "tune_on_preferences",
    "tune_on_reward",
]
