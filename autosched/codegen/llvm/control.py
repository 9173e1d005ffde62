"""Loops, branches and stack slots of one LLVM function."""

from __future__ import annotations

from collections.abc import Callable

from autosched.codegen.llvm.builder import Builder


class Control:
    """Writes basic blocks with `b`; `number` gives a number for the labels of each construct."""

    def __init__(self, b: Builder, number: Callable[[], int]) -> None:
        self.b, self.number = b, number
        self.label = "entry"
        """The basic block that is being written."""
        self.slots: list[str] = []
        """Lines at the head of the function."""

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.b.label(label)
        self.label = label

    def slot(self, llvm_type: str, align: int = 0) -> str:
        """A stack slot, made once at the head of the function."""
        name = f"%slot{self.number()}"
        extra = f", align {align}" if align else ""
        self.slots.append(f"  {name} = alloca {llvm_type}{extra}")
        return self.b.name(name, 0)

    def branch(self, condition: str, body: Callable[[], None]) -> None:
        """`if condition: body`."""
        n, b = self.number(), self.b
        b.open()
        b.do(f"br i1 {condition}, label %then{n}, label %end{n}")
        self.start(f"then{n}")
        body()
        b.do(f"br label %end{n}")
        b.close()
        self.start(f"end{n}")

    def either(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """`if condition: yes else: no`."""
        opposite = self.b.op(f"xor i1 {condition}, true")
        self.branch(condition, yes)
        self.branch(opposite, no)

    def counted(
        self,
        low: int | str,
        high: int | str,
        body: Callable[[str], None],
        *,
        step: int = 1,
        line: int | None = None,
        note: str = "",
    ) -> None:
        """`for i in range(low, high, step): body(i)`, i64; names are values at run time.

        Of known bounds low < high. A step of 1 is counted without overflow; any other may pass the
        largest i64 after the last iteration. `line`: where the loop stands in the program; `note`:
        what LLVM is told of it (`loop_notes.py`).
        """
        b, n = self.b, self.number()
        enter = f"br label %head{n}"
        if not (isinstance(low, int) and isinstance(high, int)):
            some = b.op(f"icmp slt i64 {low}, {high}")
            enter = f"br i1 {some}, label %head{n}, label %exit{n}"
        before = self.label
        b.open()
        with b.at(line):
            b.do(enter)
            self.start(f"head{n}")
            counter = b.name(f"%i{n}")
            b.do(f"{counter} = phi i64 [ {low}, %{before} ], [ {counter}.next, %latch{n} ]")
        body(counter)
        with b.at(line):
            b.do(f"br label %latch{n}")
            self.start(f"latch{n}")
            if step == 1:
                b.do(f"{counter}.next = add nsw i64 {counter}, 1")
                b.do(f"{counter}.more = icmp slt i64 {counter}.next, {high}")
            else:  # what is left is compared
                b.do(f"{counter}.left = sub i64 {high}, {counter}")
                b.do(f"{counter}.next = add i64 {counter}, {step}")
                b.do(f"{counter}.more = icmp ugt i64 {counter}.left, {step}")
            b.do(f"br i1 {counter}.more, label %head{n}, label %exit{n}{note}")
        b.close()
        self.start(f"exit{n}")

    def repeated(self, condition: Callable[[], str], body: Callable[[str], None]) -> None:
        """`while condition(): body(i)`, where i, an i64, counts the iterations before."""
        b, n = self.b, self.number()
        before = self.label
        b.open()
        b.do(f"br label %head{n}")
        self.start(f"head{n}")
        counter = b.name(f"%i{n}")
        b.do(f"{counter} = phi i64 [ 0, %{before} ], [ {counter}.next, %latch{n} ]")
        b.do(f"br i1 {condition()}, label %body{n}, label %exit{n}")
        self.start(f"body{n}")
        body(counter)
        b.do(f"br label %latch{n}")
        self.start(f"latch{n}")
        b.do(f"{counter}.next = add i64 {counter}, 1")
        b.do(f"br label %head{n}")
        b.close()
        self.start(f"exit{n}")
