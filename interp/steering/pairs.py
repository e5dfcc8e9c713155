"""Contrastive pairs: a prompt, the answer that shows a behaviour and the one that does not."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, overload

from interp.core.messages import warn_once

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

LETTERS = ("(A)", "(B)")
MOST_UNBALANCED = 0.6  # share of one letter above which a vector tends to be a letter direction
_OPTION = r"^\s*{letter}:?[ \t]*(.*)$"
_LETTER = re.compile(r"\s*\([A-Z]\)")


@dataclass(frozen=True)
class ContrastivePair:
    """One contrast.

    Attributes:
        prompt: what is asked, without chat markers.
        positive, negative: the response that matches the behaviour, and the one that does not.
        read_index: the token of prompt + response at which activations are read. None: -2, the letter, where both
            responses are one such as "(A)"; else -1, the last token.
        factors: nuisance factors by name, e.g. ``{"topic": "tea"}``; columns of `PairDataset.factors`.
    """

    prompt: str
    positive: str
    negative: str
    read_index: int = None  # type: ignore[assignment]  # never None once it is made
    factors: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("prompt", "positive", "negative"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name} = {value!r} is a {type(value).__name__}; give a string")
        if self.positive.strip() == self.negative.strip():
            raise ValueError(
                f"positive = {self.positive!r} and negative = {self.negative!r} are the same but for blanks around "
                f"them: there is no contrast; the prompt is {self.prompt[:60]!r}"
            )
        if self.read_index is None:
            letters = all(_LETTER.fullmatch(answer) for answer in (self.positive, self.negative))
            object.__setattr__(self, "read_index", -2 if letters else -1)
        elif not isinstance(self.read_index, Integral):
            raise TypeError(
                f"read_index = {self.read_index!r} is a {type(self.read_index).__name__}; give an integer"
            )
        object.__setattr__(self, "read_index", int(self.read_index))

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes two pairs the same."""
        return self.prompt, self.positive, self.negative

    @property
    def digest(self) -> str:
        """Of the key: by it a vector remembers the pairs that it was extracted from."""
        return hashlib.sha256(json.dumps(self.key).encode()).hexdigest()[:16]

    @property
    def positive_is_a(self) -> bool | None:
        """Whether the positive response is "(A)"; None where the responses are not the two letters."""
        answers = self.positive.strip(), self.negative.strip()
        return answers[0] == LETTERS[0] if set(answers) == set(LETTERS) else None

    @property
    def positive_is_yes(self) -> bool | None:
        """Whether the positive option's text is "Yes"; None where the texts are not exactly Yes and No.

        The text is the option behind the letter where the responses are letters, else the response itself.
        """
        texts = self.option_text(self.positive), self.option_text(self.negative)
        return texts[0] == "Yes" if set(texts) == {"Yes", "No"} else None

    def option_text(self, response: str) -> str | None:
        """The text of a response: of the option it names, if it is a letter (None: no such option)."""
        response = response.strip()
        if response not in LETTERS:
            return response
        found = re.findall(_OPTION.format(letter=re.escape(response)), self.prompt, flags=re.MULTILINE)
        return found[-1].strip() if found else None


@dataclass(frozen=True)
class PairDataset(Sequence[ContrastivePair]):
    """Pairs with a name, and the (positive, negative) persona sentences of their behaviour, if it has any."""

    pairs: tuple[ContrastivePair, ...]
    name: str
    persona: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", tuple(as_pairs(self.pairs)))
        if not self.pairs:
            raise ValueError(f"the data set {self.name!r} has no pairs; give at least one")

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[ContrastivePair]:
        return iter(self.pairs)

    @overload
    def __getitem__(self, index: int) -> ContrastivePair: ...
    @overload
    def __getitem__(self, index: slice) -> PairDataset: ...
    def __getitem__(self, index: int | slice) -> ContrastivePair | PairDataset:
        if isinstance(index, slice):
            return PairDataset(self.pairs[index], self.name, self.persona)
        return self.pairs[index]

    def __repr__(self) -> str:
        return f"PairDataset({self.name!r}, {len(self)} pairs)"

    def split(self, train: float | Sequence[float] = 0.5, seed: int = 0) -> tuple[PairDataset, ...]:
        """Disjoint parts of a shuffled copy, each with the letters, and Yes and No, in the proportion of the whole.

        Pairs of one kind of answer are taken in the order of ``random.Random(seed).shuffle``; the kinds take turns. A
        part then has exactly its share of each letter wherever that is a whole number, else one more or less.

        Args:
            train: the first part's share (the rest is the second part), or the shares of all parts, which
                may leave a remainder out.
            seed: of the shuffle.

        Raises:
            ValueError: shares that are not positive or exceed 1, an empty part, or the same pair in two parts.
        """
        shares = (train, 1.0 - train) if isinstance(train, (int, float)) else tuple(train)
        if len(shares) == 0 or not all(share > 0 for share in shares) or not sum(shares) <= 1 + 1e-9:
            raise ValueError(f"train={train}: shares must be positive and add up to at most 1")
        shuffled = list(self.pairs)
        random.Random(seed).shuffle(shuffled)
        dealt = _taking_turns(shuffled, lambda pair: pair.positive_is_a, lambda pair: pair.positive_is_yes)
        parts, done = [], 0.0
        for i, share in enumerate(shares):
            first, last = (round(x * len(dealt)) for x in (done, done + share))
            if first == last:
                raise ValueError(
                    f"train={train}: part {i} of {len(self)} pairs is empty; give it a larger share"
                )
            parts.append(PairDataset(tuple(dealt[first:last]), self.name, self.persona))
            done += share
        for i, part in enumerate(parts):
            for other in parts[i + 1 :]:
                check_disjoint(part, other)
        return tuple(parts)

    def unique(self) -> PairDataset:
        """Without the repetitions of a pair."""
        first: dict[tuple[str, str, str], ContrastivePair] = {}
        for pair in self:
            first.setdefault(pair.key, pair)
        return PairDataset(tuple(first.values()), self.name, self.persona)

    def balance(self) -> dict[str, int]:
        """How often the positive response is each letter (empty where the responses are not letters).

        More than 60:40 logs a warning, once per data set: the mean difference then points from one letter to
        the other, whatever the behaviour is.
        """
        counts = Counter(
            LETTERS[0 if pair.positive_is_a else 1] for pair in self if pair.positive_is_a is not None
        )
        result = {letter: counts[letter] for letter in LETTERS} if counts else {}
        if counts and max(counts.values()) > MOST_UNBALANCED * counts.total():
            shown = ", ".join(f"{letter} {n}" for letter, n in result.items())
            warn_once(
                log,
                f"balance of {self.name} {shown}",
                f"{self.name}: the positive answers are {shown}; a vector from them will largely be the direction "
                "from one letter to the other. Balance the letters",
            )
        return result

    def factors(self) -> pd.DataFrame:
        """Nuisance factors, a row per pair.

        Column ``A``: the positive response is "(A)"; column ``Y``: the positive option's text is "Yes", where
        all options are exactly Yes and No. Then the pairs' own factors. A column is there only if every pair
        has a value.
        """
        import pandas as pd

        columns: dict[str, list[Any]] = {
            "A": [pair.positive_is_a for pair in self],
            "Y": [pair.positive_is_yes for pair in self],
        }
        for name in dict.fromkeys(name for pair in self for name in pair.factors):
            columns[name] = [pair.factors.get(name) for pair in self]
        complete = {name: values for name, values in columns.items() if None not in values}
        return pd.DataFrame(complete, index=range(len(self)))


def as_pairs(pairs: Iterable[ContrastivePair], what: str = "pairs") -> list[ContrastivePair]:
    """Pairs as a list. Raises TypeError naming the first entry that is something else, such as a tuple."""
    listed = list(pairs)
    for i, pair in enumerate(listed):
        if not isinstance(pair, ContrastivePair):
            raise TypeError(
                f"{what}[{i}] is a {type(pair).__name__}; give ContrastivePair(prompt, positive, negative)"
            )
    return listed


def _taking_turns(
    pairs: list[ContrastivePair], kind: Callable[[ContrastivePair], Hashable], *within: Callable
) -> list[ContrastivePair]:
    """The pairs so ordered that every run of them has each kind in proportion, and the kinds `within` it likewise.

    Pair r of the n of its kind stands at (r + 1/2) / n of the way: the first T of N then hold the n T / N of a kind
    wherever that is a whole number. Pairs of one kind keep their order.
    """
    kinds: dict[Hashable, list[ContrastivePair]] = {}
    for pair in pairs:
        kinds.setdefault(kind(pair), []).append(pair)
    placed = [
        ((r + 0.5) / len(group), str(name), pair)
        for name, group in kinds.items()
        for r, pair in enumerate(_taking_turns(group, *within) if within else group)
    ]
    return [pair for *_, pair in sorted(placed, key=lambda item: item[:2])]


def check_disjoint(train: Sequence[ContrastivePair], test: Sequence[ContrastivePair]) -> None:
    """Raise ValueError if a pair is in both."""
    both = {pair.key for pair in as_pairs(train, "train")} & {pair.key for pair in as_pairs(test, "test")}
    if both:
        prompt, positive, _ = min(both)
        raise ValueError(
            f"{len(both)} pairs are in both parts, e.g. {prompt[:60]!r} with {positive!r}: a test on them says "
            "nothing. Remove repetitions first (PairDataset.unique)"
        )
