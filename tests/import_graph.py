"""Read from the source, without running it, which modules import which."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"acenode": ROOT / "acenode", "acenode_app": ROOT / "app", "acenode_app.pages": ROOT / "pages"}


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


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def part_of(name: str) -> str:
    """Return the part of the project a module belongs to: "node", "ode", "accelerate.dispatch", "app", ..."""
    top, *rest = name.split(".")
    if top == "acenode_app":
        return "pages" if rest[:1] == ["pages"] else "app"
    if rest[:2] == ["accelerate", "dispatch"]:
        return "accelerate.dispatch"
    return rest[0] if rest else "acenode"
