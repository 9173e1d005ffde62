"""Fourier transforms, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Known, Results, host_operator
from autosched.graph.ops.tensors import normal_axis

Array = npt.NDArray[Any]


def _dft(
    x: Known, length: Known | None = None, which: Known | None = None, *, axis: int = 1,
    inverse: int = 0, onesided: int = 0,
) -> Results | None:  # fmt: skip
    if any(a is not None and a.value is None for a in (length, which)):
        return None
    along, n = transformed(
        x.shape, length and length.value, which and which.value, axis, inverse, onesided
    )
    shape = [*x.shape[:-1], 1 if inverse and onesided else 2]
    shape[along] = n // 2 + 1 if onesided and not inverse else n
    return [(shape, x.dtype)]


def transformed(
    shape: Sequence[int],
    length: Array | None,
    which: Array | None,
    axis: int,
    inverse: int,
    onesided: int,
) -> tuple[int, int]:
    """The axis of a DFT and its length."""
    along = normal_axis(axis if which is None else int(which.reshape(-1)[0]), len(shape))
    whole = 2 * (shape[along] - 1) if inverse and onesided else shape[along]
    return along, whole if length is None else int(length.reshape(-1)[0])


def _complex(x: Array) -> Array:
    """Numbers whose last axis is (real, imaginary), or real."""
    return np.asarray(x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0])


@host_operator("DFT", _dft)
def dft(
    x: Array,
    length: Array | None = None,
    which: Array | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """The discrete Fourier transform along an axis; the last axis is (real, imaginary), or real."""
    along, n = transformed(x.shape, length, which, axis, inverse, onesided)
    values = _complex(x)
    if inverse and onesided:
        return np.fft.irfft(values, n, axis=along)[..., None].astype(x.dtype)
    made = (np.fft.ifft if inverse else np.fft.fft)(values, n, axis=along)
    if onesided:
        made = made.take(range(n // 2 + 1), along)
    return np.stack([made.real, made.imag], axis=-1).astype(x.dtype)


def _stft(
    x: Known, step: Known, window: Known | None = None, length: Known | None = None, *,
    onesided: int = 1,
) -> Results | None:  # fmt: skip
    if step.value is None or (length is not None and length.value is None):
        return None
    _, n, frames = pieces(x.shape, step.value, window and window.shape[0], length and length.value)
    return [((x.shape[0], frames, n // 2 + 1 if onesided else n, 2), x.dtype)]


def pieces(
    shape: Sequence[int], step: Array, wide: int | None, length: Array | None
) -> tuple[int, int, int]:
    """Of the pieces of a signal, with a window of `wide` elements: the step from one to the next,
    how long one is, and how many there are."""
    if length is None and wide is None:
        raise Unsupported("neither window nor frame_length is given")
    by = int(step.reshape(-1)[0])
    n = int(wide if length is None else length.reshape(-1)[0])  # type: ignore[arg-type]
    return by, n, (shape[1] - n) // by + 1


@host_operator("STFT", _stft)
def stft(
    x: Array,
    step: Array,
    window: Array | None = None,
    length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """Fourier transforms of pieces of a signal (B, T) or (B, T, 1), each times the window."""
    by, n, count = pieces(x.shape, step, None if window is None else len(window), length)
    x = x[..., None] if x.ndim == 2 else x
    values = _complex(x)
    frames = np.stack([values[:, i * by : i * by + n] for i in range(count)], axis=1)
    if window is not None:
        before = (n - len(window)) // 2
        frames = frames * np.pad(window, (before, n - len(window) - before))
    made = np.fft.fft(frames, axis=-1)
    if onesided:
        made = made[..., : n // 2 + 1]
    return np.stack([made.real, made.imag], axis=-1).astype(x.dtype)
