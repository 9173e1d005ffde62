"""Spellings of recent TVMScript, as those of TVM 0.8 to 0.20 that the other modules read.

@Ts.function, T.Tensor(…)       @T.prim_func, T.Buffer(…)
T.alloc_local(shape)            T.alloc_buffer(shape, scope="local")
x: T.int64, then x = 0          x = T.alloc_buffer((), "int64"), then x[()] = 0
x: T.int64 = 0, then x = x + 1  the same; one that is given no other value stays a name for it
T.meta_var(x), T.ceildiv(a, b)  x, (a + (b - 1)) // b
p: T.handle("float32") = B.data p = B.data
n = T.dynamic("n", "int32")     a parameter n: T.int32 of the functions with n in a shape
"""

from __future__ import annotations

import ast

from autosched.script.migrate.spelling import assigned, called
from autosched.tir import dtypes

NAMESPACES = ("tir", "tirx", "s_tir", "ty", "T")
"""What `from tvm.script import …` gives of the language of loops."""
_OWN_SCOPES = {"alloc_local": "local", "alloc_shared": "shared"}


def as_before(tree: ast.Module) -> ast.Module:
    """The file in the earlier spelling. The namespace is T already."""
    sizes = {
        s.targets[0].id: s.value.args[1] if len(s.value.args) > 1 else ast.Constant("int64")
        for s in ast.walk(tree)
        if isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and isinstance(s.value, ast.Call)
        and called(s.value.func) == "dynamic"
    }
    new = _Before(sizes).visit(tree)
    assert isinstance(new, ast.Module)
    return ast.fix_missing_locations(new)


class _Before(ast.NodeTransformer):
    def __init__(self, sizes: dict[str, ast.expr]) -> None:
        self.sizes = sizes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        hints = [a.annotation for a in node.args.args if a.annotation is not None]
        taken = {a.arg for a in node.args.args}
        named = {x.id for h in hints for x in ast.walk(h) if isinstance(x, ast.Name)}
        for size in sorted(named & self.sizes.keys() - taken):
            dtype = self.sizes[size]
            kind = dtype.value if isinstance(dtype, ast.Constant) else "int64"
            hint = ast.Attribute(ast.Name("T", ast.Load()), str(kind), ast.Load())
            node.args.args.append(ast.copy_location(ast.arg(size, hint), node))
        self.generic_visit(node)
        _replace_handles(node)
        scalars = _scalars(node)
        if scalars:
            change = _Scalars(scalars)
            found = [change.visit(s) for s in node.body]
            node.body = [x for s in found for x in (s if isinstance(s, list) else [s])]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        renamed = {"Tensor": "Buffer", "function": "prim_func"}.get(called(node) or "")
        if renamed is not None:
            node.attr = renamed
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        hint = node.annotation
        whole = hint.value if isinstance(hint, ast.Subscript) else hint
        kind = called(whole.func if isinstance(whole, ast.Call) else whole)
        if kind not in ("handle", "Ptr") or node.value is None:
            return node
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        """`with T.Assert(test, message):` as an assertion before the statements."""
        self.generic_visit(node)
        (item,) = node.items if len(node.items) == 1 else (None,)
        made = item.context_expr if item is not None else None
        if not isinstance(made, ast.Call) or called(made.func) != "Assert" or not made.args:
            return node
        return [ast.copy_location(ast.Assert(made.args[0]), node), *node.body]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = called(node.func)
        if function == "meta_var" and len(node.args) == 1:
            return node.args[0]
        if function == "ceildiv" and len(node.args) == 2:
            a, b = node.args
            less = ast.BinOp(b, ast.Sub(), ast.Constant(1))
            up = ast.BinOp(ast.BinOp(a, ast.Add(), less), ast.FloorDiv(), b)
            return ast.copy_location(up, node)
        scope = _OWN_SCOPES.get(called(node.func) or "")
        if scope is not None and isinstance(node.func, ast.Attribute):
            node.func.attr = "alloc_buffer"
            node.keywords = [k for k in node.keywords if k.arg != "scope"]
            node.keywords.append(ast.keyword("scope", ast.Constant(scope)))
        return node


def _replace_handles(node: ast.FunctionDef) -> None:
    """Names for the memory of a buffer, `p = B.data`, replaced by that."""
    made = [s for s in ast.walk(node) if isinstance(s, (ast.Assign, ast.AnnAssign))]
    memory = {
        s.targets[0].id: s.value
        for s in made
        if isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and isinstance(s.value, ast.Attribute)
        and s.value.attr == "data"
    }
    names = [t.id for s in made for t in ast.walk(s) if isinstance(t, ast.Name) and _is_stored(t)]
    once = {name: value for name, value in memory.items() if names.count(name) == 1}
    if once:
        _Handles(once).visit(node)


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


class _Handles(ast.NodeTransformer):
    def __init__(self, memory: dict[str, ast.Attribute]) -> None:
        self.memory = memory

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in self.memory:
            return ast.copy_location(ast.Pass(), node)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.memory.get(node.id, node)


def _scalars(node: ast.FunctionDef) -> dict[str, str]:
    """Names that may change and their dtypes: declared without a value, `x: T.int64`, or with one
    and assigned again. One that is a loop or a parameter as well stays what it is, and is refused
    where it is read."""
    found: dict[str, str] = {}
    changed = assigned(node, (ast.Assign, ast.AugAssign))
    for s in ast.walk(node):
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name):
            kind = called(s.annotation) or ""
            declares = s.value is None or (s.target.id in changed and not _reads_itself(s))
            if kind in dtypes.DTYPES and declares:
                found[s.target.id] = kind
    others = {a.arg for a in node.args.args}
    for s in ast.walk(node):
        if isinstance(s, ast.For):
            others |= {x.id for x in ast.walk(s.target) if isinstance(x, ast.Name)}
    return {name: kind for name, kind in found.items() if name not in others}


def _reads_itself(s: ast.AnnAssign) -> bool:
    """Whether `x: T.int64 = x + 1` gives a new value to what was declared before."""
    name = ast.unparse(s.target)
    return s.value is not None and name in {
        x.id for x in ast.walk(s.value) if isinstance(x, ast.Name)
    }


class _Scalars(ast.NodeTransformer):
    """Variables that may change as buffers without dimensions."""

    def __init__(self, dtypes: dict[str, str]) -> None:
        self.dtypes = dtypes

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        target = node.target
        if not isinstance(target, ast.Name) or target.id not in self.dtypes:
            self.generic_visit(node)
            return node
        memory = ast.Call(
            ast.Attribute(ast.Name("T", ast.Load()), "alloc_buffer", ast.Load()),
            [ast.Tuple([], ast.Load()), ast.Constant(self.dtypes[target.id])],
            [],
        )
        made = ast.copy_location(ast.Assign([target], memory), node)
        if node.value is None:
            return made
        store = ast.Assign([self.visit_Name(target)], self.visit(node.value))
        stores: list[ast.stmt] = [] if _reads_itself(node) else [made]
        return [*stores, ast.copy_location(store, node)]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.dtypes:
            return node
        name = ast.copy_location(ast.Name(node.id, ast.Load()), node)
        return ast.copy_location(ast.Subscript(name, ast.Tuple([], ast.Load()), node.ctx), node)
