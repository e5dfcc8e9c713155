"""Edge lists on disk, as SNAP and KONECT hand them out."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from classic_ml.influence.graph import InfluenceGraph, LinearThresholdGraph

_COMMENTS = "#%"


def load_edge_list(
    path: str | os.PathLike[str], *, directed: bool, weighted: bool = False, cascade: str = "lt"
) -> InfluenceGraph:
    """A graph from a text file (.gz or plain) with an edge a line: source, target and, `weighted`, its weight.

    Fields are separated by spaces, tabs or commas; lines that begin with # or % are comments; further columns (a
    timestamp, say) are left out. Nodes are integers where all are, else strings. Self-loops and, without weights,
    repeated edges are dropped. The weight of an edge is 1/indegree of its target, or (`weighted`) the file's as it is.

    Raises:
        ValueError: a line with too few fields or a weight that is no number, naming file and line; no edges;
            what `InfluenceGraph` (for cascade "lt" `LinearThresholdGraph`) refuses.
    """
    path = Path(path)
    sources: list[str] = []
    targets: list[str] = []
    weights: list[float] = []
    fields = 3 if weighted else 2
    opener: Callable[..., IO[str]] = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text[0] in _COMMENTS:
                continue
            parts = text.replace(",", " ").split()
            if len(parts) < fields:
                wanted = "source, target and weight" if weighted else "source and target"
                raise ValueError(
                    f"{path}, line {number}: {text[:60]!r} has {len(parts)} fields; expected {wanted}"
                )
            sources.append(parts[0])
            targets.append(parts[1])
            if weighted:
                try:
                    weights.append(float(parts[2]))
                except ValueError:
                    raise ValueError(f"{path}, line {number}: weight {parts[2]!r} is not a number") from None
    if not sources:
        raise ValueError(f"{path} holds no edges")
    kind = LinearThresholdGraph if cascade == "lt" else InfluenceGraph
    scheme = "given" if weighted else "indegree"
    ends: list[list[str]] | list[list[int]] = [sources, targets]
    if all(name.isascii() and name.isdigit() for side in (sources, targets) for name in side):
        ends = [[int(name) for name in side] for side in (sources, targets)]
    return kind.from_edges(ends[0], ends[1], weights if weighted else None, directed=directed, scheme=scheme)
