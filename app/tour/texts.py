"""The words of the tour, all in one place. A step has at most 90 words, and a symbol follows its plain name."""

from __future__ import annotations

from dataclasses import dataclass

PAPER = "https://doi.org/10.1145/3447548.3467419"
TITLE = "What is ACE-NODE?"
LINK = "What is ACE-NODE? A tour in five steps"


@dataclass(frozen=True)
class TourStep:
    """One step: its name in the list, its heading, its sentences, and where to read on."""

    name: str
    heading: str
    text: str  # `{subject}` in it is what the run's samples are, as their buttons say
    formula: str
    equation: str  # of the paper
    section: str  # of docs/concepts.md


STEPS = (
    TourStep("Points move", "A neural ODE moves points",
         "A layered network changes its state in steps. A neural ODE changes it continuously: a small network, the "
         "**rate of change (f)**, says how the **state (h)** moves at each place, and a solver follows it from "
         "**time (t)** 0 to 1.\n\nHere the inputs h(0) are two half moons that no straight line separates. The trained "
         "network moves every point along the arrows, until the classifier's straight line separates the colours. "
         "**Drag t, or press Play.**",
         "dh/dt = f(h, t)", "Equation 1", "A neural ODE moves points"),
    TourStep("No crossing", "Its paths cannot cross",
         "Two solutions of one ODE that meet are the same solution. So on a line, no point can overtake another.\n\n"
         "Both networks here were trained to swap two points. With a **single coordinate**, the best that training "
         "finds is to bring both to the middle. With **one more coordinate**, which starts at zero, the paths go "
         "around each other: an augmented neural ODE. ACE-NODE takes another way to make the state more expressive: "
         "attention. **Switch between the two and drag t.**",
         "h(0) → (h(0), 0)", "Proposition on crossing trajectories", "Trajectories cannot cross"),
    TourStep("Attention", "Attention re-weighs the state",
         "In ACE-NODE the rate of change does not read the state (h) itself, but an **attended state (h′)**. The "
         "**attention (a)** is a square table of scores; softmax turns each row into weights that add up to 100%. "
         "Coordinate i of h′ is the average of all coordinates of h with the weights of row i.\n\nThis is a recorded, "
         "trained run. **Choose a {subject}, point at a row, and drag t** to see which coordinates are mixed.",
         "h′ᵢ = Σⱼ softmax(a)ᵢⱼ hⱼ", "Equation 4", "Attention re-weighs h, and evolves too"),
    TourStep("It evolves", "Attention evolves too",
         "The attention is not computed once: it has an ODE of its own. It starts from the correlation of the first "
         "state (**how attention starts, q**), and a second network, the **rate of change of attention (g)**, moves it "
         "while f moves the state. Both read h′, so each steers the other.\n\n**Drag t** and watch the map of weights "
         "change. **Drag the epoch to 0:** before training, the weights hardly move; training g makes them evolve.",
         "dh/dt = f(h′, t)\nda/dt = g(h′, t)\na(0) = q(h(0))", "Equation 3", "Attention re-weighs h, and evolves too"),
    TourStep("Fixed or off", "What changes when it is fixed or off",
         "Attention can be **evolving**, as in ACE-NODE; **fixed**, computed anew from the state at every time; or "
         "**none**, which is the method that ACE-NODE extends. **Choose one below and see how the paths change.**\n\n"
         "Different paths do not mean better predictions. One run depends on its random seed, so the table has the "
         "mean over all recorded runs, and says what can be told from them.",
         "attention = evolving | fixed | none", "Table of ablations", "Ablations"),
)

SWAPS = {"line": "Single coordinate", "augmented": "One more coordinate"}
ABOUT = {"physionet": "The patients are in intensive care; the model summarises each patient in 20 numbers, the "
                      "coordinates of h.",
         "ushcn": "The stations are weather stations; the state of each station has 50 coordinates."}
NO_RUN = ("This step shows a recorded run of ACE, and there is none here. Set ACENODE_RECORDED to the folder of "
          "recorded runs (runs/paper in the repository), and restart the app.")
KINDS = {"evolving": "Evolving", "fixed": "Fixed", "none": "None"}
