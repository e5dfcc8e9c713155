"""A one-layer byte-level transformer, small enough to train in half a minute, and the text it is trained on."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from interp.core.device import make_generator
from interp.core.schedules import Schedule

N_BYTES = 128
CONTEXT = 64


def standard_library_bytes(limit: int = 3_000_000) -> Int[Tensor, " n"]:
    """The first bytes of the standard library's *.py files in sorted order; bytes above 127 become 127."""
    parts, total = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        parts.append(path.read_bytes())
        total += len(parts[-1])
        if total >= limit:
            break
    return torch.frombuffer(bytearray(b"".join(parts)[:limit]), dtype=torch.uint8).long().clamp_max(127)


def windows(text: Int[Tensor, " n"], count: int, generator: torch.Generator) -> Int[Tensor, "count s"]:
    """Random windows of one more byte than the context: inputs and targets overlap."""
    starts = torch.randint(0, len(text) - CONTEXT, (count,), generator=generator)
    return text[starts[:, None] + torch.arange(CONTEXT + 1)]


class ByteTransformer(nn.Module):
    """Pre-norm attention and a GELU MLP; `neurons` [b s d_mlp] are the MLP's post-GELU activations."""

    def __init__(self, d_model: int = 48, n_heads: int = 4, d_mlp: int = 128) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.embed = nn.Embedding(N_BYTES, d_model)
        self.position = nn.Embedding(CONTEXT, d_model)
        self.norm_attention, self.norm_mlp, self.norm_final = (nn.LayerNorm(d_model) for _ in range(3))
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.project = nn.Linear(d_model, d_model)
        self.mlp_in, self.mlp_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)
        self.unembed = nn.Linear(d_model, N_BYTES, bias=False)

    def before_mlp(self, tokens: Int[Tensor, "b s"]) -> Float[Tensor, "b s d"]:
        """The residual stream that the MLP reads."""
        x = self.embed(tokens) + self.position.weight[: tokens.shape[1]]
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_attention(x)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.project(mixed.transpose(1, 2).flatten(-2))

    def neurons(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d_mlp"]:
        return functional.gelu(self.mlp_in(self.norm_mlp(x)))

    def logits(
        self, x: Float[Tensor, "b s d"], neurons: Float[Tensor, "b s d_mlp"]
    ) -> Float[Tensor, "b s v"]:
        return self.unembed(self.norm_final(x + self.mlp_out(neurons)))

    def forward(self, tokens: Int[Tensor, "b s"]) -> Float[Tensor, "b s v"]:
        x = self.before_mlp(tokens)
        return self.logits(x, self.neurons(x))


def cross_entropy(logits: Float[Tensor, "b s v"], targets: Int[Tensor, "b s"]) -> Tensor:
    """Mean next-byte cross-entropy in nats."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train_byte_transformer(
    text: Int[Tensor, " n"], *, steps: int = 2500, batch: int = 32, seed: int = 0
) -> ByteTransformer:
    """AdamW from 3e-3 to 3e-4 by a cosine, after a short warm-up."""
    torch.manual_seed(seed)
    model = ByteTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = Schedule(steps, warmup_steps=min(100, steps), decay="cosine", decay_steps=steps, final=0.1)
    generator = make_generator(seed, "windows")
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * schedule(step)
        tokens = windows(text, batch, generator)
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(tokens[:, :-1]), tokens[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval().requires_grad_(False)
