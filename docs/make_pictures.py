"""Take the documentation's pictures of the app: python docs/make_pictures.py paper|compare, or player RUNS RUN_ID

Paper and Compare show the recorded runs; the moving picture of the player is of a run of your own on the digits.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from acenode.bench.browser import CURVES, PLAYER, browser, server, show_player

HERE = Path(__file__).parent
FRAMES, WIDTH = 30, 900


def shot(target: Any) -> Image.Image:
    return Image.open(io.BytesIO(target.screenshot())).convert("RGB")


def page_picture(name: str) -> None:
    """Take the picture of a page that shows the recorded runs."""
    height, drawn = {"paper": (1180, "document.querySelector('.js-plotly-plot')"),
                     "compare": (1420, f"{CURVES}?.querySelectorAll('.js-plotly-plot').length > 1")}[name]
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        page = chrome.new_page(viewport={"width": 1400, "height": height})
        page.goto(f"{served.url}/{name}")
        page.wait_for_function(f"() => {drawn}", timeout=120_000)
        page.wait_for_timeout(4000)
        shot(page).save(HERE / f"{name}.webp", quality=72, method=6)


def player_picture(root: Path, run: str) -> None:
    """Step the player's t from 0 to 1, wait at the end, and save the frames as an animation."""
    frames = []
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport={"width": 1400, "height": 900})
        show_player(page, served, f"mnist?runs={run}")
        page.wait_for_timeout(3000)
        player = page.evaluate_handle(f"() => {PLAYER}").as_element()
        for i in range(FRAMES):
            page.evaluate(f"() => {PLAYER}.__player.seek({{t: {i / (FRAMES - 1)}}})")
            page.wait_for_timeout(150)
            image = shot(player)
            frames.append(image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS))
    frames[0].save(HERE / "player.webp", save_all=True, append_images=frames[1:] + [frames[-1]] * 6, duration=110,
                   loop=0, quality=55, method=4)


if __name__ == "__main__":
    player_picture(Path(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "player" else page_picture(sys.argv[1])
