"""Files of `torch.save`, read without believing them: no code runs, and no more memory is taken than the file is long.

`torch.load(weights_only=True)` runs no code either, but takes sizes from the file's pickle: a tensor may be larger than
what is stored of it, and reading it then allocates, or goes past the end of, what is there.
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import pickletools
import zipfile
import zlib
from typing import Any

import torch
from torch import Tensor

from interp.core.files import open_regular

_KINDS = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_PLAIN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): torch.Size,
    **{("torch", str(kind).removeprefix("torch.")): kind for kind in _KINDS.values()},
}
_REMEMBERS = ("PUT", "BINPUT", "LONG_BINPUT")
_BROKEN = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError),
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError),
)


class _Refused(pickle.UnpicklingError):
    """The file holds something that we don't read; says what."""


def read_torch(path: str | os.PathLike[str]) -> Any:
    """What `torch.save` (since torch 1.6) wrote: tensors, on the CPU, in dictionaries, lists, numbers and strings.

    Raises:
        ValueError: it is damaged, or holds anything else, which could run code. It names the file.
        OSError: it isn't there or may not be read.
    """
    where = os.fspath(path)
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                return _Archive(archive, size).read()
        except _Refused as error:
            raise ValueError(
                f"{where} holds more than tensors, numbers and strings ({error}), which could run code: export it "
                "again as a state dict"
            ) from error
        except _BROKEN as error:
            raise ValueError(f"{where} is broken ({error}): copy it again") from error


class _Archive(pickle.Unpickler):
    """The pickle of an archive, whose tensors lie in files of their own."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive, self._room = archive, size
        self._storages: dict[str, Tensor] = {}
        names = archive.namelist()
        if len(set(names)) != len(names):
            raise ValueError("a name comes twice in it")
        self._root = next(name for name in [*names, "data.pkl"] if name.endswith("data.pkl"))[:-8]
        if f"{self._root}byteorder" in names and self._content(f"{self._root}byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        code = self._content(f"{self._root}data.pkl")
        for opcode, argument, _ in pickletools.genops(code):
            if opcode.name in _REMEMBERS and isinstance(argument, int) and argument > len(code):
                raise ValueError("its pickle is damaged")
        super().__init__(io.BytesIO(code))

    def read(self) -> Any:
        return self.load()

    def _content(self, name: str) -> bytes:
        """Of one file of the archive, which is stored as it is; all together are not longer than the archive."""
        about = self._archive.getinfo(name)
        self._room -= about.file_size
        if about.compress_type != zipfile.ZIP_STORED or self._room < 0:
            raise ValueError(f"{name} in it is packed or longer than the file")
        return self._archive.read(name)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda data, requires_grad, hooks: data
        if module == "torch" and name in _KINDS:
            return _KINDS[name]
        if (module, name) not in _PLAIN:
            raise _Refused(f"{module}.{name}")
        return _PLAIN[module, name]

    def persistent_load(self, pid: Any) -> Tensor:
        kind, dtype, key, _, length = pid
        if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise ValueError("a tensor in it is not described as tensors are")
        if key not in self._storages:
            content = bytearray(self._content(f"{self._root}data/{key}"))
            empty = torch.empty(0, dtype=dtype)
            self._storages[key] = torch.frombuffer(content, dtype=dtype) if content else empty
        storage = self._storages[key]
        if storage.dtype != dtype or len(storage) != length:
            raise ValueError(f"tensor {key} in it is not as long as its pickle says")
        return storage


def _tensor(storage: Tensor, offset: int, shape: Any, strides: Any, *_: Any) -> Tensor:
    shape, strides = tuple(shape), tuple(strides)
    if not isinstance(storage, Tensor) or len(shape) != len(strides):
        raise ValueError("a tensor in it is not described as tensors are")
    numbers = (offset, *shape, *strides)
    if not all(type(n) is int and 0 <= n <= len(storage) for n in numbers):
        raise ValueError(f"a tensor of shape {shape} in it is larger than what is stored of it")
    count, last = 1, offset
    for n, stride in zip(shape, strides, strict=True):
        count, last = count * n, last + (n - 1) * stride
    if count > len(storage) or (count and last >= len(storage)):
        raise ValueError(f"a tensor of shape {shape} in it is larger than what is stored of it")
    return torch.as_strided(storage, shape, strides, offset)
