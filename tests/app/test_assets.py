"""JavaScript that needs no page, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acenode_app import components


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Return a function that runs a script beside all modules of the app and returns what it prints, from JSON."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for folder in components.FOLDERS:
        for file in folder.glob("*.js"):
            shutil.copy(file, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def ran(script: str) -> Any:
        (tmp_path / "script.js").write_text(script)
        done = subprocess.run(["node", "script.js"], cwd=tmp_path, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return ran


def test_polling_never_asks_twice_at_once_and_goes_on_after_an_error(run: Any) -> None:
    found = run("""import { poll } from "./poll.js";
        globalThis.document = Object.assign(new EventTarget(), { hidden: false });
        const wait = (ms) => new Promise((done) => setTimeout(done, ms));
        let calls = 0, at_once = 0, most = 0;
        const polling = poll(async () => {
          calls += 1;
          most = Math.max(most, ++at_once);
          await wait(5);
          at_once -= 1;
          if (calls === 2) throw new Error("the server restarts");
          return 1;
        }, 10);
        polling.now();
        polling.now();
        polling.later(0);
        await wait(120);
        polling.end();
        const before = calls;
        await wait(40);
        console.log(JSON.stringify([before >= 4, most, calls - before]));""")
    assert found == [True, 1, 0]


def test_a_question_reports_changed_states_once(run: Any) -> None:
    found = run("""import { follow } from "./poll.js";
        globalThis.document = Object.assign(new EventTarget(), { hidden: false, baseURI: "http://localhost/" });
        const asked = [], drawn = [], sent = [], answers = ["a", "a", "b"];
        globalThis.fetch = async (address) => {
          asked.push(address);
          return { ok: true, json: async () => ({ states: answers[Math.min(drawn.length, 2)], busy: true }) };
        };
        const following = follow("search", { name: "x/y", base: "lab/" }, (view) => drawn.push(view.states),
          (event, value) => sent.push(value), () => "?since=1");
        for (let n = 0; n < 20; n++) {
          following.update({ name: "x/y", base: "lab/" });
          await new Promise((done) => setTimeout(done, 5));
        }
        following.end();
        console.log(JSON.stringify([asked[0], drawn.slice(0, 3), sent]));""")
    assert found == ["http://localhost/lab/search/x%2Fy?since=1", ["a", "a", "b"], ["b"]]


@pytest.mark.parametrize(("measure", "sentence"), [
    ({"name": "focus", "reference": 20, "mixed": "coordinates"},
     "Attention mixes 18.3 of 20 coordinates into one at the start, and 1.4 at 48 hours. Each seed learns "
     "coordinates and attention of its own."),
    ({"name": "focus", "reference": 7, "mixed": "variables"},
     "Attention mixes 18.3 of 7 variables into one at the start, and 1.4 at 48 hours."),
    ({"name": "passed"}, "1830.0% of the state passes at the start, and 140.0% at 48 hours."),
    ({"name": "distance"}, "At 48 hours, attention has moved 1.4 times its size.")])
def test_the_player_says_how_attention_begins_and_ends(measure: dict[str, Any], sentence: str, run: Any) -> None:
    """For the second of two samples, over three times."""
    found = run(f"""import {{ MEASURE }} from "./player_curves.js";
        const data = [9, 18.3, 9, 5, 9, 1.4].flatMap((mean) => [mean, 0, 0]);
        const meta = {{ measure: {json.dumps(measure)}, t: [0, 0.5, 1] }};
        const arrays = {{ measure: {{ data, shape: [3, 2, 3] }} }};
        const run = {{ meta, timeText: (t) => `${{48 * t}} hours` }};
        console.log(JSON.stringify(MEASURE.over({{ run, block: {{ arrays }} }}, 1)));""")
    assert found == sentence


CANVAS = """const written = [], none = () => {};
    const g = { save: none, restore: none, translate: none, rotate: none, beginPath: none, moveTo: none, lineTo: none,
      stroke: none, fillText: (words) => written.push(words) };
"""


def test_all_names_of_a_small_map_are_written(run: Any) -> None:
    found = run(CANVAS + """import { nameTicks, shortened, turned } from "./player_draw.js";
        const box = { x: 80, y: 8, w: 150, h: 150 }, theme = { ink: "#000" };
        const four = ["ozone", "sun", "wind", "temperature"], column = box.w / four.length;
        const twelve = Array.from({ length: 12 }, (_, n) => `oscillator ${n + 1}`);
        nameTicks(g, box, four, true, turned(four, column), theme);
        nameTicks(g, box, four, false, false, theme);
        nameTicks(g, box, twelve, true, true, theme);
        console.log(JSON.stringify([written.slice(0, 4), written.slice(4, 8), turned(four, column),
          turned(["x1", "x2"], column), shortened("mean temperature of the soil", 60, 12), written.length]));""")
    four = ["ozone", "sun", "wind", "temperature"]
    assert found == [four, four, True, False, "mean…oil", 20]


def test_the_picture_of_losses_fits_its_page(run: Any) -> None:
    """The axis reaches the smallest loss, and the legend wraps on a narrow page."""
    found = run("""import { legendPlaces, lossRange, powerOfTen } from "./playground_pictures.js";
        const titles = ["NODE", "Augmented NODE", "ACE-NODE"];
        const rows = (w) => legendPlaces(titles, w).map(({ row }) => row);
        console.log(JSON.stringify([[[0.5, 3e-8], [0.9], [250, 0.01], [1, 0], [1, 1e-30]].map(lossRange), rows(900),
          rows(270), rows(40), legendPlaces(titles, 270)[2].x, [1, 0, -3, -5, 6].map(powerOfTen)]));""")
    assert found == [[[-8, 0], [-1, 0], [-2, 3], [-1, 0], [-12, 0]], [0, 0, 0], [0, 0, 1], [0, 1, 2], 0,
                     ["10", "1", "0.001", "1e−5", "1e6"]]
