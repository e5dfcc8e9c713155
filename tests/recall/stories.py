"""Graphs and prompts that several tests use."""

from __future__ import annotations

import networkx as nx

from interp.recall.narration import GraphVignette, make_vignette
from interp.recall.prompts import RecallPrompt, build_messages


def story(n: int = 6, p: float = 0.4, narrative: str = "social", seed: int = 0) -> GraphVignette:
    return make_vignette(nx.gnp_random_graph(n, p, seed=seed), narrative, seed)


def prompt(n: int = 6, clearance: int = 0, seed: int = 0, **options: object) -> RecallPrompt:
    return build_messages(story(n, seed=seed), clearance, **options)  # type: ignore[arg-type]
