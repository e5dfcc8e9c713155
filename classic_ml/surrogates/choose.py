"""The smallest named embedding for a number of classes."""

from __future__ import annotations

from classic_ml.surrogates.embedding import PolytopeEmbedding, first_of
from interp.core.messages import at_least, one_of

EMBEDDINGS = ("simplex", "cube", "permutahedron", "cross-polytope", "polygon")


def embedding_for(embedding: str | PolytopeEmbedding, n_classes: int) -> PolytopeEmbedding:
    """The named embedding of the fewest dimensions that has room for `n_classes`, or the one given, cut to them.

    cube ceil(log2 n), permutahedron the least d with d! >= n, cross-polytope ceil(n / 2), simplex n, polygon 2.
    Where more vertices than classes are there, classes are the first of them. Raises ValueError for an embedding
    with fewer vertices than classes, or a polygon of fewer than three.
    """
    at_least("n_classes", n_classes, 2)
    if isinstance(embedding, PolytopeEmbedding):
        return first_of(embedding, n_classes)
    one_of("embedding", embedding, EMBEDDINGS)
    if embedding == "simplex":
        return PolytopeEmbedding.simplex(n_classes)
    if embedding == "polygon":
        return PolytopeEmbedding.polygon(n_classes)
    if embedding == "cross-polytope":
        return PolytopeEmbedding.cross_polytope(-(-n_classes // 2), n_classes)
    if embedding == "cube":
        return PolytopeEmbedding.cube((n_classes - 1).bit_length(), n_classes)
    dimension, room = 2, 2
    while room < n_classes:
        dimension += 1
        room *= dimension
    return PolytopeEmbedding.permutahedron(dimension, n_classes)
