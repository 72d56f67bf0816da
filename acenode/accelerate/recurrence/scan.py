"""A recurrent cell over all rows as one node of the autograd graph, and the cells that read points alone.

Autograd would record some ten to forty nodes a row, each of which adds to a weight's gradient. Here the gradient of a
weight is one product over all rows, and a row of the backward pass is a few products. No step waits for the device. On
a CUDA device one kernel launch each way runs all rows of a series in one program. What the kernels do not support
(float64, wide states, no Triton or no compiler for it) is left to torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from acenode.accelerate.triton_support import MAX_ELEMENTS, block_size, kernel_works, kernels_available
from acenode.backend import GPU_KERNELS, TORCH_OPERATIONS, Backend

CHECKED_ROWS = 16
CHECK_TOLERANCE = 1e-3  # relative; both compute in float32


class ScanInputs(NamedTuple):
    """What a cell reads: T rows, B series."""

    mask: Tensor  # (T, B, 1), False where no point is read
    start: Tensor  # (B, ·), the initial state
    rows: Sequence[Tensor]  # two, (T, B, ·) each
    weights: Sequence[Tensor]


class ScanLayout(NamedTuple):
    """Sizes of what the passes of a cell read and write."""

    saved: list[int]  # widths of the tensors (T, B, ·) that `forward` fills
    gradients: list[int]  # of those that `backward` fills
    constants: dict[str, int | float]  # of the kernels; those of type int are widths


class RecurrentCell(Protocol):
    """The passes of a recurrent cell over all rows.

    The backward pass runs from row to row with tensors that the forward pass fixed: `factors` computes these for all
    rows at once, the loop over rows finds the gradients that depend on the row after it, and `gradients` computes those
    of inputs and weights, again for all rows at once.
    """

    name: ClassVar[str]  # of its kernels: `name`_forward and `name`_backward
    warps: ClassVar[dict[int, int]] = {16: 1, 32: 4, 64: 8}  # by block size, of which the largest is the widest layer

    def layout(self, x: ScanInputs) -> ScanLayout: ...

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        """Fill the states after every row, (T, B, ·), and `saved`."""

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return what the backward pass reads, (T, B, ·) each, from the states before and after every row."""

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        """Fill `found` from the gradient of the states; return the gradient of the initial state."""

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        """Return the gradients of the rows and of the weights."""

    def packed(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the weights as the kernels take them."""
        return weights

    def compiled_for(self, x: ScanInputs) -> dict[str, int | float] | None:
        """Return the constants and options of the kernels' launch; None for wider layers than they support."""
        constants = self.layout(x).constants
        P = block_size(*(width for width in constants.values() if isinstance(width, int)))
        return {**constants, "P": P, "num_warps": self.warps[P]} if P in self.warps else None


class Scan(torch.autograd.Function):
    """Map the mask (T, B, 1), the start (B, ·), two rows (T, B, ·) and weights to the states after every row."""

    @staticmethod
    def forward(ctx: Any, backend: Backend, cell: RecurrentCell, mask: Tensor, start: Tensor, *tensors: Any) -> Tensor:
        x = ScanInputs(mask, start, tensors[:2], tensors[2:])
        trains = any(ctx.needs_input_grad)
        ctx.by_kernel = kernels_support(backend, cell, x) and kernel_works(
            backend, (cell.name, start.device, trains, *(cell.compiled_for(x) or {}).values()),
            lambda: _attempt(cell, x, trains))
        if start.is_cuda:
            backend.report_series_by(GPU_KERNELS if ctx.by_kernel else TORCH_OPERATIONS)
        states, saved = _forward(cell, x, ctx.by_kernel)
        ctx.cell, ctx.count = cell, len(tensors)
        ctx.save_for_backward(mask, start, *tensors, states, *saved)
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mask, start, *rest = ctx.saved_tensors
        x = ScanInputs(mask, start, rest[:2], rest[2:ctx.count])
        states, *saved = rest[ctx.count:]
        d_start, d_rows, d_weights = _backward(ctx.cell, grads[0], x, states, saved, ctx.by_kernel)
        return None, None, None, d_start, *d_rows, *d_weights


def scan(backend: Backend, cell: RecurrentCell, mask: Tensor, start: Tensor, rows: Sequence[Tensor],
         weights: Sequence[Tensor]) -> Tensor:
    """Return the states after every point, (B, T, ·), from the mask (B, T), the start (B, ·) and inputs (B, T, ·)."""
    by_row = (x.transpose(0, 1) for x in rows)
    states: Tensor = Scan.apply(backend, cell, mask.t().unsqueeze(-1), start, *by_row, *weights)
    return states.transpose(0, 1)


def kernels_support(backend: Backend, cell: RecurrentCell, x: ScanInputs) -> bool:
    """Return True if the kernels can run this scan."""
    tensors = [x.start, *x.rows, *x.weights]
    if not x.start.is_cuda or any(y.dtype != torch.float32 for y in tensors) or cell.compiled_for(x) is None:
        return False
    saved, gradients, _ = cell.layout(x)
    largest = x.mask.numel() * max(saved + gradients)
    return 0 < largest < MAX_ELEMENTS and kernels_available(backend, x.start.device)


def _allocate(x: ScanInputs, widths: list[int]) -> list[Tensor]:
    """Return tensors (T, B, width) of zeros; kernels may store nothing in a row that reads no point."""
    return [x.start.new_zeros(*x.mask.shape[:2], width) for width in widths]


def _forward(cell: RecurrentCell, x: ScanInputs, by_kernel: bool) -> tuple[Tensor, list[Tensor]]:
    """Return the states after every row, and what the backward pass needs."""
    states = x.start.new_empty(*x.mask.shape[:2], x.start.shape[1])
    saved = _allocate(x, cell.layout(x).saved)
    if by_kernel:
        _launch(f"{cell.name}_forward", cell, x, [x.mask, x.start, *x.rows, *cell.packed(x.weights), *saved, states])
    else:
        cell.forward(x, saved, states)
    return states, saved


def _backward(cell: RecurrentCell, grad: Tensor, x: ScanInputs, states: Tensor, saved: Sequence[Tensor],
              by_kernel: bool) -> tuple[Tensor, list[Tensor | None], list[Tensor]]:
    """Return the gradients of the start, the rows and the weights."""
    before = torch.cat((x.start[None], states[:-1]))
    factors = cell.factors(x, before, states, saved)
    found = _allocate(x, cell.layout(x).gradients)
    if by_kernel:
        d_start = torch.empty_like(x.start, memory_format=torch.contiguous_format)
        _launch(f"{cell.name}_backward", cell, x, [grad, *factors, *cell.packed(x.weights), *found, d_start])
    else:
        d_start = cell.backward(grad, x, factors, found)
    return d_start, *cell.gradients(x, before, saved, found)


def _launch(name: str, cell: RecurrentCell, x: ScanInputs, tensors: Sequence[Tensor]) -> None:
    """Launch a kernel with one program a series."""
    from acenode.accelerate.recurrence import kernels

    given = [y.contiguous() for y in tensors]
    T, B, _ = x.mask.shape
    with torch.cuda.device(x.start.device):
        getattr(kernels, name)[(B,)](*(y.view(torch.uint8) if y.dtype == torch.bool else y for y in given), T, B,
                                     **(cell.compiled_for(x) or {}))


def _attempt(cell: RecurrentCell, x: ScanInputs, trains: bool) -> None:
    """Run the kernels on the first rows, forward and, in training, backward; raise if torch finds other numbers."""
    first = ScanInputs(x.mask[:CHECKED_ROWS], x.start, [row[:CHECKED_ROWS] for row in x.rows], x.weights)
    found, expected = (_passes(cell, first, trains, by_kernel) for by_kernel in (True, False))
    for y, exact in zip(found, expected, strict=True):
        difference = torch.linalg.vector_norm((y - exact).nan_to_num())
        close = difference <= CHECK_TOLERANCE * (1 + torch.linalg.vector_norm(exact.nan_to_num()))
        if not close or not torch.equal(y.isnan(), exact.isnan()):
            raise RuntimeError(f"kernels of {cell.name} differ from torch by {difference:.3g}")


def _passes(cell: RecurrentCell, x: ScanInputs, trains: bool, by_kernel: bool) -> list[Tensor]:
    """Return the states, and in training the gradients of their squared norm / 2."""
    states, saved = _forward(cell, x, by_kernel)
    if not trains:
        return [states]
    d_start, d_rows, d_weights = _backward(cell, states, x, states, saved, by_kernel)
    return [states, d_start, *(d for d in d_rows if d is not None), *d_weights]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return Σ aᵀ b over all rows and series."""
    return a.reshape(-1, a.shape[-1]).t() @ b.reshape(-1, b.shape[-1])


def total(d: Tensor) -> Tensor:
    """Return Σ d over all rows and series: the gradient of a bias."""
    return d.reshape(-1, d.shape[-1]).sum(0)


def sigmoid_slope(y: Tensor) -> Tensor:
    """Return σ' where σ = y."""
    return torch.addcmul(y, y, y, value=-1)


def tanh_slope(y: Tensor) -> Tensor:
    """Return tanh' where tanh = y."""
    return 1 - y.square()


class DecayGRU(RecurrentCell):
    """The GRU with a decay of h, γ.

        g = γ ⊙ h        r, z = σ(x + U g + b)        n = tanh(x' + r ⊙ (U' g + b'))        h ← (1−z) ⊙ n + z ⊙ g

    Rows: the projected inputs [x, x'] (T, B, 3h) and γ (T, B, h). Weights: U (3h, h), b (3h).
    """

    name = "gru"

    def layout(self, x: ScanInputs) -> ScanLayout:
        """Saved: [r, z], n and U' g + b'. Gradients: of U g + b, followed by that of x', and of g."""
        H = x.start.shape[1]
        return ScanLayout([2 * H, H, H], [4 * H, H], {"H": H})

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (projected, decay), (U, b), h = x.rows, x.weights, x.start
        H, Ut = h.shape[1], U.t().contiguous()
        for i, (mask, row, rz, n, own) in enumerate(zip(x.mask, projected, *saved, strict=True)):
            g = decay[i] * h
            sums = torch.addmm(b, g, Ut)
            torch.add(row[:, :2 * H], sums[:, :2 * H], out=rz).sigmoid_()
            own.copy_(sums[:, 2 * H:])
            torch.addcmul(row[:, 2 * H:], rz[:, :H], own, out=n).tanh_()
            h = torch.where(mask, torch.lerp(n, g, rz[:, H:]), h, out=states[i])

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors that give the gradients of r, z, U' g + b' and x', the share of g, γ, and 1 − mask."""
        (rz, n, own), decay = saved, x.rows[1]
        g = decay * before
        H, m = n.shape[2], x.mask.to(n)
        r, z = rz[..., :H], rz[..., H:]
        slope = sigmoid_slope(rz)
        a_n = (m - m * z) * tanh_slope(n)
        each = torch.cat((a_n * own * slope[..., :H], m * (g - n) * slope[..., H:], a_n * r, a_n), -1)
        return [each, m * z, decay, 1 - m]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        U, decay, (B, H) = x.weights[0], x.rows[1], x.start.shape
        each, keep, _, stay = factors
        d = torch.zeros_like(x.start)
        for i in range(len(grad) - 1, -1, -1):
            d = d + grad[i]
            sums, d_g = found[0][i], found[1][i]
            torch.mul(d[:, None], each[i].view(B, 4, H), out=sums.view(B, 4, H))
            torch.addmm(d * keep[i], sums[:, :3 * H], U, out=d_g)
            d = torch.addcmul(decay[i] * d_g, stay[i], d)
        return d

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        (sums, d_g), H = found, x.start.shape[1]
        d_own = sums[..., :3 * H]
        return ([torch.cat((sums[..., :2 * H], sums[..., 3 * H:]), -1), d_g * before],
                [product(d_own, x.rows[1] * before), total(d_own)])


class DecayLSTM(RecurrentCell):
    """T-LSTM: an LSTM whose short-term memory decays with time. The state is [h, C].

        S = tanh(W_d C + b_d)        C* = C + lost S
        i, f, o = σ(x + U h + b)     C̃ = tanh(x + U h + b)     C ← f ⊙ C* + i ⊙ C̃     h ← o ⊙ tanh(C)

    Rows: the projected inputs (T, B, 4h), `lost` (T, B, 1), which gets no gradient. Weights: U (4h, h), b (4h),
    W_d (h, h), b_d (h).
    """

    name = "lstm"

    def layout(self, x: ScanInputs) -> ScanLayout:
        """Saved: [i, f, o, C̃] and S. Gradients: of their arguments."""
        H = x.start.shape[1] // 2
        return ScanLayout([4 * H, H], [4 * H, H], {"H": H})

    def forward(self, x: ScanInputs, saved: Sequence[Tensor], states: Tensor) -> None:
        (projected, lost), (U, b, W, b_d), state = x.rows, x.weights, x.start
        H, Ut, Wt = len(W), U.t().contiguous(), W.t().contiguous()
        for i, (mask, row, gates, short) in enumerate(zip(x.mask, projected, *saved, strict=True)):
            h, C = state[:, :H], state[:, H:]
            torch.addmm(b_d, C, Wt, out=short).tanh_()
            torch.add(row, torch.addmm(b, h, Ut), out=gates)
            gates[:, :3 * H].sigmoid_()
            new = gates[:, 3 * H:].tanh_()
            C = torch.addcmul(gates[:, H:2 * H] * torch.addcmul(C, lost[i], short), gates[:, :H], new)
            state = torch.where(mask, torch.cat((gates[:, 2 * H:3 * H] * torch.tanh(C), C), 1), state, out=states[i])

    def factors(self, x: ScanInputs, before: Tensor, states: Tensor, saved: Sequence[Tensor]) -> list[Tensor]:
        """Return the factors of i, f, o and C̃, that of C in h, f, that of S, and 1 − mask."""
        (gates, short), lost = saved, x.rows[1]
        H, m = short.shape[2], x.mask.to(short)
        i, f, o, new = gates.split(H, -1)
        slope, tanh_C = sigmoid_slope(gates[..., :3 * H]), torch.tanh(states[..., H:])
        decayed = torch.addcmul(before[..., H:], lost, short)
        each = m * torch.cat((new * slope[..., :H], decayed * slope[..., H:2 * H], tanh_C * slope[..., 2 * H:],
                              i * tanh_slope(new)), -1)
        return [each, o * tanh_slope(tanh_C), m * f, lost * tanh_slope(short), 1 - m]

    def backward(self, grad: Tensor, x: ScanInputs, factors: Sequence[Tensor], found: Sequence[Tensor]) -> Tensor:
        U, _, W, _ = x.weights
        each, out, keep, slope, stay = factors
        H, d = len(W), torch.zeros_like(x.start)
        for i in range(len(grad) - 1, -1, -1):
            d = d + grad[i]
            d_h, sums, d_short = d[:, :H], found[0][i], found[1][i]
            d_C = torch.addcmul(d[:, H:], d_h, out[i])
            torch.mul(torch.cat((d_C, d_C, d_h, d_C), 1), each[i], out=sums)
            d_decayed = d_C * keep[i]
            torch.mul(d_decayed, slope[i], out=d_short)
            d_before = torch.cat((sums @ U, torch.addmm(d_decayed, d_short, W)), 1)
            d = torch.addcmul(d_before, stay[i], d)
        return d

    def gradients(self, x: ScanInputs, before: Tensor, saved: Sequence[Tensor],
                  found: Sequence[Tensor]) -> tuple[list[Tensor | None], list[Tensor]]:
        (sums, d_short), H = found, found[1].shape[2]
        return [sums, None], [product(sums, before[..., :H]), total(sums), product(d_short, before[..., H:]),
                              total(d_short)]


CELLS: dict[str, type[RecurrentCell]] = {cell.name: cell for cell in (DecayGRU, DecayLSTM)}
