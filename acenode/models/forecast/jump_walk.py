"""Integrate the model row by row with plain autograd; the fused passes are tested against this loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from acenode.data.schedule import StepSchedule
from acenode.data.sporadic import NoiseSource
from acenode.models.forecast.jump_attention import Moving

if TYPE_CHECKING:
    from acenode.models.forecast.gru_ode_bayes import GRUODEBayes


@dataclass(frozen=True)
class Walked:
    """What was met on the way."""

    said: Tensor  # (N, 2D) before the jumps
    after: Tensor  # (N, H) after them
    reads: Tensor  # (R, H)
    attention: Tensor | None  # (R, H, H), where asked for


def walk(model: GRUODEBayes, schedule: StepSchedule, h: Tensor, a: Tensor | None, x: Tensor, m: Tensor,
         kept: Tensor | None, horizon: float, *, draws: NoiseSource | None = None, detach: bool = False,
         look: bool = False) -> Walked:
    """From h(0), a(0) to the end; `look` keeps a at the reads."""
    moving = Moving(model.attention, a, horizon, detach) if model.attention is not None else None
    said, after, reads, attention = [h.new_zeros(0, 2 * x.shape[1])], [h[:0]], [h[:0]], list[Tensor]()
    for i, dt in enumerate(schedule.dt):
        if i > 0:
            given = None
            if model.f.given is not None:
                given = torch.cat(model.p(h, model.kept(len(h), draws)), -1)
            h = moving.step(model.f, h, given, dt) if moving is not None else h + dt * model.f(h, given)
            if moving is not None:
                moving.settle(h)
        lo, hi = schedule.reads.offsets[i:i + 2]
        if hi > lo:
            who = schedule.reads.series[lo:hi]
            reads.append(h[who])
            if moving is not None and look:
                attention.append(moving.now(h)[who])
        lo, hi = schedule.observations.offsets[i:i + 2]
        if hi > lo:
            who, before = schedule.observations.series[lo:hi], h[schedule.observations.series[lo:hi]]
            mean, logvar = model.p(before, None if kept is None else kept[lo:hi])
            said.append(torch.cat((mean, logvar), 1))
            after.append(model.jump(before, mean, logvar, x[lo:hi], m[lo:hi]))
            h = h.index_copy(0, who, after[-1])
            if moving is not None and (model.training or moving.of.at_jump != "recompute"):
                moving.jumped(h, who)
    return Walked(torch.cat(said), torch.cat(after), torch.cat(reads), torch.cat(attention) if attention else None)
