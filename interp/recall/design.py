"""Which stories an experiment tells: data sets crossed with narratives, strengths of clearance and primings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from interp.core.device import derive_seed
from interp.core.messages import each_once, one_of
from interp.recall.graphs import BRASHEARS_EDGES, DOMAINS, load_source, sample_subgraphs
from interp.recall.narration import NARRATIVES, brashears_vignette, make_vignette
from interp.recall.runner import Case

BRASHEARS = tuple(f"brashears_{kind}" for kind in BRASHEARS_EDGES)


def make_cases(
    datasets: Sequence[str] = DOMAINS,
    narratives: Sequence[str] = ("matched",),
    *,
    n_graphs: int = 20,
    min_nodes: int = 5,
    max_nodes: int = 20,
    clearances: Sequence[int] = (7,),
    primings: Sequence[str] = ("none",),
    permute_pairs: bool = False,
    method: str = "ego",
    random_state: int = 0,
) -> list[Case]:
    """The cases of a full factorial design; the same graphs appear in all conditions.

    Args:
        datasets: domains (their generators), shipped graphs, edge-list files, brashears_irreducible and
            brashears_reducible (one graph each, told in `weak` and `strong` wording).
        narratives: styles; `matched` is a domain's own, and the neutral one for data sets that are no domain.
        n_graphs, min_nodes, max_nodes, method: see `sample_subgraphs`.

    Raises:
        ValueError: an unknown name, the same one twice, or sizes that a data set cannot yield.
    """
    if not datasets or not narratives or not clearances or not primings:
        raise ValueError("datasets, narratives, clearances and primings: name at least one of each")
    for narrative in narratives:
        one_of("narratives", narrative, ("matched", *NARRATIVES))
    # The same graphs told twice in the same way would count as twice as many.
    labels = {dataset: Path(dataset).stem if Path(dataset).is_file() else dataset for dataset in datasets}
    each_once("datasets", [labels[dataset] for dataset in datasets])
    each_once("clearances", clearances)
    each_once("primings", primings)
    stories = []
    for dataset in datasets:
        seed = derive_seed(random_state, dataset) % 2**31
        if dataset in BRASHEARS:
            kind = dataset.removeprefix("brashears_")
            stories += [brashears_vignette(kind, wording, seed) for wording in ("weak", "strong")]
            continue
        graph = load_source(dataset, random_state=seed)
        parts = sample_subgraphs(
            graph, n_graphs, min_nodes=min_nodes, max_nodes=max_nodes, method=method, random_state=seed
        )
        own = dataset if dataset in DOMAINS else "er"
        styles = [own if narrative == "matched" else narrative for narrative in narratives]
        each_once(f"narratives (matched is {own!r} for {dataset})", styles)
        for style in styles:
            stories += [
                make_vignette(g, style, seed + k, dataset=labels[dataset]) for k, g in enumerate(parts)
            ]
    conditions = list(product(clearances, primings))
    return [
        Case(story, clearance, priming, permute_pairs, random_state + index)
        for clearance, priming in conditions
        for index, story in enumerate(stories)
    ]
