"""What CUDA devices this machine has, asked of the driver alone: a target may ask, which is below
everything that runs on a device."""

from __future__ import annotations

from functools import cache

from autosched.errors import BuildError, DeviceError
from autosched.runtime.cuda_driver import load_driver


@cache
def architecture(index: int = 0) -> str:
    """What a device of this machine runs, such as "sm_80", or "sm_90a" where it has instructions
    that are of its architecture alone; opens nothing on it. Raises BuildError where there is none.
    """
    driver = load_driver()
    try:
        device = driver("cuDeviceGet", index)
        major, minor = (
            driver("cuDeviceGetAttribute", a, device)
            for a in (
                driver.module.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                driver.module.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
    except DeviceError as e:
        raise BuildError(f"CUDA has no device {index} here: {e}") from e
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


def device_count() -> int:
    """How many devices CUDA has here. Raises BuildError where there is no driver."""
    try:
        return int(load_driver()("cuDeviceGetCount"))
    except DeviceError as e:
        raise BuildError(f"CUDA does not answer: {e}") from e
