"""`SAEEvaluation`: what `evaluate` found, as a table, a JSON file, a data frame row and a figure."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.activations.harvest import parse_tokens
from interp.core.config import from_dict
from interp.core.files import read_json, read_sealed_json, write_sealed_json
from interp.sae.metrics import DensityHistogram
from interp.sae.run_folder import METRICS_FILE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from rich.table import Table

    from interp.sae.dictionary import Dictionary

__all__ = ["METRICS_FILE", "SAEEvaluation"]

logger = logging.getLogger(__name__)

NAN = math.nan

# (attribute, label, format, what a reader should know)
ROWS = (
    ("l0", "L0", "{:.1f}", "latents firing per token"),
    ("open_gates", "open gates", "{:.1f}", "gates open per token, firing or not"),
    ("loss_recovered", "loss recovered", "{:.4f}", "against zero ablation; 1 is lossless"),
    ("loss_recovered_mean", "loss recovered (mean)", "{:.4f}", "against mean ablation"),
    ("kl_score", "KL score", "{:.4f}", "1 - KL(clean || spliced) / KL(clean || zeroed)"),
    ("k", "k", "{:.1f}", "latents per token in training; L0 should agree"),
    ("fvu", "FVU", "{:.4f}", "fraction of variance unexplained, about the mean"),
    ("gamma", "γ", "{:.4f}", "relative reconstruction bias; below 1 is shrinkage"),
    ("gamma_centered", "γ centred", "{:.4f}", "the same about the mean of the data"),
    ("cosine", "cosine", "{:.4f}", "of x and its reconstruction, mean over tokens"),
    ("l2_ratio", "L2 ratio", "{:.4f}", "norm of the reconstruction over that of x"),
    ("alive", "alive", "{:.1%}", "latents that fired at least once"),
    ("ce_clean", "CE clean", "{:.4f}", "nats per predicted token, the model alone"),
    ("ce_spliced", "CE spliced", "{:.4f}", "with the SAE spliced in"),
    ("ce_mean", "CE mean-ablated", "{:.4f}", "the site replaced by its mean"),
    ("ce_zero", "CE zero-ablated", "{:.4f}", "the site replaced by zero"),
    ("kl_spliced", "KL clean || spliced", "{:.4f}", "nats per predicted token"),
)


@dataclass(frozen=True)
class PartScores:
    """What a part of a dictionary does: a prefix, a smaller budget, or one of several sites.

    The figures mean what those of `SAEEvaluation` mean; at a site, the splice and the ablations are at that site alone.
    """

    name: str
    d_sae: int
    l0: float
    fvu: float
    ce_spliced: float = NAN
    loss_recovered: float = NAN
    loss_recovered_mean: float = NAN

    def __str__(self) -> str:
        recovered = "" if math.isnan(self.loss_recovered) else f", loss recovered {self.loss_recovered:.4f}"
        return f"{self.name}: L0 {self.l0:.1f}, FVU {self.fvu:.4f}{recovered}"


@dataclass(repr=False)
class SAEEvaluation:
    """Every figure is over the whole evaluation set; what was not measured is NaN (null in JSON).

    Attributes:
        n_tokens: rows of activations that the SAE was measured on (and that were replaced, in a model).
        n_predictions: next-token predictions that the cross-entropies (nats) are means of: all of them, also
            where the row itself was left as it was.
        positions: "trained" (position 0 of each segment and special tokens left as they are, in the splice and
            in both ablations alike), "all" (every token replaced), or "stream" (no model).
        with_error_term: whether the SAE's error was added back, which makes the splice the identity.
        limit: about how many tokens were asked for; None: the whole text.
        differs: in what this is not an evaluation of the SAE where, and as, it was trained; such figures are not
            the SAE's own and are not written into its run.
        site: where it reads and, unless there is a `target_site` (a transcoder's output), what it replaces. Figures of
            the reconstruction are those of the target; of several sites, on the scale of training.
        k: latents per token in training, where the architecture fixes them.
        parts: prefixes of a Matryoshka SAE, budgets of a TopK SAE, sites of a crosscoder.
        dictionary: digest of `Dictionary.identity()`, whose figures these are.
        l0, open_gates, l1: per token.  mse: squared error summed over dimensions, mean over tokens.
        alive: share of latents that fired at all in n_tokens tokens (means little below 1e6).
        density: histogram of log10 firing density.
    """

    name: str
    architecture: str
    site: str
    d_in: int
    d_sae: int
    n_tokens: int
    l0: float
    l1: float
    mse: float
    fvu: float
    gamma: float
    gamma_centered: float
    cosine: float
    l2_ratio: float
    alive: float
    density: DensityHistogram
    positions: str
    target_site: str = ""
    open_gates: float = NAN
    k: float = NAN
    l1_coefficient: float = NAN
    parts: tuple[PartScores, ...] = ()
    model: str = ""
    text: str = ""
    with_error_term: bool = False
    limit: int | None = None
    differs: tuple[str, ...] = ()
    dictionary: str = ""
    n_predictions: int = 0
    ce_clean: float = NAN
    ce_spliced: float = NAN
    ce_zero: float = NAN
    ce_mean: float = NAN
    loss_recovered: float = NAN
    loss_recovered_mean: float = NAN
    kl_spliced: float = NAN
    kl_zero: float = NAN
    kl_score: float = NAN

    @property
    def explained_variance(self) -> float:
        return 1.0 - self.fvu

    @property
    def n_dead(self) -> int:
        return self.density.n_dead

    def cells(self) -> list[tuple[str, str, str]]:
        """Label, value and explanation of each figure that was measured."""
        return [
            (label, form.format(value), note)
            for attribute, label, form, note in ROWS
            if not math.isnan(value := getattr(self, attribute))
        ]

    @property
    def caption(self) -> str:
        """What was measured on what, in one line."""
        place = f"{self.site} -> {self.target_site}" if self.target_site else self.site
        where = f"{place} of {self.model}" if self.model else place
        text = f", {self.text}" if self.text else ""
        splice = f", positions: {self.positions}" if self.positions != "stream" else ""
        differs = f"; NOT as trained: {', '.join(self.differs)}" if self.differs else ""
        return (
            f"{self.name}: {self.architecture}, {self.d_sae:,} latents at {where}; "
            f"{self.n_tokens:,} tokens{text}{splice}{differs}"
        )

    def __str__(self) -> str:
        cells = self.cells()
        wide, wide_value = max(len(c[0]) for c in cells), max(len(c[1]) for c in cells)
        lines = [f"  {label:<{wide}}  {value:>{wide_value}}  {note}" for label, value, note in cells]
        return "\n".join([self.caption, *lines, *(f"  {part}" for part in self.parts)])

    __repr__ = __str__

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.caption, title_justify="left")
        table.add_column("metric")
        table.add_column("value", justify="right")
        table.add_column("", style="dim")
        for row in self.cells():
            table.add_row(*row)
        for part in self.parts:
            table.add_row(part.name, f"{part.fvu:.4f}", str(part))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings; NaN and infinities as None."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SAEEvaluation:
        """The inverse of `to_dict`."""
        parts = content.get("parts", ())
        if isinstance(parts, list):
            parts = tuple(_with_nan(PartScores, part) if isinstance(part, dict) else part for part in parts)
        return from_dict(cls, {**_with_nan(cls, content), "parts": parts})

    def save(self, path: str | Path) -> None:
        """Write `to_dict()` as JSON."""
        write_sealed_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> SAEEvaluation:
        """Read what `save` wrote.  Raises ValueError naming the file, for one of another kind."""
        content = read_json(path, dict)
        if "seal" in content:  # what an earlier release wrote has none
            content = read_sealed_json(path)
        try:
            return cls.from_dict(content)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def of(cls, sae: Dictionary, path: str | Path) -> SAEEvaluation | None:
        """What `save` wrote, if it is of this dictionary as it was trained; else None, and a warning says why."""
        found = cls.load(path)
        if found.dictionary != sae.identity().digest:
            logger.warning("%s is left out: it was measured on another dictionary; evaluate again", path)
            return None
        if found.differs:
            logger.warning("%s is left out, the SAE was measured with %s", path, ", ".join(found.differs))
            return None
        return found

    @classmethod
    def kept(cls, run: str | Path, model: str, text: str, tokens: int | str | None) -> SAEEvaluation | None:
        """A run's metrics, if it has some of its dictionary, this model, text and number of tokens."""
        from interp.sae.loading import load_sae

        path = Path(run) / METRICS_FILE
        found = cls.of(load_sae(run), path) if path.is_file() else None
        asked = (model, text, parse_tokens(tokens))
        return found if found is not None and (found.model, found.text, found.limit) == asked else None

    def to_frame(self) -> pd.DataFrame:
        """One row, a column a figure."""
        import pandas as pd

        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("density", "parts")}
        return pd.DataFrame([row]).assign(n_dead=self.n_dead)

    def plot(self) -> Figure:
        """Firing density, and cross-entropy clean, spliced and ablated."""
        from interp.core.plotting import COLOURS, new_figure

        figure, (left, right) = new_figure(1, 2)
        edges = self.density.edges
        left.stairs(self.density.counts, edges, fill=True, color=COLOURS[0])
        left.set(
            xlabel="log10 firing density", ylabel="latents", title=f"{self.n_dead:,} dead of {self.d_sae:,}"
        )
        bars = {
            "clean": self.ce_clean,
            "spliced": self.ce_spliced,
            "mean": self.ce_mean,
            "zero": self.ce_zero,
        }
        bars = {k: v for k, v in bars.items() if not math.isnan(v)}
        if bars:
            right.bar(list(bars), list(bars.values()), color=COLOURS[: len(bars)])
            right.set(
                ylabel="cross-entropy, nats per token", title=f"loss recovered {self.loss_recovered:.4f}"
            )
        else:
            right.set_axis_off()
        return figure


def _with_nan(cls: type[Any], content: dict[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass, with NaN for the figures that JSON has as null."""
    floats = {f.name for f in fields(cls) if f.type == "float"}
    return {k: NAN if v is None and k in floats else v for k, v in content.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, DensityHistogram | PartScores):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
