"""A code in which feedback is a known sparse function of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from interp.probes.lfp.probe import Place, TripleFeatures
from interp.probes.lfp.triples import ContrastiveTriple

LAYERS = (2, 10)
LATENTS = 30
UP = ((2, 7), (10, 3))  # fire by how positive a word is
DOWN = ((2, 21), (10, 18))  # fire by how negative it is


@dataclass(frozen=True)
class Coded:
    triples: list[ContrastiveTriple]
    lexicon: dict[str, float]
    features: TripleFeatures
    places: list[Place]


def coded(n: int = 600, seed: int = 0, noise: float = 0.0, strength: float = 1.0) -> Coded:
    """Valence = sum over `UP` minus sum over `DOWN`, halved (at strength 1); the other latents fire at random."""
    random = np.random.default_rng(seed)
    lexicon = {f"up{i}": 0.5 + 0.1 * (i % 30) for i in range(60)}
    lexicon |= {f"down{i}": -0.5 - 0.1 * (i % 30) for i in range(60)}
    places = [(layer, latent) for layer in LAYERS for latent in range(LATENTS)]

    def codes(valence: np.ndarray) -> np.ndarray:
        fires = random.random((len(valence), len(places))) < 0.15
        values = fires * random.uniform(0.2, 0.6, fires.shape)
        for sign, planted in ((1, UP), (-1, DOWN)):
            for place in planted:
                column = strength * np.maximum(sign * valence, 0)
                values[:, places.index(place)] = column + noise * np.abs(random.standard_normal(len(valence)))
        return values

    ups = [f"up{i}" for i in random.permutation(np.arange(n) % 60)]
    downs = [f"down{i}" for i in random.permutation(np.arange(n) % 60)]
    triples = [
        ContrastiveTriple(f"it was {u}", f"it was {d}", "it was so", u, d)
        for u, d in zip(ups, downs, strict=True)
    ]
    valences = [np.asarray([lexicon[w] for w in words]) for words in (ups, downs)]
    features = TripleFeatures(*(codes(v) for v in (*valences, np.zeros(n))))
    return Coded(triples, lexicon, features, places)
