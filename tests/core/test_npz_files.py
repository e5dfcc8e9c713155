"""Arrays of `numpy.savez` come back as they were; nothing in the file is run or believed."""

from __future__ import annotations

import numpy as np
import pytest

from interp.core.npz_files import read_npz


def test_object_arrays_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "params.npz", W_enc=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match=r"params.npz is broken \(W_enc in it is no array of numbers\)"):
        read_npz(tmp_path / "params.npz")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 1, 3)])
def test_arrays_come_back_as_they_were(tmp_path, dtype, shape):
    array = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2).astype(dtype)
    np.savez(tmp_path / "a.npz", one=array, two=np.array(array, order="F"))
    found = read_npz(tmp_path / "a.npz")
    for name in ("one", "two"):
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


def test_a_small_file_of_gigabytes_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", one=np.zeros(2**20))
    with pytest.raises(ValueError, match=r"a.npz is broken \(one in it is far longer than the file\)"):
        read_npz(tmp_path / "a.npz")
