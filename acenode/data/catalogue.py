"""Every data set that can be got, by name."""

from acenode.data.activity import ACTIVITY
from acenode.data.base import DataSource
from acenode.data.physionet import PHYSIONET
from acenode.data.sources import SOURCES
from acenode.data.ushcn import USHCN
from acenode.errors import UserError

CATALOGUE: dict[str, DataSource] = {**SOURCES, **{source.name: source for source in (PHYSIONET, ACTIVITY, USHCN)}}


def source_of(name: str) -> DataSource:
    """The data set of that name, or words that say which there are."""
    if name not in CATALOGUE:
        raise UserError(f"there is no data set {name!r}: choose one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
