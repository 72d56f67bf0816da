"""Every data set that can be downloaded or prepared, by name."""

from acenode.data.activity import ACTIVITY
from acenode.data.data_source import DataSource
from acenode.data.images import IMAGE_SOURCES
from acenode.data.physionet import PHYSIONET
from acenode.data.ushcn import USHCN
from acenode.errors import UserError

DATA_SOURCES: dict[str, DataSource] = {
    **IMAGE_SOURCES, **{source.name: source for source in (PHYSIONET, ACTIVITY, USHCN)}}


def source_of(name: str) -> DataSource:
    """Return the data set of that name; the error lists the names there are."""
    if name not in DATA_SOURCES:
        raise UserError(f"there is no data set {name!r}: choose one of {', '.join(DATA_SOURCES)}")
    return DATA_SOURCES[name]
