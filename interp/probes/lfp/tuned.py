"""What tuning on feedback gives: the model, how it got there, and its behaviour before and after."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.files import read_sealed_json, write_sealed_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interp.models.language_model import LanguageModel

MODEL, RESULT = "model", "tuned.json"
COLUMNS = ("step", "reward", "kl", "length", "accuracy", "margin")


@dataclass(frozen=True)
class Behaviour:
    """What a model writes after the evaluation prompts.

    Attributes:
        reward: mean over texts, None where no reward was given.
        reward_standard_error: over prompts.
        length: mean number of tokens written.
        kl: KL(model || base) in nats per token written.
        kl_per_text: its sum over a text, averaged over texts.
        example: one of the texts, with its prompt.
    """

    reward: float | None
    reward_standard_error: float | None
    length: float
    kl: float
    kl_per_text: float
    example: str


@dataclass(frozen=True)
class TunedModel:
    """A language model tuned on feedback.

    Attributes:
        model: the tuned model; the base stays as it was.
        method: "rloo" or "dpo".
        history: a row per step. For rloo: step, reward, kl (nats per token, of the model at the start of the step),
            kl_per_text, length, entropy, loss. For dpo: step, accuracy (of telling chosen from rejected), margin
            (in implicit reward), loss, and reward, kl, kl_per_text, length where they were measured.
        before, after: behaviour of base and tuned model on the same prompts with the same seed.
        steps: taken.
        stopped: why it ended there.
        folder: of the tuned model, which `load_model` reads; None if it was not saved.
    """

    model: LanguageModel
    method: str
    history: tuple[dict[str, float], ...]
    before: Behaviour
    after: Behaviour
    steps: int
    stopped: str
    folder: Path | None = None

    @property
    def reward_before(self) -> float | None:
        return self.before.reward

    @property
    def reward_after(self) -> float | None:
        return self.after.reward

    @property
    def reward_gain(self) -> float | None:
        if self.before.reward is None or self.after.reward is None:
            return None
        return self.after.reward - self.before.reward

    @property
    def kl(self) -> float:
        """KL(tuned || base) in nats per token written."""
        return self.after.kl

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model and its folder, as JSON values."""
        return {
            "method": self.method,
            "steps": self.steps,
            "stopped": self.stopped,
            "before": vars(self.before),
            "after": vars(self.after),
            "history": list(self.history),
        }

    def to_frame(self) -> pd.DataFrame:
        """The history, a row per step."""
        import pandas as pd

        return pd.DataFrame(list(self.history))

    def plot(self) -> Figure:
        """Reward, KL and length over the steps."""
        from interp.probes.lfp.tuning_plots import plot_tuning

        return plot_tuning(self)

    def __str__(self) -> str:
        names = [n for n in COLUMNS if any(n in row for row in self.history)]
        every = max(1, len(self.history) // 8)
        rows = [*self.history[::every], *self.history[-1:]]
        shown = {row["step"]: row for row in rows}.values()
        title = f"{self.method}, {self.steps} steps ({self.stopped})"
        header = "  " + "".join(f"{name:>10}" for name in names)
        lines = ["  " + "".join(_cell(row.get(name)) for name in names) for row in shown]
        return "\n".join([title, header, *lines, _line("before", self.before), _line("after", self.after)])


def save_result(tuned: TunedModel, path: str | os.PathLike[str]) -> None:
    """Everything but the model, as JSON."""
    write_sealed_json(
        path,
        {
            "method": tuned.method,
            "steps": tuned.steps,
            "stopped": tuned.stopped,
            "before": vars(tuned.before),
            "after": vars(tuned.after),
            "history": list(tuned.history),
        },
    )


def load_tuned(out: str | os.PathLike[str], *, device: Any = "auto") -> TunedModel:
    """A finished tuning from the folder that it was given as `out`.

    Raises:
        ValueError: no finished tuning there.
    """
    from interp.models.loading import load_model

    folder = Path(out)
    if not (folder / RESULT).exists():
        raise ValueError(f"{folder} holds no finished tuning: {RESULT} is missing")
    saved = read_sealed_json(folder / RESULT)
    return TunedModel(
        load_model(folder / MODEL, device=device),
        saved["method"],
        tuple(saved["history"]),
        Behaviour(**saved["before"]),
        Behaviour(**saved["after"]),
        saved["steps"],
        saved["stopped"],
        folder / MODEL,
    )


def _cell(value: float | None) -> str:
    if value is None:
        return f"{'-':>10}"
    return f"{value:>10.3f}" if isinstance(value, float) else f"{value:>10}"


def _line(name: str, behaviour: Behaviour) -> str:
    reward = ""
    if behaviour.reward is not None:
        reward = f"reward {behaviour.reward:.3f} ± {behaviour.reward_standard_error or 0:.3f}, "
    kl = f"KL {behaviour.kl:.3f} nats a token ({behaviour.kl_per_text:.2f} a text)"
    return f"  {name + ':':<8} {reward}{kl}, {behaviour.length:.1f} tokens"
