"""Take the README's moving picture of the player from a real run: python docs/make_player_picture.py RUNS RUN_ID"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from acenode.bench.browser import PLAYER, browser, server, show_player

FRAMES, WIDTH = 30, 900


def main(root: Path, run: str) -> None:
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport={"width": 1400, "height": 900})
        show_player(page, served, f"mnist?runs={run}")
        page.wait_for_timeout(3000)
        animate(page, page.evaluate_handle(f"() => {PLAYER}").as_element(), Path(__file__).parent / "player.webp")


def animate(page: Any, player: Any, path: Path) -> None:
    """Step t from 0 to 1, wait at the end, and save the frames as an animation."""
    frames = []
    for i in range(FRAMES):
        page.evaluate(f"() => {PLAYER}.__player.seek({{t: {i / (FRAMES - 1)}}})")
        page.wait_for_timeout(150)
        image = Image.open(io.BytesIO(player.screenshot())).convert("RGB")
        frames.append(image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS))
    frames[0].save(path, save_all=True, append_images=frames[1:] + [frames[-1]] * 6, duration=110, loop=0, quality=55,
                   method=4)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
