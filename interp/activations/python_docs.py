"""The embedded corpus: prose that ships with every CPython.

`pydoc_data.topics` (the language reference as plain text) and the docstrings of the standard library. The
library is parsed with `ast`, never imported, so nothing runs and nothing is missing because an optional C
library is not there. The text depends on the Python version; `Documents.fingerprint` tells two apart.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

# Folders whose docstrings are boilerplate (encodings), of test code, or of programs nobody reads about.
_SKIPPED_FOLDERS = frozenset(
    {"test", "tests", "idlelib", "idle_test", "lib2to3", "turtledemo", "ensurepip", "pydoc_data", "encodings"}
    | {"site-packages", "dist-packages", "__pycache__"}
)
_DOCUMENT_CHARACTERS = 1200  # short docstrings of one module are joined until they reach this
_SHORTEST_CHARACTERS = 200  # a remainder shorter than this joins the document before it
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.lru_cache(maxsize=1)
def python_docs() -> tuple[str, ...]:
    """Topics in alphabetical order, then modules in order of their path; exact duplicates removed."""
    return tuple(dict.fromkeys([*_topics(), *_library()]))


def _topics() -> Iterator[str]:
    spec = importlib.util.find_spec("pydoc_data.topics")
    if spec is None or spec.origin is None:
        return
    tree = _parse(Path(spec.origin))
    for node in tree.body if tree else []:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            for name in sorted(topics):
                yield topics[name].strip()


def _library() -> Iterator[str]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if _SKIPPED_FOLDERS.intersection(parts) or parts[0].startswith(("config-", "_sysconfigdata")):
            continue
        tree = _parse(path)
        if tree is not None:
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield from _join(list(_sections(name, tree)))


def _parse(path: Path) -> ast.Module | None:
    try:
        with warnings.catch_warnings():  # old escapes in library sources are not our user's business
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None


def _sections(module: str, tree: ast.Module) -> Iterator[str]:
    """One section for the module and one for each class or function at its top, as `help()` shows them."""
    introduction = ast.get_docstring(tree)
    if introduction:
        yield f"module {module}\n\n{introduction.strip()}"
    for node in tree.body:
        if isinstance(node, _Definition):
            text = "\n\n".join(_definition(node, module, ""))
            if text:
                yield text


def _definition(node: _Definition, module: str, indent: str) -> Iterator[str]:
    docstring = ast.get_docstring(node)
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        heading = f"class {node.name}({bases})" if bases else f"class {node.name}"
        members = [m for m in node.body if isinstance(m, _Definition)]
        inside = [text for m in members for text in _definition(m, module, indent + "    ")]
    else:
        heading, inside = f"{node.name}({ast.unparse(node.args)})", []
    if not indent:
        heading = f"{heading}  in module {module}"
    if docstring:
        body = "\n".join(f"{indent}    {line}" if line else "" for line in docstring.strip().splitlines())
        yield f"{indent}{heading}\n{body}"
    elif inside:
        yield f"{indent}{heading}"
    yield from inside


def _join(sections: list[str]) -> list[str]:
    documents: list[str] = []
    current = ""
    for section in sections:
        current = f"{current}\n\n{section}" if current else section
        if len(current) >= _DOCUMENT_CHARACTERS:
            documents.append(current)
            current = ""
    if len(current) >= _SHORTEST_CHARACTERS:
        documents.append(current)
    elif current and documents:
        documents[-1] = f"{documents[-1]}\n\n{current}"
    return documents
