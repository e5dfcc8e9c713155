"""The report as one HTML file: everything in it, nothing fetched, safe to open with any text in the store."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from interp import __version__
from interp.core.history import History
from interp.sae.dashboard.features import Example, Feature, FeatureTable
from interp.sae.metrics import DensityHistogram
from interp.sae.scores import NAN, ROWS, SAEEvaluation

_CURVE_POINTS = 400  # of a training curve; more can't be seen


@dataclass
class Entry:
    """One SAE in a report: the first is browsed, the others are compared with it."""

    name: str
    architecture: str
    d_sae: int
    l1_coefficient: float | None = None
    evaluation: SAEEvaluation | None = None
    history: History | None = None
    density: DensityHistogram | None = None


@dataclass
class Report:
    """What a page shows."""

    entries: list[Entry]
    table: FeatureTable
    model: str | None = None
    text: str | None = None
    # Further points of the frontiers, e.g. of a sweep.
    points: list[SAEEvaluation] = field(default_factory=list)

    @property
    def evaluations(self) -> list[SAEEvaluation]:
        return [e.evaluation for e in self.entries if e.evaluation is not None] + self.points


def render(report: Report) -> str:
    """The page."""
    assets = files("interp.sae.dashboard")
    parts = {
        "TITLE": html.escape(_title(report)),
        "CSS": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "JS": "\n".join(
            assets.joinpath(name).read_text(encoding="utf-8") for name in ("charts.js", "page.js")
        ),
        "DATA": script_json(payload(report)),
    }
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    # One pass over the template, so that nothing in the data is taken for a placeholder.
    pieces = page.split("@@")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def script_json(value: Any) -> str:
    """JSON that can stand inside a <script> element: no "</script>", "<!--" or line separators."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    # Half a surrogate pair can't be written as UTF-8.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def payload(report: Report) -> dict[str, Any]:
    """Everything the page's script draws, as plain numbers and strings."""
    table = report.table
    tokens = _Tokens(table)
    features = [_feature(feature, table, tokens) for feature in table.features]
    first = report.entries[0]
    where = f"{table.site} of {report.model}" if report.model else table.site
    text = f" of {report.text}" if report.text else ""
    return {
        "eyebrow": "Sparse autoencoder report",
        "lede": f"{table.d_sae:,} latents for the {table.d_in:,} dimensions of {where}, "
        f"browsed over {table.n_tokens:,} tokens{text}.",
        "headline": _headline(first, table),
        "metrics": _metrics(report.entries),
        "charts": {
            "frontier": frontier(report),
            "densities": [_density(entry) for entry in report.entries if entry.density is not None],
            "histories": [_curves(entry) for entry in report.entries if entry.history],
        },
        "latents_note": f"The {len(features):,} that are easiest to read, of {table.d_sae:,}; "
        f"{len(table.dead):,} never fired on these tokens.",
        "features": features,
        "tokens": tokens.strings,
        "footer": f"Made by interp {__version__}. The same data: features.json.",
    }


def _title(report: Report) -> str:
    names = {"gated": "Gated SAE", "standard": "Standard SAE", "jumprelu": "JumpReLU SAE"}
    architecture = report.entries[0].architecture
    return f"{names.get(architecture, architecture)} at {report.table.site}"


def _headline(entry: Entry, table: FeatureTable) -> list[tuple[str, str, str]]:
    cells = []
    if entry.evaluation is not None:
        shown = {"l0", "loss_recovered", "fvu", "gamma", "alive"}
        for attribute, label, form, note in ROWS:
            value = getattr(entry.evaluation, attribute)
            if attribute in shown and not math.isnan(value):
                cells.append((label, form.format(value), note))
    else:
        l0 = table.hits.sum() / max(table.n_tokens, 1)
        alive = 1 - len(table.dead) / table.d_sae
        cells = [
            ("L0", f"{l0:.1f}", ROWS[0][3]),
            ("alive", f"{alive:.1%}", "latents that fired at least once"),
        ]
    return [*cells, ("latents", f"{table.d_sae:,}", "size of the dictionary")]


def _metrics(entries: Sequence[Entry]) -> dict[str, Any]:
    columns, rows = [], []
    for entry in entries:
        coefficient = "" if entry.l1_coefficient is None else f", λ {entry.l1_coefficient:g}"
        note = f"{entry.architecture}, {entry.d_sae:,} latents{coefficient}"
        columns.append({"name": entry.name, "note": note})
    for attribute, label, form, note in ROWS:
        values = [getattr(entry.evaluation, attribute, NAN) for entry in entries]
        if not all(math.isnan(v) for v in values):
            shown = ["–" if math.isnan(v) else form.format(v) for v in values]
            rows.append({"label": label, "note": note, "values": shown})
    evaluated = [entry.evaluation for entry in entries]
    if any(evaluated):
        counts = ["–" if e is None else f"{e.n_tokens:,}" for e in evaluated]
        note = "tokens the SAE was measured on; where it is spliced in, the others are left as they are"
        rows.append({"label": "tokens", "note": note, "values": counts})
    return {"columns": columns, "rows": rows}


def frontier(report: Report) -> list[dict[str, Any]]:
    """Points (L0, loss recovered, FVU) of all SAEs given, a series for each architecture."""
    series: dict[str, list[dict[str, Any]]] = {}
    for e in report.evaluations:
        point = {key: _finite(getattr(e, key)) for key in ("l0", "loss_recovered", "fvu")}
        browsed = e is report.entries[0].evaluation
        series.setdefault(e.architecture, []).append({"name": e.name, "browsed": browsed, **point})
    return [{"name": name, "points": points} for name, points in series.items()]


def _density(entry: Entry) -> dict[str, Any]:
    assert entry.density is not None
    d = entry.density
    return {"name": entry.name, "edges": list(d.edges), "counts": list(d.counts), "dead": d.n_dead}


def _curves(entry: Entry) -> dict[str, Any]:
    rows = list(entry.history or ())
    every = max(1, -(-len(rows) // _CURVE_POINTS))
    kept = [row for i, row in enumerate(rows) if i % every == 0 or i == len(rows) - 1]
    columns = {key: [_finite(row.get(key)) for row in kept] for key in ("loss", "l0")}
    logged = {key: values for key, values in columns.items() if any(v is not None for v in values)}
    return {"name": entry.name, "step": [row["step"] for row in kept], **logged}


class _Tokens:
    """Token strings by the order in which they are first needed."""

    def __init__(self, table: FeatureTable) -> None:
        self.strings: list[str] = []
        self._vocabulary = table.vocabulary
        self._places: dict[int, int] = {}

    def __getitem__(self, token_id: int) -> int:
        if token_id not in self._places:
            self._places[token_id] = len(self.strings)
            self.strings.append(self._vocabulary.string(token_id))
        return self._places[token_id]


def _feature(feature: Feature, table: FeatureTable, tokens: _Tokens) -> dict[str, Any]:
    about, effect = feature.description, feature.logits
    return {
        "index": feature.index,
        "density": feature.density,
        "hits": int(table.hits[feature.index]),
        "max": _short(feature.max_activation),
        "mean": _short(feature.mean_activation),
        "score": None if about is None else _short(about.score),
        "kind": None if about is None else about.kind,
        "word": None if about is None else about.word,
        "top": None if about is None else _short(about.share_top),
        "sample": None if about is None else _short(about.share_sample),
        "base": None if about is None else _short(about.base_rate),
        "histogram": {"counts": feature.histogram_counts, "width": feature.histogram_width},
        "promoted": effect and [(tokens[t], _short(v)) for t, v in effect.promoted],
        "suppressed": effect and [(tokens[t], _short(v)) for t, v in effect.suppressed],
        "groups": [
            {
                "low": _short(g.low),
                "high": _short(g.high),
                "examples": [_example(e, tokens) for e in g.examples],
            }
            for g in feature.groups
        ],
        "companions": [(c.latent, _short(c.share), _short(c.lift)) for c in feature.companions],
        "neighbours": [(i, _short(cosine)) for i, cosine in feature.neighbours],
    }


def _example(e: Example, tokens: _Tokens) -> list[Any]:
    fired = [(j, _short(v)) for j, v in enumerate(e.values) if v]
    return [e.context, e.document, e.position, e.peak, [tokens[t] for t in e.token_ids], fired]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _finite(value: Any) -> float | None:
    return _short(value) if isinstance(value, int | float) and math.isfinite(value) else None
