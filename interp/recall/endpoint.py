"""Recall by any OpenAI-compatible chat endpoint."""

from __future__ import annotations

from typing import Any

from interp.models.chat_endpoint import ChatEndpoint
from interp.recall.answers import Answer
from interp.recall.prompts import RecallPrompt


class EndpointRecaller(ChatEndpoint):
    """A model behind `<base_url>/chat/completions`; arguments and errors as in `ChatEndpoint`.

    Asks for the probabilities of the answer's tokens unless `logprobs=False`.
    """

    def __init__(
        self, base_url: str, model: str, api_key: str | None = None, *, logprobs: bool = True, **options: Any
    ) -> None:
        super().__init__(base_url, model, api_key, logprobs=logprobs, **options)

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        """See `Recaller`."""
        return Answer(**vars(self.complete(prompt.messages, sample)))
