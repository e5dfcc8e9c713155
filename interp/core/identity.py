"""What a kept thing belongs to: everything that its content depends on, how two of these differ, and one message.

A store, a run, a memo, a transcript or a stage keeps the `Identity` of what it was made from, and whoever finds it
asks `check` before believing it. A description holds values, not names of values: arrays by their bytes, functions by
their code, estimators by all their parameters.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import math
import os
import sys
import types
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from interp.core.files import canonical

_SHOWN, _SHOWN_LENGTH = 3, 80
_NOT_OF_THE_BODY = {
    *(
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__firstlineno__",
        "__static_attributes__",
    ),
    *(
        "__annotations__",
        "__annotate_func__",
        "__annotations_cache__",
        "__abstractmethods__",
        "_abc_impl",
        "__parameters__",
    ),
    *(
        "__orig_bases__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__slots__",
        "__slotnames__",
        "__hash__",
    ),
}

_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)


class IdentityMismatch(ValueError):
    """A kept thing belongs to something else than what is asked for."""


@dataclass(frozen=True)
class Identity:
    """What something kept belongs to.

    Attributes:
        kind: what is kept, as messages name it: "activation store", "memo".
        covers: JSON-plain values by name, nested as need be.
    """

    kind: str
    covers: dict[str, Any]

    @classmethod
    def of(cls, kind: str, **covers: Any) -> Identity:
        """Of any values that `describe` can tell apart."""
        return cls(kind, {name: describe(value, name) for name, value in covers.items()})

    @property
    def digest(self) -> str:
        """SHA-256, hexadecimal; equal exactly where kind and all values are."""
        return hashlib.sha256(canonical([self.kind, self.covers]).encode()).hexdigest()

    def differences(self, kept: Identity) -> dict[str, tuple[Any, Any]]:
        """By dotted name, what was kept and what is asked for, where they differ; None stands for what isn't there."""
        if kept.kind != self.kind:
            return {"kind": (kept.kind, self.kind)}
        return dict(_differences("", kept.covers, self.covers))

    def check(self, kept: Identity | None, where: str | os.PathLike[str], fix: str) -> None:
        """Raise IdentityMismatch unless `kept`, found at `where`, is this identity; `fix` says what may be done."""
        if kept is None:
            raise IdentityMismatch(f"{os.fspath(where)} doesn't say to which {self.kind} it belongs; {fix}")
        found = self.differences(kept)
        if found:
            shown = "; ".join(
                f"{name} was {_short(before)} there and is {_short(now)} here"
                for name, (before, now) in list(found.items())[:_SHOWN]
            )
            more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
            raise IdentityMismatch(f"{os.fspath(where)} belongs to another {self.kind}: {shown}{more}; {fix}")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "digest": self.digest, "covers": self.covers}

    @classmethod
    def from_dict(cls, content: Any, where: str | os.PathLike[str]) -> Identity:
        """What `to_dict` gave. Raises ValueError naming the file where it isn't, or where its digest isn't its own."""
        if not isinstance(content, dict) or set(content) != {"kind", "digest", "covers"}:
            raise ValueError(
                f"{os.fspath(where)}: its identity is damaged; delete it or restore it from a copy"
            )
        kind, covers = content["kind"], content["covers"]
        found = cls(kind, covers) if isinstance(kind, str) and isinstance(covers, dict) else None
        if found is None or found.digest != content["digest"]:
            raise ValueError(
                f"{os.fspath(where)}: its identity was changed after it was written (the digest differs); delete it or "
                "restore it from a copy"
            )
        return found


def describe(value: Any, name: str = "value") -> Any:
    """A JSON-plain value that is equal for equal things and different for different ones, in any process.

    Numbers, strings, sequences and mappings are themselves; arrays and tensors their dtype, shape and the SHA-256 of
    their bytes; functions their name, code, defaults, closure and (of code without a version of its own) the globals
    they use; scikit-learn estimators their class, version and parameters, not what was fitted; modules their class,
    form and weights; other objects their class and state.

    Raises:
        TypeError: something that can't be told from its like, named as a path from `name`.
    """
    return _describe(value, name, ())


def _describe(value: Any, where: str, above: tuple[int, ...]) -> Any:
    if value is None or (isinstance(value, (bool, str)) and type(value) in (bool, str)):
        return value
    if type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, enum.Enum):
        return {"$enum": f"{_name(type(value))}.{value.name}"}
    if isinstance(value, np.generic) and value.dtype.kind in "biufSU":
        return _describe(value.item(), where, above)
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, (torch.dtype, torch.device, os.PathLike)):
        return str(value)
    if isinstance(value, Tensor):
        return _tensor(value, where)
    if isinstance(value, np.ndarray):
        return _array(value, where, above)
    if hasattr(
        value, "tocsr"
    ):  # scipy's matrices: equal ones differ in flags and in the order of their entries
        return _sparse(value)
    if id(value) in above:
        return {"$cycle": len(above) - above.index(id(value))}
    above = (*above, id(value))
    if isinstance(value, Mapping):
        return _mapping(value, where, above)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return [_describe(item, f"{where}[{k}]", above) for k, item in enumerate(value)]
    if isinstance(value, Set):
        return {"$set": sorted((_describe(item, where, above) for item in value), key=canonical)}
    return _object(value, where, above)


def _tensor(value: Tensor, where: str) -> dict[str, Any]:
    if value.is_meta or value.layout != torch.strided or value.is_quantized:
        raise TypeError(
            f"{where} is a {value.layout} tensor on {value.device}: its values can't be told apart"
        )
    flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    digest = hashlib.sha256(flat.numpy().data).hexdigest() if flat.numel() else hashlib.sha256().hexdigest()
    return {"$tensor": str(value.dtype), "shape": list(value.shape), "sha256": digest}


def _array(value: np.ndarray, where: str, above: tuple[int, ...]) -> dict[str, Any]:
    if value.dtype.hasobject:
        return {
            "$array": "object",
            "shape": list(value.shape),
            "items": _describe(value.ravel().tolist(), where, above),
        }
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return {"$array": value.dtype.str, "shape": list(value.shape), "sha256": digest}


def _sparse(value: Any) -> dict[str, Any]:
    rows = value.tocsr(copy=True)
    rows.sum_duplicates()
    parts = {name: _array(getattr(rows, name), name, ()) for name in ("data", "indices", "indptr")}
    return {"$sparse": value.format, "shape": list(value.shape), **parts}


def _mapping(value: Mapping[Any, Any], where: str, above: tuple[int, ...]) -> Any:
    items = {key: _describe(item, f"{where}.{key}", above) for key, item in value.items()}
    if all(type(key) is str and not key.startswith("$") for key in items):
        return items
    pairs = [[_describe(key, where, above), item] for key, item in items.items()]
    return {"$mapping": sorted(pairs, key=canonical)}


def _object(value: Any, where: str, above: tuple[int, ...]) -> Any:
    if isinstance(value, type):
        return {"$class": _class(value, where, above)}
    if isinstance(value, functools.partial):
        parts = {"function": value.func, "args": value.args, "keywords": value.keywords}
        return {"$partial": _mapping(parts, where, above)}
    if isinstance(value, types.MethodType):
        parts = {"function": value.__func__, "self": value.__self__}
        return {"$method": _mapping(parts, where, above)}
    if isinstance(value, types.FunctionType):
        return {"$function": _function(value, where, above)}
    if isinstance(value, types.ModuleType):
        return {"$import": value.__name__, "version": _version(value.__name__)}
    inner = getattr(value, "py_func", getattr(value, "__wrapped__", None))  # numba's, functools' wrappers
    if isinstance(inner, types.FunctionType):
        return {"$wrapped": _name(type(value)), "function": _describe(inner, where, above)}
    if _compiled(value):
        module = getattr(value, "__module__", None) or "numpy"
        return {"$builtin": f"{module}.{value.__name__}", "version": _version(module)}
    kind = {"$object": _class(type(value), where, above)}
    if isinstance(value, nn.Module):
        form = f"{value} training={value.training}"
        return {**kind, "form": form, "state": _mapping(value.state_dict(), where, above)}
    if hasattr(value, "get_params"):  # scikit-learn's way of saying what an estimator is
        return {**kind, "params": _mapping(value.get_params(deep=False), where, above)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {**kind, "state": _mapping(fields, where, above)}
    return {**kind, "state": _state(value, where, above)}


def _compiled(value: Any) -> bool:
    """Whether this is a function whose code Python doesn't see, and which a module has under its name."""
    if isinstance(value, (types.BuiltinFunctionType, np.ufunc)):
        return True
    name, module = getattr(value, "__qualname__", None), getattr(value, "__module__", None)
    if not callable(value) or not isinstance(name, str) or not isinstance(module, str):
        return False
    return getattr(sys.modules.get(module), name, None) is value


def _class(kind: type, where: str, above: tuple[int, ...]) -> dict[str, Any]:
    """Name and version; where there is no version, what the class's body says."""
    about: dict[str, Any] = {"name": _name(kind), "version": _version(kind.__module__)}
    if about["version"] is None and id(kind) not in above[:-1]:
        body = {
            key: getattr(item, "__func__", getattr(item, "fget", item))
            for key, item in vars(kind).items()
            if key not in _NOT_OF_THE_BODY and not isinstance(item, _SLOTS)
        }
        about["bases"] = [_name(base) for base in kind.__mro__[1:]]
        about["body"] = _mapping(body, f"{where}.{kind.__name__}", (*above, id(kind)))
    return about


def _state(value: Any, where: str, above: tuple[int, ...]) -> Any:
    """What pickling would keep, without its bytes (they differ for equal objects)."""
    try:
        reduced = value.__reduce_ex__(4)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise TypeError(
            f"{where} is a {_name(type(value))}, which can't be told from its like ({error}); give plain values, "
            "arrays, functions or estimators"
        ) from error
    if isinstance(reduced, str):
        return {"$global": reduced}
    parts = [part if k < 3 else list(part) for k, part in enumerate(reduced[:5]) if part is not None]
    return [_describe(part, where, above) for part in parts]


def _function(value: types.FunctionType, where: str, above: tuple[int, ...]) -> dict[str, Any]:
    code, version = value.__code__, _version(value.__module__)
    closure = [cell.cell_contents for cell in value.__closure__ or ()]
    parts: dict[str, Any] = {
        "name": f"{value.__module__}.{value.__qualname__}",
        "version": version,
        "code": _code(code),
        "defaults": [value.__defaults__, value.__kwdefaults__],
        "closure": dict(zip(code.co_freevars, closure, strict=True)),
    }
    if version is None:
        names = sorted(_names_in(code))
        parts["globals"] = {name: value.__globals__[name] for name in names if name in value.__globals__}
    return {name: _describe(part, f"{where}.{name}", above) for name, part in parts.items()}


def _names_in(code: types.CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _code(code: types.CodeType) -> str:
    """SHA-256 of what a function does; where it stands in a file, and what its variables are called, don't count."""
    digest = hashlib.sha256(code.co_code)
    digest.update(repr((code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags)).encode())
    for const in code.co_consts:
        text = _code(const) if isinstance(const, types.CodeType) else repr(_sorted(const))
        digest.update(f"{type(const).__name__} {text}\n".encode())
    return digest.hexdigest()


def _sorted(const: Any) -> Any:
    """A frozen set's order differs from one process to the next."""
    return sorted(const, key=repr) if isinstance(const, frozenset) else const


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _version(module: str | None) -> str | None:
    """Of the package that a module belongs to, where it says so."""
    top = sys.modules.get((module or "").split(".")[0])
    if module is not None and module.split(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    version = getattr(top, "__version__", None)
    return version if isinstance(version, str) else None


def _differences(prefix: str, kept: Any, asked: Any) -> list[tuple[str, tuple[Any, Any]]]:
    if isinstance(kept, dict) and isinstance(asked, dict):
        found = []
        for key in dict.fromkeys([*kept, *asked]):
            name = f"{prefix}.{key}" if prefix else str(key)
            if (key in kept) != (key in asked):
                found.append((name, (kept.get(key), asked.get(key))))
            else:
                found += _differences(name, kept[key], asked[key])
        return found
    if isinstance(kept, list) and isinstance(asked, list) and len(kept) == len(asked):
        return [
            item
            for k, both in enumerate(zip(kept, asked, strict=True))
            for item in _differences(f"{prefix}[{k}]", *both)
        ]
    return [] if canonical(kept) == canonical(asked) else [(prefix, (kept, asked))]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
