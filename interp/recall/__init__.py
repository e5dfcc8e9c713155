"""Graph recall: how well a language model recalls a described graph, and how its errors are built.

Wang, Cui and Kleinberg 2024, "Microstructures and Accuracy of Graph Recall by Large Language Models",
arXiv 2402.11821.

    cases = make_cases(["social", "road"], n_graphs=20)
    run = GraphRecallExperiment(LocalRecaller(model), transcripts="transcripts.jsonl").run(cases)
    print(run.summary())
    print(microstructure_bias(run.true_graphs(), run.recalled_graphs()))
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "design": ("make_cases",),
    "graphs": ("brashears_graph", "domain_graph", "load_edge_list", "sample_subgraphs", "shipped_graph"),
    "narration": ("GraphVignette", "brashears_vignette", "make_vignette"),
    "prompts": ("RecallPrompt", "build_messages", "memory_clearance_turns"),
    "parsing": ("ParsedAnswer", "parse_answer"),
    "answers": ("Answer", "RecallResult", "Recaller"),
    "local": ("LocalRecaller",),
    "endpoint": ("EndpointRecaller",),
    "scripted": ("NoisyRecaller", "PerfectRecaller", "RecencyRecaller", "ScriptedRecaller"),
    "transcripts": ("Transcripts",),
    "runner": ("Case", "GraphRecallExperiment", "RecallRun", "load_run"),
    "metrics": ("RecallMetrics", "recall_metrics", "summarise"),
    "baselines": ("baseline_table", "baselines", "verdicts"),
    "analysis": ("RecallAnalysis", "analyse"),
    "ergm": ("ERGM",),
    "ergm_statistics": ("STATISTICS", "change_statistics", "graph_statistics"),
    "bias": ("MicrostructureBias", "descriptive_bias", "microstructure_bias"),
    "motifs": ("motif_bias", "motif_census"),
    "link_prediction": ("accuracy_correlation", "hide_links", "predict_links"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"interp.recall has no {name!r}; public names: {', '.join(__all__)}")
    return getattr(importlib.import_module(f"interp.recall.{_MODULE_OF[name]}"), name)
