"""Former name of `acenode.models.gru.MaskedGRU`, until the forecasting models use the new one."""

from acenode.models.gru import MaskedGRU as GRU  # noqa: N814

__all__ = ["GRU"]
