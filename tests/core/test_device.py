"""Devices, number formats, and seeds that are independent of each other."""

from __future__ import annotations

import io
import itertools
import random

import numpy as np
import pytest
import torch

from interp.core.device import (
    RngBundle,
    autocast,
    cpu_has_bf16,
    derive_seed,
    deterministic_algorithms,
    dtype_name,
    environment,
    make_generator,
    resolve_device,
    resolve_dtype,
    seed_everything,
)

# ---- seeds


def test_every_key_gives_another_stream():
    keys = [
        (),
        (0,),
        (0, 0),
        (0, 0, 0),
        (1,),
        (0, 1),
        (1, 0),
        ("a",),
        ("b",),
        ("a", 0),
        ("a", 1),
        (0, "a"),
        (2**40,),
        (2**40, 0),
    ]
    seeds = [derive_seed(seed, *key) for seed, key in itertools.product((0, 1, 2**40), keys)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_generator_is_a_pure_function_of_its_keys():
    draws = [torch.rand(5, generator=make_generator(3, "epoch", 7)) for _ in range(2)]
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], torch.rand(5, generator=make_generator(3, "epoch", 8)))


def test_seeds_stay_what_they_are():
    """Stores and runs made by earlier releases depend on them."""
    sequence = np.random.SeedSequence(5, spawn_key=(2, 0x3610A686))  # crc32 of "hello"
    assert derive_seed(5, 2, "hello") == int(sequence.generate_state(1, np.uint64)[0]) >> 1


def test_streams_of_neighbouring_keys_are_not_correlated():
    draws = torch.stack([torch.randn(4000, generator=make_generator(0, i)) for i in range(20)])
    correlations = torch.corrcoef(draws).fill_diagonal_(0.0)
    assert correlations.abs().max() < 5 / 4000**0.5


@pytest.mark.parametrize(
    ("arguments", "message"), [((-1, "initial"), r"^seed = -1 must"), ((0, -2), r"^keys = \(-2,\) of a seed")]
)
def test_negative_seeds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_generator(*arguments)


def test_seed_everything_seeds_all_three():
    draws = []
    for _ in range(2):
        seed_everything(2**33 + 5)
        draws.append((random.random(), np.random.rand(), torch.rand(()).item()))
    assert draws[0] == draws[1]


def test_generators_survive_a_file(tmp_path):
    def draw():
        return random.gauss(0, 1), np.random.randn(), torch.randn(3).tolist(), random.random()

    seed_everything(1)
    draw()  # leaves half a pair of Gaussians in Python's and NumPy's generators
    torch.save(RngBundle.capture().state, tmp_path / "rng.pt")
    expected = [draw() for _ in range(3)]
    seed_everything(2)
    RngBundle(torch.load(tmp_path / "rng.pt", weights_only=True)).restore()
    assert [draw() for _ in range(3)] == expected


# ---- devices and number formats


def test_devices():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu", 0)) == torch.device("cpu", 0)
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")


def test_auto_follows_the_local_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert resolve_device("auto") == torch.device("cuda", 3)
    with pytest.raises(ValueError, match="'cuda:4', but torch sees 4"):
        resolve_device("cuda:4")


def test_missing_and_unknown_devices_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="'cuda:1', but torch sees no CUDA GPU"):
        resolve_device("cuda:1")
    with pytest.raises(ValueError, match="device = 'gpu' is not one that torch knows"):
        resolve_device("gpu")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", torch.bfloat16),
        ("half", torch.float16),
        ("float32", torch.float32),
        ("fp64", torch.float64),
        (torch.float16, torch.float16),
    ],
)
def test_dtypes(name, dtype):
    assert resolve_dtype(name) is dtype
    assert resolve_dtype(dtype_name(dtype)) is dtype


def test_an_unknown_dtype_names_the_nearest():
    with pytest.raises(ValueError, match=r"dtype = 'bfloat15' is not known; did you mean 'bfloat16'\?"):
        resolve_dtype("bfloat15")


def test_autocast_computes_in_bf16_and_leaves_32_and_64_alone():
    x, y = torch.randn(2, 3, 3)
    with autocast(torch.device("cpu"), "bf16"):
        assert (x @ y).dtype == torch.bfloat16
    for precision in ("32", "64"):
        with autocast(torch.device("cpu"), precision):
            assert (x @ y).dtype == torch.float32
    with pytest.raises(ValueError, match="precision = 'fp16' needs a CUDA device"):
        autocast(torch.device("cpu"), "fp16")
    with pytest.raises(ValueError, match="precision = '16' is not known"):
        autocast(torch.device("cpu"), "16")


@pytest.mark.parametrize(
    ("flags", "has"),
    [("avx2 avx512_bf16", True), ("fphp bf16 i8mm", True), ("amx_bf16", True), ("avx512f", False)],
)
def test_native_bf16_is_read_from_the_processors_flags(monkeypatch, flags, has):
    monkeypatch.setattr("builtins.open", lambda path: io.StringIO(f"flags : fpu {flags}\n"))
    assert cpu_has_bf16.__wrapped__() is has


def test_deterministic_algorithms_are_put_back_after_an_error():
    def fail():
        with deterministic_algorithms(True):
            assert torch.are_deterministic_algorithms_enabled()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_environment_says_what_made_a_result(monkeypatch, tmp_path):
    facts = environment()
    assert (
        facts["versions"]["torch"] == torch.__version__.split("+")[0]
        or facts["versions"]["torch"] == torch.__version__
    )
    assert {"python", "platform", "git_commit", "cpu_threads", "gpu"} <= set(facts)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment()["git_commit"] is None
