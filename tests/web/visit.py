"""A page in the browser that remembers what went wrong in it."""

from __future__ import annotations

from playwright.sync_api import Page

WAIT = 20_000  # ms
DRAWN = "() => [...document.querySelectorAll('[data-figures]')].every(group => group.dataset.state === 'drawn')"


class Visit:
    """A page, and what it wrote to the console as an error."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def go(self, address: str) -> Page:
        """Load a page and wait until its figures are drawn."""
        self.page.goto(address)
        self.page.wait_for_function(DRAWN, timeout=WAIT)
        return self.page
