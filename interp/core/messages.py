"""Errors that teach: the nearest name to a wrong one, and warnings said once."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

_said: set[tuple[str, str]] = set()


def nearest(name: Any, choices: Iterable[Any]) -> str:
    """A phrase for the end of an error: the closest choice, if one is close, then all of them."""
    names = [str(choice) for choice in choices]
    # Beyond the usual 0.6, at which "most" is close to "lowest".
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.65)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choices: {', '.join(names)}"


def one_of(argument: str, value: Any, choices: Sequence[Any]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{argument} = {value!r} is not known; {nearest(value, choices)}")


def at_least(argument: str, value: object, least: int) -> None:
    """Raise TypeError unless `value` is an integer, ValueError unless it is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):  # numpy's integers are
        raise TypeError(f"{argument} = {value!r} is a {type(value).__name__}: give an integer")
    if value < least:
        raise ValueError(f"{argument} = {value} must be at least {least}")


def check_name(argument: str, name: str) -> str:
    """The name itself. Raises ValueError unless it can be that of a file or folder, and of nothing above or hidden."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} = {name!r} is a {type(name).__name__}: give a string")
    if not re.fullmatch(r"[\w=+,\-()]([\w.=+,\-() ]*[\w.=+,\-()])?", name) or len(name.encode()) > 200:
        raise ValueError(
            f"{argument} = {name!r} will name a file or folder: use letters, digits, spaces and _ . , = + - ( ) only, "
            "no dot or space first, at most 200 bytes"
        )
    return name


def each_once(argument: str, values: Iterable[Any]) -> None:
    """Raise ValueError where a value comes twice: it would count as two independent ones."""
    seen = list(values)
    if twice := [value for k, value in enumerate(seen) if value in seen[:k]]:
        raise ValueError(f"{argument}: {twice[0]!r} is there twice; name each once")


def warn_once(logger: logging.Logger, key: str, message: str) -> None:
    """Log a warning the first time `key` comes up in this process."""
    if (logger.name, key) not in _said:
        _said.add((logger.name, key))
        logger.warning(message)
