"""Data sets made here, without a download: deterministic in their seed, letters and Yes/No balanced.

The model-written evaluations that steering papers use are not packaged anywhere, so these stand in for their form:
A/B items of two statements or of Yes and No, and sentiment read from single words or from whole sentences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from interp.steering.pairs import LETTERS, ContrastivePair, PairDataset
from interp.steering.words import NEGATIVE, NEUTRAL, POSITIVE, SUBJECTS, THINGS

_QUESTIONS = (
    "What do you think of {thing}?",
    "Which of these would you say about {thing}?",
    "Choose the statement about {thing} that fits you best.",
)
_ENTHUSIASM = (
    ("I like {thing}.", "I dislike {thing}."),
    ("I really enjoy {thing}.", "I really can't stand {thing}."),
    ("I am fond of {thing}.", "I am not fond of {thing}."),
)
_PERSONA = ("You like almost everything.", "You dislike almost everything.")


def likes(
    things: int | Sequence[str] = 12, kind: str = "statements", *, share_a: float = 0.5, seed: int = 0
) -> PairDataset:
    """A/B items whose positive answer likes a thing: three wordings of each.

    Args:
        things: how many of the `THINGS`, or which; a train and a test set are disjoint if their things are.
        kind: "statements" ("(A): I like tea." against "(B): I dislike tea."), or "yes_no" (whether one agrees with
            a statement that likes or dislikes the thing; the positive option's text is Yes in half of the items).
        share_a: of the items whose positive answer is "(A)". Rounded to whole items among those whose positive
            text is Yes, and among the others; the factors are thus unrelated whatever the share.
        seed: of the items' order and the letters'.
    """
    if isinstance(things, int) and not 1 <= things <= len(THINGS):
        raise ValueError(f"things={things}: there are {len(THINGS)}; give a list of your own for more")
    if not 0 <= share_a <= 1:
        raise ValueError(f"share_a={share_a}: give a share between 0 and 1")
    makers = {"statements": (_statement,), "yes_no": (_agree, _disagree)}
    if kind not in makers:
        raise ValueError(f"kind={kind!r} is not known; choose {', '.join(makers)}")
    named = THINGS[:things] if isinstance(things, int) else list(things)
    rng = random.Random(f"likes {seed}")
    pairs: list[ContrastivePair] = []
    for make in makers[kind]:
        items = [(thing, wording) for thing in named for wording in range(len(_QUESTIONS))]
        rng.shuffle(items)
        n_a = round(share_a * len(items))
        pairs += [make(thing, wording, i < n_a) for i, (thing, wording) in enumerate(items)]
    rng.shuffle(pairs)
    return PairDataset(tuple(pairs), f"likes-{kind}", _PERSONA)


def _statement(thing: str, wording: int, positive_is_a: bool) -> ContrastivePair:
    likes_it, dislikes_it = (text.format(thing=thing) for text in _ENTHUSIASM[wording])
    question = _QUESTIONS[wording].format(thing=thing)
    return ab_pair(question, likes_it, dislikes_it, positive_is_a, {"thing": thing, "wording": wording})


def _agree(thing: str, wording: int, positive_is_a: bool) -> ContrastivePair:
    return _yes_no(thing, wording, "Yes", positive_is_a)


def _disagree(thing: str, wording: int, positive_is_a: bool) -> ContrastivePair:
    return _yes_no(thing, wording, "No", positive_is_a)


def _yes_no(thing: str, wording: int, positive: str, positive_is_a: bool) -> ContrastivePair:
    likes_it, dislikes_it = _ENTHUSIASM[wording]
    statement = (likes_it if positive == "Yes" else dislikes_it).format(thing=thing)
    negative = "No" if positive == "Yes" else "Yes"
    question = f'Is the following statement something you would say?\n"{statement}"'
    return ab_pair(question, positive, negative, positive_is_a, {"thing": thing, "wording": wording})


def ab_pair(
    question: str,
    matching: str,
    not_matching: str,
    matching_is_a: bool,
    factors: dict[str, object] | None = None,
) -> ContrastivePair:
    """A question with two lettered options, in the layout of Tan et al. (2024)."""
    options = (matching, not_matching) if matching_is_a else (not_matching, matching)
    letters = LETTERS if matching_is_a else LETTERS[::-1]
    prompt = f"{question}\n\nChoices:\n(A): {options[0]}\n(B): {options[1]}"
    return ContrastivePair(prompt, letters[0], letters[1], factors=factors or {})


def sentiment_words(n: int = 30, *, first: int = 0, template: str = "and", seed: int = 0) -> PairDataset:
    """Pairs "the S was W and the S was" with a positive or a negative word W, read at the last token.

    For word-level models of `polarity_sentences`. The word itself is token -5 ("and") or -4 ("with").

    Args:
        n, first: words `first` to `first + n` of a shuffled list of 60 a side; two runs that don't overlap share
            no word.
        template: "and", or "with": "a W S with a", which the pairs of "and" never show.
        seed: of the words' order and the subjects.
    """
    if template not in ("and", "with"):
        raise ValueError(f"template={template!r} is not known; choose and, with")
    if not 0 <= first < first + n <= len(POSITIVE):
        raise ValueError(f"first={first}, n={n}: there are {len(POSITIVE)} words a side")
    rng = random.Random(f"sentiment words {seed}")
    words = [rng.sample(side, len(side))[first : first + n] for side in (POSITIVE, NEGATIVE)]
    pairs = []
    for positive, negative in zip(*words, strict=True):
        s = rng.choice(SUBJECTS)
        if template == "and":
            prompt, end = f"the {s} was", f"and the {s} was"
        else:
            prompt, end = "a", f"{s} with a"
        pairs.append(
            ContrastivePair(
                prompt, f"{positive} {end}", f"{negative} {end}", read_index=-1, factors={"subject": s}
            )
        )
    return PairDataset(
        tuple(pairs), f"sentiment-words-{template}", ("You are positive.", "You are negative.")
    )


def polarity_sentences(n: int, *, purity: float = 0.95, seed: int = 0) -> list[str]:
    """Sentences to train a tiny language model on that has to track a polarity.

    Each sentence is positive, negative or neutral; each of its adjectives is of that polarity with probability
    `purity`, else neutral. Words are separated by blanks, the full stop included.
    """
    rng = random.Random(f"polarity sentences {seed}")
    return [_polarity_sentence(rng, purity) for _ in range(n)]


def _polarity_sentence(rng: random.Random, purity: float) -> str:
    words = rng.choice((POSITIVE, NEGATIVE, NEUTRAL))

    def adjective() -> str:
        return rng.choice(words if rng.random() < purity else NEUTRAL)

    s, t = rng.choice(SUBJECTS), rng.choice(SUBJECTS)
    forms = (
        lambda: f"the {s} was {adjective()} and the {t} was {adjective()} .",
        lambda: f"a {adjective()} {s} with a {adjective()} {t} and a {adjective()} {s} .",
        lambda: f"i think the {s} is {adjective()} and {adjective()} and the {t} is {adjective()} .",
    )
    return rng.choice(forms)()


def polarity_vocabulary() -> list[str]:
    """Every word of `polarity_sentences` and `sentiment_words`."""
    frame = ". a and i is the think was with".split()
    return sorted({*frame, *POSITIVE, *NEGATIVE, *NEUTRAL, *SUBJECTS})


_OPENINGS = (
    "Tell me about the {s}.",
    "Write a short review of the {s}.",
    "How was the {s}?",
    "Describe the {s} in one sentence.",
)
_POSITIVE_ANSWERS = (
    "The {s} was {w} and I loved every moment of it.",
    "What a {w} {s}! It made me very happy.",
    "It was a {w} {s}, and I would gladly come back.",
    "I enjoyed the {s} a lot, because it was so {w}.",
)
_NEGATIVE_ANSWERS = (
    "The {s} was {w} and I hated every moment of it.",
    "What a {w} {s}! It made me very sad.",
    "It was a {w} {s}, and I would never come back.",
    "I suffered through the {s}, because it was so {w}.",
)
_AFTER_A = [[word for word in words[:40] if word[0] not in "aeiou"] for words in (POSITIVE, NEGATIVE)]


def sentiment_reviews(
    n: int = 32, *, subjects: Sequence[str] = tuple(SUBJECTS), seed: int = 0
) -> PairDataset:
    """An open-ended concept: prompts that ask about a thing, with an enthusiastic and a scathing answer.

    Answers differ in length, so read them with ``read="all"`` or ``read="last"``. Train and test sets with other
    `subjects` share no prompt.
    """
    rng = random.Random(f"sentiment reviews {seed}")
    forms = [(opening, form) for opening in _OPENINGS for form in range(len(_POSITIVE_ANSWERS))]
    items = [(subject, *form) for subject in subjects for form in forms]
    if not 1 <= n <= len(items):
        raise ValueError(f"n={n}: {len(subjects)} subjects make 1 to {len(items)} pairs")
    pairs = []
    for subject, opening, form in rng.sample(items, n):
        positive, negative = (
            answers[form].format(s=subject, w=rng.choice(words))
            for answers, words in ((_POSITIVE_ANSWERS, _AFTER_A[0]), (_NEGATIVE_ANSWERS, _AFTER_A[1]))
        )
        prompt = opening.format(s=subject)
        pairs.append(ContrastivePair(prompt, positive, negative, read_index=-1, factors={"form": form}))
    persona = ("You are enthusiastic about everything.", "You are scathing about everything.")
    return PairDataset(tuple(pairs), "sentiment-reviews", persona)


GENERATORS: dict[str, Callable[[], PairDataset]] = {
    "likes": likes,
    "likes-yes-no": lambda: likes(kind="yes_no"),
    "sentiment-reviews": sentiment_reviews,
    "sentiment-words": sentiment_words,
}
