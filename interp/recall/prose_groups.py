"""What a clause says about pairs: groups of names, and what follows for pairs when two groups are said to be tied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

Said = frozenset[tuple[frozenset[str], int]]  # pairs with 1 (tied) or 0
NOTHING: Said = frozenset()
# A reading that exists but leaves open which pairs are meant; a sentence that may be read so is not read at all.
UNSURE: Said = frozenset({(frozenset(), -1)})


@dataclass(frozen=True)
class Group:
    """Names in a sentence and how they are joined.

    Attributes:
        names: those listed; for quantifiers, those excepted.
        kind: one, and, list (commas alone), or, neither, none (of these), only, pair (in brackets), everyone, nobody,
            anyone.
        rest: everyone else, nobody else: whom, depends on who came before.
    """

    names: tuple[str, ...]
    kind: str
    rest: bool = False

    @property
    def listed(self) -> bool:
        return self.kind in ("one", "and", "list")


def tie(a: Iterable[str], b: Iterable[str], answer: int) -> Said:
    """The same answer for every name of `a` with every name of `b`, a name with itself left out."""
    return frozenset((frozenset((u, v)), answer) for u in a for v in b if u != v)


def relate(
    subject: Group, obj: Group, negated: bool, everyone: frozenset[str], before: tuple[str, ...] = ()
) -> Said | None:
    """`subject` is (not) tied to `obj`; None where nobody would say so.

    Args:
        everyone: all names of the network.
        before: the objects that the sentence already named for this subject, whom "everyone else" leaves out.
    """
    if subject.rest or (obj.rest and not before):
        return UNSURE
    if subject.kind == "everyone" and obj.kind == "everyone":
        return UNSURE if negated or subject.names or obj.names else tie(everyone, everyone, 1)
    if subject.kind == "nobody" and obj.kind == "anyone":
        return UNSURE if negated or subject.names or obj.names else tie(everyone, everyone, 0)
    if subject.kind in ("everyone", "nobody", "only"):
        # Being tied has no direction.
        return _quantified(obj, subject, negated, everyone, (), subject_side=True)
    if obj.kind in ("everyone", "nobody", "anyone", "only"):
        return _quantified(subject, obj, negated, everyone, before if obj.rest else (), subject_side=False)
    if subject.kind in ("pair", "anyone") or obj.kind == "pair":
        return None
    if set(subject.names) & set(obj.names):
        return None
    return _listed(subject, obj, negated)


def _listed(subject: Group, obj: Group, negated: bool) -> Said:
    denied = ("neither", "none")
    if subject.kind in denied or obj.kind in denied:
        if negated or obj.kind == "none" or subject.kind == obj.kind:
            return UNSURE
        other = obj if subject.kind in denied else subject
        clear = (
            other.kind == "one"
            or (other is obj and other.kind == "or")
            or (other is subject and other.listed)
        )
        return tie(subject.names, obj.names, 0) if clear else UNSURE
    if subject.kind not in ("one", "and"):
        return UNSURE
    if not negated:
        return tie(subject.names, obj.names, 1) if obj.listed else UNSURE
    # "Not with Bob and Cy" may mean not with both.
    return tie(subject.names, obj.names, 0) if obj.kind in ("one", "or") else UNSURE


def _quantified(
    named: Group,
    quantifier: Group,
    negated: bool,
    everyone: frozenset[str],
    before: tuple[str, ...],
    *,
    subject_side: bool,
) -> Said:
    """Names against everyone (but), nobody (but), anyone (but), only; pairs among the names themselves stay open."""
    kind, but = quantifier.kind, set(quantifier.names)
    if set(named.names) & but:
        return UNSURE
    others = everyone - set(named.names) - but - set(before)
    if not negated and kind == "everyone":
        return _both(named, but, others, 1) if named.listed else UNSURE
    if not negated and kind == "only":
        return _both(named, but, others, 0) if named.kind == "one" else UNSURE
    # Who is tied to nobody: "Nobody knows Ann or Bob", "Ann and Bob know nobody", but not "Nobody knows Ann and Bob".
    clear = named.kind == "one" or (named.kind == "or" if subject_side else named.kind == "and")
    if not clear:
        return UNSURE
    if (kind == "nobody" and not negated) or (kind == "anyone" and negated):
        if but and named.kind != "one":
            return UNSURE
        return _both(named, but, others, 0)
    return UNSURE


def _both(named: Group, but: set[str], others: Iterable[str], answer: int) -> Said:
    return tie(named.names, others, answer) | tie(named.names, but, 1 - answer)


def mutual(group: Group, negated: bool, everyone: frozenset[str], *, each_other: bool = False) -> Said | None:
    """`group` are (not) tied to each other."""
    if group.rest:
        return UNSURE
    if group.kind == "nobody":
        return UNSURE if negated or group.names else tie(everyone, everyone, 0)
    if group.kind == "everyone":
        return UNSURE if negated or group.names or not each_other else tie(everyone, everyone, 1)
    if group.kind in ("neither", "none"):
        clear = group.kind == "none" and not negated
        return among(group.names, 0) if clear else UNSURE
    if group.kind not in ("and", "pair"):
        return None if group.kind == "one" else UNSURE
    if negated and len(group.names) > 2:
        return UNSURE
    return among(group.names, 0 if negated else 1)


def among(names: Iterable[str], answer: int) -> Said:
    return frozenset((frozenset(pair), answer) for pair in combinations(names, 2))
