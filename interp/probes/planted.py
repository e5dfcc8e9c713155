"""Activations in which a tree's geometry was planted, to see whether a probe finds it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from interp.core.device import derive_seed
from interp.probes.treebank import ROOT, DependencyTree
from interp.probes.words import WordActivations

STEPS = 32  # dimensions of the part that carries distance
DISTRACTORS = 32


def planted_activations(
    trees: Sequence[DependencyTree],
    relations: Sequence[str],
    *,
    direction: float = 0.2,
    noise: float = 0.02,
    seed: int = 0,
    rotation_seed: int = 0,
) -> WordActivations:
    """Words as x = [U | V | W] M + noise, with M a random rotation.

    From the root, which has U = V = 0, downwards every dependent has U = U_head - xi, xi a fresh random unit
    vector, so that squared distances in U are close to distances in the tree; V = V_head - `direction` b_r,
    b_r the axis of its relation; and W is noise of its own.

    Args:
        relations: those that have an axis; the same for all splits.
        seed: of everything but M; `rotation_seed` of M, the same for all splits.
    """
    random = np.random.default_rng(derive_seed(seed, "planted"))
    axes = {relation: i for i, relation in enumerate(relations)}
    width = STEPS + len(axes) + DISTRACTORS
    rotation = random_rotation(width, seed=rotation_seed)
    out = []
    for tree in trees:
        steps = random.standard_normal((len(tree), STEPS))
        steps /= np.linalg.norm(steps, axis=1, keepdims=True)
        kinds = np.zeros((len(tree), len(axes)))
        for word, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
            if head != ROOT:
                kinds[word, axes[relation]] = direction
        below = sums_from_root(tree, np.concatenate([steps, kinds], axis=1))
        x = np.concatenate([below, random.standard_normal((len(tree), DISTRACTORS))], axis=1) @ rotation
        out.append((x + noise * random.standard_normal(x.shape)).astype(np.float32))
    return WordActivations.from_sentences(out)


def sums_from_root(tree: DependencyTree, edges: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Words whose edge vectors, head minus dependent, are the rows of `edges`; the root is 0."""
    words = np.zeros_like(edges)
    for word in np.argsort(tree.depths, kind="stable"):
        if tree.heads[word] != ROOT:
            words[word] = words[tree.heads[word]] - edges[word]
    return words


def random_rotation(width: int, *, seed: int = 0) -> Float[np.ndarray, "width width"]:
    """A random orthogonal matrix."""
    random = np.random.default_rng(derive_seed(seed, "rotation"))
    q, r = np.linalg.qr(random.standard_normal((width, width)))
    return q * np.sign(np.diag(r))
