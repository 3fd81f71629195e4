"""The list of public names in the README, by package, each with a link to its file."""

import ast

from .repository import ROOT

STUB = ROOT / "shapejit" / "__init__.pyi"


def listed():
    """The lines of the list: one per package, and one for those with a single name."""
    packages = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                where = _path(node.module, alias.name)
                package = where.relative_to(STUB.parent).parts[0].removesuffix(".py")
                link = f"[`{alias.name}`]({where.relative_to(ROOT).as_posix()})"
                packages.setdefault(package, []).append(link)
    items = {name: f"**{name}**: {', '.join(links)}" for name, links in packages.items()}
    lines = [item for name, item in items.items() if len(packages[name]) > 1]
    lines.append("; ".join(item for name, item in items.items() if len(packages[name]) == 1))
    return "\n".join(f"- {line}" for line in lines)


def _path(module, name):
    """The file of a public name: the module that has it, or that it is."""
    folder = STUB.parent.joinpath(*(module or "").split("."))
    paths = folder / f"{name}.py", folder / name / "__init__.py", folder.with_suffix(".py")
    return next(path for path in paths if path.exists())


def modules():
    """Every package with what its docstring says first, and a line for each of its modules."""
    lines = []
    for folder in sorted({path.parent for path in STUB.parent.rglob("*.py")}):
        title = folder.relative_to(ROOT).as_posix()
        lines += ["", f"**{title}/**: {_first(folder / '__init__.py')}", ""]
        others = (path for path in sorted(folder.glob("*.py")) if path.stem[0] != "_")
        lines += [f"- `{path.stem}`: {_first(path)}" for path in others]
    return "\n".join(lines[1:])


def _first(path):
    """The first paragraph of a module's docstring."""
    found = ast.get_docstring(ast.parse(path.read_text()))
    return " ".join(found.split("\n\n")[0].split())
