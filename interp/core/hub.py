"""The Hugging Face hub: whether it can be asked at all, and names that aren't meant for it."""

from __future__ import annotations

import difflib
import os
import socket
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE = 3.0  # seconds
_CLOSE = 0.75  # as `difflib` measures it


def hub_answers() -> bool:
    """Whether the hub takes a connection. Without a network that is known at once; its client tries for half a minute.

    False where HF_HUB_OFFLINE is set.
    """
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        return False
    return answers(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")


def answers(url: str) -> bool:
    """Whether an address takes a connection; True where a proxy is set, which may reach what we can't."""
    if {"http", "https", "all"} & getproxies().keys():
        return True
    address = urlsplit(url)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), _PATIENCE):
            return True
    except OSError:
        return False


def load_dataset(*arguments: Any, **how: Any) -> Any:
    """`datasets.load_dataset`; from its cache, or not at all, where the hub doesn't answer."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = before or not hub_answers()
    try:
        return datasets.load_dataset(*arguments, **how)
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def refuse_misspelt(argument: str, name: str, ours: Iterable[str]) -> None:
    """Raise ValueError for a name that is nearly one of ours, and without the owner that names of the hub have."""
    close = difflib.get_close_matches(name.lower(), ours, n=1, cutoff=_CLOSE)
    if close and not {"/", ":"} & set(name):
        raise ValueError(f"{argument}={name!r} is not known; did you mean {close[0]!r}?")
