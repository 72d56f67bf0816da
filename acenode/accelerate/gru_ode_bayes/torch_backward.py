"""Backward pass of `torch_forward`: gradients of h(0), a(0) and of the weights that need one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from acenode.accelerate.gru_ode_bayes.packed import PackedWeights
from acenode.accelerate.gru_ode_bayes.torch_forward import AttentionStep, ForwardPass, Window
from acenode.data.gru_ode_bayes_pass import MIN_WINDOW
from acenode.device.torch_private import relu_gradient, sigmoid_gradient, tanh_gradient


class BackwardPass:
    """Gradients of one pass, from the last row of the schedule to the first."""

    def __init__(self, forward: ForwardPass, grads: tuple[Tensor, ...], needed: tuple[bool, ...]) -> None:
        self.forward, D, H = forward, forward.D, forward.H
        d_predicted, d_after, self.d_reads = grads
        w = forward.w
        self.attention = w.g_new_in is not None
        transposed: Any = (x if x is None or x.dim() == 1 else x.t().contiguous() for x in w)
        self.transposed = PackedWeights(*transposed)
        self.given = w._fields[:len(needed)]
        self.total = {name: torch.zeros_like(x) for name, x, wanted in zip(self.given, w, needed, strict=False)
                      if wanted and x is not None}
        P = w.features.shape[1]
        self.hidden, self.out = forward.table(w.hidden.shape[1]), forward.table(D, 2 * D, D)
        self.read_by_features = forward.table(2 * D, D)
        self.features, self.gru_input, self.cell = forward.table(P), forward.table(P, H), forward.table(H, H, H, H)
        self.gates = forward.split(self.cell.data[:, :2 * H])
        self.d_predicted = forward.split(torch.nn.functional.pad(d_predicted, (0, D)))
        self.d_after = forward.split(d_after)

    def run(self) -> list[Any]:
        """Return ∂h(0), ∂a(0) and ∂weights, None for weights that need no gradient."""
        forward = self.forward
        dh, da = torch.zeros_like(forward.end), None
        for lo, hi in reversed(forward.windows()):
            saved = forward.saved.pop()
            window = saved if isinstance(saved, Window) else forward.window(lo, hi, *saved, first=False)
            d_mean = None
            if da is not None and window.attention is not None:
                da, d_mean = self.attention_step(window.attention, da)
            dh, d_weights = self.rows(window, dh, d_mean)
            if d_weights is not None and window.attention is not None:  # through the softmax
                S = window.attention.weights
                d_weights.mul_(S)
                d_weights.addcmul_(S, d_weights.sum(-1, keepdim=True), value=-1)
                da = d_weights if da is None else da.add_(d_weights)
        self.read_and_observe(0, dh)
        self.jump_weights()
        if self.attention and da is None:
            da = dh.new_zeros(len(dh), forward.H, forward.H)
        return [dh, da, *(self.total.get(name) for name in self.given)]

    def rows(self, window: Window, dh: Tensor, d_mean: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return ∂h at the start of a window from that at its end, and ∂σ(a) unless a is a constant."""
        plan, step = self.forward.plan, window.attention
        dt = plan.schedule.dt[window.lo:window.hi].unbind(0)
        W_reset, W_open, W_new = self.transposed.f_reset, self.transposed.f_open, self.transposed.f_new
        attended_feedback = step is not None and not plan.own_feedback
        d_gates, d_new = torch.empty_like(window.gates), torch.empty_like(window.u)
        d_s = torch.empty_like(window.u) if step is not None else None
        product = torch.empty_like(step.a) if step is not None else None
        if d_mean is not None and step is not None:
            d_mean = d_mean / step.tau.clamp(min=MIN_WINDOW)
        rows = list(zip(window.h[:-1].unbind(0), window.s.unbind(0), window.u.unbind(0), window.gates.unbind(0),
                        window.gates[:, 0].unbind(0), window.gates[:, 1].unbind(0), d_new.unbind(0),
                        d_gates.unbind(0), d_gates[:, 0].unbind(0), d_gates[:, 1].unbind(0), strict=True))
        for k in range(len(rows) - 1, -1, -1):
            own, s, u, gate, r, o, d_row, d_gate, d_r, d_o = rows[k]
            self.read_and_observe(window.lo + k, dh)
            scaled = dh * dt[k]
            d_u = scaled * o
            torch.mul(scaled, u - (s if attended_feedback else own), out=d_o)
            d_read = tanh_gradient(d_u, u, out=d_row) @ W_new
            torch.mul(d_read, s, out=d_r)
            sigmoid_gradient(d_gate, gate, out=d_gate)
            if step is None or d_s is None:
                dh = (dh - d_u).addcmul_(d_read, r).addmm_(d_r, W_reset).addmm_(d_o, W_open)
                continue
            d_attended = torch.mul(d_read, r, out=d_s[k]).addmm_(d_r, W_reset).addmm_(d_o, W_open)
            if attended_feedback:
                d_attended.sub_(d_u)
            else:
                dh = dh - d_u
            if d_mean is not None:
                d_attended.addcmul_(d_mean, dt[k])
            dh = dh + torch.mul(step.weights, d_attended.unsqueeze(-1), out=product).sum(1)
        self.add("f_reset", window.s, d_gates[:, 0])
        self.add("f_open", window.s, d_gates[:, 1])
        if "f_new" in self.total:
            self.add("f_new", window.s * window.gates[:, 0], d_new)
        if d_s is None or plan.detach:
            return dh, None
        return dh, torch.bmm(d_s.permute(1, 2, 0), window.h[:-1].transpose(0, 1))

    def attention_step(self, step: AttentionStep, da: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂a before its step, and ∂ of the mean of s that the step read."""
        H, B, transposed = self.forward.H, len(da), self.transposed
        if step.drift is not None:
            return da, self.drift_step(step, step.drift, da)
        assert transposed.g_gates is not None
        assert transposed.g_new is not None
        assert transposed.g_gates_in is not None
        assert transposed.g_new_in is not None
        r = step.gates[..., :H]
        d_gates = torch.empty_like(step.gates)
        d_left = da * self.forward.decay(step)
        d_u = da - d_left
        torch.mul(d_left * step.tau.unsqueeze(-1), step.u - step.a, out=d_gates[..., H:])
        da = d_left
        tanh_gradient(d_u, step.u, out=d_u)
        d_read = torch.mm(d_u.view(-1, H), transposed.g_new).view(B, H, H)
        torch.mul(d_read, step.a, out=d_gates[..., :H])
        da.addcmul_(d_read, r)
        sigmoid_gradient(d_gates, step.gates, out=d_gates)
        da.view(-1, H).addmm_(d_gates.view(-1, 2 * H), transposed.g_gates)
        self.add("g_gates", step.a, d_gates)
        if "g_new" in self.total:
            self.add("g_new", r * step.a, d_u)
        gates_in, new_in = d_gates.sum(1), d_u.sum(1)
        self.add("g_gates_in", step.mean, gates_in)
        self.add("g_new_in", step.mean, new_in)
        return da, torch.addmm(gates_in @ transposed.g_gates_in, new_in, transposed.g_new_in)

    def drift_step(self, step: AttentionStep, v: Tensor, da: Tensor) -> Tensor:
        """Return ∂ of the mean of s if g gives the whole matrix. ∂a is the same before the step as after it."""
        H, transposed = self.forward.H, self.transposed
        assert transposed.g_gates_in is not None
        assert transposed.g_new_in is not None
        assert transposed.g_out is not None
        d_rate = (da * step.tau.unsqueeze(-1)).flatten(1)
        self.add("g_out", v, d_rate)
        if "g_out_bias" in self.total:
            self.total["g_out_bias"] += d_rate.sum(0)
        d_v, (r, o) = d_rate @ transposed.g_out, step.gates.chunk(2, 1)
        d_gates, d_u = torch.empty_like(step.gates), d_v * o
        d_mean = -d_u
        torch.mul(d_v, step.u - step.mean, out=d_gates[:, H:])
        d_u = tanh_gradient(d_u, step.u, out=torch.empty_like(d_u))
        d_read = d_u @ transposed.g_new_in
        torch.mul(d_read, step.mean, out=d_gates[:, :H])
        sigmoid_gradient(d_gates, step.gates, out=d_gates)
        self.add("g_gates_in", step.mean, d_gates)
        self.add("g_new_in", r * step.mean, d_u)
        return d_mean.addcmul_(d_read, r).addmm_(d_gates, transposed.g_gates_in)

    def read_and_observe(self, row: int, dh: Tensor) -> None:
        """Pass ∂h through the row's observations, then add the gradients of its read points, in place."""
        forward = self.forward
        j = forward.ordinal[row]
        if j >= 0:
            series = forward.series[j]
            dh.index_copy_(0, series, self.jump(j, dh.index_select(0, series)))
        reads = forward.plan.schedule.reads
        lo, hi = reads.offsets[row], reads.offsets[row + 1]
        if hi > lo:
            dh.index_add_(0, reads.series[lo:hi], self.d_reads[lo:hi])

    def jump(self, j: int, d: Tensor) -> Tensor:
        """Return ∂h before the observations of the j-th row that has any, from that after them."""
        forward, transposed = self.forward, self.transposed
        r, z, n, own = (column[j] for column in forward.cell.columns)
        d_r, d_z, d_n, d_own = (column[j] for column in self.cell.columns)
        features, h = (column[j] for column in forward.gru_input.columns)
        d.add_(self.d_after[j])
        dh = d * z
        tanh_gradient(d - dh, n, out=d_n)
        torch.mul(d_n, own, out=d_r)
        torch.mul(d, h - n, out=d_z)
        sigmoid_gradient(self.gates[j], forward.gates[j], out=self.gates[j])
        torch.mul(d_n, r, out=d_own)
        torch.mm(self.cell.rows[j], transposed.cell, out=self.gru_input.rows[j])
        d_features, d_before = (column[j] for column in self.gru_input.columns)
        v = relu_gradient(d_features, features, out=self.features.rows[j])
        torch.addmm(self.d_predicted[j], v, transposed.features[:, forward.D:], out=self.read_by_features.rows[j])
        d_p, d_error = (column[j] for column in self.read_by_features.columns)
        d_half, d_both, d_left = (column[j] for column in self.out.columns)
        torch.mul(d_error, forward.out.columns[3][j], out=d_half)
        torch.mul(d_error, forward.inverse.rows[j], out=d_left)
        d_both.copy_(d_p)
        y = torch.mm(self.out.rows[j], transposed.out)
        if forward.dropout is not None:
            y.mul_(forward.dropout[j])
        y = relu_gradient(y, forward.hidden.rows[j], out=self.hidden.rows[j])
        return dh.add_(d_before).addmm_(y, transposed.hidden)

    def jump_weights(self) -> None:
        """Add the gradients of p's and the update's weights, all observations at once."""
        forward = self.forward
        P = forward.w.features.shape[1]
        features_in = forward.plan.x
        if "features" in self.total:
            features_in = torch.cat((features_in, forward.out.data[:, forward.D:]), 1)
        for name, inputs, d in (("hidden", forward.gru_input.data[:, P:], self.hidden),
                                ("out", forward.hidden.data, self.out),
                                ("features", features_in, self.features), ("cell", forward.gru_input.data, self.cell)):
            self.add(name, inputs, d.data)
            if f"{name}_bias" in self.total:
                self.total[f"{name}_bias"] += d.data.sum(0)

    def add(self, name: str, inputs: Tensor, d: Tensor) -> None:
        """Add inputsᵀ d to the gradient of a weight, if it needs one."""
        if name in self.total:
            self.total[name].addmm_(inputs.reshape(-1, inputs.shape[-1]).t(), d.reshape(-1, d.shape[-1]))
