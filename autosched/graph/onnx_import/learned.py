"""Operators of ai.onnx.ml, as scikit-learn's models are exported, in those of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Const, tensor_type
from autosched.graph.onnx_import.scope import Scope
from autosched.graph.ops.trees import COMPARED

DOMAIN = "ai.onnx.ml."
Array = np.ndarray[Any, Any]
LABELS = "encode the labels as integers before fitting"


class Learned(NamedTuple):
    """A call of an operator of ai.onnx.ml."""

    scope: Scope
    name: str
    args: Sequence[Atom | None]
    attrs: Mapping[str, Any]

    def one(self, name: str, *args: Atom | None, **attrs: Any) -> Atom:
        """The result of an operator of ONNX's."""
        return self.scope.emit(name, args, attrs)[0]

    def array(self, name: str, dtype: str) -> Array:
        """An attribute that is a list of numbers, or the same as a tensor."""
        found = self.attrs.get(name, self.attrs.get(f"{name}_as_tensor", ()))
        return np.asarray(found, dtype).reshape(-1)

    def input(self) -> Atom:
        """The first argument as floating-point numbers."""
        if not self.args or self.args[0] is None:
            raise Unsupported("its input 0 is missing")
        x = self.args[0]
        return x if self.dtype().startswith("float") else self.one("Cast", x, to="float32")

    def dtype(self) -> str:
        """Element type of the first argument."""
        return str(tensor_type(self.args[0]).dtype) if self.args and self.args[0] else "float32"

    def rows(self) -> Atom:
        """The first argument as a matrix of samples, one a row."""
        x = self.input()
        rank = len(tensor_type(x).shape or ())
        if rank not in (1, 2):
            raise Unsupported(f"its input 0 has {rank} axes; expected samples x features")
        return self.one("Unsqueeze", x, axes=(0,)) if rank == 1 else x

    def narrow(self, x: Atom) -> Atom:
        """A value as float32, which all results of this domain are."""
        same = str(tensor_type(x).dtype) == "float32"
        return x if same else self.one("Cast", x, to="float32")

    def labels(self) -> Array:
        """The classes of a classifier. Raises Unsupported where they are text."""
        if self.attrs.get("classlabels_strings"):
            self.refuse("attribute classlabels_strings: labels are text", LABELS)
        return self.array("classlabels_ints" if self.name == "LinearClassifier" else
                          "classlabels_int64s", "int64")  # fmt: skip

    def refuse(self, why: str, instead: str) -> NoReturn:
        """Raise Unsupported, saying what helps."""
        raise Unsupported(f"{why}; {instead}")


def read(scope: Scope, name: str, args: Sequence[Any], attrs: Mapping[str, Any]) -> Sequence[Atom]:
    """The results of a call of one of `NAMES`. Raises Unsupported."""
    own = name.removeprefix(DOMAIN)
    return RULES[own](Learned(scope, own, args, attrs))


def _numbers(values: Any, dtype: str) -> Const:
    return constant(np.asarray(values, dtype))


class Trees(NamedTuple):
    """The nodes of all trees in one table, by the names that TreeLeaves has for its columns, and
    the row of each node by its tree and number."""

    columns: Sequence[Array]
    mode: str
    row: Mapping[tuple[int, int], int]


def _trees(call: Learned, dtype: str) -> Trees:
    """The table of a call. Raises Unsupported for one that is no forest."""
    ids = {n: call.array(f"nodes_{n}", "int64") for n in
           ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")}  # fmt: skip
    value = call.array("nodes_values", dtype)
    modes = tuple(call.attrs.get("nodes_modes", ()))
    sizes = {len(modes), value.size, *(a.size for a in ids.values())}
    if len(sizes) != 1 or not value.size:
        raise Unsupported("attributes nodes_...: expected lists of one length, an entry a node")
    inner = np.array([m != "LEAF" for m in modes])
    kinds = sorted({m for m in modes if m != "LEAF"})
    if len(kinds) > 1 or not set(kinds) <= COMPARED.keys():
        raise Unsupported(f"attribute nodes_modes is {kinds}; expected one of {[*COMPARED]}")
    features = tensor_type(call.rows()).known[1]
    feature = np.where(inner, ids["featureids"], 0)
    if (far := feature[(feature < 0) | (feature >= features)]).size:
        raise Unsupported(f"attribute nodes_featureids names feature {far[0]} of {features}")
    tree = ids["treeids"].tolist()
    row = {key: n for n, key in enumerate(zip(tree, ids["nodeids"].tolist(), strict=True))}
    if len(row) != len(modes):
        raise Unsupported("attribute nodes_nodeids: a tree has two nodes of one number")
    children = [
        np.array([row.get(key, -1) for key in zip(tree, ids[name].tolist(), strict=True)])
        for name in ("truenodeids", "falsenodeids")
    ]
    yes, no = (np.where(inner, c, 0) for c in children)
    roots = _roots(yes, no, inner)
    if sorted(tree[n] for n in roots) != sorted(set(tree)):
        raise Unsupported("attributes nodes_...: expected one root a tree, a node that is no child")
    missing = call.array("nodes_missing_value_tracks_true", "bool")
    if missing.size != len(modes):
        missing = np.zeros(len(modes), bool)
    narrow = (a.astype("int32") for a in (feature, yes, no, roots))
    feature, yes, no, roots = narrow
    columns = (feature, value, yes, no, inner, missing, roots)
    return Trees(columns, kinds[0] if kinds else "BRANCH_LEQ", row)


def _roots(yes: Array, no: Array, inner: Array) -> Array:
    """Nodes that are no child. Raises Unsupported where a walk from these would not end."""
    ends = np.concatenate([yes[inner], no[inner]])
    if ends.size and ends.min() < 0:
        raise Unsupported("attributes nodes_truenodeids, nodes_falsenodeids: a node is not there")
    roots = np.setdiff1d(np.arange(len(inner)), ends)
    level, steps = roots, 0
    while level.size or not roots.size:
        level = level[inner[level]]
        level, steps = np.unique(np.concatenate([yes[level], no[level]])), steps + 1
        if steps > len(inner) or not roots.size:
            raise Unsupported("attributes nodes_truenodeids, nodes_falsenodeids have a cycle")
    return roots


def _scores(call: Learned, kind: str, count: int, columns: Mapping[int, int]) -> Atom:
    """What the leaves of rows add up to (rows, columns); `kind` is target or class, `columns` says
    which column a target has."""
    dtype = "float64" if call.dtype() == "float64" else "float32"
    trees = _trees(call, dtype)
    table = np.zeros((len(trees.columns[0]), count), dtype)
    entries = [call.array(f"{kind}_{n}", "int64").tolist() for n in ("treeids", "nodeids", "ids")]
    weights = call.array(f"{kind}_weights", dtype).tolist()
    for tree, node, target, weight in zip(*entries, weights, strict=True):
        if (tree, node) not in trees.row or target not in columns:
            raise Unsupported(f"attribute {kind}_nodeids names node {node} of tree {tree}, target "
                              f"{target}, which is not there")  # fmt: skip
        table[trees.row[tree, node], columns[target]] += weight
    tables = [constant(a) for a in trees.columns]
    leaves = call.one("autosched.TreeLeaves", call.rows(), *tables, mode=trees.mode)
    how = call.attrs.get("aggregate_function", "SUM")
    if how not in GATHERED:
        raise Unsupported(f"attribute aggregate_function is {how!r}; expected {[*GATHERED]}")
    each = call.one("Gather", _numbers(table, dtype), leaves, axis=0)
    total = call.one(GATHERED[how], each, axes=(1,), keepdims=0)
    base = call.array("base_values", dtype)
    if not base.size:
        return total
    return call.one("Add", total, _numbers(base[list(columns)] if base.size > 1 else base, dtype))


def _transform(call: Learned) -> str:
    """The attribute post_transform. Raises Unsupported for one that is not known."""
    how = str(call.attrs.get("post_transform", "NONE"))
    if how not in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        raise Unsupported(f"attribute post_transform {how} is not supported")
    return how


def _finished(call: Learned, scores: Atom) -> Atom:
    """Scores after the attribute post_transform."""
    how = _transform(call)
    if how == "SOFTMAX":
        scores = call.one("Softmax", scores, axis=-1)
    if how == "LOGISTIC":
        scores = call.one("Sigmoid", scores)
    if how == "SOFTMAX_ZERO":  # classes whose score is 0 are not there
        zero = call.one("Equal", scores, _numbers(0, str(tensor_type(scores).dtype)))
        least = _numbers(-np.inf, str(tensor_type(scores).dtype))
        kept = call.one("Softmax", call.one("Where", zero, least, scores), axis=-1)
        scores = call.one("Where", zero, scores, kept)
    return call.narrow(scores)


def _tree_regressor(call: Learned) -> Sequence[Atom]:
    count = int(call.attrs.get("n_targets", 1))
    return [_finished(call, _scores(call, "target", count, {n: n for n in range(count)}))]


def _tree_classifier(call: Learned) -> Sequence[Atom]:
    labels = call.labels()
    used = sorted(set(call.array("class_ids", "int64").tolist()))
    if len(labels) == 2 and len(used) == 1:
        score = _scores(call, "class", 1, {used[0]: 0})
        positive = bool((call.array("class_weights", "float64") >= 0).all())
        first = "none" if used == [1] else "rest" if positive else "opposite"
        return _binary(call, score, labels, 0.5 if positive else 0.0, first)
    scores = _scores(call, "class", len(labels), {n: n for n in range(len(labels))})
    return [_best(call, scores, labels), _finished(call, scores)]


def _binary(call: Learned, score: Atom, labels: Array, least: float, first: str) -> Sequence[Atom]:
    """Labels and scores of two classes by the score of the second one, as onnxruntime has them: it
    is chosen above `least`. `first` says what the first one has: the rest of 1, the opposite
    number, or none."""
    dtype = str(tensor_type(score).dtype)
    above = call.one("Greater", score, _numbers(least, dtype))
    chosen = call.one("Where", above, _numbers(labels[1], "int64"), _numbers(labels[0], "int64"))
    label = call.one("Squeeze", chosen, axes=(1,))
    logistic = _transform(call) == "LOGISTIC"
    if first == "none":
        other = call.one("Mul", score, _numbers(0, dtype))
    elif first == "rest" and not logistic:
        other = call.one("Sub", _numbers(1, dtype), score)
    else:
        other = call.one("Neg", score)
    both = call.one("Concat", other, score, axis=-1)
    return [label, _finished(call, both) if first == "none" or logistic else call.narrow(both)]


def _best(call: Learned, scores: Atom, labels: Array) -> Atom:
    """The label of the greatest score of each row."""
    at = call.one("ArgMax", scores, axis=1, keepdims=0)
    if np.array_equal(labels, np.arange(len(labels))):
        return at
    return call.one("Gather", _numbers(labels, "int64"), at, axis=0)


def _linear(call: Learned, targets: int) -> Atom:
    x = call.narrow(call.rows())
    weights = call.array("coefficients", "float32")
    if targets < 1 or weights.size % targets:
        raise Unsupported(f"attribute coefficients has {weights.size} numbers for {targets} "
                          "targets; expected as many for each")  # fmt: skip
    y = call.one("MatMul", x, _numbers(weights.reshape(targets, -1).T, "float32"))
    bias = call.array("intercepts", "float32")
    return call.one("Add", y, _numbers(bias, "float32")) if bias.size else y


def _linear_regressor(call: Learned) -> Sequence[Atom]:
    return [_finished(call, _linear(call, int(call.attrs.get("targets", 1))))]


def _linear_classifier(call: Learned) -> Sequence[Atom]:
    labels = call.labels()
    scores = _linear(call, max(call.array("intercepts", "float32").size, 1))
    rows = int(tensor_type(scores).known[1])
    if rows == 1 and len(labels) == 2:
        return _binary(call, scores, labels, 0.0, "rest")
    if rows != len(labels):
        raise Unsupported(f"{len(labels)} labels by {rows} rows of coefficients; expected as many")
    return [_best(call, scores, labels), _finished(call, scores)]


def _features(call: Learned) -> Sequence[Atom]:
    """Columns of the last axis."""
    at = call.one("Reshape", call.args[1], shape=(-1,))
    whole = call.args[0]
    if whole is not None and len(tensor_type(whole).shape or ()) == 1:
        whole = call.one("Unsqueeze", whole, axes=(0,))
    return [call.one("Gather", whole, at, axis=-1)]


def _scaler(call: Learned) -> Sequence[Atom]:
    x = call.narrow(call.input())
    for name, op in (("offset", "Sub"), ("scale", "Mul")):
        if (by := call.array(name, "float32")).size:
            x = call.one(op, x, _numbers(by, "float32"))
    return [x]


def _normalizer(call: Learned) -> Sequence[Atom]:
    x, how = call.narrow(call.input()), call.attrs.get("norm", "MAX")
    if how not in NORMS:
        raise Unsupported(f"attribute norm is {how!r}; expected {[*NORMS]}")
    size = call.one(NORMS[how], x, axes=(-1,), keepdims=1)
    none = call.one("Equal", size, _numbers(0, "float32"))
    return [call.one("Div", x, call.one("Where", none, _numbers(1, "float32"), size))]


def _binarizer(call: Learned) -> Sequence[Atom]:
    x = call.input()
    dtype = str(tensor_type(x).dtype)
    above = call.one("Greater", x, _numbers(call.attrs.get("threshold", 0.0), dtype))
    return [call.one("Cast", above, to=call.dtype())]


def _imputer(call: Learned) -> Sequence[Atom]:
    kind, dtype = ("float", call.dtype()) if call.dtype().startswith("float") else (
        "int64", "int64")  # fmt: skip
    x, lost = call.args[0], call.attrs.get(f"replaced_value_{kind}", 0)
    gone = call.one("IsNaN", x) if lost != lost else call.one("Equal", x, _numbers(lost, dtype))
    return [
        call.one("Where", gone, _numbers(call.array(f"imputed_value_{kind}s", dtype), dtype), x)
    ]


def _one_hot(call: Learned) -> Sequence[Atom]:
    """A last axis of categories. Others are all 0, whatever the attribute zeros says: a kernel does
    not stop for them."""
    if call.attrs.get("cats_strings"):
        call.refuse("attribute cats_strings: categories are text", LABELS)
    return [call.one("Cast", _matches(call, call.array("cats_int64s", "int64")), to="float32")]


def _matches(call: Learned, keys: Array) -> Atom:
    """Whether an element is a key: a last axis of the keys."""
    x = call.args[0] if call.dtype() == keys.dtype.name else call.one(
        "Cast", call.args[0], to=keys.dtype.name)  # fmt: skip
    return call.one("Equal", call.one("Unsqueeze", x, axes=(-1,)), constant(keys))


def _found(call: Learned, keys: Array) -> tuple[Atom, Atom]:
    """The place of each element among keys, and whether there is one."""
    number = call.one("Cast", _matches(call, keys), to="int32")
    found = call.one("ReduceMax", number, axes=(-1,), keepdims=0)
    return call.one("ArgMax", number, axis=-1, keepdims=0), call.one("Cast", found, to="bool")


def _label_encoder(call: Learned) -> Sequence[Atom]:
    """Values in the place of keys."""
    keys, values = _listed(call, "keys"), _listed(call, "values")
    if keys.size != values.size or not keys.size:
        raise Unsupported(f"{keys.size} keys and {values.size} values; expected as many, and one")
    named, lacking = ("default_int64", -1) if values.dtype.kind == "i" else ("default_float", -0.0)
    other = call.attrs.get("default_tensor", call.attrs.get(named, lacking))
    at, found = _found(call, keys)
    taken = call.one("Gather", constant(values), at, axis=0)
    return [call.one("Where", found, taken, _numbers(np.reshape(other, ()), values.dtype.name))]


def _listed(call: Learned, side: str) -> Array:
    """The keys or values of a LabelEncoder. Raises Unsupported where they are text."""
    for kind, dtype in (("int64s", "int64"), ("floats", "float32")):
        if f"{side}_{kind}" in call.attrs:
            return call.array(f"{side}_{kind}", dtype)
    found = np.asarray(call.attrs.get(f"{side}_tensor", "")).reshape(-1)
    if found.dtype.kind not in "if":
        call.refuse("keys or values are text", LABELS)
    return found


def _svm_regressor(call: Learned) -> Sequence[Atom]:
    """A sum of kernel functions of the rows and the support vectors; RBF by squares of distances,
    as onnxruntime has it."""
    x, count = call.narrow(call.rows()), int(call.attrs.get("n_supports", 0))
    weights, kind = call.array("coefficients", "float32"), call.attrs.get("kernel_type", "LINEAR")
    if count:
        vectors = call.array("support_vectors", "float32").reshape(count, -1)
        x = _kernel(call, x, vectors, str(kind))
    y = call.one("MatMul", x, constant(weights.reshape(-1, 1)))
    y = call.one("Add", y, constant(call.array("rho", "float32")[:1]))
    if call.attrs.get("one_class", 0):
        inside = call.one("Greater", y, _numbers(0, "float32"))
        y = call.one("Where", inside, _numbers(1, "float32"), _numbers(-1, "float32"))
    return [_finished(call, y)]


def _kernel(call: Learned, x: Atom, vectors: Array, kind: str) -> Atom:
    """The kernel function of each row of x and each vector."""
    gamma, shift, degree = (float(p) for p in (*call.attrs.get("kernel_params", ()), 0, 0, 0)[:3])
    if kind == "RBF":
        wide = call.one("Unsqueeze", x, axes=(1,))
        apart = call.one("Sub", wide, constant(vectors))
        squares = call.one("ReduceSumSquare", apart, axes=(2,), keepdims=0)
        return call.one("Exp", call.one("Mul", squares, _numbers(-gamma, "float32")))
    products = call.one("MatMul", x, constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return products
    scaled = call.one("Mul", products, _numbers(gamma, "float32"))
    scaled = call.one("Add", scaled, _numbers(shift, "float32"))
    if kind == "SIGMOID":
        return call.one("Tanh", scaled)
    if kind != "POLY":
        raise Unsupported(f"attribute kernel_type is {kind!r}; expected LINEAR, POLY, RBF, SIGMOID")
    return call.one("Pow", scaled, _numbers(degree, "float32"))


def _vector(call: Learned) -> Sequence[Atom]:
    """Features of several inputs side by side."""
    parts = [Learned(call.scope, call.name, [a], {}) for a in call.args]
    return [call.one("Concat", *(p.narrow(p.rows()) for p in parts), axis=1)]


def _no_map(call: Learned) -> NoReturn:
    call.refuse("results are maps; expected tensors", "export with the option zipmap=False")


GATHERED = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}
NORMS = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
RULES: dict[str, Callable[[Learned], Sequence[Atom]]] = {
    "ArrayFeatureExtractor": _features,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _vector,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": _no_map,
}
NAMES = frozenset(DOMAIN + name for name in RULES)
