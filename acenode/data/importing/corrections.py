"""Correct guessed columns by those that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acenode.data.importing.columns import Columns, find_column, guess_columns
from acenode.data.importing.table import TableHead
from acenode.data.importing.times import TimeForm
from acenode.errors import UserError

NONE = "none"  # instead of a column: there is no such column


def corrected_columns(head: TableHead, *, time: str | None = None, id: str | None = None, label: str | None = None,
                      variables: Sequence[str] = (), long: tuple[str, str] | None = None,
                      form: TimeForm | None = None) -> Columns:
    """Guess what columns mean, except for those that are given.

    Args:
        head: the beginning of the table.
        time, id, label: names of columns; `none` for id or label: the table has none.
        variables: columns of a wide table, or variables of a long one.
        long: the columns of variables' names and of values, of a long table.
        form: how times are written.
    """
    names = head.columns
    given_time = find_column(names, time) if time else None
    given_id, given_label = (find_column(names, name) if name and name != NONE else None for name in (id, label))
    pair = tuple(find_column(names, name) for name in long) if long else None
    guess = guess_columns(head)
    wide = pair is None and (not guess.is_long or (bool(variables) and _are_columns(names, variables)))
    if wide and guess.is_long:
        guess = replace(guess, variable=None, value=None)
    if pair:
        guess = replace(guess, variable=pair[0], value=pair[1], variables=())
    taken = {given_time, given_id, given_label, *(pair or ())} - {None}
    if wide and variables:
        chosen = tuple(find_column(names, name) for name in variables)
        taken |= set(chosen)
    else:
        chosen = tuple(variables) if not wide else tuple(c for c in guess.variables if c not in taken)
    if guess.variable in taken - set(pair or ()) or guess.value in taken - set(pair or ()):
        raise UserError("columns of a long table are chosen for something else: say which column has the names of the "
                        "variables and which the values (--long VARIABLE VALUE)")
    return Columns(
        time=given_time or (guess.time if guess.time not in taken else ""), variables=chosen,
        id=given_id or (None if id == NONE or guess.id in taken else guess.id),
        label=given_label or (None if label == NONE or guess.label in taken else guess.label),
        variable=guess.variable, value=guess.value, form=form)


def _are_columns(names: Sequence[str], wanted: Sequence[str]) -> bool:
    try:
        return all(find_column(names, name) for name in wanted)
    except UserError:
        return False
