"""counted: operators whose results are sized by data, as kernels that fill what is large enough."""

from __future__ import annotations

from autosched.graph.infer import inference
from autosched.graph.ir import Binding, Body, Call, Var
from autosched.graph.ops.non_maximum_suppression import NAME
from autosched.graph.passes.bodies import Renaming, body_pass


@body_pass("counted")
def counted(body: Body) -> Body:
    """rewrite:
    y = op.non_max_suppression(boxes, scores, 200, 0.5)
    ->
    rows, count = op.autosched_non_max_suppression(boxes, scores, 200, 0.5)
    y = op.autosched_first_rows(rows, count)

    where a kernel can say the first.
    """
    now = Renaming()
    for b in body.bindings:
        value = b.value
        if isinstance(value, Call) and value.callee == "NonMaxSuppression":
            call = Call(NAME, value.args, value.attrs)
            found = inference(call, 2)
            if found.kind == "routine":
                name = b.vars[0].name
                both = tuple(Var(f"{name}_{n}", t) for n, t in enumerate(found.types))
                now.out.append(Binding(both, call))
                b = Binding(b.vars, Call("autosched.FirstRows", both))
        now.out.append(b)
    return now.body(body.results)
