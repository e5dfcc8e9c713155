"""The map of the house: which package may import which, and what `import interp` must not pull in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT = {
    "interp.core": set(),
    "interp.models": {"interp.core"},
    "interp.activations": {"interp.core", "interp.models"},
    "interp.sae": {"interp.core", "interp.models", "interp.activations"},
    "interp.probes": {"interp.core", "interp.models", "interp.activations", "interp.sae"},
    "interp.steering": {"interp.core", "interp.models", "interp.activations", "interp.sae"},
    "interp.markov": {"interp.core", "interp.models"},
    "interp.recall": {"interp.core", "interp.models"},
    "classic_ml": {"interp.core"},
}
OURS = ("interp", "classic_ml", "tests", "scripts", "benchmarks")
HEAVY = ("transformers", "transformer_lens", "datasets", "wandb", "matplotlib", "pandas", "triton", "numba")


def package_of(module: str, packages: list[str]) -> str | None:
    return next((p for p in packages if module == p or module.startswith(p + ".")), None)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if [alias.name for alias in node.names] != ["__version__"]:
                found.add(node.module or "")
    return found


def forbidden(package: str, module: str) -> str | None:
    """Why a file of `package` may not import `module`; None where it may."""
    used = package_of(module, list(MAY_IMPORT))
    if used is None:
        ours = module.split(".")[0] in OURS
        return f"{module} is above every package, or no package at all" if ours else None
    return None if used in MAY_IMPORT[package] | {package} else f"{package} is below {used}"


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_down_only(package: str) -> None:
    files = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    assert files
    for path in files:
        for module in imports_of(path):
            reason = forbidden(package, module)
            assert reason is None, f"{path.relative_to(ROOT)} imports {module}: {reason}"


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("interp.core", "interp"),
        ("interp.core", "interp.cli"),
        ("interp.core", "interp.cli.options"),
        ("interp.sae", "tests.sae.tiny_world"),
        ("interp.sae", "scripts.demo"),
        ("interp.models", "interp.activations.store"),
        ("classic_ml", "interp.models.loading"),
        ("interp.recall", "benchmarks"),
    ],
)
def test_imports_that_point_up_are_found(package: str, module: str) -> None:
    assert forbidden(package, module) is not None


def test_every_package_has_its_place_on_the_map() -> None:
    there = {f"interp.{path.parent.name}" for path in (ROOT / "interp").glob("*/__init__.py")}
    assert there == {name for name in MAY_IMPORT if name.startswith("interp.")} | {"interp.cli"}


def test_the_library_imports_neither_its_tests_nor_its_scripts() -> None:
    for path in (ROOT / "interp").rglob("*.py"):
        above = {module.split(".")[0] for module in imports_of(path)} & {"tests", "scripts", "benchmarks"}
        assert not above, f"{path.relative_to(ROOT)} imports {above}"


def test_import_interp_is_light() -> None:
    code = (
        "import torch, time, sys; start = time.perf_counter(); import interp; "
        "import interp.core.trainer, interp.models.loading, interp.activations.store, interp.sae.architectures.gated; "
        f"print(','.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == ""


def test_every_public_name_resolves() -> None:
    import interp

    for name in interp.__all__:
        assert getattr(interp, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        interp.nothing_of_that_name  # noqa: B018


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys; sys.argv = ['interp', '--help']\n"
        "from interp.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert out.returncode == 0, out.stderr
    assert "harvest" in out.stdout
