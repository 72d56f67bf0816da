"""The page Playground: NODE, augmented NODE and ACE-NODE train side by side while one watches; a symbol in its words
follows its plain name."""

from __future__ import annotations

from typing import Any

import streamlit as st

from . import components, navigation

INTRO = ("Three tiny networks learn the same problem side by side, on this computer, while you watch: a **neural ODE** "
         "(NODE), an **augmented NODE**, which has one more coordinate, and **ACE-NODE**, whose attention has an ODE "
         "of its own. They start from the same seed and have the same settings.")

PROBLEMS = (
    {"name": "swap", "attention": "elementwise", "title": "Two points swap places",
     "text": "Two points on a line have to arrive where the other one started (rings). At each place and time a NODE "
             "has one arrow, so two paths that meet stay together: on a line no point overtakes another, and the "
             "best that training finds is the middle. The others have two arrows at a place, one for each point."},
    {"name": "zero", "attention": "elementwise", "title": "Swap across zero",
     "text": "The same with points at −1 and 1, and a limit of attention: it multiplies h, so at h = 0 both points "
             "find the same arrow, whatever their attention is. They would have to pass 0 at different times, which "
             "training seldom finds: expect ACE-NODE to stay in the middle like the NODE. An appended coordinate does "
             "not depend on where zero is."},
    {"name": "circles", "attention": "pairwise", "title": "A circle in a ring",
     "text": "The inner circle has to end left of the dashed line, the outer one right of it. A NODE deforms the plane "
             "without tearing it, so the inner circle stays inside: it can only squeeze out between the drawn points, "
             "along a field that is ever harder to solve. One more coordinate lifts one circle off the plane; "
             "attention lets the two circles find different fields at the same place."},
    {"name": "spirals", "attention": "pairwise", "title": "Two spirals",
     "text": "Two spirals have to be unwound to the two sides of the dashed line. Nothing has to cross, so a NODE can "
             "do it too: compare how many steps each network needs and how often its solver evaluates f."},
    {"name": "drawn", "attention": "elementwise", "title": "Draw your own",
     "text": "Draw paths with the mouse or a finger, or choose an example: each point has to follow its path from the "
             "dot to the ring, in one unit of time and at constant speed. The networks learn a field that does this. "
             "Try two paths that cross half-way, or two that start close together and part."},
)
NETWORKS = (
    {"name": "node", "title": "NODE", "formula": "dh/dt = f(h, t)",
     "one": "The state is a line: there is no way around.",
     "two": "The state is this plane and nothing else."},
    {"name": "augmented", "title": "Augmented NODE", "formula": "dh/dt = f(h, t), h(0) = (x, 0)",
     "one": "The state is a plane: paths cross in h₁ by going around each other in h₂.",
     "two": "The state has a third coordinate (h₃), which starts at 0."},
    {"name": "ace", "title": "ACE-NODE", "formula": "dh/dt = f(h′, t), da/dt = g(h′, t)",
     "one": "f reads h′, not h: with different attention, two points find different fields at the same place.",
     "two": "f reads h′, not h: a point's field depends on its attention (a), which evolves with it."},
)
SLIDERS: dict[str, dict[str, Any]] = {
    "learning_rate": {"title": "Learning rate", "scale": "log"},
    "tolerance": {"title": "Solver tolerance", "scale": "log"},
    "penalty_weight": {"title": "Penalty on attention (λ)", "scale": "log0", "least": 1e-6},
    "hidden": {"title": "Hidden units (starts again)", "scale": "whole"},
    "seed": {"title": "Seed (starts again)", "scale": "whole", "high": 20},
}
ATTENTIONS = (
    {"name": "elementwise", "title": "Elementwise (Eq. 5)"},
    {"name": "pairwise", "title": "Pairwise (Eq. 4)"},
)
EXAMPLES = (  # drawn paths to start from, for the keyboard too
    {"title": "Cross half-way", "strokes": [[[-0.5, -0.7], [1.5, 1.3]], [[-0.5, 1.3], [1.5, -0.7]]]},
    {"title": "Part", "strokes": [[[-1.2, 0.05], [-0.2, 0.1], [1.1, 1.1]],
                                  [[-1.2, -0.05], [-0.2, -0.1], [1.1, -1.1]]]},
    {"title": "Swap", "strokes": [[[0.3, 0.8], [1.3, 0.8]], [[1.3, 0.8], [0.3, 0.8]]]},
    {"title": "Whirl", "strokes": [[[1, 0], [0.7, 0.7], [0, 1], [-0.7, 0.7], [-1, 0]],
                                   [[-1, 0], [-0.7, -0.7], [0, -1], [0.7, -0.7], [1, 0]],
                                   [[0, 0.4], [-0.3, 0.3], [-0.4, 0], [-0.3, -0.3], [0, -0.4]]]},
)
HOW = """
- **First picture.** With two points: their state h over time, with the arrows of dh/dt. In the plane: the points at
  time t with their paths since t = 0, and the field at time t. Grey arrows: all points find the same field. Blue and
  orange arrows: the field as the ringed blue and the ringed orange point find it, each with its own appended
  coordinate or attention at that time. **Press Play t, or drag t,** to see it deform as a(t) evolves.
- **Second picture.** What a state has besides its visible coordinates: the appended coordinate, or the weight of
  attention, against h. A NODE has nothing else.
- **Third picture.** What f reads (h′) against the state (h). Without attention they are equal, on the dashed diagonal.
  In the plane, filled dots are the first coordinate and hollow ones the second.
- **Loss.** On the points themselves, which are all there are: the playground shows what a network can represent, not
  how well it generalises. Each step trains ACE-NODE by Algorithm 1: f and q first, then g with the penalty λ‖θ_g‖.
- **Settings act at once.** Learning rate, tolerance and λ apply from the next step on; another seed or number of hidden
  units starts again. **Rewind** starts again from the same seed, and the same steps give the same numbers.
- **Training** runs in a thread of the app. It stops some seconds after you leave the page, and it gives way to runs.
"""


def show() -> None:
    """Show the page."""
    st.title("Playground")
    st.markdown(INTRO)
    components.show("playground", "playground", texts())
    st.header("What is shown")
    st.markdown(HOW)
    st.page_link(navigation.page("tour"), label=navigation.TOUR, icon=":material/school:")


def texts() -> dict[str, Any]:
    """Return the titles and ranges that the component shows."""
    from acenode.playground.settings import RANGES

    sliders = [{"low": RANGES[key].low, "high": RANGES[key].high, "key": key, **about}
               for key, about in SLIDERS.items()]
    return {"problems": PROBLEMS, "networks": NETWORKS, "sliders": sliders, "attentions": ATTENTIONS,
            "examples": EXAMPLES}
