"""Functions of bits -1 and +1 that permutations leave alone, and permutations drawn for each row.

The law of uniform bits is unchanged by permutations: augmenting there saves samples, it corrects no shift.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.messages import at_least

Bits = Float[Tensor, "n d"]


def permute_each_row(X: Bits, generator: torch.Generator) -> Bits:
    """A uniform permutation of the columns for each row."""
    order = torch.rand(X.shape, generator=generator).argsort(1)
    return X.gather(1, order.to(X.device))


def permute_blocks_each_row(X: Bits, size: int, generator: torch.Generator) -> Bits:
    """For each row a uniform permutation of its blocks of `size` columns, then of the columns inside each."""
    n, d = X.shape
    blocks = torch.rand(n, d // size, generator=generator).argsort(1)
    inner = torch.rand(n, d // size, size, generator=generator).argsort(2)
    order = (blocks[:, :, None] * size + inner).reshape(n, d)
    return X.gather(1, order.to(X.device))


@dataclass(frozen=True)
class BooleanProblem:
    """A function of d bits: the majority of the parities of consecutive blocks. One block is the full parity.

    Attributes:
        n_bits: d.
        block: bits a block, a divisor of d with an odd quotient, so that no majority is tied.
    """

    n_bits: int
    block: int

    def __post_init__(self) -> None:
        at_least("n_bits", self.n_bits, 1)
        at_least("block", self.block, 1)
        if self.n_bits % self.block or self.n_bits // self.block % 2 == 0:
            raise ValueError(
                f"block = {self.block} must divide n_bits = {self.n_bits} into an odd number of blocks"
            )

    def __str__(self) -> str:
        whole = self.block == self.n_bits
        return (
            f"parity of {self.n_bits} bits"
            if whole
            else f"majority of {self.block}-bit parities, {self.n_bits} bits"
        )

    def labels(self, X: Bits) -> Float[Tensor, " n"]:
        """-1 or +1 of each row."""
        return X.unflatten(1, (-1, self.block)).prod(2).sum(1).sign()

    def sample(self, n: int, generator: torch.Generator) -> tuple[Bits, Float[Tensor, " n"]]:
        """n uniform rows and their labels."""
        X = torch.randint(2, (n, self.n_bits), generator=generator).float() * 2 - 1
        return X, self.labels(X)

    def permute(self, X: Bits, generator: torch.Generator) -> Bits:
        """A random permutation a row that keeps the label."""
        return permute_blocks_each_row(X, self.block, generator)


def full_parity(n_bits: int) -> BooleanProblem:
    """prod_i x_i; every permutation keeps it."""
    return BooleanProblem(n_bits, n_bits)


def majority_of_parities(n_bits: int, block: int = 3) -> BooleanProblem:
    """sign(sum_j x_3j x_3j+1 x_3j+2), kept by permuting the blocks and inside them: our reading of the paper's f2."""
    return BooleanProblem(n_bits, block)
