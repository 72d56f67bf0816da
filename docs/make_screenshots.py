"""README's pictures from real runs: python docs/make_screenshots.py RUNS_FOLDER docs"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from acenode.bench.browser import CURVES, PLAYER, browser, server, show_curves, show_player
from acenode.runs.store import RunStore

FRAMES, WIDTH = 30, 900  # of the animation


def finished(root: Path, method: str, **settings: Any) -> str:
    """The first finished run of that kind with seed 0."""
    for run in RunStore(root):
        config = run.config()
        same = all(getattr(config, k) == v for k, v in settings.items())
        if config.method == method and config.seed == 0 and same and run.result() is not None:
            return run.id
    raise SystemExit(f"no finished {method} run with {settings} in {root}")


def main(root: Path, out: Path) -> None:
    ace = finished(root, "ace", attention="evolving", schedule="alternating")
    fixed = finished(root, "ace", attention="fixed")
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport={"width": 1400, "height": 900})
        show_curves(page, served, f"mnist?runs={ace}", ace)
        page.wait_for_timeout(3000)
        page.screenshot(path=out / "curves.png")
        player = page.evaluate_handle(f"() => {PLAYER}").as_element()
        player.scroll_into_view_if_needed()
        page.wait_for_timeout(3000)
        animate(page, player, out / "player.webp")
        page.close()
        every = sorted(run.id for run in RunStore(root) if run.result() is not None)
        page = chrome.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{served.url}/compare?runs={','.join(every)}")
        page.wait_for_function(f"() => {CURVES}?.__curves.points('{ace}') > 0")
        page.wait_for_timeout(3000)
        page.screenshot(path=out / "compare.png")
        page.close()
        page = chrome.new_page(viewport={"width": 1400, "height": 1000}, color_scheme="dark")
        show_player(page, served, f"mnist?runs={ace},{fixed}&t=0.6&probe=3")
        page.wait_for_timeout(4000)
        page.screenshot(path=out / "player-dark.png")
    for name in ("curves", "compare", "player-dark"):
        Image.open(out / f"{name}.png").convert("RGB").save(out / f"{name}.png", optimize=True)


def animate(page: Any, player: Any, path: Path) -> None:
    """t from 0 to 1 and a rest at its end."""
    frames = []
    for i in range(FRAMES):
        page.evaluate(f"() => {PLAYER}.__player.seek({{t: {i / (FRAMES - 1)}}})")
        page.wait_for_timeout(150)
        image = Image.open(io.BytesIO(player.screenshot())).convert("RGB")
        frames.append(image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS))
    frames[0].save(path, save_all=True, append_images=frames[1:] + [frames[-1]] * 6, duration=110, loop=0, quality=55,
                   method=4)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
