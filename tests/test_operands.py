"""Which views TMA takes as they are, and what a copy of the others looks like."""

import pytest
import torch

from tlx_clc_plugin.operands import (
    descriptor,
    inspect_input,
    inspect_output,
    overlaps,
    overlaps_itself,
    padded_like,
    tma_readable,
)


def aligned(*shape):
    return torch.randn(shape).half()


IN_PLACE = {
    "row-major": (lambda: aligned(6, 16), True),
    "column-major": (lambda: aligned(6, 16).t(), False),
    "row gaps": (lambda: aligned(6, 32)[:, :5], True),
    "aligned offset": (lambda: aligned(6, 32)[2:, 8:21], True),
    "every second row": (lambda: aligned(6, 16)[::2], True),
    "one odd row": (lambda: aligned(1, 7), True),
    "one odd column": (lambda: aligned(7, 1), False),
    "one element": (lambda: aligned(1, 1), True),
    "one row of a wide stride": (lambda: aligned(5, 7)[:1], True),
}
COPIED = {
    "odd row stride": (lambda: aligned(6, 15), "row stride of 15 elements (30 bytes)"),
    "odd column stride": (lambda: aligned(15, 6).t(), "column stride of 6 elements (12 bytes)"),
    "odd offset": (lambda: aligned(6, 32)[:, 3:19], "not on a 16-byte boundary"),
    "every second column": (lambda: aligned(6, 32)[:, ::2], "not contiguous"),
    "broadcast row": (lambda: aligned(16).expand(6, 16), "rows overlap"),
    "broadcast column": (lambda: aligned(6, 1).expand(6, 16), "columns overlap"),
    "broadcast element": (lambda: aligned(1, 1).expand(6, 16), "not contiguous"),
    "negative view": (lambda: torch._neg_view(aligned(6, 16)), "opposite sign"),
    "sliding window": (lambda: aligned(64).as_strided((6, 16), (8, 1)), "rows overlap"),
}


@pytest.mark.parametrize("case", IN_PLACE)
def test_addressable_views_are_not_copied(case):
    make, row_major = IN_PLACE[case]
    x = make()
    operand = inspect_input("a", x)
    assert (operand.row_major, operand.copied) == (row_major, False)
    assert tma_readable(operand, x) is x


@pytest.mark.parametrize("case", COPIED)
def test_other_views_are_copied_once_with_a_reason(case):
    make, words = COPIED[case]
    x = make()
    operand = inspect_input("a", x)
    assert operand.copied and words in operand.copy_reason
    assert operand.copy_reason.startswith("a: ")
    copy = tma_readable(operand, x)
    assert torch.equal(copy, x)
    again = inspect_input("a", copy)
    assert not again.copied and again.row_major == operand.row_major


@pytest.mark.parametrize("case", [*IN_PLACE, *COPIED])
def test_descriptor_addresses_the_views_elements(case):
    x = {**IN_PLACE, **COPIED}[case][0]()
    operand = inspect_input("a", x)
    readable = tma_readable(operand, x)
    desc = descriptor(operand, readable, (128, 64))
    assert desc.block_shape == ([128, 64] if operand.row_major else [64, 128])
    assert desc.strides[0] * 2 % 16 == 0
    # Element (i, j) lies where the descriptor's pitch says, relative to the first.
    lines = readable if operand.row_major else readable.t()
    assert desc.shape == list(lines.shape)
    for i in (0, lines.shape[0] - 1):
        offset = lines[i:].data_ptr() - desc.base.data_ptr()
        assert offset == (i * desc.strides[0]) * 2


def test_output_is_row_major_or_written_through_a_copy():
    assert not inspect_output("out", aligned(6, 16)).copied
    assert not inspect_output("out", aligned(6, 32)[:, :5]).copied
    assert "row stride of 7" in inspect_output("out", aligned(6, 7)).copy_reason
    assert "rows are not contiguous" in inspect_output("out", aligned(6, 16).t()).copy_reason
    assert "16-byte boundary" in inspect_output("out", aligned(6, 32)[:, 1:9]).copy_reason


@pytest.mark.parametrize("row_major", [True, False])
@pytest.mark.parametrize("shape", [(3, 5), (8, 16), (1, 1), (7, 257)])
def test_padded_tensors_have_aligned_lines(shape, row_major):
    x = padded_like(torch.empty(shape, dtype=torch.bfloat16), row_major=row_major)
    assert tuple(x.shape) == shape
    assert inspect_input("x", x).copied is False


def test_overlap_of_column_ranges_is_exact():
    base = aligned(8, 32)
    assert not overlaps(base[:, :16], base[:, 16:])
    assert not overlaps(base[:, 16:], base[:, :16])
    assert not overlaps(base[:4], base[4:])
    assert overlaps(base[:, :17], base[:, 16:])
    assert overlaps(base[:5], base[4:])
    assert overlaps(base, base)
    assert not overlaps(base.t()[:16], base.t()[16:])
    assert overlaps(base[:, 24:], base[1:, :32])
    assert not overlaps(base[:0], base)
    assert not overlaps(base[:, 16:24].t(), base[:, 24:])
    assert overlaps(base[:, 16:25].t(), base[:, 24:])
    # A row of another pitch: its addresses meet, which is all that can be said cheaply.
    assert overlaps(base[:, :8], base.view(16, 16)[:, 8:])


@pytest.mark.parametrize("seed", range(20))
def test_overlap_never_misses_a_shared_element(seed):
    rng = torch.Generator().manual_seed(seed)

    def draw(high):
        return int(torch.randint(high, (), generator=rng))

    buffer = torch.zeros(400, dtype=torch.float16)
    views = []
    for _ in range(2):
        rows, columns, pitch = 1 + draw(5), 1 + draw(9), 1 + draw(24)
        view = buffer.as_strided((rows, columns), (pitch, 1), draw(150))
        views.append(view.t() if draw(2) else view)
    touched = []
    for view in views:
        buffer.zero_()
        view.fill_(1)
        touched.append(buffer.bool().clone())
    if (touched[0] & touched[1]).any():
        assert overlaps(*views)


@pytest.mark.parametrize("seed", range(200))
def test_overlap_with_itself_is_exact(seed):
    rng = torch.Generator().manual_seed(seed)
    rows, columns, *strides = (int(torch.randint(6, (), generator=rng)) for _ in range(4))
    x = torch.zeros(200).as_strided((rows, columns), strides)
    addresses = {i * strides[0] + j * strides[1] for i in range(rows) for j in range(columns)}
    # Interleaved lattices (strides 2 and 3, say) may be told to overlap where they do not.
    if len(addresses) < rows * columns:
        assert overlaps_itself(x)
    elif rows * columns and max(strides) >= (min(rows, columns) - 1) * min(strides) + 1:
        wide = strides[0] >= strides[1] * max(columns - 1, 0) + 1
        tall = strides[1] >= strides[0] * max(rows - 1, 0) + 1
        assert overlaps_itself(x) == (not (wide or tall or min(rows, columns) == 1))
