"""Former names, until the forecasting models use the new ones."""

from acenode.models.gru import run_recurrence as run
from acenode.models.gru import states_at as held
from acenode.models.gru import states_before as before
from acenode.models.missing_data import MatrixDecay as FullDecay
from acenode.models.missing_data import MissingDataGRU as Recurrence
from acenode.models.missing_data import RecurrentInputs as Readings
from acenode.models.missing_data import last_observed as since

__all__ = ["FullDecay", "Readings", "Recurrence", "before", "held", "run", "since"]
