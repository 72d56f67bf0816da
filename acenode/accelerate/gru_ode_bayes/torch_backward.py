"""The way back of `torch_forward`: gradients of h(0), a(0) and of those weights that are trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.torch_forward import Scan, Segment, Turn, Weights
from acenode.models.forecast.jump_attention import SHORTEST

sigmoid_backward, tanh_backward, threshold_backward = (
    getattr(torch.ops.aten, f"{name}_backward").grad_input for name in ("sigmoid", "tanh", "threshold"))


class Back:
    """One pass over a schedule from its end to its beginning."""

    def __init__(self, scan: Scan, grads: tuple[Tensor, ...], needed: tuple[bool, ...]) -> None:
        self.scan, D, H = scan, scan.D, scan.H
        d_said, d_after, self.d_reads = grads
        w = scan.w
        self.attention = w.g_gates is not None
        turned: Any = (x if x is None or x.dim() == 1 else x.t().contiguous() for x in w)
        self.back = Weights(*turned)
        given = [x for x in w if x is not None]
        self.total = {name: torch.zeros_like(x) for name, x, wanted in zip(w._fields, given, needed, strict=False)
                      if wanted}
        P = w.features.shape[1]
        self.hidden, self.out, self.told = scan.table(w.hidden.shape[1]), scan.table(D, 2 * D, D), scan.table(2 * D, D)
        self.features, self.seen, self.cell = scan.table(P), scan.table(P, H), scan.table(H, H, H, H)
        self.gates = scan.columns(self.cell.data[:, :2 * H])
        self.d_told = scan.columns(torch.nn.functional.pad(d_said, (0, D)))
        self.d_after = scan.columns(d_after)

    def run(self) -> list[Any]:
        """∂h(0), ∂a(0), ∂weights; None for those that are not trained."""
        scan = self.scan
        dh, da = torch.zeros_like(scan.end), None
        for lo, hi in reversed(scan.windows()):
            kept = scan.kept.pop()
            segment = kept if isinstance(kept, Segment) else scan.segment(lo, hi, *kept, first=False)
            d_mean = None
            if da is not None and segment.turn is not None:
                da, d_mean = self.turn(segment.turn, da)
            dh, d_weights = self.rows(segment, dh, d_mean)
            if d_weights is not None and segment.turn is not None:  # through the softmax
                S = segment.turn.weights
                d_weights.mul_(S)
                d_weights.addcmul_(S, d_weights.sum(-1, keepdim=True), value=-1)
                da = d_weights if da is None else da.add_(d_weights)
        self.halt(0, dh)
        self.jumps()
        if self.attention and da is None:
            da = dh.new_zeros(len(dh), scan.H, scan.H)
        names = [name for name, x in zip(scan.w._fields, scan.w, strict=True) if x is not None]
        return [dh, da, *(self.total.get(name) for name in names)]

    def rows(self, segment: Segment, dh: Tensor, d_mean: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """∂h at the start of a window from that at its end, and ∂σ(a) where a is not a constant."""
        plan, turn = self.scan.plan, segment.turn
        dt = plan.schedule.dt[segment.lo:segment.hi].unbind(0)
        W_reset, W_open, W_new = self.back.f_reset, self.back.f_open, self.back.f_new
        literal = turn is not None and not plan.own_feedback
        d_gates, d_new = torch.empty_like(segment.gates), torch.empty_like(segment.u)
        d_s = torch.empty_like(segment.u) if turn is not None else None
        product = torch.empty_like(turn.a) if turn is not None else None
        if d_mean is not None and turn is not None:
            d_mean = d_mean / turn.tau.clamp(min=SHORTEST)
        rows = list(zip(segment.h[:-1].unbind(0), segment.s.unbind(0), segment.u.unbind(0), segment.gates.unbind(0),
                        segment.gates[:, 0].unbind(0), segment.gates[:, 1].unbind(0), d_new.unbind(0),
                        d_gates.unbind(0), d_gates[:, 0].unbind(0), d_gates[:, 1].unbind(0), strict=True))
        for k in range(len(rows) - 1, -1, -1):
            own, s, u, gate, r, o, d_row, d_gate, d_r, d_o = rows[k]
            self.halt(segment.lo + k, dh)
            scaled = dh * dt[k]
            d_u = scaled * o
            torch.mul(scaled, u - (s if literal else own), out=d_o)
            d_read = tanh_backward(d_u, u, grad_input=d_row) @ W_new
            torch.mul(d_read, s, out=d_r)
            sigmoid_backward(d_gate, gate, grad_input=d_gate)
            if turn is None or d_s is None:
                dh = (dh - d_u).addcmul_(d_read, r).addmm_(d_r, W_reset).addmm_(d_o, W_open)
                continue
            back = torch.mul(d_read, r, out=d_s[k]).addmm_(d_r, W_reset).addmm_(d_o, W_open)
            if literal:
                back.sub_(d_u)
            else:
                dh = dh - d_u
            if d_mean is not None:
                back.addcmul_(d_mean, dt[k])
            dh = dh + torch.mul(turn.weights, back.unsqueeze(-1), out=product).sum(1)
        self.add("f_reset", segment.s, d_gates[:, 0])
        self.add("f_open", segment.s, d_gates[:, 1])
        if "f_new" in self.total:
            self.add("f_new", segment.s * segment.gates[:, 0], d_new)
        if d_s is None or plan.detach:
            return dh, None
        return dh, torch.bmm(d_s.permute(1, 2, 0), segment.h[:-1].transpose(0, 1))

    def turn(self, turn: Turn, da: Tensor) -> tuple[Tensor, Tensor]:
        """∂a before its step, and ∂ of the mean that it read."""
        H, B, back = self.scan.H, len(da), self.back
        assert back.g_gates is not None
        assert back.g_new is not None
        assert back.g_gates_in is not None
        assert back.g_new_in is not None
        r = turn.gates[..., :H]
        d_gates = torch.empty_like(turn.gates)
        d_kept = da * self.scan.stays(turn)
        d_u = da - d_kept
        torch.mul(d_kept * turn.tau.unsqueeze(-1), turn.u - turn.a, out=d_gates[..., H:])
        da = d_kept
        tanh_backward(d_u, turn.u, grad_input=d_u)
        d_read = torch.mm(d_u.view(-1, H), back.g_new).view(B, H, H)
        torch.mul(d_read, turn.a, out=d_gates[..., :H])
        da.addcmul_(d_read, r)
        sigmoid_backward(d_gates, turn.gates, grad_input=d_gates)
        da.view(-1, H).addmm_(d_gates.view(-1, 2 * H), back.g_gates)
        self.add("g_gates", turn.a, d_gates)
        if "g_new" in self.total:
            self.add("g_new", r * turn.a, d_u)
        gates_in, new_in = d_gates.sum(1), d_u.sum(1)
        self.add("g_gates_in", turn.mean, gates_in)
        self.add("g_new_in", turn.mean, new_in)
        return da, torch.addmm(gates_in @ back.g_gates_in, new_in, back.g_new_in)

    def halt(self, row: int, dh: Tensor) -> None:
        """Jumps, then reads of a row, in place."""
        scan = self.scan
        j = scan.ordinal[row]
        if j >= 0:
            who = scan.who[j]
            dh.index_copy_(0, who, self.jump(j, dh.index_select(0, who)))
        reads = scan.plan.schedule.reads
        lo, hi = reads.offsets[row], reads.offsets[row + 1]
        if hi > lo:
            dh.index_add_(0, reads.series[lo:hi], self.d_reads[lo:hi])

    def jump(self, j: int, d: Tensor) -> Tensor:
        """∂h before a jump from that after it."""
        scan, back = self.scan, self.back
        r, z, n, own = (column[j] for column in scan.cell.columns)
        d_r, d_z, d_n, d_own = (column[j] for column in self.cell.columns)
        features, h = (column[j] for column in scan.seen.columns)
        d.add_(self.d_after[j])
        dh = d * z
        tanh_backward(d - dh, n, grad_input=d_n)
        torch.mul(d_n, own, out=d_r)
        torch.mul(d, h - n, out=d_z)
        sigmoid_backward(self.gates[j], scan.gates[j], grad_input=self.gates[j])
        torch.mul(d_n, r, out=d_own)
        torch.mm(self.cell.rows[j], back.cell, out=self.seen.rows[j])
        d_features, d_before = (column[j] for column in self.seen.columns)
        v = threshold_backward(d_features, features, 0, grad_input=self.features.rows[j])
        torch.addmm(self.d_told[j], v, back.features[:, scan.D:], out=self.told.rows[j])
        d_p, d_error = (column[j] for column in self.told.columns)
        d_half, d_both, d_left = (column[j] for column in self.out.columns)
        torch.mul(d_error, scan.said.columns[3][j], out=d_half)
        torch.mul(d_error, scan.inverse.rows[j], out=d_left)
        d_both.copy_(d_p)
        y = torch.mm(self.out.rows[j], back.out)
        if scan.dropped is not None:
            y.mul_(scan.dropped[j])
        y = threshold_backward(y, scan.hidden.rows[j], 0, grad_input=self.hidden.rows[j])
        return dh.add_(d_before).addmm_(y, back.hidden)

    def jumps(self) -> None:
        """The weights of the jumps, all observations at once."""
        scan = self.scan
        P = scan.w.features.shape[1]
        told = torch.cat((scan.plan.x, scan.said.data[:, scan.D:]), 1) if "features" in self.total else scan.plan.x
        for name, inputs, d in (("hidden", scan.seen.data[:, P:], self.hidden), ("out", scan.hidden.data, self.out),
                                ("features", told, self.features), ("cell", scan.seen.data, self.cell)):
            self.add(name, inputs, d.data)
            if f"{name}_bias" in self.total:
                self.total[f"{name}_bias"] += d.data.sum(0)

    def add(self, name: str, inputs: Tensor, d: Tensor) -> None:
        """inputsᵀ d to the gradient of a weight, where it is wanted."""
        if name in self.total:
            self.total[name].addmm_(inputs.reshape(-1, inputs.shape[-1]).t(), d.reshape(-1, d.shape[-1]))
