"""Other names of processors and devices: LLVM's older CPU names, and tags as TVM has them."""

from __future__ import annotations

CPU_ALIASES = {
    "core-avx2": "haswell",
    "core-avx-i": "ivybridge",
    "corei7": "nehalem",
    "corei7-avx": "sandybridge",
    "core_2nd_gen_avx": "sandybridge",
    "core_3rd_gen_avx": "ivybridge",
    "core_4th_gen_avx": "haswell",
    "skx": "skylake-avx512",
    "icelake": "icelake-client",
}
"""CPU names that LLVM takes for the ones it prints."""

_COMPUTE_CAPABILITY = {
    "70": "tesla-v100 titan-v",
    "72": "jetson-agx-xavier jetson-xavier-nx",
    "75": "tesla-t4 geforce-rtx-2060 geforce-rtx-2070 geforce-rtx-2080 geforce-rtx-2080-ti "
    "geforce-gtx-1650 geforce-gtx-1660 quadro-rtx-6000 quadro-rtx-8000 titan-rtx",
    "80": "nvidia-a100 nvidia-a30",
    "86": "nvidia-a10 nvidia-a40 nvidia-a10g rtx-a4000 rtx-a5000 rtx-a6000 geforce-rtx-3060 "
    "geforce-rtx-3070 geforce-rtx-3080 geforce-rtx-3090",
    "87": "jetson-agx-orin jetson-orin-nx",
    "89": "nvidia-l4 nvidia-l40 geforce-rtx-4070 geforce-rtx-4080 geforce-rtx-4090",
    "90": "nvidia-h100 nvidia-h200",
}
_ARM = "llvm -mtriple=aarch64-linux-gnu"
TAGS = {
    f"nvidia/{name}": f"cuda -arch=sm_{capability}"
    for capability, names in _COMPUTE_CAPABILITY.items()
    for name in names.split()
} | {
    "raspberry-pi/4b-aarch64": f"{_ARM} -mcpu=cortex-a72 -num-cores=4",
    "raspberry-pi/5-aarch64": f"{_ARM} -mcpu=cortex-a76 -num-cores=4",
    "aws/cpu/c5.large": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1",
    "aws/cpu/c5.xlarge": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=2",
    "aws/cpu/c5.2xlarge": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=4",
    "aws/cpu/c5.4xlarge": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=8",
    "aws/cpu/c5.9xlarge": "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=18",
}
"""Tag -> the target that it stands for. NVIDIA's by the compute capability of the device."""
