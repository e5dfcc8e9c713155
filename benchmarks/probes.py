"""How long does a layer's Polar Probe take when all layers' probes train in one computation?

Three ways to train the probes of L layers on the same sentences, in one process, on the same batches:

  batched    `fit_probes` with all layers: every step projects, measures and updates all probes at once, on the
             Gram form of the distances and the exact m k^2 form of the angular loss, gradients written out
  loop       `fit_probes` once a layer: the same formulas, one layer at a time
  plain loop one layer at a time as the papers write the losses: explicit differences of all pairs of words
             [b n n k] and the m x m matrix of cosines

Times are CPU seconds of this process, so that other work on the machine weighs little; activations are random
(the arithmetic is the same). The weights of the three must agree.

    OMP_NUM_THREADS=1 python benchmarks/probes.py --out benchmarks/results/probes.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from interp.core.device import environment
from interp.core.stream import ArrayStream
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.grammar import ControlledGrammar
from interp.probes.training import ProbeTraining, fit_probes
from interp.probes.tree_data import TreeData
from interp.probes.treebank import DependencyTree, relation_types
from interp.probes.words import WordActivations


def random_words(trees: list[DependencyTree], n_layers: int, d: int) -> WordActivations:
    starts = torch.tensor([0, *(len(tree) for tree in trees)]).cumsum(0)
    values = torch.randn(n_layers, int(starts[-1]), d, generator=torch.Generator().manual_seed(0))
    return WordActivations(values, tuple(range(n_layers)), starts, tuple(range(len(trees))))


def plain_layer(x: Tensor, data: TreeData, rank: int, config: ProbeTraining) -> Tensor:
    """One layer's probe with the losses as the papers write them."""
    spread, mean = torch.std_mean(x, dim=0, correction=0)
    x = (x - mean) / spread
    b = ProbeBank([ProbeSpec(0, rank)], x.shape[1], (0,), data.relations).weight[0].detach().clone()
    b.requires_grad_()
    adam = torch.optim.Adam([b], lr=config.lr)
    stream = ArrayStream(torch.arange(len(data)), seed=config.seed)
    steps = config.max_epochs * -(-len(data) // config.batch_size)
    for _ in range(steps):
        batch = data.batch(stream.next_batch(config.batch_size))
        z = x[batch.words] @ b
        padded = z[batch.padded]
        pairs = batch.mask[:, :, None] & batch.mask[:, None, :]
        wanted = padded.new_zeros(pairs.shape)
        wanted[pairs] = batch.distances
        gaps = padded[:, :, None, :] - padded[:, None, :, :]
        errors = (wanted - gaps.square().sum(-1)).abs() * pairs
        distance = (errors.sum((1, 2)) / batch.mask.sum(1) ** 2).mean()
        words = batch.dependents
        types = batch.types[words]
        unit = functional.normalize(z[batch.heads[words]] - z[words], dim=-1)
        same = (types[:, None] == types[None, :]).to(unit)
        angular = (unit @ unit.T - same).square().mean()
        adam.zero_grad()
        (distance + angular).backward()
        adam.step()
    return b.detach()


def timed(run: Callable[[], Tensor]) -> tuple[float, Tensor]:
    before = time.process_time()
    out = run()
    return time.process_time() - before, out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=31)
    parser.add_argument("--d", type=int, default=576)
    parser.add_argument("--ranks", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=1, help="The median counts.")
    parser.add_argument("--out", type=Path, help="Write the table here as well.")
    arguments = parser.parse_args()

    trees = ControlledGrammar().sample(arguments.sentences)
    words = random_words(trees, arguments.layers, arguments.d)
    data = TreeData(trees, relation_types(trees))
    config = ProbeTraining(max_epochs=arguments.epochs, progress=False, device="cpu")
    layers = range(arguments.layers)
    lines = [
        f"{arguments.layers} layers, width {arguments.d}, {arguments.sentences} sentences "
        f"({words.values.shape[1]} words), batches of {config.batch_size}, {arguments.epochs} epochs; "
        f"CPU milliseconds a layer and epoch, {torch.get_num_threads()} thread, torch {torch.__version__}",
        "",
        "| rank | batched | loop | plain loop | loop / batched | plain loop / batched |",
        "|---|---|---|---|---|---|",
    ]
    for rank in arguments.ranks:
        specs = [ProbeSpec(layer, rank) for layer in layers]
        ways: dict[str, Callable[[], Tensor]] = {
            "batched": lambda specs=specs: fit_probes(words, trees, specs, config).bank.weight,
            "loop": lambda specs=specs: torch.cat(
                [fit_probes(words.at(spec.layer), trees, [spec], config).bank.weight for spec in specs]
            ),
            "plain loop": lambda rank=rank: torch.stack(
                [plain_layer(words.values[layer], data, rank, config) for layer in layers]
            ),
        }
        fit_probes(words, trees, specs, ProbeTraining(max_epochs=1, progress=False, device="cpu"))  # warm up
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        weights: dict[str, Tensor] = {}
        for _ in range(arguments.repeats):
            for name, way in ways.items():
                taken, weights[name] = timed(way)
                seconds[name].append(taken)
        for name, weight in weights.items():
            off = float((weight - weights["batched"]).abs().max())
            if off > 1e-3:
                raise ValueError(
                    f"rank {rank}: the weights of {name!r} are {off:.2g} away from the batched ones"
                )
        each = {
            name: 1e3 * statistics.median(taken) / arguments.layers / arguments.epochs
            for name, taken in seconds.items()
        }
        batched, loop, plain = each["batched"], each["loop"], each["plain loop"]
        lines.append(
            f"| {rank} | {batched:.1f} | {loop:.1f} | {plain:.1f} | {loop / batched:.2f} | {plain / batched:.2f} |"
        )
    machine = environment()
    lines += ["", f"{machine['platform']}, Python {machine['python']}"]
    print("\n".join(lines))
    if arguments.out is not None:
        arguments.out.write_text("\n".join(["# Polar Probes of all layers at once", "", *lines]) + "\n")


if __name__ == "__main__":
    main()
