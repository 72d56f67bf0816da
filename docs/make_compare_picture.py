"""Take the picture of the Compare page from the recorded runs: python docs/make_compare_picture.py"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from acenode.bench.browser import CURVES, browser, server

SIZE = {"width": 1400, "height": 1420}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        page = chrome.new_page(viewport=SIZE)
        page.set_default_timeout(120_000)
        page.goto(f"{served.url}/compare")
        page.wait_for_function(f"() => {CURVES}?.querySelectorAll('.js-plotly-plot').length > 1")
        page.wait_for_timeout(4000)
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        image.save(Path(__file__).parent / "compare.webp", quality=72, method=6)


if __name__ == "__main__":
    main()
