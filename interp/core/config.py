"""Dataclasses to and from YAML and JSON; unknown keys and wrong types are refused by name."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from interp.core.device import dtype_name
from interp.core.files import atomic_write, read_json, read_regular, write_json
from interp.core.messages import nearest

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as plain dictionaries, lists, numbers and strings."""
    return {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, (Path, torch.device)) else value


def from_dict(cls: type[T], mapping: Mapping[str, Any], *, where: str = "") -> T:
    """Build dataclass `cls` from a mapping, nested dataclasses included.

    A whole number is taken for a float, a list for a tuple, a string for a Path. A class whose fields' types depend on
    one another has a class method `from_mapping(mapping, where=...)`, which then does it.

    Raises ValueError naming an unknown or missing key, TypeError naming a key whose value has the wrong type (`where`
    prefixes nested ones).
    """
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{where or cls.__name__}: expected a mapping, got {mapping!r}")
    if hasattr(cls, "from_mapping"):
        return cls.from_mapping(mapping, where=where)  # type: ignore[no-any-return]
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in mapping:
        if key not in fields:
            raise ValueError(f"unknown key '{prefix}{key}' for {cls.__name__}; {nearest(key, fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise ValueError(f"missing key '{prefix}{name}' for {cls.__name__}")
    hints = typing.get_type_hints(cls)
    return cls(**{key: _build(hints[key], value, prefix + key) for key, value in mapping.items()})


def _build(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _build_union(hint, arguments, value, where)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise ValueError(f"{where} = {value!r} is not known; {nearest(value, arguments)}")
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else from_dict(hint, value, where=where)
    kind = origin or hint
    if kind in (list, tuple) and isinstance(value, (list, tuple)):
        return _build_sequence(kind, arguments, value, where)
    if kind in (dict, Mapping) and isinstance(value, Mapping):
        inner = arguments[1] if arguments else Any
        return {key: _build(inner, item, f"{where}.{key}") for key, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if isinstance(kind, type) and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int)):
        raise TypeError(f"{where} = {value!r} is a {type(value).__name__}, expected {_name(hint)}")
    return value


def _build_union(hint: Any, choices: tuple[Any, ...], value: Any, where: str) -> Any:
    """The first alternative that takes the value; the one that was meant, where none does."""
    if value is None and type(None) in choices:
        return None
    others = [choice for choice in choices if choice is not type(None)]
    if isinstance(value, Mapping) and all(map(dataclasses.is_dataclass, others)):
        keys = set(value)
        meant = max(others, key=lambda choice: len(keys & {f.name for f in dataclasses.fields(choice)}))
        return _build(meant, value, where)
    exact = [choice for choice in others if choice is type(value)]
    for choice in exact or others:
        try:
            return _build(choice, value, where)
        except (TypeError, ValueError):
            if len(others) == 1:
                raise
    raise TypeError(f"{where} = {value!r} is a {type(value).__name__}, expected {_name(hint)}")


def _build_sequence(kind: Any, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if kind is list or not arguments or arguments[-1] is Ellipsis:
        hints = [arguments[0] if arguments else Any] * len(value)
    elif len(arguments) == len(value):
        hints = list(arguments)
    else:
        raise ValueError(f"{where} = {value!r} has {len(value)} entries, expected {len(arguments)}")
    items = [
        _build(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(zip(hints, value, strict=True))
    ]
    return kind(items)


def first_difference(saved: Any, asked: Any, where: str = "") -> tuple[str, Any, Any] | None:
    """The first place in which two nested dictionaries and lists differ, with both values; None where they agree."""
    if isinstance(saved, dict) and isinstance(asked, dict):
        keys = [*saved, *(key for key in asked if key not in saved)]
        pairs = [(f"{where}.{key}" if where else key, saved.get(key), asked.get(key)) for key in keys]
    elif isinstance(saved, list) and isinstance(asked, list) and len(saved) == len(asked):
        pairs = [(f"{where}[{k}]", *both) for k, both in enumerate(zip(saved, asked, strict=True))]
    else:
        return None if saved == asked else (where, saved, asked)
    differences = (first_difference(before, now, name) for name, before, now in pairs)
    return next((found for found in differences if found is not None), None)


def _name(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("typing.", "")
    )


def load_config(path: str | os.PathLike[str], cls: type[T]) -> T:
    """Read a .yaml, .yml or .json file into dataclass `cls`.

    Raises as `from_dict` does, and ValueError for a file that can't be read.
    """
    path = Path(path)
    if path.suffix == ".json":
        return read_record(path, cls)
    _check_suffix(path)
    import yaml

    try:
        mapping = yaml.safe_load(read_regular(path))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"{path} is not valid YAML: {str(error) or 'nested too deeply'}") from error
    return _named(path, cls, {} if mapping is None else mapping)


def read_record(path: str | os.PathLike[str], cls: type[T]) -> T:
    """Read a JSON file into dataclass `cls`. Raises ValueError naming the file, whatever is wrong with it."""
    return _named(Path(path), cls, read_json(path, dict))


def _named(path: Path, cls: type[T], mapping: Any) -> T:
    try:
        return from_dict(cls, mapping)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def save_config(path: str | os.PathLike[str], config: Any) -> None:
    """Write a dataclass as .yaml, .yml or .json, atomically."""
    path = Path(path)
    if path.suffix == ".json":
        write_json(path, to_dict(config))
        return
    _check_suffix(path)
    import yaml

    with atomic_write(path) as temporary:
        temporary.write_text(yaml.safe_dump(to_dict(config), sort_keys=False))


def _check_suffix(path: Path) -> None:
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"{path}: a configuration is a .yaml, .yml or .json file")
