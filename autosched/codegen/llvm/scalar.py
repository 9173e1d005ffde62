"""Values of expressions: arithmetic on scalars and on vectors of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.convert import cast
from autosched.codegen.llvm.index import Indexer
from autosched.codegen.llvm.math import elementary
from autosched.codegen.llvm.math.core import exp_above
from autosched.codegen.llvm.memory import ALWAYS, Guard
from autosched.codegen.llvm.rounding import rounded
from autosched.codegen.llvm.types import Value, literal, splat, suffix, type_of
from autosched.errors import CodegenError
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var, same
from autosched.tir.fold import is_within
from autosched.tir.from_expr import from_expr

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {
    "add": "add", "sub": "sub", "mul": "mul",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
}  # fmt: skip
_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


class Context(Protocol):
    """What variables and slots of expressions mean: those of a block, of loops, of a routine."""

    def slot(self, n: int, guard: Guard) -> Value:
        """The value of read n of the block, heeding the guard if `slot_is_guarded(n)`."""

    def slot_is_guarded(self, n: int) -> bool:
        """Whether a read gives zero where its guard does not hold."""

    def variable(self, var: Var) -> Value:
        """The value of an axis, a loop or an operand of a reducer."""

    def form(self, var: Var) -> Affine | None:
        """An axis over loops, so that conditions on axes fold; None for another variable."""

    def constant(self, e: Expr) -> Const | None:
        """The value of what unrolled loops decide."""


def _difference(e: Call) -> Call:
    """A sum of floats one of which is negated as their difference, which is the same number: only
    sums of products are contracted."""
    if e.op != "add" or not dtypes.is_float(e.dtype):
        return e
    for one, other in (e.args, e.args[::-1]):
        if isinstance(other, Call) and other.op == "neg":
            return Call("sub", (one, other.args[0]), e.dtype)
    return e


class Scalars:
    """Evaluates expressions of one context, at the current point."""

    def __init__(self, b: Builder, index: Indexer, target: Target, context: Context) -> None:
        self.b = b
        self.index = index
        self.target = target
        self.context = context
        self._differences: dict[int, Affine | None] = {}
        """By the id of a comparison, left side - right side over loops."""

    def evaluate(self, e: Expr, guard: Guard = ALWAYS) -> Value:
        """The value of `e`; loads inside happen under `guard`."""
        if isinstance(e, Const):
            return Value(literal(e.value, e.dtype), e.dtype)
        if isinstance(e, Var):
            return self.context.variable(e)
        if isinstance(e, Slot):
            return self.context.slot(e.index, guard)
        if not isinstance(e, Call):
            raise CodegenError(f"expression {e!r} has no code")
        if e.dtype not in ("bool", dtypes.INDEX):
            known = self.context.constant(e)
            if known is not None:
                return Value(literal(known.value, e.dtype), e.dtype)
        if e.op == "if_then_else":
            return self._if_then_else(e, guard)
        if e.op in _COMPARE and e.args[0].dtype == dtypes.INDEX:
            folded = self._index_condition(e)
            if folded is not None:
                return folded
        e = _difference(e)
        least = _least(e)
        if least is not None:
            return self._exp_above(e, least, guard)
        whole = rounded(e, self.target)
        if whole is not None:
            return whole.code(self.b, self.evaluate(whole.x, guard))
        args = [self.evaluate(a, guard) for a in e.args]
        if e.op == "cast":
            return cast(self.b, args[0], e.dtype, within=is_within(e.args[0], e.dtype))
        return self.apply(e.op, args, e.dtype)

    def _exp_above(self, e: Call, least: float, guard: Guard) -> Value:
        """exp of what is not below `least`, 0 of what is: no result is subnormal."""
        condition, nothing = (self.evaluate(a, guard) for a in e.args[:2])
        exp = e.args[2]
        assert isinstance(exp, Call)  # what has such a least
        x = self.evaluate(exp.args[0], guard)
        made = exp_above(self.b, x.ref, least, e.dtype, x.lanes, self.target)
        value = self.apply("exp", [x], e.dtype) if made is None else Value(made, e.dtype, x.lanes)
        return self.apply("select", [condition, nothing, value], e.dtype)

    def _if_then_else(self, e: Call, guard: Guard) -> Value:
        condition = self.evaluate(e.args[0], guard)
        if condition.ref in ("true", "false"):
            return self.evaluate(e.args[1] if condition.ref == "true" else e.args[2], guard)
        yes = self.evaluate(e.args[1], self._under(guard, condition))
        if (
            isinstance(e.args[1], Slot)
            and self.context.slot_is_guarded(e.args[1].index)
            and (condition.lanes == 1 or yes.lanes > 1)
            and _is_zero(e.args[2])
        ):
            return yes  # a guarded load gives zero where its guard does not hold
        inverse = Value(self._not(condition), "bool", condition.lanes)
        no = self.evaluate(
            e.args[2], self._under(guard, inverse) if _has_slot(e.args[2]) else guard
        )
        return self.apply("select", [condition, yes, no], e.dtype)

    def _not(self, c: Value) -> str:
        if c.ref.startswith("<"):
            swapped = {"i1 true": "i1 false", "i1 false": "i1 true"}
            return f"<{', '.join(swapped[x] for x in c.ref.strip('<>').split(', '))}>"
        return self.b.op(f"xor {c.type} {c.ref}, {splat('true', 'bool', c.lanes)}")

    def _under(self, guard: Guard, condition: Value) -> Guard:
        if condition.lanes == 1:
            both = (
                condition.ref
                if guard.scalar is None
                else self.b.op(f"and i1 {guard.scalar}, {condition.ref}")
            )
            return Guard(both, guard.mask)
        both = (
            condition.ref
            if guard.mask is None
            else self.index.both(guard.mask, condition.ref, condition.lanes)
        )
        return Guard(guard.scalar, both)

    def _index_condition(self, e: Call) -> Value | None:
        """A comparison of affine index expressions, folded where unrolled loops decide it."""
        if id(e) in self.index.held or id(e) in self.index.failed:
            return Value(literal(id(e) in self.index.held, "bool"), "bool")
        difference = self.difference(e)
        if difference is None:
            return None
        # Everything in terms of `x < n`.
        if e.op in ("lt", "ge"):
            below = self.index.below(self.index.linear(difference), 0)
            negate = e.op == "ge"
        elif e.op in ("le", "gt"):
            below = self.index.below(self.index.linear(difference), 1)
            negate = e.op == "gt"
        else:
            linear = self.index.linear(difference)
            if linear.varies or any(linear.terms.values()):
                return None
            below, negate = linear.const == 0, e.op == "ne"
        if isinstance(below, bool):
            return Value(literal(below != negate, "bool"), "bool")
        width = 1
        if self.index.lanes is not None and self.index.linear(difference).varies:
            width = self.index.lanes.width
        value = Value(below, "bool", width)
        return Value(self._not(value), "bool", width) if negate else value

    def difference(self, e: Call) -> Affine | None:
        """Left side - right side of a comparison of axes, over loops; None where not affine."""
        if id(e) not in self._differences:
            a, b = (self._affine(x) for x in e.args)
            self._differences[id(e)] = None if a is None or b is None else a - b
        return self._differences[id(e)]

    def _affine(self, e: Expr) -> Affine | None:
        form = from_expr(e)
        if form is None:
            return None
        values = {}
        for v in form.variables():
            bound = self.context.form(v)
            if bound is None:
                return None
            values[v] = bound
        return form.substitute(values)

    def apply(self, op: str, args: list[Value], dtype: str) -> Value:
        """The operation `op` on values, widened to the same number of lanes."""
        lanes = max(a.lanes for a in args)
        if op in ("and", "or"):
            for me, other in ((0, 1), (1, 0)):
                if args[me].ref in ("true", "false"):
                    decides = (args[me].ref == "true") == (op == "or")
                    return args[me if decides else other]
        if op == "select" and args[0].lanes == 1 and lanes > 1:
            args = [args[0], *(self.index.widen(a, lanes) for a in args[1:])]
        else:
            args = [self.index.widen(a, lanes) for a in args]
        a = args[0]
        t, x, source = a.type, [v.ref for v in args], a.dtype

        def done(text: str) -> Value:
            return Value(self.b.op(text), dtype, lanes)

        if op == "reinterpret":
            return done(f"bitcast {t} {x[0]} to {type_of(dtype, lanes)}")
        if op == "select":
            if x[0] in ("true", "false"):
                return args[1] if x[0] == "true" else args[2]
            result = type_of(dtype, lanes)
            return done(f"select {args[0].type} {x[0]}, {result} {x[1]}, {result} {x[2]}")
        if op in ("and", "or"):
            if op == "and" and lanes > 1:
                return Value(self.index.both(x[0], x[1], lanes), dtype, lanes)
            return done(f"{op} {t} {x[0]}, {x[1]}")
        if op == "not":
            return Value(self._not(a), "bool", lanes)
        if op in _COMPARE:
            if dtypes.is_float(source):
                word = "une" if op == "ne" else f"o{_COMPARE[op]}"
                return done(f"fcmp {word} {t} {x[0]}, {x[1]}")
            signed = "s" if source in dtypes.SIGNED else "u"
            word = op if op in ("eq", "ne") else f"{signed}{op}"
            return done(f"icmp {word} {t} {x[0]}, {x[1]}")
        if dtypes.is_float(source):
            return self._float(op, args, dtype, lanes)
        return self._integer(op, args, dtype, lanes)

    def _float(self, op: str, args: list[Value], dtype: str, lanes: int) -> Value:
        t, x = args[0].type, [v.ref for v in args]
        if op in _FLOAT_OPS:
            # Of two equal products one that is fused is not rounded: their difference is no zero.
            flag = "" if op == "sub" else " contract"
            return Value(self.b.op(f"{_FLOAT_OPS[op]}{flag} {t} {x[0]}, {x[1]}"), dtype, lanes)
        if op == "neg":
            return Value(self.b.op(f"fneg {t} {x[0]}"), dtype, lanes)
        if op in ("min", "max"):
            return Value(self._extreme(op, args, lanes), dtype, lanes)
        if op in ("floordiv", "floormod"):
            if dtype == "float16":  # as NumPy, in float32
                wide = self._float(op, [cast(self.b, v, "float32") for v in args], "float32", lanes)
                return cast(self.b, wide, dtype)
            return Value(self._float_division(op, args, lanes), dtype, lanes)
        if op in elementary.BRANCHING and lanes > 1:
            x = [self._real(v) for v in args]
        return Value(elementary.emit(self.b, op, x, dtype, lanes, self.target), dtype, lanes)

    def _real(self, v: Value) -> str:
        """`v` with 0 in lanes that do not exist: they may hold what nobody has written, on which no
        branch may depend."""
        mask = self.index.real_lanes()
        if mask is None:
            return v.ref
        return self.b.op(
            f"select <{v.lanes} x i1> {mask}, {v.type} {v.ref}, {v.type} zeroinitializer"
        )

    def _float_division(self, op: str, args: list[Value], lanes: int) -> str:
        """Quotient or remainder of floats rounded to minus infinity, exactly as NumPy makes them:
        from the remainder of C, since the floor of a rounded quotient may be one too many."""
        t, a, b = args[0].type, args[0].ref, args[1].ref
        c = "i1" if lanes == 1 else f"<{lanes} x i1>"
        o = self.b.op
        zero, one, half = (
            splat(literal(n, args[0].dtype), args[0].dtype, lanes) for n in (0, 1, 0.5)
        )
        rest = o(f"frem {t} {a}, {b}")
        # Of the other sign than the divisor, and not zero: one divisor more.
        below, above = o(f"fcmp olt {t} {rest}, {zero}"), o(f"fcmp ogt {t} {rest}, {zero}")
        negative, positive = o(f"fcmp olt {t} {b}, {zero}"), o(f"fcmp ogt {t} {b}, {zero}")
        wraps = o(
            f"or {c} {o(f'and {c} {below}, {positive}')}, {o(f'and {c} {above}, {negative}')}"
        )
        if op == "floormod":
            name = f"llvm.copysign.{suffix(args[0].dtype, lanes)}"
            self.b.declare(name, f"{t} @{name}({t}, {t})")
            signed_zero = o(f"call {t} @{name}({t} {zero}, {t} {b})")
            moved = o(f"select {c} {wraps}, {t} {o(f'fadd {t} {rest}, {b}')}, {t} {rest}")
            is_zero = o(f"fcmp oeq {t} {rest}, {zero}")
            return o(f"select {c} {is_zero}, {t} {signed_zero}, {t} {moved}")
        quotient = o(f"fdiv {t} {o(f'fsub {t} {a}, {rest}')}, {b}")
        quotient = o(f"select {c} {wraps}, {t} {o(f'fsub {t} {quotient}, {one}')}, {t} {quotient}")
        whole = elementary.emit(self.b, "floor", [quotient], args[0].dtype, lanes, self.target)
        short = o(f"fcmp ogt {t} {o(f'fsub {t} {quotient}, {whole}')}, {half}")
        whole = o(f"select {c} {short}, {t} {o(f'fadd {t} {whole}, {one}')}, {t} {whole}")
        by_zero = o(f"fcmp oeq {t} {b}, {zero}")
        return o(f"select {c} {by_zero}, {t} {o(f'fdiv {t} {a}, {b}')}, {t} {whole}")

    def _extreme(self, op: str, args: list[Value], lanes: int) -> str:
        """min or max, propagating NaN as NumPy does."""
        t = args[0].type
        for me, other in ((0, 1), (1, 0)):
            ref = args[me].ref
            if not ref.startswith("%") and "7FF8" not in ref and "0xH7E" not in ref:
                # One operand is a constant that is no NaN: one compare decides, and a NaN passes.
                word = "olt" if op == "max" else "ogt"
                keep = self.b.op(f"fcmp {word} {t} {args[other].ref}, {ref}")
                c = "i1" if lanes == 1 else f"<{lanes} x i1>"
                return self.b.op(f"select {c} {keep}, {t} {ref}, {t} {args[other].ref}")
        if self.target.vector_bytes == 64 and lanes > 1 and args[0].dtype in ("float32", "float64"):
            return self._extreme_of_vectors(op, t, args[0].ref, args[1].ref, lanes)
        name = f"llvm.{'minimum' if op == 'min' else 'maximum'}.{suffix(args[0].dtype, lanes)}"
        self.b.declare(name, f"{t} @{name}({t}, {t})")
        return self.b.op(f"call nsz {t} @{name}({t} {args[0].ref}, {t} {args[1].ref})")

    def _extreme_of_vectors(self, op: str, t: str, old: str, new: str, lanes: int) -> str:
        """The same in two instructions of AVX-512: the processor's own gives the second operand
        where one is NaN, and leaves lanes out where the first is. What a reduction waits for is
        then one instruction, since the test is of what it reads."""
        c = f"<{lanes} x i1>"
        word = "ogt" if op == "max" else "olt"
        first = self.b.op(f"fcmp {word} {t} {new}, {old}")
        extreme = self.b.op(f"select {c} {first}, {t} {new}, {t} {old}")
        number = self.b.op(f"fcmp ord {t} {new}, {new}")
        return self.b.op(f"select {c} {number}, {t} {extreme}, {t} {new}")

    def _integer(self, op: str, args: list[Value], dtype: str, lanes: int) -> Value:
        t, x = args[0].type, [v.ref for v in args]
        source = args[0].dtype
        signed = source in dtypes.SIGNED

        def op_(text: str) -> str:
            return self.b.op(text)

        def k(n: int) -> str:
            return splat(literal(n, source), source, lanes)

        if source == "bool":
            # As NumPy: + is or, * is and.
            word = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(op)
            if word is None:
                raise CodegenError(f"{op} has no meaning on bool")
            return Value(op_(f"{word} {t} {x[0]}, {x[1]}"), dtype, lanes)
        if op in _INT_OPS:
            return Value(op_(f"{_INT_OPS[op]} {t} {x[0]}, {x[1]}"), dtype, lanes)
        if op == "neg":
            return Value(op_(f"sub {t} {k(0)}, {x[0]}"), dtype, lanes)
        if op == "bitwise_not":
            return Value(
                op_(
                    f"xor {t} {x[0]}, {k(-1 if signed else (1 << 8 * dtypes.itemsize(source)) - 1)}"
                ),
                dtype,
                lanes,
            )
        if op in ("shift_left", "shift_right"):
            return Value(self._shift(op, args, lanes, signed, k), dtype, lanes)
        if op in ("popcount", "clz"):
            bits = 8 * dtypes.itemsize(source)
            return Value(elementary.of_integers(self.b, op, x[0], bits, lanes), dtype, lanes)
        if op == "abs":
            if not signed:
                return args[0]
            name = f"llvm.abs.{suffix(source, lanes)}"
            self.b.declare(name, f"{t} @{name}({t}, i1)")
            return Value(op_(f"call {t} @{name}({t} {x[0]}, i1 false)"), dtype, lanes)
        if op in ("min", "max"):
            name = f"llvm.{'s' if signed else 'u'}{op}.{suffix(source, lanes)}"
            self.b.declare(name, f"{t} @{name}({t}, {t})")
            return Value(op_(f"call {t} @{name}({t} {x[0]}, {t} {x[1]})"), dtype, lanes)
        if op in ("floordiv", "floormod"):
            return Value(self._floor_division(op, args, lanes, signed, k), dtype, lanes)
        raise CodegenError(f"{op} is not defined on {source}")

    def _shift(
        self, op: str, args: list[Value], lanes: int, signed: bool, k: Callable[[int], str]
    ) -> str:
        """As NumPy: what is shifted by no number from 0 to the width is shifted out."""
        t, a, b = args[0].type, args[0].ref, args[1].ref
        c = "i1" if lanes == 1 else f"<{lanes} x i1>"
        o, bits = self.b.op, np.dtype(args[0].dtype).itemsize * 8
        inside = o(f"icmp ult {t} {b}, {k(bits)}")
        word = "shl" if op == "shift_left" else "ashr" if signed else "lshr"
        most = k(bits - 1)
        shifted = o(f"{word} {t} {a}, {o(f'select {c} {inside}, {t} {b}, {t} {most}')}")
        return shifted if word == "ashr" else o(f"select {c} {inside}, {t} {shifted}, {t} {k(0)}")

    def _floor_division(
        self, op: str, args: list[Value], lanes: int, signed: bool, k: Callable[[int], str]
    ) -> str:
        t, a, b = args[0].type, args[0].ref, args[1].ref
        c = "i1" if lanes == 1 else f"<{lanes} x i1>"
        o = self.b.op
        if b.startswith("%"):
            # Lanes that do not exist may hold what nobody has written: no divisor to LLVM.
            b = o(f"freeze {t} {b}")
        # Division by zero gives 0, as NumPy does (it warns); -MIN / -1 must not trap either.
        if b.startswith("%") or b in ("0", "-1", k(0), k(-1)):
            bad = o(f"icmp eq {t} {b}, {k(0)}")
            if signed:
                bad = o(f"or {c} {bad}, {o(f'icmp eq {t} {b}, {k(-1)}')}")
            safe = o(f"select {c} {bad}, {t} {k(1)}, {t} {b}")
        else:
            bad, safe = None, b
        word = "s" if signed else "u"
        quotient = o(f"{word}div {t} {a}, {safe}")
        rest = o(f"{word}rem {t} {a}, {safe}")
        if signed:
            differ = o(f"icmp slt {t} {o(f'xor {t} {rest}, {safe}')}, {k(0)}")
            wraps = o(f"and {c} {o(f'icmp ne {t} {rest}, {k(0)}')}, {differ}")
            quotient = o(
                f"select {c} {wraps}, {t} {o(f'sub {t} {quotient}, {k(1)}')}, {t} {quotient}"
            )
            rest = o(f"select {c} {wraps}, {t} {o(f'add {t} {rest}, {safe}')}, {t} {rest}")
        result = quotient if op == "floordiv" else rest
        if bad is None:
            return result
        by_minus_one = o(f"sub {t} {k(0)}, {a}") if op == "floordiv" else k(0)
        special = by_minus_one
        if op == "floordiv":
            special = o(
                f"select {c} {o(f'icmp eq {t} {b}, {k(0)}')}, {t} {k(0)}, {t} {by_minus_one}"
            )
        return o(f"select {c} {bad}, {t} {special}, {t} {result}")


def _least(e: Call) -> float | None:
    """The number c of `select(x < c, 0, exp(x))`; None for any other expression."""
    if e.op != "select" or not _is_zero(e.args[1]):
        return None
    test, exp = e.args[0], e.args[2]
    if not (isinstance(test, Call) and test.op == "lt"):
        return None
    if not (isinstance(exp, Call) and exp.op == "exp" and same(test.args[0], exp.args[0])):
        return None
    bound = test.args[1]
    return float(bound.value) if isinstance(bound, Const) else None


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and repr(e.value) in ("0", "0.0", "False")


def _has_slot(e: Expr) -> bool:
    return isinstance(e, Slot) or (isinstance(e, Call) and any(_has_slot(a) for a in e.args))
