"""Motif-oriented influence maximisation: seeds that activate groups, not only nodes.

Modules:
    graph, edge_list: graphs with influence on their edges, from networkx, igraph, arrays and files.
    motifs: groups with thresholds, and ways to find some.
    exact, estimate: what seeds are worth, by enumeration and by sampling, with the bounds around it.
    coverage, imm, maximizer: reverse samples of motifs, greedy choice, how many samples it needs, LB-MOIM.
    baselines, comparison, influence_plots: other choices, side by side, figures.
    loops, greedy_loops, clique_loops: the compiled parts.
"""

from classic_ml.influence.baselines import (
    pagerank,
    select_degree,
    select_greedy,
    select_motif_degree,
    select_node_influence,
    select_pagerank,
    select_random,
    select_weighted_degree,
)
from classic_ml.influence.comparison import CHOOSERS, SeedComparison, compare_seeds
from classic_ml.influence.coverage import Cover, RRCollection, greedy_max_coverage, sample_motif_rr
from classic_ml.influence.edge_list import load_edge_list
from classic_ml.influence.estimate import (
    Estimate,
    MotifInfluence,
    Spread,
    estimate_bounds,
    estimate_motif_influence,
    simulate_independent_cascade,
    simulate_linear_threshold,
)
from classic_ml.influence.exact import brute_force, exact_motif_influence, exact_spread
from classic_ml.influence.graph import InfluenceGraph, LinearThresholdGraph
from classic_ml.influence.maximizer import MotifInfluenceMaximizer, MotifSeeds
from classic_ml.influence.motifs import (
    Motif,
    clique_motifs,
    edge_motifs,
    node_motifs,
    random_connected_motifs,
    scc_motifs,
    triangle_motifs,
)

__all__ = [
    "CHOOSERS",
    "Cover",
    "Estimate",
    "InfluenceGraph",
    "LinearThresholdGraph",
    "Motif",
    "MotifInfluence",
    "MotifInfluenceMaximizer",
    "MotifSeeds",
    "RRCollection",
    "SeedComparison",
    "Spread",
    "brute_force",
    "clique_motifs",
    "compare_seeds",
    "edge_motifs",
    "estimate_bounds",
    "estimate_motif_influence",
    "exact_motif_influence",
    "exact_spread",
    "greedy_max_coverage",
    "load_edge_list",
    "node_motifs",
    "pagerank",
    "random_connected_motifs",
    "sample_motif_rr",
    "scc_motifs",
    "select_degree",
    "select_greedy",
    "select_motif_degree",
    "select_node_influence",
    "select_pagerank",
    "select_random",
    "select_weighted_degree",
    "simulate_independent_cascade",
    "simulate_linear_threshold",
    "triangle_motifs",
]
