"""The configuration of a run: one vocabulary of flat keys, read by the code as typed groups of settings."""

from acenode.config.run import FORMAT, Config, resolve
from acenode.config.seeds import read_seeds
from acenode.config.vocabulary import FIXED_STEP, KEYS, SETTINGS, Setting, check, parse

__all__ = ["FIXED_STEP", "FORMAT", "KEYS", "SETTINGS", "Config", "Setting", "check", "parse", "read_seeds", "resolve"]
