"""Files of `torch.save`: the tensors that torch itself reads, and nothing that the file doesn't hold."""

from __future__ import annotations

import os
import zipfile
from collections import OrderedDict

import pytest
import torch

from interp.core.torch_files import read_torch


def rewritten(path, change, compression=zipfile.ZIP_STORED) -> None:
    """The archive with each of its files as `change(name, content)` has it."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(name, content))


@pytest.fixture
def path(tmp_path):
    torch.save({"weight": torch.arange(12.0).reshape(4, 3)}, tmp_path / "ae.pt")
    return tmp_path / "ae.pt"


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    ],
)
def test_tensors_are_those_that_torch_reads(tmp_path, dtype):
    whole = torch.arange(24).reshape(4, 6).to(dtype)
    content = {
        "plain": whole,
        "turned": whole.T,
        "part": whole[1:3, 2:],
        "scalar": whole[2, 2],
        "none": whole[:0],
        "parameter": torch.nn.Parameter(whole, requires_grad=False),
        "more": OrderedDict(
            step=7, names=["a", ("b", None)], rate=0.5, on=True, dtype=dtype, size=torch.Size([2])
        ),
    }
    torch.save(content, tmp_path / "x.pt")
    ours, theirs = read_torch(tmp_path / "x.pt"), torch.load(tmp_path / "x.pt", weights_only=True)
    assert list(ours) == list(theirs)
    assert ours["more"] == theirs["more"]
    for name in ("plain", "turned", "part", "scalar", "none", "parameter"):
        assert ours[name].dtype == dtype
        assert torch.equal(ours[name], theirs[name])


# In the pickle, K is a one-byte integer: the length 12 of the storage, then the shape (4, 3) and strides (3, 1).
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"K\x04K\x03\x86", b"K\xffK\x03\x86"),  # more rows than are stored
        (b"K\x04K\x03\x86", b"K\x00K\xff\x86"),
        (b"K\x03K\x01\x86", b"K\x00K\x00\x86"),  # all rows the same: allowed, it takes no more
        (b"K\x03K\x01\x86", b"K\x03K\x03\x86"),  # past the end
        (b"K\x0ct", b"K\xfft"),  # a storage longer than its file
        (b"K\x0ct", b"K\x02t"),
    ],
)
def test_sizes_are_held_against_what_is_stored(path, old, new):
    def change(name, content):
        if not name.endswith("data.pkl"):
            return content
        assert content.count(old) == 1
        return content.replace(old, new)

    rewritten(path, change)
    if new == b"K\x00K\x00\x86":
        assert torch.equal(read_torch(path)["weight"], torch.zeros(4, 3))
    else:
        with pytest.raises(ValueError, match=r"ae\.pt is broken"):
            read_torch(path)


def test_what_could_run_code_is_refused(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "ae.pt")
    with pytest.raises(ValueError, match=r"ae\.pt holds more than tensors, numbers and strings \(torch\.nn"):
        read_torch(tmp_path / "ae.pt")


def test_other_archives_are_refused(path, tmp_path):
    content = path.read_bytes()
    rewritten(path, lambda name, part: part, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="packed or longer than the file"):
        read_torch(path)
    for cut in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"ae\.pt is broken"):
            read_torch(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        read_torch(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_torch(tmp_path / "nothing")
