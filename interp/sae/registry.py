"""Which architectures there are: each is a `Dictionary` subclass, known by its name from when it is registered.

Those of this library are the modules of `interp.sae.architectures`; others' are registered by whoever imports them::

    @interp.register_architecture
    class MySAE(Dictionary): ...
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING, TypeVar

from interp.core.messages import check_name, one_of

if TYPE_CHECKING:
    from interp.sae.dictionary import Dictionary

D = TypeVar("D", bound="type[Dictionary]")

_known: dict[str, type[Dictionary]] = {}


def register_architecture(kind: D) -> D:
    """Make a `Dictionary` subclass known under its `architecture`; returns it, so that it decorates.

    Raises ValueError where another class has the name.
    """
    for needed in ("architecture", "config_class", "encoder_matrices", "latent_vectors"):
        if not hasattr(kind, needed):
            raise TypeError(
                f"{kind.__name__} has no class attribute {needed!r}: see interp.sae.dictionary.Dictionary"
            )
    name = check_name("architecture", kind.architecture)
    other = _known.get(name)
    if other is not None and (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ValueError(
            f"architecture = {name!r} is {other.__module__}.{other.__qualname__} already: choose another"
        )
    _known[name] = kind
    return kind


def architecture(name: str, *, where: str = "architecture") -> type[Dictionary]:
    """The class of a name. Raises ValueError naming those that there are."""
    _load_own()
    one_of(where, name, tuple(_known))
    return _known[name]


def architectures(*, trained: bool = False) -> tuple[str, ...]:
    """All names, or those that can be trained."""
    _load_own()
    return tuple(sorted(name for name, kind in _known.items() if not trained or kind.loss_class is not None))


@functools.cache
def _load_own() -> None:
    package = importlib.import_module("interp.sae.architectures")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
