"""Small mistakes in a module: changed operators, comparisons, constants, conditions, directions of rounding.

Docstrings, messages of exceptions and annotations are left alone.
"""

from __future__ import annotations

import ast

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "floor": "ceil", "ceil": "floor"}


def swapped(node: ast.AST) -> list[tuple[str, object]]:
    """The changes of one node, each as (what, how to make it)."""
    found: list[tuple[str, object]] = []
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in OPERATORS:
        other = OPERATORS[type(node.op)]
        found.append((f"{type(node.op).__name__} -> {other.__name__}", lambda n: setattr(n, "op", other())))
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        other = OPERATORS[type(node.ops[0])]
        found.append((f"{type(node.ops[0]).__name__} -> {other.__name__}", lambda n: n.ops.__setitem__(0, other())))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        found.append((f"{type(node.op).__name__} dropped", "operand"))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        found.append((f"{node.value} -> {not node.value}", lambda n: setattr(n, "value", not n.value)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        found.append(
            (
                f"{node.value} -> {node.value + max(1, abs(node.value))}",
                lambda n: setattr(n, "value", n.value + max(1, abs(n.value))),
            )
        )
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        found.append((f"{node.attr} -> {NAMES[node.attr]}", lambda n: setattr(n, "attr", NAMES[n.attr])))
    if isinstance(node, ast.If | ast.IfExp):
        found.append(("condition negated", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))))
    return found


def walked(node: ast.AST):
    """All nodes of code, in order; none of annotations, messages of exceptions, ``__all__``."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "exc"):
            continue
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Import | ast.ImportFrom):
                yield node, name, child
                yield from walked(child)


def mutants(source: str) -> list[tuple[int, str]]:
    """(line, what) of every mutant of a module."""
    return [(child.lineno, what) for _, _, child in walked(ast.parse(source)) for what, _ in swapped(child)]


def mutated(source: str, number: int) -> str:
    """The module with mutant ``number``."""
    tree = ast.parse(source)
    count = 0
    for parent, name, child in list(walked(tree)):
        for _, change in swapped(child):
            if count == number:
                if callable(change):
                    change(child)
                else:
                    operand = child.operand  # pyright: ignore[reportAttributeAccessIssue]
                    held = getattr(parent, name)
                    if isinstance(held, list):
                        held[held.index(child)] = operand
                    else:
                        setattr(parent, name, operand)
                return ast.unparse(ast.fix_missing_locations(tree))
            count += 1
    raise IndexError(number)
