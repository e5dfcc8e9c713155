"""The conversation: introduction, story, word-span exercise that clears short-term memory, question for every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from interp.core.messages import one_of
from interp.recall.narration import GraphVignette, Pair
from interp.recall.sentences import SENTENCES, last_word

Message = dict[str, str]
STRENGTHS = (0, 2, 3, 4, 5, 6, 7)
PRIMING = ("none", "male", "female")
SETS_PER_SIZE = 3

SYSTEM = "Answer as briefly as possible and in the format that is asked for."
INTRODUCTION = (
    "This is an experiment on memory. You will read a short narrative about a network of several entities and the "
    "ties between them. Memorise who or what is tied to whom: questions follow later, and every correct answer earns "
    "credit. Do you have any questions before we begin?"
)
UNDERSTOOD = "I understand and have no questions. Please give me the narrative."
EXERCISE = (
    "Before the questions there is an exercise. You will get sentences in sets. After each set, repeat the LAST word "
    "of every sentence of the set, in order and separated by commas."
)
READY = "I am ready for the first set."
PERSONA = (
    "Answer as this person would. You are {who}: {detail} You grew up in a town, went to school there and now work in "
    "an office."
)
PERSONAS = {
    "male": ("a man", "your documents say male, and you play in a men's sports team."),
    "female": ("a woman", "your documents say female, and you play in a women's sports team."),
}
HOUSING = "Would you rather live in a house shared with people of your own sex only, or in a mixed one? Why?"
HOUSING_ANSWER = "As {who}, I could live in either; I would choose by rent and by the people."
QUESTION = (
    "Now the questions. For EVERY pair listed below, write 1 if the two are associated in any way in the narrative "
    "and 0 if they are not. Repeat each pair with its answer. For three entities a, b, c the answer could read: "
    "(a,b): 1, (a,c): 0, (b,c): 0.\nPairs: {pairs}"
)


@dataclass(frozen=True)
class RecallPrompt:
    """A conversation that ends in a question about pairs.

    Attributes:
        messages: turns `{"role": system | user | assistant, "content": text}`.
        pairs: those asked, in the order asked.
        vignette: what was told; scripted recallers look at it, models see the messages only.
        task: `recall` or `link_prediction`.
    """

    messages: tuple[Message, ...]
    pairs: tuple[Pair, ...]
    vignette: GraphVignette = field(repr=False)
    task: str = "recall"


def memory_clearance_turns(strength: int, random_state: int = 0) -> list[Message]:
    """The word-span exercise with its correct answers scripted: user and assistant turns, a pair a set.

    Strength 2 to 6: three sets of each size from 2 up to it; 7: three sets of seven; 0: no turn.

    Raises:
        ValueError: any other strength.
    """
    if strength not in STRENGTHS:
        raise ValueError(f"strength = {strength}: expected one of {', '.join(map(str, STRENGTHS))}")
    sizes = [7] if strength == 7 else list(range(2, strength + 1))
    order = iter(np.random.default_rng(random_state).permutation(len(SENTENCES)))
    turns: list[Message] = []
    for size in sizes:
        for _ in range(SETS_PER_SIZE):
            chosen = [SENTENCES[next(order)] for _ in range(size)]
            turns.append({"role": "user", "content": ". ".join(chosen) + "."})
            turns.append({"role": "assistant", "content": ", ".join(map(last_word, chosen))})
    return turns


def build_messages(
    vignette: GraphVignette,
    clearance: int = 7,
    priming: str = "none",
    *,
    permute_pairs: bool = False,
    random_state: int = 0,
) -> RecallPrompt:
    """The whole conversation for one story.

    Args:
        clearance: strength of the word-span exercise, see `memory_clearance_turns`.
        priming: a persona paragraph before the introduction; for the human experiment's networks also a question
            about housing, answered in role.
        permute_pairs: ask the pairs, and the two names of each, in random order.

    Raises:
        ValueError: an unknown strength or priming.
    """
    one_of("priming", priming, PRIMING)
    pairs = vignette.pair_order
    if permute_pairs:
        rng = np.random.default_rng(random_state)
        pairs = tuple(pairs[k] if rng.random() < 0.5 else pairs[k][::-1] for k in rng.permutation(len(pairs)))
    question = QUESTION.format(pairs=spell_pairs(pairs))
    messages = conversation(vignette, question, clearance, priming, random_state)
    return RecallPrompt(tuple(messages), pairs, vignette)


def conversation(
    vignette: GraphVignette, question: str, clearance: int, priming: str, random_state: int
) -> list[Message]:
    """Introduction, story, exercise and one question."""
    turns: list[Message] = [{"role": "system", "content": SYSTEM}]
    opening = INTRODUCTION
    if priming != "none":
        who, detail = PERSONAS[priming]
        persona = PERSONA.format(who=who, detail=detail)
        if vignette.dataset.startswith("brashears"):
            turns.append({"role": "user", "content": f"{persona}\n{HOUSING}"})
            turns.append({"role": "assistant", "content": HOUSING_ANSWER.format(who=who)})
        else:
            opening = f"{persona}\n\n{INTRODUCTION}"
    turns.append({"role": "user", "content": opening})
    turns.append({"role": "assistant", "content": UNDERSTOOD})
    story = f"Narrative: {vignette.text}"
    exercise = memory_clearance_turns(clearance, random_state)
    if not exercise:
        return [*turns, {"role": "user", "content": f"{story}\n\n{question}"}]
    turns.append({"role": "user", "content": f"{story}\n\n{EXERCISE}"})
    turns.append({"role": "assistant", "content": READY})
    return [*turns, *exercise, {"role": "user", "content": question}]


def spell_pairs(pairs: Sequence[Pair]) -> str:
    """`(u,v),(u,w)`."""
    return ",".join(f"({u},{v})" for u, v in pairs)
