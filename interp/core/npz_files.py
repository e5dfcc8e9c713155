"""Files of `numpy.savez`, read without believing them: nothing is unpickled or evaluated, sizes are checked first."""

from __future__ import annotations

import math
import os
import re
import zipfile
import zlib

import numpy as np

from interp.core.files import open_regular

_HEADER = re.compile(
    rb"\{'descr': '([<|=])([fiub])(\d)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n?"
)
_MOST_PACKED = 16  # times its length a file may be unpacked: weights hardly shrink
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of numbers of an ``.npz`` file.

    Raises:
        ValueError: it is damaged, or holds something other than arrays of little-endian numbers; the file is named.
        OSError: it isn't there or may not be read.
    """
    where = os.fspath(path)
    with open_regular(path) as file:
        room = _MOST_PACKED * os.fstat(file.fileno()).st_size
        arrays: dict[str, np.ndarray] = {}
        try:
            with zipfile.ZipFile(file) as archive:
                for about in archive.infolist():
                    name = about.filename.removesuffix(".npy")
                    room -= about.file_size
                    if room < 0:
                        raise ValueError(f"{name} in it is far longer than the file")
                    if name in arrays:
                        raise ValueError(f"{name} comes twice in it")
                    arrays[name] = _array(archive.read(about), name)
        except _BROKEN as error:
            raise ValueError(f"{where} is broken ({error}): copy it again") from error
    return arrays


def _array(content: bytes, name: str) -> np.ndarray:
    version = content[6:8]
    width = 2 if version == b"\x01\x00" else 4
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    header = _HEADER.fullmatch(content[8 + width : start])
    if (
        content[:6] != b"\x93NUMPY"
        or version not in (b"\x01\x00", b"\x02\x00", b"\x03\x00")
        or header is None
    ):
        raise ValueError(f"{name} in it is no array of numbers")
    order, kind, size, fortran, dimensions = header.groups()
    dtype = np.dtype((order + kind + size).decode())
    shape = tuple(int(n) for n in dimensions.replace(b",", b" ").split())
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"{name} in it has shape {shape}, for which it isn't as long as it should be")
    flat = np.frombuffer(content, dtype, offset=start)
    return flat.reshape(shape, order="F" if fortran == b"True" else "C")
