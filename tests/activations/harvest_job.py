"""A harvest of a tiny random model as a program of its own: to be killed, or run by several ranks."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from interp.activations.harvest import harvest
from interp.activations.manifest import side_path
from interp.activations.packing import TokenContexts, pack
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.activations.synthetic import ByteTokenizer

SITES = ["resid_post.1", "mlp_out.0"]


def tiny_llama(n_layers: int = 3) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=259,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=n_layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,  # large enough for attention to matter
    )
    return LlamaForCausalLM(config).eval()


def tiny_model() -> LanguageModel:
    return load_model(tiny_llama(), device="cpu")


def text() -> list[str]:
    generator = random.Random(0)
    words = ["the", "cat", "of", "Python", "sat", "module", "and", "returns", "None", "if"]
    return [" ".join(generator.choices(words, k=generator.randint(3, 40))) for _ in range(250)]


def contexts() -> TokenContexts:
    return pack(text(), ByteTokenizer(), context_size=64)


def run(out: str, model: LanguageModel | None = None, packed: TokenContexts | None = None) -> None:
    harvest(
        model or tiny_model(),
        packed or contexts(),
        SITES,
        out,
        shard_tokens=500,
        batch_size=4,
        progress=False,
    )


def run_killed_at_random(out: str, seed: int) -> int:
    """Start the harvest over and over and kill each attempt, until one gets through.

    The first is killed as soon as it has finished a shard, however fast the machine is, the others after a
    random time. Returns how often it was killed.
    """
    generator = random.Random(seed)
    kept: dict[str, int] = {}
    model, packed = tiny_model(), contexts()
    kills, longest = 0, 0.3
    while True:
        child = os.fork()
        if child == 0:
            run(out, model, packed)
            os._exit(0)
        deadline = time.monotonic() + generator.uniform(0.02, longest)
        status = None
        while status is None and (
            time.monotonic() < deadline if kills else not any(Path(out).glob("shards/*.json"))
        ):
            done, code = os.waitpid(child, os.WNOHANG)
            status = code if done else None
            time.sleep(0.002)
        if status is None:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        # What was finished before is still the same file: nothing is lost and nothing is written twice.
        now = {p.name: p.stat().st_ino for p in Path(out).glob("shards/*.json")}
        assert all(now.get(name) == inode for name, inode in kept.items()), (kept, now)
        longest *= 1.5 if len(now) == len(kept) else 1.0  # a busy machine needs longer to get anywhere
        kept = now
        if status == 0:
            break
        assert os.WIFSIGNALED(status), status
        kills += 1
    assert side_path(Path(out), 0).exists()
    return kills


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        for seed in range(int(sys.argv[2])):
            sys.stdout.write(f"{run_killed_at_random(f'{sys.argv[1]}{seed}', seed)}\n")
    else:
        run(sys.argv[1])
