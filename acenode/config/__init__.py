"""The configuration of a run: one vocabulary of flat keys, read by the code as typed groups of settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from acenode.config.groups import ADDED, ARGUMENTS, DEPENDS, FIXED_STEP, KEYS, SETTINGS, Setting, Settings
from acenode.config.vocabulary import check, choosable, excluded, known, parse, read_seeds
from acenode.errors import UserError

__all__ = ["FIXED_STEP", "FORMAT", "KEYS", "SETTINGS", "Config", "Setting", "check", "parse", "read_seeds", "resolve"]

FORMAT = 1  # of config.json; a newer one is refused

Group = TypeVar("Group", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run's arguments and the settings that have a meaning for its method.

    `part(Group)` reads settings as a dataclass without missing values; `get(key)` reads one key, None where it has no
    meaning (a ResNet has no solver).
    """

    experiment: str
    method: str
    data: str = "sample"
    seed: int = 0
    device: str = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ARGUMENTS:
            object.__setattr__(self, name, check(name, getattr(self, name)))
        settings = {k: check(k, self.settings[k]) for k in KEYS if k in self.settings}
        object.__setattr__(self, "settings", settings)

    def __hash__(self) -> int:
        return hash(tuple(self.to_dict().items()))

    def get(self, key: str) -> Any:
        return getattr(self, key) if key in ARGUMENTS else self.settings.get(key)

    def part(self, group: type[Group]) -> Group:
        """Read one group of settings; raise an error that names a setting which is missing."""
        values = {}
        for f in fields(group):  # type: ignore[arg-type]
            if f.name in self.settings:
                values[f.name] = self.settings[f.name]
            elif f.name in ADDED:
                values[f.name] = ADDED[f.name]
            elif f.default is MISSING or not excluded(f.name, self.to_dict()):
                raise UserError(f"the configuration of {self.method} in {self.experiment} lacks {f.name}")
        return group(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the flat keys of config.json: the arguments, and the settings that have a meaning."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in ARGUMENTS}
        return {"format": FORMAT, **values, **self.settings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read the flat keys of config.json; an unknown key is an error."""
        values = dict(values)
        version = values.pop("format", FORMAT)
        if not isinstance(version, int) or version > FORMAT:
            raise UserError(f"this run was written by a newer version (format {version}, this one reads {FORMAT}): "
                            "update acenode")
        for key in values:
            known(key)
        missing = {"experiment", "method"} - values.keys()
        if missing:
            raise UserError(f"the configuration lacks {', '.join(sorted(missing))}")
        arguments = {k: v for k, v in values.items() if k in ARGUMENTS}
        return cls(**arguments, settings={k: v for k, v in values.items() if k not in ARGUMENTS and v is not None})


def resolve(experiment: str, method: str, *, uses: frozenset[str], defaults: Mapping[str, Any],
            given: Mapping[str, Any]) -> Config:
    """Add the defaults to the given settings and drop those that do not apply.

    Raises:
        UserError: if a given setting does not apply here, or if one that applies has no default.
    """
    for key, value in given.items():
        check(known(key, uses, f"{method} in {experiment}"), value)
        if key not in ARGUMENTS:
            choosable(key)
        if key in SETTINGS and key not in uses:
            raise UserError(f"{key} does not apply to {method} in {experiment}: leave it out or change the method")
    values = {k: v for k, v in defaults.items() if k in uses} | dict(given)
    dropped = set()
    for key, (other, _) in DEPENDS.items():  # in order: a dropped setting drops those that depend on it
        if key in uses and (other in uses or other in ARGUMENTS) and excluded(key, values):
            if key in given:
                raise UserError(f"{key} does not apply to {other}={values.get(other, 'none')}: leave it out")
            values.pop(key, None)
            dropped.add(key)
    missing = [key for key in KEYS if key in uses and key not in values and key not in dropped]
    if missing:
        raise UserError(f"{experiment} has no default for {', '.join(missing)} with method {method}")
    arguments = {k: v for k, v in values.items() if k in ARGUMENTS}
    return Config(experiment=experiment, method=method, **arguments,
                  settings={k: v for k, v in values.items() if k not in ARGUMENTS})
