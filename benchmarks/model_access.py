"""What does reading activations through the library cost over a bare forward hook?

Ways of getting one layer's residual stream out of SmolLM2-135M, interleaved in one process on one thread, so that a
busy machine slows all of them alike.  Reported: tokens per CPU-second of the best round, and the ratio to the bare
hook that stops the pass (the least work there is).

    python benchmarks/model_access.py [--layer 15] [--batch 4] [--length 128] [--seconds 80]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from interp.models.loading import load_model


class _Stop(Exception):
    pass


def ways(layer: int) -> dict[str, Callable[[Tensor], Tensor]]:
    plain = load_model("smollm2-135m")
    bridged = load_model("smollm2-135m", engine="transformer_lens")
    first = load_model("smollm2-135m", n_layers=layer + 1)
    site, hook_name = f"resid_post.{layer}", f"blocks.{layer}.hook_resid_post"
    module = plain.module

    @torch.no_grad()
    def bare(ids: Tensor) -> Tensor:
        found: list[Tensor] = []

        def hook(_module: object, _args: object, output: Tensor) -> None:
            found.append(output)
            raise _Stop

        handle = module.model.layers[layer].register_forward_hook(hook)
        try:
            module.model(ids, use_cache=False)
        except _Stop:
            pass
        finally:
            handle.remove()
        return found[0]

    @torch.no_grad()
    def hidden_states(ids: Tensor) -> Tensor:
        return module(ids, output_hidden_states=True, use_cache=False).hidden_states[layer + 1]

    @torch.no_grad()
    def bridge_cache(ids: Tensor) -> Tensor:
        _, cache = bridged.bridge.run_with_cache(ids, names_filter=hook_name, stop_at_layer=layer + 1)
        return cache[hook_name]

    return {
        "bare hook + stop": bare,
        "interp": lambda ids: plain.activations(ids, site)[site],
        "interp, n_layers": lambda ids: first.activations(ids, site)[site],
        "interp, transformer_lens engine": lambda ids: bridged.activations(ids, site)[site],
        "TransformerLens run_with_cache": bridge_cache,
        "output_hidden_states": hidden_states,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layer", type=int, default=15)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument(
        "--seconds", type=float, default=80, help="no new round starts after this much wall time"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)

    started = time.monotonic()
    contenders = ways(options.layer)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 49152, (options.batch, options.length), generator=generator)
    reference = contenders["bare hook + stop"](ids)
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    while time.monotonic() - started < options.seconds or not spent["output_hidden_states"]:
        for name, way in contenders.items():
            before = time.process_time()
            value = way(ids)
            spent[name].append(time.process_time() - before)
            error = float((value - reference).abs().max() / reference.abs().max())
            if error > 1e-5:
                raise SystemExit(f"{name} gives other activations (relative error {error:.1e})")
            if time.monotonic() - started > options.seconds and spent["output_hidden_states"]:
                break

    tokens, best = ids.numel(), {name: min(times) for name, times in spent.items()}
    print(
        f"layer {options.layer}, {options.batch} x {options.length} tokens, one thread, torch {torch.__version__}"
    )
    print(f"{'way':<34}{'tokens/CPU-s':>14}{'ratio':>8}{'rounds':>8}")
    for name, seconds in best.items():
        ratio = best["bare hook + stop"] / seconds
        print(f"{name:<34}{tokens / seconds:>14.0f}{ratio:>8.3f}{len(spent[name]):>8}")


if __name__ == "__main__":
    main()
