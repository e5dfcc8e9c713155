"""What the probes minimise. Every function takes leading dimensions `*p`, one probe each."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

EPS = 1e-8  # shorter edges have no direction


def squared_distances(z: Float[Tensor, "*p n k"]) -> Float[Tensor, "*p n n"]:
    """Squared Euclidean distance of every two rows, never below 0."""
    squares = z.square().sum(-1)
    products = z @ z.transpose(-1, -2)
    return (squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * products).clamp_min(0)


def sentence_weights(lengths: Int[Tensor, " b"], dtype: torch.dtype) -> Float[Tensor, " b"]:
    """1 / b' at each of the b' sentences of two words or more, 0 at those of one word, which have no edge."""
    counted = lengths > 1
    return counted.to(dtype) / counted.sum().clamp_min(1)


def pair_weights(mask: Bool[Tensor, "b n"], dtype: torch.dtype) -> Float[Tensor, "b n n"]:
    """1 / n^2 of a sentence's weight at the pairs of its n words, and 0 elsewhere."""
    both = mask.unsqueeze(-1) & mask.unsqueeze(-2)
    lengths = mask.sum(-1)
    return both * (sentence_weights(lengths, dtype) / lengths.clamp_min(1).square())[:, None, None]


def structural_distance_loss(
    z: Float[Tensor, "*p b n k"], tree_distances: Float[Tensor, "b n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "*p"]:
    """|tree distance - squared distance|, over all ordered pairs of a sentence, averaged over the sentences of two
    words or more.

    Hewitt and Manning 2019, equation 2: L1 on the *squared* distance, each sentence divided by n^2 of its own.

    Args:
        mask: true at words; what stands elsewhere counts nowhere.
    """
    gaps = (tree_distances - squared_distances(z)).abs()
    return (gaps * pair_weights(mask, z.dtype)).sum((-1, -2, -3))


def structural_depth_loss(
    z: Float[Tensor, "*p b n k"], depths: Float[Tensor, "b n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "*p"]:
    """|depth - squared norm| averaged over the words of a sentence, then over the sentences of two words or more
    (ibid., section 2.3)."""
    lengths = mask.sum(-1)
    weights = mask * (sentence_weights(lengths, z.dtype) / lengths.clamp_min(1))[:, None]
    gaps = (depths - z.square().sum(-1)).abs()
    return (gaps * weights).sum((-1, -2))


def angular_loss(edge_vectors: Float[Tensor, "*p m k"], edge_types: Int[Tensor, " m"]) -> Float[Tensor, "*p"]:
    """Edges of a type should be collinear with the same sign, edges of different types orthogonal.

    The mean over all m^2 ordered pairs of (cos(a, b) - [same type])^2 (Diego-Simon et al. 2024). With U the
    normalised edges and S_r the sum of those of type r it equals

        ( ||U^T U||^2 - 2 sum_r ||S_r||^2 + sum_r m_r^2 ) / m^2,

    which costs m k^2 instead of m^2 k: exact for any number of edges, without an m x m matrix.

    Args:
        edge_types: number of each edge's type, from 0. 0 edges have the loss 0.
    """
    m = len(edge_types)
    if m == 0:
        return edge_vectors.sum((-1, -2))
    unit = functional.normalize(edge_vectors, dim=-1, eps=EPS)
    one_hot = functional.one_hot(edge_types).to(unit)
    sums = one_hot.T @ unit
    gram = unit.transpose(-1, -2) @ unit
    counts = one_hot.sum(0)
    total = gram.square().sum((-1, -2)) - 2 * sums.square().sum((-1, -2)) + counts.square().sum()
    return total / m**2


def root_loss(roots: Float[Tensor, "*p b k"], centre: Float[Tensor, "*p k"]) -> Float[Tensor, "*p"]:
    """Mean squared error between the root words and one learned point, over sentences and coordinates."""
    return (roots - centre.unsqueeze(-2)).square().mean((-1, -2))
