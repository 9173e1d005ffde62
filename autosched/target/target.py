"""What code is made for: an instruction set and a number of threads.

`Target("llvm")` is this host, detected: its CPU, and the features in which it differs from what
that CPU's name implies. Any other is written out: `Target("llvm -mcpu=znver5 -num-cores=2")`.
`str(target)` is the full canonical text, from which the same target is made on any machine. LLVM is
asked only when a target is made or compiled for.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Union

from autosched.errors import TargetError
from autosched.target import amx
from autosched.target import gpu as gpu_target
from autosched.target.tags import CPU_ALIASES, TAGS

KINDS = ("llvm", "cuda", "opencl")

# Feature sets that decide what numeric code looks like; everything else follows from the CPU.
_X86 = (
    "adx avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f avx512fp16 "
    "avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxifma avxvnni "
    "avxvnniint8 bmi bmi2 f16c fma gfni lzcnt movbe popcnt sse2 sse3 sse4.1 sse4.2 ssse3 vaes "
    "vpclmulqdq amx-bf16 amx-int8 amx-tile"
)
_ARM = "bf16 dotprod fp-armv8 fp16fml fullfp16 i8mm lse neon sve sve2"
FEATURES = {"x86_64": tuple(_X86.split()), "aarch64": tuple(_ARM.split())}
"""Names allowed in -mattr, by architecture."""
AMX = frozenset(("amx-bf16", "amx-int8", "amx-tile"))
"""Features whose registers Linux gives a process only if it asks (`autosched.target.amx`)."""

# LLVM ends the process on a CPU that it does not know, so names are checked before it sees them.
_X86_CPUS = (
    "x86-64 x86-64-v2 x86-64-v3 x86-64-v4 nehalem westmere sandybridge ivybridge haswell "
    "broadwell skylake skylake-avx512 cascadelake cooperlake cannonlake icelake-client "
    "icelake-server tigerlake rocketlake alderlake raptorlake meteorlake gracemont arrowlake "
    "arrowlake-s lunarlake pantherlake sapphirerapids emeraldrapids graniterapids "
    "graniterapids-d sierraforest grandridge clearwaterforest knl knm bonnell silvermont "
    "goldmont goldmont-plus tremont atom btver1 btver2 bdver1 bdver2 bdver3 bdver4 znver1 "
    "znver2 znver3 znver4 znver5"
)
_ARM_CPUS = (
    "generic cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a65 cortex-a72 cortex-a73 "
    "cortex-a75 cortex-a76 cortex-a77 cortex-a78 cortex-a510 cortex-a520 cortex-a710 "
    "cortex-a715 cortex-a720 cortex-a725 cortex-x1 cortex-x2 cortex-x3 cortex-x4 cortex-x925 "
    "neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-512tvb neoverse-v1 neoverse-v2 "
    "neoverse-v3 a64fx ampere1 ampere1a ampere1b apple-a12 apple-a13 apple-a14 apple-a15 "
    "apple-a16 apple-a17 apple-m1 apple-m2 apple-m3 apple-m4 carmel exynos-m3 exynos-m4 "
    "exynos-m5 falkor kryo saphira thunderx thunderx2t99 thunderx3t110 tsv110 grace oryon-1"
)
CPUS = {"x86_64": tuple(_X86_CPUS.split()), "aarch64": tuple(_ARM_CPUS.split())}
"""Names allowed in -mcpu, by architecture (the host's own is always allowed)."""

_DEFAULT_CPU = {"x86_64": "x86-64", "aarch64": "generic"}
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}
_OPTIONS = ("mcpu", "mattr", "mtriple", "num-cores")
_WITHOUT_MEANING = ("device", "keys", "libs", "model")
"""Options of TVM's targets that choose among its templates and libraries: taken and dropped."""
_current: ContextVar[tuple[Target, ...]] = ContextVar("autosched_target", default=())
_FEATURE = re.compile(r"[+-][\w.-]+")
_VALUE = re.compile(r"-(num-cores|mcpu|mtriple|mattr|arch|keys|libs|model|device)\s+(?=[^-\s])")
"""An option with its value in a word of its own."""
_USAGE = 'expected e.g. "llvm" (this host) or "llvm -mcpu=x86-64-v3 -num-cores=2"'


@dataclass(frozen=True, init=False, repr=False)
class Target:
    """An instruction set and the number of threads that code for it may use, or a GPU.

    `Target("cuda -arch=sm_90")` and `Target("opencl")` are GPUs: see `autosched.target.gpu`; what
    is said of CPUs here has no meaning for them. A tag, such as "nvidia/tesla-t4", stands for the
    text in `autosched.target.tags.TAGS`. `Target("llvm")` is this host. Options: `-mcpu=`
    (an LLVM CPU name), `-mattr=` (features, `+avx2,-fma`), `-mtriple=` (default: this host's),
    `-num-cores=` (default: the cores that this process may use). A dict, `{"kind": "llvm", "mcpu":
    "haswell"}`, says the same. `host`, the target of the code that calls a GPU, changes nothing:
    this process calls. Hashable; equal if all five fields are. Raises TargetError.
    """

    kind: str
    mcpu: str
    mattr: str
    triple: str
    num_cores: int

    def __init__(
        self,
        text: Union[str, Target, Mapping[str, Any]] = "llvm",
        host: Union[str, Target, Mapping[str, Any], None] = None,
    ) -> None:
        if isinstance(text, Mapping):
            text = _written(text)
        if isinstance(text, Target):
            fields = (text.kind, text.mcpu, text.mattr, text.triple, text.num_cores)
        else:
            fields = _parse(text)
        names = ("kind", "mcpu", "mattr", "triple", "num_cores")
        for name, value in zip(names, fields, strict=True):
            object.__setattr__(self, name, value)

    @staticmethod
    def current() -> Target:
        """The target of the innermost `with target:` around the call, else this host."""
        entered = _current.get()
        return entered[-1] if entered else Target("llvm")

    def __enter__(self) -> Target:
        """`with Target(…):` it is what `at.build`, `at.SearchTask` and their like take where none
        is given."""
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _current.set(_current.get()[:-1])

    @property
    def is_gpu(self) -> bool:
        """Whether kernels are launched instead of called."""
        return self.kind != "llvm"

    def __str__(self) -> str:
        if self.is_gpu:
            return gpu_target.text(self.kind, self.mcpu, self.mattr)
        attributes = f" -mattr={self.mattr}" if self.mattr else ""
        rest = f"-mtriple={self.triple} -num-cores={self.num_cores}"
        return f"{self.kind} -mcpu={self.mcpu}{attributes} {rest}"

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    @property
    def arch(self) -> str:
        """ "x86_64" or "aarch64"."""
        return _arch(self.triple)

    @property
    def features(self) -> frozenset[str]:
        """The features of `FEATURES` that code for this target may use; of a GPU the architectures
        whose instructions it has, such as "sm_80" for those of tensor cores."""
        if self.is_gpu:
            return gpu_target.features_of(self)
        return _implied(self.triple, self.mcpu, self.mattr)

    @property
    def vector_bytes(self) -> int:
        """Width of a vector register: 64 with AVX-512, 32 with AVX2, 16 with SSE2 and NEON. Of a
        GPU: what a thread loads at once, 16."""
        if self.is_gpu:
            return 16
        found = self.features
        if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= found:
            return 64
        return 32 if "avx2" in found else 16

    @property
    def vector_registers(self) -> int:
        """Number of architectural vector registers; of a GPU, registers of a thread."""
        if self.is_gpu:
            return 255
        return 32 if self.arch == "aarch64" or self.vector_bytes == 64 else 16

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is one instruction."""
        return self.is_gpu or self.arch == "aarch64" or "fma" in self.features

    @property
    def has_masked_stores(self) -> bool:
        """Whether storing some lanes of a vector is one instruction that touches no other byte."""
        return bool({"avx2", "avx512f"} & self.features)

    @property
    def l1_bytes(self) -> int:
        """Data cache of a core, first level; this machine's, or a usual size for any other."""
        return _caches(self.names_host)[0]

    @property
    def l2_bytes(self) -> int:
        """Cache of a core, second level."""
        return _caches(self.names_host)[1]

    @property
    def l3_bytes(self) -> int:
        """Last cache, shared by all cores."""
        return _caches(self.names_host)[2]

    @property
    def is_host(self) -> bool:
        """Whether this machine can run code made for the target (its CPU may be an older one)."""
        return not self.is_gpu and not self.missing_here()

    @property
    def names_host(self) -> bool:
        """Whether CPU, features and triple are exactly this machine's."""
        return (self.mcpu, self.mattr, self.triple) == _host()

    def missing_here(self) -> tuple[str, ...]:
        """What this machine lacks to run code made for the target; empty if it can run it. This
        process asks the system for tile registers if the target has them."""
        triple = _host()[2]
        if self.arch != _arch(triple):
            return (f"an {self.arch} processor",)
        missing = self.features - _host_features()
        if not missing and AMX & self.features and not amx.permitted():
            missing = self.features & AMX
        return tuple(sorted(missing))


def _written(options: Mapping[str, Any]) -> str:
    """A dict of options as the text that says the same."""
    given = {str(k): v for k, v in options.items() if k not in ("host", "tag")}
    kind = given.pop("kind", options.get("tag"))
    if not isinstance(kind, str):
        raise TargetError(f"a target as a dict has a kind, found {dict(options)!r}; {_USAGE}")
    words = [kind]
    for name, value in given.items():
        several = isinstance(value, (list, tuple))
        words.append(f"-{name}={','.join(map(str, value)) if several else value}")
    return " ".join(words)


def _parse(text: str) -> tuple[str, str, str, str, int]:
    """The fields of the target written as `text`."""
    if not isinstance(text, str):
        raise TargetError(f"a target is text, found {type(text).__name__}: {text!r}; {_USAGE}")
    words = _VALUE.sub(r"-\1=", text).split()
    if not words:
        raise TargetError(f"the target is empty; {_USAGE}")
    if words[0] in TAGS:
        words = [*TAGS[words[0]].split(), *words[1:]]
    kind = words[0]
    if kind not in KINDS:
        near = ", ".join(get_close_matches(kind, TAGS, 3))
        hint = f", and tags such as {near}" if near else ""
        if kind == "c":
            hint = "; autosched.c_source(sch, args) writes a program as C"
        raise TargetError(
            f"unknown target kind {kind!r} in {text!r}; known: {', '.join(KINDS)}{hint}"
        )
    words = [w for w in words if w.lstrip("-").partition("=")[0] not in _WITHOUT_MEANING]
    if kind != "llvm":
        known = gpu_target.options(kind)
        return kind, *gpu_target.fields(kind, _options(words[1:], text, known)), "", 1
    options = _options(words[1:], text, _OPTIONS)
    host_cpu, host_attributes, host_triple = _host()
    triple = options.get("mtriple", host_triple)
    arch = _arch(triple)
    mcpu = options.get("mcpu")
    mcpu = CPU_ALIASES.get(mcpu or "", mcpu)
    attributes = options.get("mattr", "")
    if mcpu is None and triple == host_triple:
        mcpu, attributes = host_cpu, options.get("mattr", host_attributes)
    elif mcpu is None:
        mcpu = _DEFAULT_CPU[arch]
    mattr = _attributes(attributes, arch)
    if mcpu not in CPUS[arch] and not (mcpu == host_cpu and arch == _arch(host_triple)):
        raise TargetError(f"unknown CPU {mcpu!r} for {arch}; known: {', '.join(CPUS[arch])}")
    return kind, mcpu, mattr, triple, _cores(options.get("num-cores"))


def _options(words: list[str], text: str, known: Sequence[str]) -> dict[str, str]:
    """`-name=value` words as a dictionary."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in known:
            have = ", ".join(f"-{option}=" for option in known)
            raise TargetError(f"unknown option {word!r} of target {text!r}; known: {have}")
        if not equals or (not value and name != "mattr"):
            raise TargetError(f"option -{name} of target {text!r} needs a value: -{name}=...")
        if name in found:
            raise TargetError(f"option -{name} stands twice in target {text!r}")
        found[name] = value
    return found


def _attributes(text: str, arch: str) -> str:
    """A feature string, checked and sorted."""
    found: dict[str, str] = {}
    for word in filter(None, text.split(",")):
        if not _FEATURE.fullmatch(word):
            raise TargetError(f"feature {word!r} of -mattr needs a sign: +{word} or -{word}")
        if word[1:] not in FEATURES[arch]:
            known = ", ".join(FEATURES[arch])
            raise TargetError(f"unknown feature {word!r} for {arch}; known: {known}")
        if found.setdefault(word[1:], word[0]) != word[0]:
            raise TargetError(f"feature {word[1:]!r} is both added and removed in -mattr={text}")
    return ",".join(found[name] + name for name in sorted(found))


def _cores(text: str | None) -> int:
    """Number of threads; by default the cores that this process may use."""
    if text is None:
        return available_cores()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise TargetError(f"-num-cores={text} is no number of cores; expected 1 to 256")
    return int(text)


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _arch(triple: str) -> str:
    """Architecture of a triple. Raises TargetError on one that is not supported."""
    name = triple.split("-")[0].lower()
    name = _ALIASES.get(name, name)
    if name not in FEATURES:
        known = ", ".join(FEATURES)
        raise TargetError(f"triple {triple!r} has architecture {name!r}; supported: {known}")
    return name


def initialize_llvm() -> None:
    """Make every target of LLVM known to it; cheap after the first call."""
    _initialize()


@cache
def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@cache
def _host() -> tuple[str, str, str]:
    """CPU, features and triple of this machine.

    The features are those in which the machine differs from what its CPU's name implies: a
    hypervisor may hide some.
    """
    import llvmlite.binding as llvm

    _initialize()
    triple = llvm.get_process_triple()
    cpu = llvm.get_host_cpu_name()
    has = _host_features()
    differs = sorted(_implied(triple, cpu, "") ^ has)
    return cpu, ",".join(("+" if name in has else "-") + name for name in differs), triple


@cache
def _host_features() -> frozenset[str]:
    """Features of this machine, of those in `FEATURES`."""
    import llvmlite.binding as llvm

    found = llvm.get_host_cpu_features()
    known = FEATURES[_ALIASES.get(platform.machine().lower(), platform.machine().lower())]
    has = frozenset(name for name in known if found.get(name, False))
    return has if amx.supported() else has - AMX


@cache
def _implied(triple: str, cpu: str, attributes: str) -> frozenset[str]:
    """The features of `FEATURES` that LLVM uses for a CPU.

    LLVM prints this but does not return it. It does inline a function only where the caller has
    all features of the callee: so one callee is made for each feature, and those that vanish tell.
    """
    import llvmlite.binding as llvm

    _initialize()
    arch = _arch(triple)
    plain = _plain(arch, cpu)
    lines = [f'target triple = "{triple}"']
    for name in FEATURES[arch]:
        symbol = re.sub(r"\W", "_", name)
        attribute = f'"target-cpu"="{plain[0]}" "target-features"="{plain[1]}+{name}"'
        lines += [
            f"define internal i32 @has_{symbol}(i32 %x) {attribute} {{",
            f"  %y = xor i32 %x, {len(lines) + 1000}",
            "  ret i32 %y",
            "}",
            f"define i32 @ask_{symbol}(i32 %x) {{",
            f"  %y = call i32 @has_{symbol}(i32 %x)",
            "  ret i32 %y",
            "}",
        ]
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=attributes, opt=0, reloc="pic", codemodel="small"
    )
    module = llvm.parse_assembly("\n".join(lines))
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    left = set(re.findall(r"@has_(\w+)", str(module)))
    return frozenset(n for n in FEATURES[arch] if re.sub(r"\W", "_", n) not in left)


def _plain(arch: str, cpu: str) -> tuple[str, str]:
    """A CPU, and what to take from it, that has no feature which `cpu` lacks."""
    if arch == "aarch64" and cpu != "generic":
        extras = "crc sha2 aes perfmon use-postra-scheduler predictable-select-expensive"
        dropped = [*extras.split(), "store-pair-suppress"]
        return "thunderx", "".join(f"-{name}," for name in dropped)
    return _DEFAULT_CPU[arch], ""


@cache
def _caches(host: bool) -> tuple[int, int, int]:
    """Sizes in bytes of the first, second and last data cache."""
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
    root = Path("/sys/devices/system/cpu/cpu0/cache")
    if host and root.is_dir():
        for entry in sorted(root.glob("index*")):
            if (entry / "type").read_text().strip() == "Instruction":
                continue
            text = (entry / "size").read_text().strip()
            unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
            sizes[int((entry / "level").read_text())] = int(text.rstrip("KMG")) * unit
    return sizes[1], sizes[2], sizes[3]
