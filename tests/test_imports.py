"""The structure of the project: which part may import which, and what stands where."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"acenode": ROOT / "acenode", "acenode_app": ROOT / "app", "acenode_app.pages": ROOT / "pages"}

# From the bottom up. A part imports parts of its own and of lower layers.
LAYERS = (
    ("errors", "files", "garbage", "device"),
    ("attention", "ode"),
    ("node", "config", "backend"),
    ("acenode", "data", "training", "runs"),  # acenode: the public names in __init__.py
    ("models", "accelerate", "accelerate.dispatch"),
    ("experiments", "playground"),
    ("compare", "player", "search", "execution"),
    ("export",),
    ("bench",),
    ("cli",),
    ("app",),
    ("pages",),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
DEVICE_WORDS = re.compile(r"cuda|triton|ctypes|compile|\bgpu", re.IGNORECASE)
NOT_NEEDED = ("streamlit", "pandas", "plotly", "sklearn", "tqdm", "safetensors", "torchvision", "tensorboard",
              "optuna", "ray", "playwright", "acenode_app")


@cache
def modules() -> dict[str, Path]:
    """Return every module by its name, with its file; app/ is installed as acenode_app."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def parsed(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


@cache
def imported_names(name: str) -> frozenset[str]:
    """Return all modules that a module imports anywhere: at the top, in functions and under TYPE_CHECKING.

    `from a.b import c` yields "a.b.c" if that is a module of the project, else "a.b".
    """
    package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(parsed(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package.split(".")[:len(package.split(".")) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                found.add(f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base)
    return frozenset(found)


@cache
def imports(name: str) -> frozenset[str]:
    """Return the modules of the project that a module imports, itself excluded."""
    return frozenset(n for n in imported_names(name) if n in modules() and n != name)


def part_of(name: str) -> str:
    """Return the part of the project a module belongs to: "node", "ode", "accelerate.dispatch", "app", ..."""
    top, *rest = name.split(".")
    if top == "acenode_app":
        return "pages" if rest[:1] == ["pages"] else "app"
    if rest[:2] == ["accelerate", "dispatch"]:
        return "accelerate.dispatch"
    return rest[0] if rest else "acenode"


def module_edges() -> dict[str, set[str]]:
    return {name: set(imports(name)) for name in modules()}


def part_edges() -> dict[str, set[str]]:
    """Return which parts import which; the dispatcher is left out, since models and accelerate meet in it."""
    edges: dict[str, set[str]] = defaultdict(set)
    for name, others in module_edges().items():
        for other in others:
            if part_of(name) != part_of(other) and "accelerate.dispatch" not in (part_of(name), part_of(other)):
                edges[part_of(name)].add(part_of(other))
    return edges


@pytest.mark.parametrize("edges", [module_edges, part_edges])
def test_no_import_circles(edges: Callable[[], dict[str, set[str]]]) -> None:
    tuple(graphlib.TopologicalSorter(edges()).static_order())  # a CycleError names the circle


def test_every_part_has_a_layer() -> None:
    assert {part_of(name) for name in modules()} <= RANK.keys()


def test_imports_point_down() -> None:
    assert sorted(f"{name} imports {other}" for name, others in module_edges().items() for other in others
                  if RANK[part_of(name)] < RANK[part_of(other)]) == []


@pytest.mark.parametrize(("importer", "imported"), [
    ("models", {"accelerate"}), ("pages", RANK.keys() - {"pages", "app"}), ("app", {"cli", "bench"})])
def test_forbidden_imports(importer: str, imported: set[str]) -> None:
    """Models import the dispatcher alone of accelerate, and pages the app alone."""
    assert sorted(f"{name} imports {other}" for name, others in module_edges().items() for other in others
                  if part_of(name) == importer and part_of(other) in imported) == []


def test_the_library_never_imports_streamlit_or_the_app() -> None:
    assert sorted(f"{name} imports {other}" for name in modules() if part_of(name) not in ("app", "pages")
                  for other in imported_names(name)
                  if other.split(".")[0] in ("streamlit", "app", "acenode_app", "pages")) == []


def test_models_do_not_mention_devices() -> None:
    """CUDA, Triton and compiled C belong to accelerate/."""
    found = []
    for path in sorted((ROOT / "acenode" / "models").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [f"{path.relative_to(ROOT)}:{n}: {line.strip()}" for n, line in enumerate(lines, 1)
                  if DEVICE_WORDS.search(line)]
    assert found == []


def test_the_test_tree_mirrors_the_source_tree() -> None:
    other = {"fixtures", "vendor", "faults", "__pycache__"}  # faults are those of the whole lab
    folders = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*")
               if path.is_dir() and not other & set(path.relative_to(ROOT / "tests").parts)]
    assert [str(f) for f in folders if not (ROOT / "acenode" / f).is_dir() and not (ROOT / f).is_dir()] == []


def test_no_two_public_classes_of_one_name() -> None:
    homes = defaultdict(list)
    for name in modules():
        for node in ast.walk(parsed(name)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_the_experiments_are_known_without_torch() -> None:
    code = "import sys, acenode.experiments; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_importing_acenode_needs_torch_torchdiffeq_and_numpy_only() -> None:
    code = ("import sys\n"
            f"sys.modules.update(dict.fromkeys({NOT_NEEDED!r}))\n"
            "import acenode, torch\n"
            "assert 'acenode.ode' not in sys.modules\n"
            "for name in acenode.__all__: getattr(acenode, name)\n"
            "y = torch.ones(2, 3)\n"
            "for engine in ('auto', 'reference'):\n"
            "    acenode.solve(lambda t, s: (-s[0],), (y,), [0.0, 1.0], acenode.Solver(engine=engine))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
