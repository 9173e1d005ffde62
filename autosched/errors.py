"""Every exception that autosched raises on purpose.

AutoschedError
├── TensorExprError        a tensor expression that means nothing (rank, dtype, name twice)
├── WorkloadError          an unknown workload, or wrong arguments
├── VerifyError            an ill-formed program: scoping, types, access out of bounds
├── ScriptError            script text that does not parse
├── ScheduleError          a primitive that would change the result, or names what is not there
│   └── NotBatchable       a step that has no array form
├── TargetError            an unknown target or option
├── CodegenError           a program that the code generator cannot express
├── ArgumentError          arrays handed to a built function that do not fit its signature
├── BuildError             LLVM or a toolchain refused the generated code
├── DeviceError            a GPU failed while it ran generated code, or went away
├── MeasureError           measuring itself failed (a failing candidate is a status)
├── TuningError            a tuning run that cannot start or found nothing
└── MissingPackage         an optional package that is not installed; also an ImportError

Stores and logs of records raise `records.errors.RecordError`, which stands on its own: the package
`records` imports nothing of ours.
"""

from __future__ import annotations


class AutoschedError(Exception):
    """Root of all errors raised by autosched."""


class TensorExprError(AutoschedError):
    """A tensor expression that means nothing."""


class WorkloadError(AutoschedError):
    """A workload that is unknown or called with wrong arguments."""


class VerifyError(AutoschedError):
    """A program that breaks a rule of the loop IR."""


class ScriptError(AutoschedError):
    """Script text that does not parse; `line` and `column` count from 1, 0 where there is none."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message, line, column)
        self.line, self.column = line, column

    def __str__(self) -> str:
        return str(self.args[0])


class ScheduleError(AutoschedError):
    """A primitive that would change the result, or that names something absent."""


class NotBatchable(ScheduleError):
    """A step without an array form; analyse its candidates one at a time."""


class TargetError(AutoschedError):
    """An unknown target, or an option that it does not have."""


class CodegenError(AutoschedError):
    """A program that the code generator cannot express."""


class ArgumentError(AutoschedError):
    """Arrays that do not fit the signature of a built function."""


class BuildError(AutoschedError):
    """The toolchain refused the generated code."""


class DeviceError(AutoschedError):
    """A GPU failed while it worked. `lost`: it went away, whatever code ran on it. What this
    process has on the device may be unusable from then on."""

    def __init__(self, message: str, lost: bool = False) -> None:
        super().__init__(message, lost)
        self.lost = lost

    def __str__(self) -> str:
        return str(self.args[0])


class MeasureError(AutoschedError):
    """The measuring machinery itself failed."""


class TuningError(AutoschedError):
    """A tuning run that cannot start or that found nothing."""


class MissingPackage(AutoschedError, ImportError):
    """What was asked for needs an optional package; the message has the command to install it."""
