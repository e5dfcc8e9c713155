"""What nodes are called in each domain. No name begins another or holds a digit that stands alone, and the order
of a pool says nothing: vignettes draw from it at random."""

from __future__ import annotations

import itertools
from functools import cache

PEOPLE = (
    "Amina Bruno Carla Derek Elif Farid Greta Hugo Ingrid Jonas Keiko Lorenzo Marta Nadia Oscar Priya Quentin Rosa "
    "Stefan Tamara Umar Vera Walter Ximena Yusuf Zoe Agnes Boris Clara Dmitri Esther Felix Gloria Harold Irene Julio "
    "Katrin Leopold Monica Nils Olga Pablo Ruth Samuel Thea Ursula Victor Wanda Yolanda Zachary Bridget Cedric Dolores "
    "Edgar Fiona Gustav Helena Ivan Judith Kurt"
).split()
_PLACE_STARTS = "Alder Birch Copper Dun Elm Fern Glen Hazel Iron Juniper Kings Lark Maple North Oak".split()
_PLACE_ENDS = "bridge field ford haven".split()
_SURNAMES = (
    "Abara Bianchi Castell Dvorak Engel Fontaine Gruber Haddad Iversen Jansen Kowal Lindqvist Moreau Novak Okafor "
    "Petrov Quiroga Rossi Sato Takacs Urbina Vogel Weiss Xanthos Yilmaz Zeman Almeida Brandt Costa Delacroix"
).split()
_CONSONANTS = "BDFGKLMPRSTVZ"


@cache
def pool(domain: str) -> tuple[str, ...]:
    """60 names of a domain."""
    if domain == "social":
        return tuple(PEOPLE)
    if domain == "road":
        return tuple(a + b for a, b in itertools.product(_PLACE_STARTS, _PLACE_ENDS))
    if domain == "author":
        initials = ("AK", "JM", "LP", "RS")
        return tuple(f"{initials[(k + k // 30) % 4]} {_SURNAMES[k % 30]}" for k in range(60))
    codes = ["".join(letters) for letters in itertools.permutations(_CONSONANTS, 3)]
    if domain == "ppi":  # as gene symbols look; digits 0 and 1 would read like answers
        return tuple(f"{codes[k * 29]}{2 + k % 8}" for k in range(60))
    return tuple(codes[k * 28 + 1] for k in range(60))
