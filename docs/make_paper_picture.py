"""Take the picture of the Paper page from the recorded runs: python docs/make_paper_picture.py"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from acenode.bench.browser import browser, server

SIZE = {"width": 1400, "height": 1180}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        page = chrome.new_page(viewport=SIZE)
        page.goto(f"{served.url}/paper")
        page.locator(".js-plotly-plot").first.wait_for(timeout=120_000)
        page.wait_for_timeout(2000)
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        image.save(Path(__file__).parent / "paper.webp", quality=72, method=6)


if __name__ == "__main__":
    main()
