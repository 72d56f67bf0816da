"""What the variables of the data sets mean, and their units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variable:
    """The meaning of a variable and its unit; the unit is empty if the variable has none."""

    title: str
    unit: str = ""


# The units are those of the challenge: https://physionet.org/content/challenge-2012/1.0.0/
PHYSIONET = {
    "Age": Variable("age", "years"), "Gender": Variable("gender", "0 female, 1 male"),
    "Height": Variable("height", "cm"), "ICUType": Variable("type of unit", "1 to 4"),
    "Weight": Variable("weight", "kg"), "Albumin": Variable("albumin", "g/dL"),
    "ALP": Variable("alkaline phosphatase", "IU/L"), "ALT": Variable("alanine transaminase", "IU/L"),
    "AST": Variable("aspartate transaminase", "IU/L"), "Bilirubin": Variable("bilirubin", "mg/dL"),
    "BUN": Variable("blood urea nitrogen", "mg/dL"), "Cholesterol": Variable("cholesterol", "mg/dL"),
    "Creatinine": Variable("creatinine", "mg/dL"), "DiasABP": Variable("diastolic arterial pressure", "mmHg"),
    "FiO2": Variable("inspired oxygen", "fraction"), "GCS": Variable("Glasgow coma score", "3 to 15"),
    "Glucose": Variable("glucose", "mg/dL"), "HCO3": Variable("bicarbonate", "mmol/L"),
    "HCT": Variable("haematocrit", "%"), "HR": Variable("heart rate", "beats a minute"),
    "K": Variable("potassium", "mEq/L"), "Lactate": Variable("lactate", "mmol/L"),
    "Mg": Variable("magnesium", "mmol/L"), "MAP": Variable("mean arterial pressure", "mmHg"),
    "MechVent": Variable("mechanical ventilation", "1 if on"), "Na": Variable("sodium", "mEq/L"),
    "NIDiasABP": Variable("diastolic pressure, cuff", "mmHg"), "NIMAP": Variable("mean pressure, cuff", "mmHg"),
    "NISysABP": Variable("systolic pressure, cuff", "mmHg"), "PaCO2": Variable("arterial carbon dioxide", "mmHg"),
    "PaO2": Variable("arterial oxygen", "mmHg"), "pH": Variable("arterial pH"),
    "Platelets": Variable("platelets", "cells/nL"), "RespRate": Variable("breathing rate", "breaths a minute"),
    "SaO2": Variable("oxygen saturation", "%"), "SysABP": Variable("systolic arterial pressure", "mmHg"),
    "Temp": Variable("temperature", "°C"), "TroponinI": Variable("troponin I", "µg/L"),
    "TroponinT": Variable("troponin T", "µg/L"), "Urine": Variable("urine", "mL"),
    "WBC": Variable("white blood cells", "cells/nL"),
}
STANDARDISED = "standard deviations"  # the published USHCN file and the simulated climate have no other unit
USHCN = {
    "PRCP": Variable("rain", STANDARDISED), "SNOW": Variable("snowfall", STANDARDISED),
    "SNWD": Variable("snow depth", STANDARDISED), "TMAX": Variable("highest temperature", STANDARDISED),
    "TMIN": Variable("lowest temperature", STANDARDISED),
}
ACTIVITY = {f"{tag} {axis}": Variable(f"position of the {tag} tag", "m")
            for tag in ("left ankle", "right ankle", "chest", "belt") for axis in "xyz"}
VARIABLES: dict[str, Variable] = {**PHYSIONET, **USHCN, **ACTIVITY}

SUBJECTS = {"physionet": "patient", "physionet-vitals": "patient", "ushcn": "station", "activity": "window"}


def title(name: str) -> str:
    """Return a variable's name with its meaning if that is known: `HR · heart rate`."""
    known = VARIABLES.get(name)
    if known is None or name in ACTIVITY or name.lower() == known.title:  # the name says it
        return name
    return f"{name} · {known.title}"


def unit(name: str) -> str:
    """Return the unit of a variable's own values, empty if it is not known."""
    known = VARIABLES.get(name)
    return known.unit if known else ""


def subject_name(subject: str, id: str) -> str:
    """Name a patient, station or window: `patient 132539`. An id that starts with a word is a name already."""
    return id if not subject or id[:3].isalpha() else f"{subject} {id}"
