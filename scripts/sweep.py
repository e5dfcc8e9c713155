"""Run a Weights & Biases sweep file: here, without a server, or as W&B agents.

Locally, configurations that differ only in the dictionary (architecture, width, sparsity, learning rate ...) read the
same activations in the same order, so they are trained side by side on one pass over the store. Every finished
configuration is kept: run the same command again and only the missing ones are trained.

    python scripts/sweep.py scripts/sweeps/pareto.yaml --store store/ --model smollm2-135m --out runs/pareto
    python scripts/sweep.py scripts/sweeps/pareto.yaml --store store/ --model smollm2-135m --out runs/pareto --wandb

The second form registers the same file with W&B and works as one of its agents (needs credentials).
The grid and random methods are expanded here because W&B's own local controller (`wandb/sweeps`) needs
numpy < 2.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import os
import random
import sys
import zlib
from pathlib import Path
from typing import Any

import yaml

from interp.core.messages import check_name, one_of

log = logging.getLogger("sweep")

# What decides which activations are read, and in which order: who agrees here shares one stream.
STREAM_KEYS = ("steps", "batch_size", "seed", "site", "sites", "target_site")


def read_sweep(path: Path) -> dict[str, Any]:
    """The sweep file as a mapping, with `method` and `parameters` checked."""
    sweep = yaml.safe_load(path.read_text())
    if not isinstance(sweep, dict) or not isinstance(sweep.get("parameters"), dict):
        raise ValueError(f"{path}: a sweep file needs a mapping 'parameters'")
    one_of("method", sweep.get("method"), ("grid", "random"))
    return sweep


def draw(name: str, spec: dict[str, Any], rng: random.Random) -> Any:
    """One value of a parameter, by W&B's rules for `value`, `values`, `min`/`max` and `distribution`."""
    if "value" in spec:
        return spec["value"]
    if "values" in spec:
        weights = spec.get("probabilities")
        return rng.choices(spec["values"], weights=weights)[0]
    if "min" not in spec or "max" not in spec:
        raise ValueError(f"parameter {name!r}: give value, values, or min and max; got {spec}")
    low, high = spec["min"], spec["max"]
    integral = isinstance(low, int) and isinstance(high, int)
    kind = spec.get("distribution", "int_uniform" if integral else "uniform")
    one_of(f"parameters.{name}.distribution", kind, ("int_uniform", "uniform", "log_uniform_values"))
    if kind == "int_uniform":
        return rng.randint(low, high)
    if kind == "uniform":
        return rng.uniform(low, high)
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def configurations(sweep: dict[str, Any], count: int | None, seed: int) -> list[dict[str, Any]]:
    """All points of a grid, or `count` random ones (also `run_cap` in the file)."""
    parameters = sweep["parameters"]
    if sweep["method"] == "random":
        total = count or sweep.get("run_cap")
        if not total:
            raise ValueError("method 'random' needs --count, or run_cap in the sweep file")
        rng = random.Random(seed)
        return [{k: draw(k, spec, rng) for k, spec in parameters.items()} for _ in range(total)]
    for name, spec in parameters.items():
        if "value" not in spec and "values" not in spec:
            raise ValueError(f"parameter {name!r}: a grid needs value or values; got {spec}")
    axes = [spec.get("values", [spec.get("value")]) for spec in parameters.values()]
    return [dict(zip(parameters, point, strict=True)) for point in itertools.product(*axes)][:count]


def run_names(configs: list[dict[str, Any]]) -> list[str]:
    """Folder names from the parameters that differ; two that round to the same name are numbered."""
    varying = [k for k in configs[0] if len({repr(c[k]) for c in configs}) > 1]

    def name(config: dict[str, Any]) -> str:
        parts = (f"{k}={v:.4g}" if isinstance(v := config[k], float) else f"{k}={v}" for k in varying)
        return "_".join(parts) or "run"

    names = [check_name("the name of a run, made of what is swept,", name(c)) for c in configs]
    return [n if names.count(n) == 1 else f"{n}-{names[:i].count(n)}" for i, n in enumerate(names)]


def by_stream(configs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Configurations grouped by the stream that they read."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for config in configs:
        groups.setdefault(tuple(repr(config.get(k)) for k in STREAM_KEYS), []).append(config)
    return list(groups.values())


def train_missing(configs: list[dict[str, Any]], names: list[str], args: argparse.Namespace) -> None:
    """Train one stream's configurations that have no finished SAE yet, side by side."""
    from interp.sae.training import train

    missing = {n: c for n, c in zip(names, configs, strict=True) if not finished(args.out / n)}
    if not missing:
        return
    if len(missing) == 1:
        name, config = next(iter(missing.items()))
        train(args.store, out=args.out / name, **config)
        return
    shared = {k: v for k, v in configs[0].items() if k in STREAM_KEYS}
    variants = {n: {k: v for k, v in c.items() if k not in STREAM_KEYS} for n, c in missing.items()}
    log.info("%d configurations side by side on one stream %s", len(missing), shared)
    label = f"stream-{zlib.crc32(repr((shared, variants)).encode()):08x}"  # a changed set starts anew
    train(args.store, variants, out=args.out / label, **shared)
    for name in missing:
        os.replace(args.out / label / name, args.out / name)


def finished(run: Path) -> bool:
    return (run / "sae" / "config.json").exists()


def measure(runs: list[Path], args: argparse.Namespace, model: Any, text: Any) -> list[dict[str, Any]]:
    """The metrics of finished runs, each measured once on this text, together on shared forward passes."""
    from interp.sae.evaluate import evaluate_several
    from interp.sae.scores import METRICS_FILE, SAEEvaluation

    missing = [run for run in runs if SAEEvaluation.kept(run, model.name, text.name, args.tokens) is None]
    if missing:
        names = [run.name for run in missing]
        for run, scores in zip(
            missing, evaluate_several(missing, model, text, tokens=args.tokens, names=names), strict=True
        ):
            scores.save(run / METRICS_FILE)
    found = [SAEEvaluation.load(run / METRICS_FILE).to_dict() for run in runs]
    return [{k: v for k, v in scores.items() if isinstance(v, int | float | str)} for scores in found]


def load_inputs(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model and the held-out documents."""
    from interp.activations.text import load_text
    from interp.models.loading import load_model

    return load_model(args.model), load_text(args.text, split="heldout")


def run_locally(sweep: dict[str, Any], args: argparse.Namespace) -> Path:
    """Every configuration trained, measured and written as a row of `table.csv`."""
    import pandas as pd

    configs = configurations(sweep, args.count, args.seed)
    names = dict(zip(map(id, configs), run_names(configs), strict=True))
    args.out.mkdir(parents=True, exist_ok=True)
    for group in by_stream(configs):
        train_missing(group, [names[id(c)] for c in group], args)
    model, text = load_inputs(args)
    labels = [names[id(config)] for config in configs]
    measured = measure([args.out / label for label in labels], args, model, text)
    rows = zip(labels, configs, measured, strict=True)
    table = pd.DataFrame([{"run": label, **config, **scores} for label, config, scores in rows])
    table.to_csv(args.out / "table.csv", index=False)
    plot(table, args.out / "pareto.png")
    shown = ["run", "l0", "loss_recovered", "fvu", "gamma", "alive"]
    print(table[shown].to_string(index=False))
    print(f"\ntable: {args.out / 'table.csv'}   figure: {args.out / 'pareto.png'}")
    return args.out / "table.csv"


def plot(table: Any, path: Path) -> None:
    """L0 against loss recovered and FVU, a frontier per architecture."""
    from interp.core.plotting import new_figure, pareto, save_figure

    figure, axes = new_figure(1, 2)
    for ax, metric, label in zip(axes, ("loss_recovered", "fvu"), ("loss recovered", "FVU"), strict=True):
        for architecture, rows in table.groupby("architecture"):
            pareto(ax, rows["l0"], rows[metric], str(architecture))
        ax.set(xlabel="L0", ylabel=label)
    save_figure(figure, path)


def run_agent(sweep: dict[str, Any], args: argparse.Namespace) -> None:
    """Register the sweep with W&B and take configurations from its server until there are none."""
    import wandb

    model, text = load_inputs(args)

    def one() -> None:
        with wandb.init(project=args.project) as run:
            config = dict(run.config)
            train_missing([config], [run.id], args)
            run.log(measure([args.out / run.id], args, model, text)[0])

    wandb.agent(
        wandb.sweep(sweep, project=args.project), function=one, project=args.project, count=args.count
    )


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sweep", type=Path, help="W&B sweep file (YAML); parameters are arguments of interp.train")
    p.add_argument("--store", type=Path, required=True, help="store made by 'interp harvest'")
    p.add_argument("--model", required=True, help="model for the evaluation spliced into it")
    p.add_argument(
        "--out", type=Path, required=True, help="one folder per configuration, table.csv, pareto.png"
    )
    p.add_argument("--text", default="python-docs", help="held-out documents of this text are evaluated")
    p.add_argument("--tokens", default="20k", help="tokens to evaluate on")
    p.add_argument("--count", type=int, help="at most this many configurations")
    p.add_argument("--seed", type=int, default=0, help="of the random method")
    p.add_argument("--wandb", action="store_true", help="register with W&B and work as an agent")
    p.add_argument("--project", default="interp", help="W&B project")
    return p


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sweep = read_sweep(args.sweep)
    if args.wandb:
        run_agent(sweep, args)
    else:
        run_locally(sweep, args)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, TypeError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; run the same command again to continue")
