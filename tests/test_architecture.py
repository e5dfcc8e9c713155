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


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_down_only(package: str) -> None:
    packages = list(MAY_IMPORT)
    files = sorted((ROOT / package.replace(".", "/")).rglob("*.py"))
    assert files
    for path in files:
        for module in imports_of(path):
            used = package_of(module, packages)
            if used is None:
                assert module not in ("interp", "interp.cli"), f"{path.relative_to(ROOT)} imports {module}"
            else:
                allowed = MAY_IMPORT[package] | {package}
                where = path.relative_to(ROOT)
                assert used in allowed, f"{where} imports {module}: {package} is below {used}"


def test_import_interp_is_light() -> None:
    code = (
        "import torch, time, sys; start = time.perf_counter(); import interp; "
        "import interp.core.trainer, interp.models.loading, interp.activations.store, interp.sae.gated; "
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
