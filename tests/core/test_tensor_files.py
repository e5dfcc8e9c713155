"""Tensors are believed only where file, header and numbers agree; our reader and the library's agree on good files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from interp.core.tensor_files import DTYPES, read_tensors, tensor_layout


def good(path):
    tensors = {
        "w": torch.arange(6.0).reshape(2, 3),
        "b": torch.tensor([1.0, 2.0]).half(),
        "none": torch.empty(0, 4),
    }
    save_file(tensors, path, metadata={"about": "x"})
    return tensors


def with_header(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def one(**changes):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def test_it_reads_what_the_library_reads(tmp_path):
    path = tmp_path / "a.safetensors"
    every = {str(dtype): torch.zeros(3, dtype=dtype) + 1 for dtype in DTYPES.values()}
    save_file(every | {"scalar": torch.tensor(2.5)}, path)
    ours, theirs = read_tensors(path, floating=False), load_file(path)
    assert ours.keys() == theirs.keys()
    assert all(
        torch.equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours
    )
    tensors = good(path)
    assert all(torch.equal(read_tensors(path)[name], tensors[name]) for name in tensors)
    assert tensor_layout(path).metadata == {"about": "x"}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ([], b"", "header is a list"),
        (b"{", b"", "not valid JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"", "nested too deeply"),
        ({"w": 3}, b"", "'w' is not described"),
        (one(dtype="I33"), b"\0" * 8, "dtype 'I33'"),
        (one(dtype=["F32"]), b"\0" * 8, "dtype"),
        (one(shape=[3]), b"\0" * 8, "asks for 12"),
        (one(shape=[-1]), b"\0" * 8, "not described"),
        (one(shape=[2**40, 2**40]), b"\0" * 8, "asks for"),
        (one(shape=[True, 2]), b"\0" * 8, "not described"),
        (one(data_offsets=[8, 16]), b"\0" * 16, "doesn't begin"),
        (one(), b"\0" * 7, "cut short or damaged"),
        (one(), b"\0" * 9, "cut short or damaged"),
        (one(extra=1), b"\0" * 8, "not described"),
        ({"__metadata__": {"a": 1}}, b"", "not texts"),
        (b'{"w":1,"w":2}', b"", "comes twice"),
    ],
)
def test_a_header_that_contradicts_itself_is_named(tmp_path, header, data, message):
    path = with_header(tmp_path / "bad.safetensors", header, data)
    with pytest.raises(ValueError, match=f"(?s)bad.safetensors.*{message}"):
        read_tensors(path)


@pytest.mark.parametrize("length", [0, 7, 2**40, 2**63])
def test_a_header_longer_than_the_file_allocates_nothing(tmp_path, length):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match=r"bad\.safetensors"):
        read_tensors(path)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path, bad):
    path = tmp_path / "a.safetensors"
    save_file({"w": torch.tensor([0.0, bad, bad])}, path)
    with pytest.raises(ValueError, match=r"a\.safetensors: tensor 'w' has 2 NaN or infinite values"):
        read_tensors(path)
    assert read_tensors(path, finite=False)["w"].shape == (3,)


def test_kinds_names_and_shapes_are_held_against_what_is_expected(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"w": torch.zeros(2, 3), "n": torch.zeros(2, dtype=torch.int8)}, path)
    with pytest.raises(ValueError, match="'n' is int8, not of floating point"):
        read_tensors(path)
    shapes = {"w": (2, 3), "n": (2,)}
    assert set(read_tensors(path, shapes, floating=False)) == {"w", "n"}
    for expected, message in (
        ({"w": (2, 3)}, "'n' doesn't belong here"),
        (shapes | {"v": (1,)}, "'v' is missing"),
        (shapes | {"w": (3, 2)}, r"shape \(2, 3\), expected \(3, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            read_tensors(path, expected, floating=False)


def test_pipes_devices_and_folders_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises((ValueError, IsADirectoryError), match=r"not a regular file|Is a directory"):
            read_tensors(path)
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "absent")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_mutation_reads_as_another_shape_or_ends_in_another_error(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("m") / "a.safetensors"
    tensors = good(path)
    data = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    kind = rng.integers(3)
    if kind == 0:
        data[rng.integers(header)] ^= 1 << rng.integers(8)
    elif kind == 1:
        del data[rng.integers(len(data)) :]
    else:
        data[rng.integers(len(data)) : 0] = bytes(rng.integers(0, 256, rng.integers(1, 9), dtype=np.uint8))
    path.write_bytes(data)
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    message = ""
    try:
        found = {name: tuple(t.shape) for name, t in read_tensors(path, shapes, finite=False).items()}
    except ValueError as error:
        found, message = {}, str(error)
    assert found == shapes or "a.safetensors" in message
