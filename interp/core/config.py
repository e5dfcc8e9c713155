"""Dataclasses to and from YAML and JSON; unknown keys are refused by name."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from interp.core.files import atomic_write, read_json, write_json
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
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def from_dict(cls: type[T], mapping: dict[str, Any], *, where: str = "") -> T:
    """Build dataclass `cls` from a mapping, nested dataclasses included.

    Raises ValueError naming an unknown or missing key (`where` prefixes nested ones).
    """
    if not isinstance(mapping, dict):
        raise ValueError(f"{where or cls.__name__}: expected a mapping, got {mapping!r}")
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    prefix = f"{where}." if where else ""
    for key in mapping:
        if key not in fields:
            raise ValueError(f"unknown key {prefix}{key!r} for {cls.__name__}; {nearest(key, fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in mapping:
            raise ValueError(f"missing key {prefix}{name!r} for {cls.__name__}")
    hints = typing.get_type_hints(cls)
    return cls(**{key: _build(hints[key], value, prefix + key) for key, value in mapping.items()})


def _build(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        nested = [arg for arg in inner if dataclasses.is_dataclass(arg)]
        return _build(nested[0] if nested and isinstance(value, dict) else inner[0], value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value, where=where)
    if origin in (list, tuple) and isinstance(value, (list, tuple)):
        inner = typing.get_args(hint)
        items = [_build(inner[0], item, where) if inner else item for item in value]
        return tuple(items) if origin is tuple else items
    return float(value) if hint is float and isinstance(value, int) and not isinstance(value, bool) else value


def load_config(path: str | os.PathLike[str], cls: type[T]) -> T:
    """Read a .yaml, .yml or .json file into dataclass `cls`."""
    path = Path(path)
    if path.suffix == ".json":
        return from_dict(cls, read_json(path))
    import yaml

    try:
        mapping = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from error
    return from_dict(cls, mapping or {})


def save_config(path: str | os.PathLike[str], config: Any) -> None:
    """Write a dataclass as .yaml, .yml or .json, atomically."""
    path = Path(path)
    if path.suffix == ".json":
        write_json(path, to_dict(config))
        return
    import yaml

    with atomic_write(path) as temporary:
        temporary.write_text(yaml.safe_dump(to_dict(config), sort_keys=False))
