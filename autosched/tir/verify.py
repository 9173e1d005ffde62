"""The verifier: the rules of the loop IR as a table, checked on every program from outside.

    verify(func)        # raises VerifyError, which lists every fault with the lines around it

A group of rules is checked only if the groups before it found nothing, since it builds on them.
A program that passes touches no memory outside its buffers. Proofs are incomplete (see `prove`):
a right program may be refused.
"""

from __future__ import annotations

from types import MappingProxyType

from autosched.errors import VerifyError
from autosched.tir import (
    verify_bounds,
    verify_order,
    verify_races,
    verify_reads,
    verify_scatter,
    verify_writes,
)
from autosched.tir import verify_form as form
from autosched.tir.faults import Fault, Places, Rule, report
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import opaque_blocks, pieces
from autosched.tir.plain import is_plain
from autosched.tir.verify_opaque import OPAQUE

RULES: tuple[tuple[Rule, ...], ...] = (
    (
        Rule("nodes", "counts agree, loop kinds exist, forms are of integers", form.nodes),
        Rule("expressions", "operations exist and have their arguments", form.expressions),
    ),
    (
        Rule("sizes", "extents are integers from 1 up, loops have bodies", form.sizes),
        Rule("buffers", "buffers are declared once, with a known dtype and scope", form.buffers),
        Rule("attributes", "attributes and annotations have values they can have", form.attributes),
        Rule("names", "block names are unique, ranks agree", form.names),
    ),
    (
        Rule("scopes", "variables are used where they are defined", form.scopes),
        Rule("placement", "allocated buffers are used where they live", form.placement),
        Rule("types", "operations are defined on their operands' types", form.types),
    ),
    (
        Rule("magnitudes", "index arithmetic fits 64-bit integers", verify_bounds.magnitudes),
        Rule("domains", "axes stay below their extents", verify_bounds.domains),
        Rule("bounds", "accesses stay inside their buffers", verify_bounds.bounds),
        Rule("order", "elements are written before they are read", verify_order.order),
        Rule("reaches", "iterations read what they wrote themselves", verify_order.reaches),
        Rule("by_then", "blocks of one nest write before they read", verify_reads.by_then),
        Rule("distinct", "points write elements of their own", verify_writes.distinct),
        Rule("overwritten", "loops decide no element's last writer", verify_writes.overwritten),
        Rule("covered", "reductions take all points, the first first", verify_writes.covered),
        Rule("combined", "reductions combine each point once", verify_order.combined),
        Rule("initial", "reductions initialise elements that stand still", verify_scatter.initial),
        Rule("outputs", "outputs are written in full", verify_order.outputs),
        Rule("races", "iterations of parallel loops touch different elements", verify_races.races),
    ),
)
"""Groups of rules, in the order in which they are checked."""


def verify(func: PrimFunc, places: Places = MappingProxyType({})) -> None:
    """Raise VerifyError if `func` breaks a rule of `RULES`; the message lists all that were found,
    with the `places` of loops and blocks in the text they were read from.

    `func` may be scheduled or lowered. Populations (arrays for extents) are not verified.
    """
    found = faults(func)
    if found:
        raise VerifyError(report(func, found, places))


def faults(func: PrimFunc) -> list[tuple[Rule, Fault]]:
    """What breaks a rule, with the rule; all of the first group that finds something. Of a function
    with opaque blocks, the nests between them are functions of their own."""
    if opaque_blocks(func):
        found = [(rule, fault) for rule in OPAQUE[:1] for fault in rule.check(func)]
        parts = [] if found else [p for p in pieces(func) if isinstance(p, PrimFunc)]
        # A piece may compute nothing that is used; the whole has an opaque block, which does.
        found += [
            (rule, fault)
            for part in parts
            for rule, fault in faults(part)
            if rule.name != "outputs" or fault.node is not None
        ]
        return found or [(rule, fault) for rule in OPAQUE[1:] for fault in rule.check(func)]
    for group in RULES:
        # Few rules of the last group can be broken by programs that are not scheduled yet.
        rules = [r for r in group if r.name in OF_PLAIN] if _only_plain(group, func) else group
        found = [(rule, fault) for rule in rules for fault in rule.check(func)]
        if found:
            return found
    return []


OF_PLAIN = ("magnitudes", "bounds")
"""Rules of the last group that `is_plain` programs may break."""


def _only_plain(group: tuple[Rule, ...], func: PrimFunc) -> bool:
    return group is RULES[-1] and is_plain(func)
