"""How an operand reaches the tensor memory accelerator (TMA): as it is, or as one padded copy.

TMA reads and writes matrices whose rows (or columns) are contiguous and start on 16-byte
boundaries (CUDA driver API, ``cuTensorMapEncodeTiled``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from triton.tools.tensor_descriptor import TensorDescriptor

TMA_ALIGNMENT = 16
# cuTensorMapEncodeTiled: strides are below 2**40 bytes.
_MAX_STRIDE_BYTES = 2**40


@dataclass(frozen=True)
class Operand:
    """How the kernel sees a matrix.

    ``row_major``: elements of a row are adjacent, else those of a column. ``copy_reason``: why
    the tensor has to be copied first, in words; None where it is used in place.
    """

    name: str
    row_major: bool
    copy_reason: str | None = None

    @property
    def copied(self) -> bool:
        return self.copy_reason is not None


def inspect_input(name: str, tensor: torch.Tensor) -> Operand:
    """The way to read a 2-D ``tensor``, row- or column-major, without a copy where TMA can."""
    for row_major in (True, False):
        if _why_not_tma(name, tensor, row_major) is None:
            return Operand(name, row_major)
    # The copy keeps the order in which the elements lie, so that it streams.
    row_major = tensor.stride(1) == 1 or tensor.stride(0) != 1
    return Operand(name, row_major, _why_not_tma(name, tensor, row_major))


def inspect_output(name: str, tensor: torch.Tensor) -> Operand:
    """The way to write a 2-D ``tensor``: row-major, through a padded copy where TMA can't."""
    return Operand(name, True, _why_not_tma(name, tensor, row_major=True))


def padded_like(tensor: torch.Tensor, *, row_major: bool) -> torch.Tensor:
    """An uninitialised tensor of the same shape that TMA accepts, its rows (columns) padded."""
    rows, columns = tensor.shape if row_major else reversed(tensor.shape)
    per_line = TMA_ALIGNMENT // tensor.element_size()
    pitch = -(-columns // per_line) * per_line
    storage = torch.empty((rows, pitch), dtype=tensor.dtype, device=tensor.device)
    matrix = storage[:, :columns]
    return matrix if row_major else matrix.t()


def tma_readable(operand: Operand, tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` itself, or the padded copy of it that ``operand`` asks for."""
    if not operand.copied:
        return tensor
    return padded_like(tensor, row_major=operand.row_major).copy_(tensor)


def descriptor(operand: Operand, tensor: torch.Tensor, box: tuple[int, int]) -> TensorDescriptor:
    """TMA descriptor of ``tensor``, transferring ``box`` = (rows, columns) elements at a time."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    if not operand.row_major:
        tensor, box = tensor.t(), (box[1], box[0])
    pitch = tensor.stride(0)
    if tensor.shape[0] == 1:  # the pitch of a single line is arbitrary, TMA's rules are not
        per_line = TMA_ALIGNMENT // tensor.element_size()
        pitch = -(-tensor.shape[1] // per_line) * per_line
    return TensorDescriptor(tensor, list(tensor.shape), [pitch, 1], list(box))


def overlaps(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two 2-D tensors share memory.

    Exact for matrices of the same pitch (two column ranges of one buffer, say), else true as
    soon as their address ranges meet.
    """
    if x.numel() == 0 or y.numel() == 0:
        return False
    (x_begin, x_end), (y_begin, y_end) = _address_range(x), _address_range(y)
    if x_end <= y_begin or y_end <= x_begin:
        return False
    # Rows or columns, whichever are contiguous.
    x, y = (z if z.stride(1) == 1 else z.t() for z in (x, y))
    pitch = x.stride(0)
    if x.stride(1) == y.stride(1) == 1 and y.stride(0) == pitch:
        if max(x.shape[1], y.shape[1]) <= pitch:
            offset = (y_begin - x_begin) // x.element_size() % pitch
            return offset < x.shape[1] or offset + y.shape[1] > pitch
    return True


def overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements of ``x`` may be one in memory: exact up to two dimensions."""
    if x.numel() == 0:
        return False
    end = 0  # of what the dimensions so far span, from the finest
    for stride, extent in sorted(zip(x.stride(), x.shape, strict=True)):
        if extent > 1:
            if stride <= end:
                return True
            end += (extent - 1) * stride
    return False


def _why_not_tma(name: str, tensor: torch.Tensor, row_major: bool) -> str | None:
    lines, line = ("row", "columns") if row_major else ("column", "rows")
    (count, length), (pitch, step) = tensor.shape, tensor.stride()
    if not row_major:
        count, length, pitch, step = length, count, step, pitch
    size = tensor.element_size()
    if tensor.is_neg():
        return f"{name}: its values lie in memory with the opposite sign (a negative view)"
    if length > 1 and step != 1:
        return f"{name}: its {lines}s are not contiguous (strides {tensor.stride()})"
    if tensor.data_ptr() % TMA_ALIGNMENT:
        return f"{name}: its first element is not on a {TMA_ALIGNMENT}-byte boundary"
    if count > 1:
        if pitch * size % TMA_ALIGNMENT:
            return (
                f"{name}: the {lines} stride of {pitch} elements ({pitch * size} bytes) is not "
                f"a multiple of {TMA_ALIGNMENT} bytes"
            )
        if pitch < length:
            return f"{name}: {lines}s overlap (stride {pitch} for {length} {line})"
        if pitch * size >= _MAX_STRIDE_BYTES:
            return f"{name}: the {lines} stride of {pitch * size} bytes is 2**40 or more"
    return None


def _address_range(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()
