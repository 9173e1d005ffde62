"""Which targets a pool's devices can run, told when a job is submitted.

`python -m server.pools.targets KIND` prints the target of this machine's first GPU of a
kind: a driver is loaded by a process of its own, which it may hang, end, or take gigabytes of
addresses from.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection

from autosched.errors import AutoschedError, TargetError
from autosched.target import Target
from server import subprocesses
from server.http.problems import ProblemError, refused, unavailable

PROBE_SECONDS = 60.0
WORKERS_SECONDS = 5.0
"""When to ask again where no worker is known yet: a worker's canary takes some seconds."""


def kind_of(text: str) -> str:
    """The kind of a target's text."""
    return (text.split() or [""])[0]


def names_kind_only(text: str) -> bool:
    """Whether it is left to the pool what device is meant."""
    return len(text.split()) == 1


def chosen(text: str, known: Collection[str]) -> str:
    """The target in full that `text` means, of a cluster whose devices have the targets `known`.

    Raises ProblemError: 503 while no device is known, 422 where there is none of the kind, or
    several that differ.
    """
    if not known:
        raise _unknown()
    kind = kind_of(text)
    arches = {found[1] for k in known if kind_of(k) == kind and (found := _ARCH.search(k))}
    if not names_kind_only(text):
        if kind == "cuda" and not _ARCH.search(text) and len(arches) == 1:
            return f"{text} -arch={arches.pop()}"
        return text
    able = sorted(target for target in known if kind_of(target) == kind)
    if len(able) == 1:
        return able[0]
    if not able:
        raise _none(text, known)
    raise refused(
        "invalid-workload",
        f"the target {text} may be one of several kinds of device in this server's pool; name "
        f"one: {'; '.join(able)}",
    )


_ARCH = re.compile(r"-arch=(sm_\w+)")


def check(wanted: Target, known: Collection[str]) -> None:
    """Raises ProblemError: 422 for a target that none of the devices runs, which are told; 503
    while none is known, as for a job that is cloned when the server has just started."""
    if not known:
        raise _unknown()
    lacking = [(device, lacks(wanted, Target(device))) for device in sorted(known)]
    if all(missing for _, missing in lacking):
        raise _none(str(wanted), known, [f"{d} lacks {', '.join(m)}" for d, m in lacking])


def lacks(wanted: Target, device: Target) -> tuple[str, ...]:
    """What the device of a target lacks to run code for another."""
    if wanted.kind != device.kind:
        return (f"a device of {wanted.kind}",)
    if wanted.kind == "cuda":
        (major, minor), (own, own_minor) = _version(wanted.mcpu), _version(device.mcpu)
        return () if (major, minor <= own_minor) == (own, True) else (wanted.mcpu,)
    if wanted.is_gpu:
        return ()
    if wanted.arch != device.arch:
        return (f"an {wanted.arch} processor",)
    if wanted.num_cores > device.num_cores:
        return (f"{wanted.num_cores} cores",)
    return tuple(sorted(wanted.features - device.features))


def _version(arch: str) -> tuple[int, int]:
    """Major and minor of an architecture such as sm_90a."""
    return divmod(int(re.sub(r"\D", "", arch)), 10)


def _unknown() -> ProblemError:
    return unavailable(
        "no worker of this server's pool is known yet, so that it cannot be told what the target "
        "is, or who runs it; try again when one has joined (/v1/workers lists them)",
        WORKERS_SECONDS,
    )


def _none(text: str, known: Collection[str], why: Collection[str] = ()) -> ProblemError:
    there = "; ".join(why or sorted(known)) or "none"
    return refused(
        "invalid-workload",
        f"no device of this server's pool runs {text}; there are: {there} "
        "(/v1/workers lists the devices)",
    )


def gpu_here(kind: str) -> str | None:
    """The target of this machine's first GPU of the kind; None without one."""
    try:
        done = subprocess.run(
            subprocesses.command("server.pools.targets", kind),
            env=subprocesses.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def main(kind: str) -> int:
    """Print the target; the exit status is 1 where there is no device."""
    from autosched.runtime.opencl import device_count

    try:
        target = Target(kind)
        if kind == "opencl" and not device_count():
            raise TargetError("no device of OpenCL")
    except AutoschedError as e:
        print(e, file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
